//! An inode's record against its own body: contradictions that show without any other block.
//!
//! Who reads by such a record takes other bytes for pointers, contents or entries, and who writes
//! by it destroys what is there. A check says more, with the summaries and names of the volume.

use cairn_vfs::FileKind;

use super::{Advise, FileFlags, InlineFlags, Inode};
use crate::corrupt::Corrupt;
use crate::format::dentry::Dentries;
use crate::format::features::Features;
use crate::format::layout::Layout;
use crate::format::units::{BLOCK_BYTES, BlockAddr, Nid};

/// Bytes of the reserved word before inline contents.
const WORD: usize = size_of::<u32>();

impl Inode {
    /// Checks the record against the volume's features and the inode's block.
    ///
    /// # Errors
    /// The block holds something else than the record says.
    pub(crate) fn check_body(
        &self,
        block: &[u8],
        ino: Nid,
        layout: &Layout,
    ) -> Result<(), Corrupt> {
        let wrong = |field, value, expected| Err(Corrupt::Inode { ino, field, value, expected });
        let features = layout.features;
        if let Some(extra) = self.extra
            && features.contains(Features::INODE_CHECKSUM)
            && !extra.has_checksum()
        {
            return wrong("i_extra_isize", extra.size.into(), "it has no room for the checksum");
        }
        let needs = [
            (FileFlags::COMPR, Features::COMPRESSION, "the feature compression is missing"),
            (FileFlags::CASEFOLD, Features::CASEFOLD, "the feature casefold is missing"),
        ];
        let missing = needs
            .into_iter()
            .find(|(flag, feature, _)| self.flags.contains(*flag) && !features.contains(*feature));
        if let Some((.., why)) = missing {
            return wrong("i_flags", self.flags.bits().into(), why);
        }
        if self.advise.contains(Advise::ENCRYPT) && !features.contains(Features::ENCRYPT) {
            return wrong("i_advise", self.advise.bits().into(), "the feature encrypt is missing");
        }
        if self.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY) {
            self.check_inline_body(block, ino)
        } else {
            self.check_pointers(block, ino, layout)
        }
    }

    fn check_inline_body(&self, block: &[u8], ino: Nid) -> Result<(), Corrupt> {
        let wrong = |expected| {
            let value = self.inline.bits().into();
            Err(Corrupt::Inode { ino, field: "i_inline", value, expected })
        };
        let range = self.inline_data_range();
        let reserved = block.get(range.start.saturating_sub(WORD)..range.start);
        if reserved != Some(&[0; WORD]) {
            return wrong("there is a pointer before the contents in the inode");
        }
        if self.nids.iter().any(|nid| !nid.is_none()) {
            return wrong("there are pointers to nodes beside the contents in the inode");
        }
        let bytes = block.get(range).unwrap_or_default();
        if self.inline.contains(InlineFlags::DENTRY) && self.has_dots() && !shows_dots(bytes) {
            return wrong("what is in the inode does not begin with the entries `.` and `..`");
        }
        Ok(())
    }

    fn check_pointers(&self, block: &[u8], ino: Nid, layout: &Layout) -> Result<(), Corrupt> {
        if !matches!(self.kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink) {
            return Ok(());
        }
        let wrong = |field, value, expected| Err(Corrupt::Inode { ino, field, value, expected });
        let mut pointers = self.data_pointers(block);
        // The root is known to be a directory, and Linux mounts one without its first block.
        if self.kind == FileKind::Directory
            && ino != Nid::ROOT
            && self.has_dots()
            && self.data_pointers(block).next() == Some(BlockAddr::NULL)
        {
            let value = self.inline.bits().into();
            return wrong("i_inline", value, "the directory has no first block");
        }
        let end = self.size.div_ceil(BLOCK_BYTES);
        let is_behind = |(slot, addr): (u64, BlockAddr)| slot >= end && addr.is_address();
        if self.kind == FileKind::Directory && (0..).zip(self.data_pointers(block)).any(is_behind) {
            let expected = "the directory has blocks behind its end";
            return wrong("i_size", self.size, expected);
        }
        let is_stray = |addr: BlockAddr| addr.is_address() && !layout.in_main(addr);
        if !pointers.any(is_stray) {
            return Ok(());
        }
        // Of a pointer that is wrong itself, the block counts.
        let counted = self
            .data_pointers(block)
            .filter(|addr| *addr != BlockAddr::NULL && *addr != BlockAddr::COMPRESS);
        let own = if self.xattr_nid.is_none() { 1 } else { 2 };
        let least = counted.fold(own, |all: u64, _| all.saturating_add(1));
        if least <= self.blocks {
            return Ok(());
        }
        wrong("i_blocks", self.blocks, "what would be its pointers are more, and lead nowhere")
    }

    /// Must a directory have the entries `.` and `..`? One that was being deleted has no blocks.
    pub(crate) fn has_dots(&self) -> bool {
        self.links > 0
            && !self.inline.contains(InlineFlags::DOTS)
            && !self.advise.contains(Advise::ENCRYPT)
    }
}

/// Is one of the first two entries `.` or `..`?
pub(crate) fn shows_dots(bytes: &[u8]) -> bool {
    let entries = Dentries::new(bytes);
    (0..2).any(|slot| {
        let entry = entries.next(slot).and_then(Result::ok);
        entry.is_some_and(|entry| entry.slot == slot && matches!(entry.name, b"." | b".."))
    })
}
