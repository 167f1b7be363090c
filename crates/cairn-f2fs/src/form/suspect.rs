//! Which inodes a reader does not take at their word. Summaries are only asked if the body of an
//! inode alone makes another form likely.

use cairn_base::units::as_u64;
use cairn_vfs::FileKind;

use super::Around;
use super::shape::{self, Change};
use crate::error::Result;
use crate::format::inode::{EXTRA_SIZE, FileFlags, InlineFlags};
use crate::format::layout::Layout;
use crate::format::units::{BLOCK_BYTES, BlockAddr, Nid};
use crate::format::{Inode, Summary};

/// Bytes of a pointer.
const WORD: u16 = 4;

/// The field by which an inode that is about to be read is to be read otherwise.
///
/// # Errors
/// The device's.
pub(crate) fn disproved(
    around: &mut dyn Around,
    (ino, record, image): (Nid, &Inode, &[u8]),
) -> Result<Option<Change>> {
    let layout = *around.layout();
    if shape::fits(&mut Alone(&layout), (ino, image))? && !may_be_shifted(record, image) {
        return Ok(None);
    }
    Ok(shape::proved(around, ino, image)?.map(|(change, _)| change))
}

/// Do the pointers of an inode look as if `i_extra_isize` were another one? Then its blocks end
/// elsewhere than the file does, or begin behind a hole.
fn may_be_shifted(record: &Inode, image: &[u8]) -> bool {
    let has_pointers = matches!(record.kind, FileKind::Regular | FileKind::Directory)
        && !record.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY)
        && !record.flags.contains(FileFlags::COMPR);
    let Some(extra) = record.extra.filter(|_| has_pointers) else { return false };
    if record.nids.iter().any(|nid| !nid.is_none()) {
        let hidden = EXTRA_SIZE.saturating_sub(extra.size).checked_div(WORD).unwrap_or(0);
        let mut first = record.data_pointers(image).take(hidden.into());
        return hidden > 0 && first.all(|addr| addr == BlockAddr::NULL);
    }
    let used = record.data_pointers(image).enumerate();
    let last = used.filter(|(_, addr)| *addr != BlockAddr::NULL).last();
    let end = last.map_or(0, |(slot, _)| as_u64(slot).saturating_add(1));
    end > 0 && end != record.size.div_ceil(BLOCK_BYTES)
}

/// An inode by itself.
struct Alone<'l>(&'l Layout);

impl Around for Alone<'_> {
    fn layout(&self) -> &Layout {
        self.0
    }

    fn owner(&mut self, _: BlockAddr) -> Result<Option<(bool, Summary)>> {
        Ok(None)
    }

    fn block(&mut self, _: BlockAddr) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn root(&mut self) -> Result<Option<Inode>> {
        Ok(None)
    }
}
