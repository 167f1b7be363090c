//! Is an inode what its record says? Who reads by a wrong form or type delivers other contents, and
//! who writes by it destroys what is there.
//!
//! What lies around an inode is asked only if its body, or an entry that leads to it, contradicts
//! the record: most inodes cost nothing.

use cairn_base::FileBlock;
use cairn_cache::mapper::{Place, Run};
use cairn_vfs::FileKind;

use super::Inode;
use super::owned;
use super::read_mapper::ReadMapper;
use crate::blocks;
use crate::corrupt::Corrupt;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::form::types::Verdict;
use crate::form::{Around, suspect, types};
use crate::format::Summary;
use crate::format::inode::{Advise, DEFAULT_INLINE_XATTR_WORDS, Inode as Record};
use crate::format::layout::Layout;
use crate::format::units::{BLOCK_BYTES, BlockAddr, Nid};

/// What lies around an inode of a mounted volume. What is damaged itself shows nothing.
struct Seen<'d>(&'d Disk);

impl Around for Seen<'_> {
    fn layout(&self) -> &Layout {
        &self.0.layout
    }

    fn owner(&mut self, addr: BlockAddr) -> Result<Option<(bool, Summary)>> {
        match owned::owner(self.0, addr) {
            Err(Error::Corrupt(_)) => Ok(None),
            found => found,
        }
    }

    fn block(&mut self, addr: BlockAddr) -> Result<Option<Vec<u8>>> {
        Ok(Some(blocks::read(&*self.0.device, addr.pba(), 1)?.to_vec()))
    }

    fn root(&mut self) -> Result<Option<Record>> {
        let Ok(Some(image)) = self.0.nodes.inode(Nid::ROOT) else { return Ok(None) };
        Ok(Record::decode(&image, Nid::ROOT, self.0.layout.features).ok())
    }
}

/// Checks that an inode without links is one that waits for its deletion. Any other one would be
/// deleted as soon as nobody uses it.
///
/// # Errors
/// It is not.
pub(super) fn check_links(disk: &Disk, ino: Nid, record: &Record) -> Result<()> {
    let Some(store) = disk.store.as_ref().filter(|_| record.links == 0) else { return Ok(()) };
    if store.checkpoints.orphans.contains(ino) {
        return Ok(());
    }
    let expected = "the inode is not in the list of those that are to be deleted";
    Err(Corrupt::Inode { ino, field: "i_links", value: 0, expected }.into())
}

/// Checks the form of an inode that is about to be used.
///
/// # Errors
/// What it holds proves another one; or the device failed.
pub(super) fn check_form(disk: &Disk, (ino, record, image): (Nid, &Record, &[u8])) -> Result<()> {
    // What is newer than the checkpoint has no summaries on a volume that is only read.
    if disk.nodes.overlay().changes(ino) {
        return Ok(());
    }
    let Some(change) = suspect::disproved(&mut Seen(disk), (ino, record, image))? else {
        return Ok(());
    };
    // It may have changed meanwhile, and its old blocks may be others' now.
    if disk.nodes.inode(ino)?.is_none_or(|now| now[..] != *image) {
        return Ok(());
    }
    let (field, value) = (change.field, change.stored);
    let expected = "what the inode holds shows that it is another value";
    Err(Corrupt::Inode { ino, field, value, expected }.into())
}

/// Checks the end of a file with nodes: with too few words for attributes, all blocks behind those
/// of the inode lie behind a hole, and the last ones behind the end of the file.
///
/// # Errors
/// They do; or the node tree is damaged, or the device failed.
pub(super) fn check_end(
    disk: &Disk,
    inode: &Inode,
    (record, image): (&Record, &[u8]),
) -> Result<()> {
    let has_more = record.advise.intersects(Advise::KEEP_SIZE | Advise::VERITY | Advise::ENCRYPT)
        || record.cluster_blocks().is_some();
    let has_nodes = record.nids.iter().any(|nid| !nid.is_none());
    let gap = DEFAULT_INLINE_XATTR_WORDS.saturating_sub(record.inline_xattr_words());
    if record.kind != FileKind::Regular || inode.is_inline() || !has_nodes || has_more || gap == 0 {
        return Ok(());
    }
    let before = record.address_slots().saturating_sub(gap);
    let mut last = record.data_pointers(image).skip(usize::try_from(before).unwrap_or(usize::MAX));
    if last.any(|addr| addr != BlockAddr::NULL) {
        return Ok(());
    }
    let end = record.size.div_ceil(BLOCK_BYTES);
    let mut block = end;
    let behind = loop {
        let left = end.saturating_add(gap.into()).saturating_sub(block);
        if left == 0 {
            return Ok(());
        }
        let found =
            ReadMapper::new(disk, inode).find(Run { start: FileBlock(block), len: left })?;
        if matches!(found.place, Place::Mapped(_)) {
            break block;
        }
        block = block.saturating_add(found.run.len.clamp(1, left));
    };
    tracing::debug!(inode = %inode.nid, behind, "a block lies behind the end");
    let value = record.inline.bits().into();
    let expected = "the blocks of the file do not end where it ends";
    Err(Corrupt::Inode { ino: inode.nid, field: "i_inline", value, expected }.into())
}

/// Checks the type of an inode to which an entry with another type leads.
///
/// # Errors
/// The contents do not show that of the inode; or the device failed.
pub(crate) fn check_type(disk: &Disk, ino: Nid, entry: FileKind) -> Result<()> {
    let Some(image) = disk.nodes.inode(ino)? else { return Ok(()) };
    if types::judge(&mut Seen(disk), (ino, &image), Some(entry))?.0 == Verdict::Stored {
        return Ok(());
    }
    let value = types::stored(&image).map_or(0, FileKind::mode_bits).into();
    let expected = "its name or its contents are those of another type";
    Err(Corrupt::Inode { ino, field: "i_mode", value, expected }.into())
}
