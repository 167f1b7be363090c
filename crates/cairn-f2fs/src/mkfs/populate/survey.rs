//! [`Survey`]: what the nodes of a tree need, before any place is decided.
//!
//! Every node is checked here: what passes can be written.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use cairn_check::quota::{Counted, OwnerKind};
use cairn_vfs::FileKind;
use cairn_vfs::new_tree::{
    Kind, Named, Node, ROOT, Source, TreeError, check_ranges, names, segments,
};

use super::super::identity::Identity;
use super::super::quota::contents;
use super::attributes::attributes;
use super::directory::{Entries, Placement};
use super::nodes::{Runs, counts};
use super::quota::WithQuota;
use super::settings::Settings;
use crate::form::quota;
use crate::format::Log;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::xattr::{Xattr, area_size};

/// What one node needs.
#[derive(Clone, Copy)]
pub(super) struct Need {
    /// Its names.
    pub(super) named: Named,
    /// Blocks for contents.
    pub(super) blocks: u32,
    /// Direct nodes below its inode.
    pub(super) directs: u32,
    /// Indirect nodes below its inode.
    pub(super) indirects: u32,
    /// The log of its contents.
    pub(super) data_log: Log,
    /// It has an attribute node.
    pub(super) has_xattr_node: bool,
    /// It is a directory.
    pub(super) is_directory: bool,
}

impl Need {
    /// The log of its inode, and of the nodes below it that are not indirect ones.
    pub(super) fn node_log(&self) -> Log {
        if self.is_directory { Log::HotNode } else { Log::WarmNode }
    }

    /// The inode and the attribute node.
    pub(super) fn own_nodes(&self) -> u32 {
        1 + u32::from(self.has_xattr_node)
    }

    /// Nodes in its own log.
    pub(super) fn span(&self) -> u32 {
        self.own_nodes() + self.directs
    }

    /// Blocks of contents and nodes.
    pub(super) fn all_blocks(&self) -> u64 {
        1 + u64::from(self.blocks) + u64::from(self.further_nodes())
    }

    /// Nodes beside the inode.
    pub(super) fn further_nodes(&self) -> u32 {
        self.span() - 1 + self.indirects
    }
}

/// The blocks of a directory that does not fit into its inode.
pub(super) struct Levels {
    pub(super) runs: Runs,
    pub(super) depth: u32,
}

/// All needs of a tree.
pub(super) struct Survey {
    pub(super) source: Arc<dyn Source>,
    pub(super) settings: Settings,
    pub(super) nodes: Vec<Need>,
    /// Directories that have blocks.
    pub(super) levels: HashMap<u32, Levels>,
    /// The nodes from this one on are hidden: they have no name.
    pub(super) hidden: u32,
}

impl Survey {
    /// Looks at all nodes.
    ///
    /// # Errors
    /// A node cannot be stored.
    pub(super) fn new(source: Arc<dyn Source>, settings: Settings) -> Result<Self, TreeError> {
        let named = names(&*source)?;
        let nodes = Vec::with_capacity(named.len());
        let hidden = source.count();
        let mut survey = Self { source, settings, nodes, levels: HashMap::new(), hidden };
        for (id, named) in (0..).zip(named) {
            let need = survey.node(id, named)?;
            survey.nodes.push(need);
        }
        Ok(survey)
    }

    fn refuse(&self, id: u32, why: impl Into<String>) -> TreeError {
        TreeError::node(self.source.path(id), why)
    }

    /// The survey with hidden files that count what these kinds of owners have.
    ///
    /// # Errors
    /// A file cannot be stored.
    pub(super) fn with_quota(
        mut self,
        owners: &[OwnerKind],
        identity: &Identity,
    ) -> Result<Self, TreeError> {
        if owners.is_empty() {
            return Ok(self);
        }
        let counted = Counted::default();
        for (id, need) in (0..).zip(&self.nodes) {
            let node = self.source.node(id);
            let mut record = self.settings.record(node.kind.file_kind(), 0);
            (record.uid, record.gid) = (node.uid, node.gid);
            quota::count(&counted, &record, need.all_blocks());
        }
        let files = contents(owners, &counted);
        self.source = Arc::new(WithQuota::new(self.source.clone(), files, identity));
        for id in self.hidden..self.source.count() {
            let need = self.node(id, Named { links: 1, parent: ROOT, entry: 0 })?;
            self.nodes.push(need);
        }
        Ok(self)
    }

