//! [`Survey`]: what the nodes of a tree need, before any place is decided.
//!
//! Every node is checked here: what passes can be written.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_vfs::new_tree::{Kind, Node, ROOT, Source, find, names};

use super::super::files::{LOST_AND_FOUND_NAME, lost_and_found_blocks};
use super::attributes::{NONE, SharedBlocks, place, try_place};
use super::directory::{Form, Names};
use super::error::{PopulateError, PopulateResult};
use super::inline;
use super::regular::data_blocks;
use super::settings::Settings;
use super::values::Values;
use crate::format::features::RoCompat;
use crate::format::inode::LINK_MAX;
use crate::xattr::Content;

/// Longest target of a symbolic link that is stored in the record.
pub(super) const FAST_SYMLINK_MAX: usize = 59;

/// What one node needs.
#[derive(Clone, Copy)]
pub(super) struct Need {
    /// Blocks for contents, without those of an extent tree.
    pub(super) blocks: u32,
    /// Links as stored.
    pub(super) links: u32,
    /// The directory that holds it.
    pub(super) parent: u32,
    /// The block of attributes, or [`NONE`].
    pub(super) xattrs: u32,
}

/// All needs of a tree.
pub(super) struct Survey {
    pub(super) source: Arc<dyn Source>,
    pub(super) settings: Settings,
    pub(super) nodes: Vec<Need>,
    pub(super) shared: SharedBlocks,
    pub(super) values: Values,
    /// The tree's own `lost+found`.
    pub(super) lost_found: Option<u32>,
    /// For each file that has the blocks of an earlier one, that one.
    pub(super) same: HashMap<u32, u32>,
}

impl Survey {
    /// Looks at all nodes.
    ///
    /// # Errors
    /// A node cannot be stored.
    pub(super) fn new(
        source: Arc<dyn Source>,
        settings: Settings,
        values: Values,
    ) -> PopulateResult<Self> {
        let none = Need { blocks: 0, links: 0, parent: ROOT, xattrs: NONE };
        let nodes = vec![none; source.count() as usize];
        let shared = SharedBlocks::default();
        let (lost_found, same) = (None, HashMap::new());
        let mut survey = Self { source, settings, nodes, shared, values, lost_found, same };
        for (need, named) in survey.nodes.iter_mut().zip(names(&*survey.source)?) {
            (need.links, need.parent) = (named.links, named.parent);
        }
        survey.lost_found = find(&*survey.source, ROOT, LOST_AND_FOUND_NAME);
        if let Some(id) = survey.lost_found
            && survey.names(id).is_none()
        {
            return Err(survey.refuse(id, "lost+found must be a directory for fsck"));
        }
        if survey.lost_found.is_none() {
            survey.nodes[0].links += 1;
        }
        for id in 0..survey.source.count() {
            survey.node(id)?;
        }
        survey.shared.finish();
        Ok(survey)
    }

    fn refuse(&self, id: u32, why: impl Into<String>) -> PopulateError {
        PopulateError::node(self.source.path(id), why)
    }

    /// The names of a directory. None for other nodes.
    pub(super) fn names(&self, id: u32) -> Option<Names<'_>> {
        let Kind::Directory { entries } = self.source.node(id).kind else { return None };
        let lost_found = id == ROOT && self.lost_found.is_none();
        Some(Names { source: &*self.source, id, entries, lost_found })
    }

    fn node(&mut self, id: u32) -> PopulateResult<()> {
        let source = self.source.clone();
        let node = source.node(id);
        let links = self.stored_links(id, &node)?;
        let attributes = self.attributes(id, &node)?;
        let blocks = self.blocks(id, &node)?;
        let blocks = if inline::length(&node, blocks as usize, &self.settings)
            .is_some_and(|len| inline::fits(&attributes, len, &self.settings))
        {
            0
        } else {
            blocks
        };
        let xattrs = if attributes.block.is_empty() {
            NONE
        } else {
            let (settings, values) = (&self.settings, &mut self.values);
            self.shared.share(&*source, id, &attributes.block, settings, values)?
        };
        let need = &mut self.nodes[id as usize];
        (need.links, need.blocks, need.xattrs) = (links, blocks, xattrs);
        Ok(())
    }

    /// Places the attributes of a node. Values that have no room get inodes.
    fn attributes(&mut self, id: u32, node: &Node<'_>) -> PopulateResult<Content> {
        let source = &*self.source;
        let mut last = None;
        loop {
            match try_place(source, id, node, &self.settings, &self.values)? {
                Ok(content) => {
                    self.values.count_uses(&content.inode);
                    return Ok(content);
                }
                Err(index) if self.settings.ea_inode() && last != Some(index) => {
                    last = Some(index);
                    self.values.add(source, (id, index), node.xattrs[index as usize].1);
                }
                Err(_) => return place(source, id, node, &self.settings, &self.values),
            }
        }
    }

    fn stored_links(&self, id: u32, node: &Node<'_>) -> PopulateResult<u32> {
        let links = self.nodes[id as usize].links;
        let directory = matches!(node.kind, Kind::Directory { .. });
        match links {
            0..=LINK_MAX => Ok(links),
            // Linux and its tools read 1 as "unknown".
            _ if directory && self.settings.features.ro_compat(RoCompat::DIR_NLINK) => Ok(1),
            _ => Err(self.refuse(id, format!("{links} links are more than {LINK_MAX}"))),
        }
    }

    fn blocks(&self, id: u32, node: &Node<'_>) -> PopulateResult<u32> {
        let blocks = match node.kind {
            Kind::Directory { .. } => {
                let names = self.names(id).expect("a directory");
                let blocks = Form::new(&names, &self.settings)?.blocks(&self.settings) as u64;
                let least = match self.lost_found {
                    Some(lost_found) if lost_found == id => {
                        lost_and_found_blocks(self.settings.block_size as u32)
                    }
                    _ => 0,
                };
                blocks.max(least)
            }
            Kind::Regular { size, data } => {
                data_blocks(size, data, &self.settings).map_err(|why| self.refuse(id, why))?
            }
            Kind::Symlink(target) => {
                let most = self.settings.block_size - 1;
                if target.is_empty() || target.len() > most || target.contains(&0) {
                    let why = format!("the target is empty, has a NUL, or more than {most} bytes");
                    return Err(self.refuse(id, why));
                }
                u64::from(target.len() > FAST_SYMLINK_MAX)
            }
            _ => 0,
        };
        u32::try_from(blocks).map_err(|_| self.refuse(id, "the file is too large"))
    }

    /// The node whose blocks a node has: itself, or an earlier one.
    pub(super) fn holder(&self, id: u32) -> u32 {
        self.same.get(&id).copied().unwrap_or(id)
    }

    /// Blocks that a node has alone: none if it has those of another one.
    pub(super) fn own_blocks(&self, id: u32) -> u64 {
        if self.holder(id) == id { self.nodes[id as usize].blocks.into() } else { 0 }
    }

    /// Blocks of all nodes.
    pub(super) fn data_blocks(&self) -> u64 {
        (0..self.source.count()).map(|id| self.own_blocks(id)).sum()
    }

    /// Blocks of directories and links.
    pub(super) fn is_metadata(&self, id: u32) -> bool {
        !matches!(self.source.node(id).kind, Kind::Regular { .. })
    }
}
