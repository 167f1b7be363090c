//! [`Assembly`]: the tree while sources are put over each other.
//!
//! A later member replaces an earlier one of the same name. A directory that comes again keeps its
//! entries and gets the new attributes. Nothing is reached through a symbolic link.
//!
//! Layers of container images hold *whiteouts*, which remove what lower layers have. They are
//! applied before anything that their layer holds, wherever in the layer they stand.

mod edit;
mod finish;
mod whiteouts;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use cairn_base::names::Escaped;

use crate::error::Result;
use crate::node::{Metadata, RegularFile, Xattr};
use crate::path::MemberPath;
use crate::rules::Rules;
use crate::store::{Limits, Stores};

/// Longest target of a symbolic link.
const TARGET_MAX: usize = 4095;
/// Most bytes of names and extended attributes that are kept in memory.
const NAMES_MAX: u64 = 1 << 30;

/// What a member is, without the entries of a directory.
#[derive(Clone, Debug)]
pub(crate) enum NewKind {
    Directory,
    Regular(RegularFile),
    Symlink(Box<[u8]>),
    CharDevice(u32),
    BlockDevice(u32),
    Fifo,
    Socket,
}

enum Shape {
    Directory(BTreeMap<Box<[u8]>, usize>),
    Other(NewKind),
}

struct Draft {
    metadata: Metadata,
    shape: Shape,
    /// Names, when the tree is finished.
    links: u32,
}

/// An access list with names, which are looked up when all sources are there.
pub(crate) struct NamedList {
    pub(crate) node: usize,
    /// The attribute.
    pub(crate) name: &'static [u8],
    pub(crate) text: Vec<u8>,
    /// Where it comes from, for errors.
    pub(crate) source: String,
    pub(crate) member: Vec<u8>,
}

/// What a list says of a file of the host: its type and mode, owner and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stated {
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    /// In Linux's encoding.
    pub(crate) device: u32,
}

/// What lists say of files of the host.
#[derive(Debug, Default)]
pub(crate) struct StatedFiles {
    /// By device and inode.
    pub(crate) files: HashMap<(u64, u64), Stated>,
    /// How many of them the sources had.
    pub(crate) matched: u64,
}

/// A tree that grows.
pub(crate) struct Assembly {
    drafts: Vec<Draft>,
    /// What whiteouts of this layer have removed, by its directory and its name.
    hidden: HashMap<(usize, Box<[u8]>), usize>,
    limit: u64,
    /// Bytes of names and attributes.
    names: u64,
    pub(crate) named_lists: Vec<NamedList>,
    /// Archives without an end mark.
    pub(crate) unended: Vec<String>,
    /// A source has what a killed run has left on it.
    pub(crate) has_leftovers: bool,
    /// A source is a directory of the host.
    pub(crate) has_unlabelled: bool,
    pub(crate) stated: StatedFiles,
    pub(crate) stores: Stores,
    pub(crate) rules: Rules,
}

/// Result of a change; the error says why the member cannot be put in.
pub(crate) type Put<T = ()> = Result<T, String>;

impl Assembly {
    /// A tree with an empty root.
    pub(crate) fn new(rules: Rules, limits: Limits, spool: PathBuf) -> Self {
        let root = Draft {
            metadata: Metadata::new(0o755, (0, 0), rules.beginning()),
            shape: Shape::Directory(BTreeMap::new()),
            links: 0,
        };
        let stores = Stores::new(spool, limits.bytes);
        Self {
            drafts: vec![root],
            hidden: HashMap::new(),
            limit: limits.nodes,
            names: 0,
            named_lists: Vec::new(),
            unended: Vec::new(),
            has_leftovers: false,
            has_unlabelled: false,
            stated: StatedFiles::default(),
            stores,
            rules,
        }
    }

