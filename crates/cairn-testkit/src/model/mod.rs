//! The oracle: a simple filesystem in memory that answers every call of [`cairn_vfs::FileSystem`]
//! as ext4 does.
//!
//! Invariants: one lock around everything, so every call is atomic; a node lives while it has links
//! or references; [`Model::check`] states the rest. Space is counted in blocks of 4096 bytes,
//! metadata is free.

mod attributes;
mod directory;
mod file;
mod filesystem;
mod namespace;
mod node;
#[cfg(test)]
mod tests;
mod xattr;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use cairn_base::Ino;
use cairn_vfs::{Error, Result, Timestamp};

use directory::Directory;
use node::{Content, Node};

/// Number of the root, as in ext4.
const ROOT: Ino = Ino(2);
/// Blocks of a [`Model::new`]. No test fills them.
const DEFAULT_BLOCKS: u64 = 1 << 30;
/// Inodes in all.
const MAX_INODES: u64 = 1 << 24;

/// The oracle: what ext4 would hold and answer.
pub struct Model {
    state: Mutex<State>,
}

/// All nodes.
struct State {
    nodes: BTreeMap<Ino, Node>,
    next_ino: u64,
    next_handle: u64,
    next_generation: u32,
    /// Blocks in all and in use.
    blocks: u64,
    used: u64,
    label: Vec<u8>,
    /// Why every call fails from now on.
    stopped: Option<&'static str>,
    /// The last timestamp. No two changes have the same one.
    clock: Timestamp,
}

/// The model was shut down or unmounted.
#[derive(Debug, thiserror::Error)]
#[error("the volume {0}")]
struct Stopped(&'static str);

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// An empty volume with more space than any test uses.
    #[must_use]
    pub fn new() -> Self {
        Self::with_blocks(DEFAULT_BLOCKS)
    }

    /// An empty volume with `blocks` blocks of 4096 bytes for file data.
    #[must_use]
    pub fn with_blocks(blocks: u64) -> Self {
        let mut state = State {
            nodes: BTreeMap::new(),
            next_ino: 11,
            next_handle: 1,
            next_generation: 1,
            blocks,
            used: 0,
            label: Vec::new(),
            stopped: None,
            clock: Timestamp::default(),
        };
        let now = state.now();
        let mut root = Node::new(Content::Directory(Directory::new(ROOT)), 0o755, (0, 0), now);
        root.links = 2;
        state.nodes.insert(ROOT, root);
        Self { state: Mutex::new(state) }
    }

    /// The state of a model that runs.
    fn running(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.stopped {
            None => Ok(state),
            Some(why) => Err(Error::Io(Arc::new(Stopped(why)))),
        }
    }

    /// References held on an inode (0 if it is not there): tests of front-ends compare them.
    #[must_use]
    pub fn references(&self, ino: Ino) -> u64 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.nodes.get(&ino).map_or(0, |node| node.references)
    }

    /// Inodes alive, the root and those without links included.
    #[must_use]
    pub fn inode_count(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).nodes.len()
    }

    /// Checks the model's own invariants: link counts, parents, space.
    ///
    /// # Panics
    /// One does not hold.
    #[track_caller]
    pub fn check(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut links: BTreeMap<Ino, u32> = BTreeMap::from([(ROOT, 1)]);
        let mut used = 0;
        for (ino, node) in &state.nodes {
            used += node.blocks();
            let Content::Directory(directory) = &node.content else { continue };
            if node.links > 0 {
                *links.entry(*ino).or_default() += 1;
                *links.entry(directory.parent).or_default() += u32::from(*ino != ROOT);
            }
            for (_, child) in directory.entries() {
                let child_node = state
                    .nodes
                    .get(&child)
                    .unwrap_or_else(|| panic!("{ino} names {child}, which is gone"));
                *links.entry(child).or_default() += 1;
                if let Content::Directory(child_directory) = &child_node.content {
                    assert_eq!(child_directory.parent, *ino, "parent of directory {child}");
                }
            }
        }
        for (ino, node) in &state.nodes {
            assert_eq!(node.links, links.get(ino).copied().unwrap_or(0), "links of {ino}");
            assert!(
                node.links > 0 || node.references > 0,
                "{ino} has neither links nor references"
            );
        }
        assert_eq!(state.used, used, "blocks in use");
    }
}

impl State {
    fn node(&self, ino: Ino) -> Result<&Node> {
        self.nodes.get(&ino).ok_or(Error::Stale)
    }

    fn node_mut(&mut self, ino: Ino) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(Error::Stale)
    }

    fn directory(&self, ino: Ino) -> Result<&Directory> {
        match &self.node(ino)?.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    fn directory_mut(&mut self, ino: Ino) -> Result<&mut Directory> {
        match &mut self.node_mut(ino)?.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    /// The time, later than any given before.
    fn now(&mut self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let read = Timestamp { seconds, nanoseconds: since.subsec_nanos() };
        let mut next = self.clock;
        next.nanoseconds += 1;
        if next.nanoseconds == 1_000_000_000 {
            next = Timestamp { seconds: next.seconds + 1, nanoseconds: 0 };
        }
        self.clock = read.max(next);
        self.clock
    }

    /// Runs a change of a node's blocks and counts the space; refuses it beforehand if `grow` more
    /// blocks might not fit.
    fn change_blocks<T>(
        &mut self,
        ino: Ino,
        grow: u64,
        change: impl FnOnce(&mut file::SparseFile) -> Result<T>,
    ) -> Result<T> {
        let free = self.blocks - self.used;
        let node = self.nodes.get_mut(&ino).ok_or(Error::Stale)?;
        let before = node.blocks();
        if grow > free {
            return Err(Error::NoSpace);
        }
        let result = change(node.file_mut()?);
        self.used = self.used + node.blocks() - before;
        result
    }

    /// Deletes a node without names and references.
    fn delete_if_dead(&mut self, ino: Ino) {
        if self.nodes.get(&ino).is_some_and(|node| node.links == 0 && node.references == 0) {
            let node = self.nodes.remove(&ino).expect("just seen");
            self.used -= node.blocks();
        }
    }
}