    /// Has the node no name?
    pub(super) fn is_hidden(&self, id: u32) -> bool {
        id >= self.hidden
    }

    /// The first name of a node. The root and hidden files have none.
    pub(super) fn name(&self, id: u32, named: &Named) -> &[u8] {
        if id == ROOT || self.is_hidden(id) {
            b""
        } else {
            self.source.entry(named.parent, named.entry).0
        }
    }

    /// The stored attributes of a node.
    pub(super) fn attributes(&self, id: u32, node: &Node<'_>) -> Result<Vec<Xattr>, TreeError> {
        attributes(&*self.source, id, node, &self.settings)
    }

    /// The entries of a directory. None for other nodes.
    pub(super) fn entries(&self, id: u32) -> Option<Entries<'_>> {
        match self.source.node(id).kind {
            Kind::Directory { entries } => {
                Some(Entries { source: &*self.source, id, count: entries })
            }
            _ => None,
        }
    }

    fn node(&mut self, id: u32, named: Named) -> Result<Need, TreeError> {
        let source = self.source.clone();
        let node = source.node(id);
        let xattrs = self.attributes(id, &node)?;
        self.contents(id, &node)?;
        let runs = self.runs(id, &node);
        let shape = self.settings.shape;
        if runs.last().is_some_and(|run| run.end > shape.max_blocks()) {
            return Err(self.refuse(id, "the contents end beyond the largest file of F2FS"));
        }
        let (directs, indirects) = counts(shape, &runs);
        let blocks: u64 = runs.iter().map(|run| run.end - run.start).sum();
        let kind = node.kind.file_kind();
        Ok(Need {
            named,
            // A file has fewer than 2^32 blocks.
            blocks: blocks as u32,
            directs,
            indirects,
            data_log: self.settings.data_log(kind, self.name(id, &named)),
            has_xattr_node: !xattrs.is_empty() && area_size(&xattrs) > self.settings.inline_xattrs,
            is_directory: kind == FileKind::Directory,
        })
    }

    /// Checks the contents of a node, and places the entries of a directory.
    fn contents(&mut self, id: u32, node: &Node<'_>) -> Result<(), TreeError> {
        match node.kind {
            Kind::Directory { entries: count } => {
                let source = self.source.clone();
                let entries = Entries { source: &*source, id, count };
                // mkfs.f2fs makes a block for the root.
                if id == ROOT || !entries.fit(self.settings.inline) {
                    let most = self.settings.shape.max_blocks();
                    let Some(placement) = Placement::new(&entries, most) else {
                        return Err(self.refuse(id, "too many names have the same hash"));
                    };
                    let Placement { runs, depth, .. } = placement;
                    self.levels.insert(id, Levels { runs, depth });
                }
            }
            Kind::Regular { size, data } => {
                if size.div_ceil(BLOCK_BYTES) > self.settings.shape.max_blocks() {
                    let why = format!("{size} bytes are more than a file can have");
                    return Err(self.refuse(id, why));
                }
                check_ranges(size, data).map_err(|why| self.refuse(id, why))?;
            }
            Kind::Symlink(target) => {
                let most = BLOCK_SIZE - 1;
                if target.is_empty() || target.len() > most || target.contains(&0) {
                    let why = format!("the target is empty, has a NUL, or more than {most} bytes");
                    return Err(self.refuse(id, why));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The blocks of a node, of those that its file can have.
    pub(super) fn runs(&self, id: u32, node: &Node<'_>) -> Runs {
        let inline = self.settings.inline as u64;
        match node.kind {
            Kind::Directory { .. } => {
                self.levels.get(&id).map(|levels| levels.runs.clone()).unwrap_or_default()
            }
            Kind::Regular { size, data } if !is_inline(size, data, inline) => {
                segments(data, BLOCK_BYTES).collect()
            }
            Kind::Symlink(target) if target.len() as u64 > inline => {
                std::iter::once(0..1).collect()
            }
            _ => Runs::new(),
        }
    }
}

/// True if a file is stored in its inode. One that has no data is not: an inode would turn its hole
/// into zeros.
pub(super) fn is_inline(size: u64, data: &[Range<u64>], most: u64) -> bool {
    size <= most && (size == 0 || !data.is_empty())
}