    /// Puts a member in. Directories above it that are missing are made. Returns the node, or
    /// `None` if the member is excluded.
    pub(crate) fn put(
        &mut self,
        path: &MemberPath,
        mut metadata: Metadata,
        kind: NewKind,
    ) -> Put<Option<usize>> {
        if self.rules.excludes(path, matches!(kind, NewKind::Directory)) {
            return Ok(None);
        }
        metadata.settle().map_err(|error| error.to_string())?;
        self.count(&metadata, path)?;
        if let NewKind::Symlink(target) = &kind {
            match target.len() {
                1..=TARGET_MAX if !target.contains(&0) => {}
                len => return Err(format!("a symbolic link to {len} bytes is not possible")),
            }
        }
        let Some((above, name)) = path.split() else {
            return match kind {
                NewKind::Directory => {
                    self.restate(0, metadata);
                    Ok(Some(0))
                }
                _ => Err("the root of the image must be a directory".into()),
            };
        };
        let parent = self.directory(above, metadata.mtime)?;
        let existing = self.entry(parent, name);
        match (kind, existing) {
            (NewKind::Directory, Some(at)) if self.is_directory(at) => {
                self.restate(at, metadata);
                Ok(Some(at))
            }
            (NewKind::Directory, _) => {
                self.insert(parent, name, metadata, Shape::Directory(BTreeMap::new())).map(Some)
            }
            (kind, _) => self.insert(parent, name, metadata, Shape::Other(kind)).map(Some),
        }
    }

    /// Adds a name for the node of another member.
    pub(crate) fn link(&mut self, path: &MemberPath, target: &MemberPath) -> Put {
        self.link_found(path, target, self.find(target))
    }

    /// As [`Assembly::link`], for a target that was looked up.
    pub(crate) fn link_found(
        &mut self,
        path: &MemberPath,
        target: &MemberPath,
        found: Option<usize>,
    ) -> Put {
        if self.rules.excludes(path, false) {
            return Ok(());
        }
        let shown = || target.bytes().escaped();
        let Some(node) = found else {
            return Err(format!("a hard link to {}, which is not there", shown()));
        };
        self.link_node(path, node).map_err(|why| format!("a hard link to {}: {why}", shown()))
    }

    /// Adds a name for a node.
    pub(crate) fn link_node(&mut self, path: &MemberPath, node: usize) -> Put {
        if self.is_directory(node) {
            return Err("a directory can have one name only".into());
        }
        let mtime = self.drafts.get(node).map_or(self.rules.beginning(), |of| of.metadata.mtime);
        let Some((above, name)) = path.split() else {
            return Err("the root of the image must be a directory".into());
        };
        let parent = self.directory(above, mtime)?;
        self.names = self.names.saturating_add(name.len() as u64 + 64);
        self.set_entry(parent, name, node);
        Ok(())
    }

    /// Replaces what a node is (cpio gives the contents of a file with its last name).
    pub(crate) fn set_contents(&mut self, node: usize, file: RegularFile) {
        if let Some(Draft { shape: Shape::Other(kind), .. }) = self.drafts.get_mut(node) {
            *kind = NewKind::Regular(file);
        }
    }

    /// The node at a path; symbolic links are not followed.
    pub(crate) fn find(&self, path: &MemberPath) -> Option<usize> {
        self.find_components(path.components())
    }

    fn find_components(&self, components: &[Box<[u8]>]) -> Option<usize> {
        components.iter().try_fold(0, |at, name| self.entry(at, name))
    }

    /// Keeps a list until names can be looked up.
    pub(crate) fn wait_for_names(&mut self, list: NamedList) -> Put {
        self.names = self.names.saturating_add(list.text.len() as u64);
        if self.names > NAMES_MAX {
            return Err(format!("names and attributes of more than {NAMES_MAX} bytes"));
        }
        self.named_lists.push(list);
        Ok(())
    }

    /// Adds an attribute to a node.
    pub(crate) fn set_xattr(&mut self, node: usize, name: &[u8], value: Vec<u8>) -> Put {
        let Some(draft) = self.drafts.get_mut(node) else { return Ok(()) };
        draft.metadata.xattrs.push(Xattr { name: name.into(), value: value.into() });
        draft.metadata.settle().map_err(|error| error.to_string())
    }

