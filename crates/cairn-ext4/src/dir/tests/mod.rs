//! Compares directories with a model, checks the index, and lets the kernel read them.

pub(crate) mod image;
mod inlined;
mod kernel;
mod listing;
mod model;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_base::{FileBlock, Ino, Pba};
use cairn_block::memory::MemoryDevice;
use cairn_cache::block::{Buffer, BufferCache};
use cairn_cache::budget::Budget;
use cairn_vfs::{FileKind, Name};
use parking_lot::Mutex;

use super::blocks::{load_leaf, load_node};
use super::hash::{HALF_MD4, HashSettings};
use super::index::read_root;
use super::*;
use crate::checksum::InodeSeed;
use crate::error::Error;
use crate::format::dir_entry::DirFormat;
use crate::format::htree::Node;
use crate::txn::{Handle, Txn};

/// Converts bytes to a name.
pub(super) fn named(bytes: &[u8]) -> Name<'_> {
    Name::check(bytes).expect("the test has sound names")
}

/// A directory whose blocks are a list of addresses in a cache.
pub(super) struct ListedDir {
    pub(super) cache: Arc<BufferCache>,
    pub(super) settings: DirSettings,
    /// Addresses of the blocks in use.
    pub(super) used: Mutex<Vec<Pba>>,
    /// Addresses that `append` takes, the next one last.
    pub(super) spare: Mutex<Vec<Pba>>,
    pub(super) indexed: AtomicBool,
    pub(super) folded: bool,
}

impl DirBlocks for ListedDir {
    fn settings(&self) -> DirSettings {
        self.settings
    }

    fn indexed(&self) -> bool {
        self.indexed.load(Ordering::Relaxed)
    }

    fn folded(&self) -> bool {
        self.folded
    }

    fn set_indexed(&self, _: &Handle, indexed: bool) -> crate::Result<()> {
        self.indexed.store(indexed, Ordering::Relaxed);
        Ok(())
    }

    fn count(&self) -> u64 {
        self.used.lock().len() as u64
    }

    fn get(&self, block: FileBlock) -> crate::Result<Arc<Buffer>> {
        let pba = self.used.lock()[usize::try_from(block.get()).unwrap()];
        Ok(self.cache.get(pba)?)
    }

    fn append(&self, handle: &Handle) -> crate::Result<(FileBlock, Arc<Buffer>)> {
        let pba = self.spare.lock().pop().ok_or(cairn_vfs::Error::NoSpace)?;
        let buffer = handle.create(pba)?;
        let mut used = self.used.lock();
        used.push(pba);
        Ok((FileBlock(used.len() as u64 - 1), buffer))
    }
}

impl ListedDir {
    /// An empty directory in memory that may grow to `blocks` blocks.
    pub(super) fn in_memory(settings: DirSettings, blocks: u64) -> Self {
        let size = settings.format.block_size as u64 * blocks;
        let block_size = u32::try_from(settings.format.block_size).unwrap();
        let cache =
            BufferCache::new(Arc::new(MemoryDevice::new(size)), block_size, Budget::new(1 << 30));
        let dir = Self {
            cache,
            settings,
            used: Mutex::default(),
            spare: Mutex::new((0..blocks).rev().map(Pba).collect()),
            indexed: AtomicBool::new(false),
            folded: false,
        };
        init_empty(&dir, &dir.handle(), Ino(2)).unwrap();
        dir
    }

    pub(super) fn handle(&self) -> Handle {
        Txn::Direct(self.cache.clone()).begin(ADD_BLOCKS + ADD_APPENDS * 4).unwrap()
    }

    pub(super) fn add(&self, name: &[u8], ino: u64) {
        add(self, &self.handle(), named(name), Ino(ino), FileKind::Regular)
            .unwrap_or_else(|error| panic!("add {:?}: {error}", name.escape_ascii().to_string()));
    }

    /// All names but `.` and `..`, by calls of `readdir` that take `piece` names each.
    pub(super) fn names(&self, piece: usize) -> Vec<(Vec<u8>, u64)> {
        let mut names = Vec::new();
        let mut position = 0;
        loop {
            let mut left = piece;
            let before = position;
            readdir(self, position, &mut |entry| {
                assert!(
                    entry.next > position && i64::try_from(entry.next).is_ok(),
                    "position {}",
                    entry.next
                );
                position = entry.next;
                if entry.name != b"." && entry.name != b".." {
                    names.push((entry.name.into_bytes(), entry.ino.get()));
                }
                left -= 1;
                left > 0
            })
            .unwrap();
            if position == before {
                return names;
            }
        }
    }

    /// Checks that every block belongs to the index once and every name is in the leaf of its hash.
    pub(super) fn audit(&self) {
        if !self.indexed() {
            return;
        }
        let root = read_root(self, &self.settings).unwrap();
        let mut seen = BTreeSet::from([FileBlock(0)]);
        let levels = root.1.indirect_levels;
        let pairs =
            Node::parse(&root.0.image, NodeKind::Root, &self.settings.format).unwrap().pairs();
        self.audit_children(&pairs, levels, u32::MAX, root.1.hash_version, &mut seen);
        assert_eq!(seen.len() as u64, self.count(), "blocks outside the index");
    }

    fn audit_children(
        &self,
        pairs: &[(u32, FileBlock)],
        levels: u8,
        end: u32,
        version: u8,
        seen: &mut BTreeSet<FileBlock>,
    ) {
        for (i, (low, child)) in pairs.iter().enumerate() {
            assert!(seen.insert(*child), "block {child} is in the index twice");
            let high = pairs.get(i + 1).map_or(end, |next| next.0);
            if levels > 0 {
                let node = load_node(self, &self.settings, *child, NodeKind::Inner).unwrap();
                let mut inner = Node::parse(&node.image, NodeKind::Inner, &self.settings.format)
                    .unwrap()
                    .pairs();
                inner[0].0 = *low;
                self.audit_children(&inner, levels - 1, high, version, seen);
                continue;
            }
            let leaf = load_leaf(self, &self.settings, *child).unwrap();
            for entry in dir_entry::entries(&leaf.image, &self.settings.format).map(Result::unwrap)
            {
                if entry.ino != 0 {
                    let major = self.settings.hash(version, entry.name).unwrap().major;
                    assert!(
                        (low & !1..=high).contains(&major),
                        "{major:#x} in a leaf of {low:#x} to {high:#x}"
                    );
                }
            }
        }
    }
}

/// Blocks of 1 KiB, with all features.
pub(super) fn small_blocks() -> DirSettings {
    DirSettings {
        ino: Ino(12),
        format: DirFormat {
            block_size: 1024,
            filetype: true,
            seed: InodeSeed(Some(0xdead_beef)),
            inodes_count: 1 << 24,
        },
        hash: HashSettings { default_version: HALF_MD4, unsigned: false, seed: [1, 2, 3, 4] },
        dir_index: true,
        large_dir: false,
    }
}

pub(super) fn is_no_space(error: &Error) -> bool {
    matches!(error, Error::Vfs(cairn_vfs::Error::NoSpace))
}
