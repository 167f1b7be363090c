//! [`DirBlocks`]: what a directory needs from its inode.
//!
//! Locking: the caller holds the directory's namespace lock, shared for searches and exclusively
//! for changes. Only buffer locks are taken here, one at a time.

use std::sync::Arc;

use cairn_base::{FileBlock, Ino};
use cairn_cache::block::{Buffer, Image};

use super::hash::{HashSettings, NameHash};
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::dir_entry::{self, Defect, DirFormat};
use crate::format::htree::{self, NodeKind};
use crate::txn::Handle;

/// Properties of the volume and directory that do not change while the directory is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirSettings {
    /// The directory.
    pub ino: Ino,
    /// Block size, checksums, entry format.
    pub format: DirFormat,
    /// How names are hashed.
    pub hash: HashSettings,
    /// The dir_index feature: directories may be indexed.
    pub dir_index: bool,
    /// The large_dir feature: the index may have one more level.
    pub large_dir: bool,
}

impl DirSettings {
    /// Most levels of nodes below the root of an index.
    #[must_use]
    pub(crate) const fn max_levels(&self) -> u8 {
        if self.large_dir { 2 } else { 1 }
    }

    /// The error of a defect in `block`.
    #[must_use]
    pub(crate) fn corrupt(&self, block: FileBlock, defect: Defect) -> Corrupt {
        defect.at(self.ino, block)
    }

    /// The error of a name whose leaf has other hashes.
    #[must_use]
    pub(crate) fn misplaced(&self, block: FileBlock, offset: usize, hash: NameHash) -> Corrupt {
        let what = "hash of a name is not one of its block's";
        Defect { offset, what, value: u64::from(hash.major) }.at(self.ino, block)
    }

    /// Hashes a name. Fails if the algorithm is unknown.
    ///
    /// # Errors
    /// The algorithm is unknown: [`Corrupt::Directory`].
    pub(crate) fn hash(&self, version: u8, name: &[u8]) -> Result<NameHash, Corrupt> {
        self.hash.hash(version, name).ok_or(Corrupt::Directory {
            ino: self.ino,
            block: FileBlock(0),
            offset: 28,
            what: "unknown hash version",
            value: u64::from(version),
        })
    }
}

/// The blocks of one directory. The inode layer implements it.
pub(crate) trait DirBlocks {
    /// The properties of the volume and directory.
    fn settings(&self) -> DirSettings;

    /// The inode's INDEX flag.
    fn indexed(&self) -> bool;

    /// The inode's CASEFOLD flag: the index has the hashes of folded names, which are not known
    /// here.
    fn folded(&self) -> bool;

    /// Sets or clears the INDEX flag in `handle`.
    ///
    /// # Errors
    /// The journal was aborted.
    fn set_indexed(&self, handle: &Handle, indexed: bool) -> Result<()>;

    /// Number of blocks of the directory.
    fn count(&self) -> u64;

    /// Reads a block below [`DirBlocks::count`]. A hole is an error.
    ///
    /// # Errors
    /// The block is a hole, the map is damaged, or the device failed.
    fn get(&self, block: FileBlock) -> Result<Arc<Buffer>>;

    /// Allocates a block at the end and raises the size. The caller writes its contents.
    ///
    /// # Errors
    /// [`cairn_vfs::Error::NoSpace`] if no block is free; the map is damaged, or the journal was
    /// aborted.
    fn append(&self, handle: &Handle) -> Result<(FileBlock, Arc<Buffer>)>;
}

/// True if the directory is searched through its index.
pub(super) fn uses_index(dir: &dyn DirBlocks, settings: &DirSettings) -> bool {
    settings.dir_index && dir.indexed()
}

/// A block with a verified checksum, and its bytes.
pub(super) struct Loaded {
    pub(super) buffer: Arc<Buffer>,
    pub(super) image: Image,
}

/// Reads a linear or leaf block.
pub(super) fn load_leaf(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    block: FileBlock,
) -> Result<Loaded> {
    load(dir, block, |image| dir_entry::verify_leaf(image, &settings.format, settings.ino, block))
}

/// Reads an index block.
pub(super) fn load_node(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    block: FileBlock,
    kind: NodeKind,
) -> Result<Loaded> {
    load(dir, block, |image| htree::verify_node(image, kind, &settings.format, settings.ino, block))
}

/// Reads the first block, which is a root or a leaf.
pub(super) fn load_first(dir: &dyn DirBlocks, settings: &DirSettings) -> Result<Loaded> {
    if uses_index(dir, settings) {
        load_node(dir, settings, FileBlock(0), NodeKind::Root)
    } else {
        load_leaf(dir, settings, FileBlock(0))
    }
}

fn load(
    dir: &dyn DirBlocks,
    block: FileBlock,
    verify: impl FnOnce(&[u8]) -> Result<(), Corrupt>,
) -> Result<Loaded> {
    let buffer = dir.get(block)?;
    let image = buffer.image();
    if !buffer.is_verified() {
        verify(&image)?;
        buffer.set_verified();
    }
    Ok(Loaded { buffer, image })
}