    /// A tree beside this one that has its stores until [`Assembly::unstage`].
    pub(crate) fn stage(&mut self) -> Self {
        let limits = Limits { bytes: 0, nodes: self.limit };
        let mut stage = Self::new(Rules::default(), limits, PathBuf::new());
        std::mem::swap(&mut stage.stores, &mut self.stores);
        stage
    }

    /// Takes the stores back.
    pub(crate) fn unstage(&mut self, stage: Self) {
        self.stores = stage.stores;
    }

    fn entry(&self, directory: usize, name: &[u8]) -> Option<usize> {
        match &self.drafts.get(directory)?.shape {
            Shape::Directory(entries) => entries.get(name).copied(),
            Shape::Other(_) => None,
        }
    }

    fn entries_mut(&mut self, at: usize) -> Option<&mut BTreeMap<Box<[u8]>, usize>> {
        match &mut self.drafts.get_mut(at)?.shape {
            Shape::Directory(entries) => Some(entries),
            Shape::Other(_) => None,
        }
    }

    pub(crate) fn is_directory(&self, at: usize) -> bool {
        matches!(self.drafts.get(at), Some(Draft { shape: Shape::Directory(_), .. }))
    }

    fn set_entry(&mut self, parent: usize, name: &[u8], node: usize) {
        if let Some(entries) = self.entries_mut(parent) {
            entries.insert(name.into(), node);
        }
    }

    fn insert(
        &mut self,
        parent: usize,
        name: &[u8],
        metadata: Metadata,
        shape: Shape,
    ) -> Put<usize> {
        if self.drafts.len() as u64 >= self.limit {
            return Err(format!("more than {} files: give a larger size", self.limit));
        }
        let at = self.drafts.len();
        self.drafts.push(Draft { metadata, shape, links: 0 });
        self.set_entry(parent, name, at);
        Ok(at)
    }

    /// Gives an existing directory new attributes.
    fn restate(&mut self, at: usize, metadata: Metadata) {
        if let Some(draft) = self.drafts.get_mut(at) {
            draft.metadata = metadata;
        }
    }

    /// The directory with these components; what is missing is made.
    fn directory(&mut self, components: &[Box<[u8]>], mtime: cairn_vfs::Timestamp) -> Put<usize> {
        let mut at = 0;
        for name in components {
            at = match self.entry(at, name) {
                Some(next) if self.is_directory(next) => next,
                Some(next) => return Err(self.in_the_way(next, name)),
                None => {
                    let metadata = Metadata::new(0o755, (0, 0), mtime);
                    self.insert(at, name, metadata, Shape::Directory(BTreeMap::new()))?
                }
            };
        }
        Ok(at)
    }

    /// Why nothing is reached in a directory: on the way to it is something else. What is not there
    /// is no reason.
    pub(crate) fn blocked(&self, directory: &MemberPath) -> Option<String> {
        let mut at = 0;
        for name in directory.components() {
            at = self.entry(at, name)?;
            if !self.is_directory(at) {
                return Some(self.in_the_way(at, name));
            }
        }
        None
    }

    /// The error for what lies below something that is no directory.
    fn in_the_way(&self, node: usize, name: &[u8]) -> String {
        let link = matches!(
            self.drafts.get(node),
            Some(Draft { shape: Shape::Other(NewKind::Symlink(_)), .. })
        );
        let what = if link { "a symbolic link" } else { "not a directory" };
        format!("its directory '{}' is {what} in the image", name.escaped())
    }

    /// Counts what the member takes in memory.
    fn count(&mut self, metadata: &Metadata, path: &MemberPath) -> Put {
        let xattrs: usize =
            metadata.xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len()).sum();
        let name = path.split().map_or(0, |(_, name)| name.len());
        self.names = self.names.saturating_add((xattrs + name) as u64);
        let most = NAMES_MAX.min(self.limit.saturating_mul(4096));
        if self.names > most {
            return Err(format!("names and attributes of more than {most} bytes"));
        }
        Ok(())
    }
}
