//! The type of an inode, as what it holds shows it. [`contradicted`]: inodes whose contents
//! contradict the file type in their mode: an extent tree in a socket, a directory's first block in
//! a regular file, a target where pointers would be. [`decided`]: what they are, by their names.

use cairn_base::units::as_u64;
use cairn_base::{Ino, Pba};
use cairn_vfs::FileKind;

use super::shape::{FAST_SYMLINK, inline_contents};
use super::{Around, is_encrypted, is_reserved};
use crate::format::features::Incompat;
use crate::format::indirect;
use crate::format::inode::{Inode as Record, InodeFlags, mode};
use crate::format::layout::inodes;

/// Begins an extent tree's root.
const EXTENT_MAGIC: [u8; 2] = [0x0a, 0xf3];
/// Types of files without contents.
const SPECIAL: [FileKind; 4] =
    [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice];
/// Bytes of a device's number in the block map.
const DEVICE_NUMBER: usize = 8;

/// The types that the contents of an inode fit, if that of its mode is not one of them.
pub(crate) fn contradicted(around: &dyn Around, ino: Ino, record: &Record) -> Vec<FileKind> {
    if is_reserved(around.layout(), ino) || ino == inodes::ROOT {
        return Vec::new();
    }
    let body = Body { around, ino, record };
    if FileKind::from_mode(record.mode.into()).is_some_and(|kind| body.allows(kind)) {
        return Vec::new();
    }
    let usual = [FileKind::Directory, FileKind::Symlink, FileKind::Regular];
    let kinds = usual.into_iter().chain(SPECIAL);
    match kinds.filter(|kind| body.fits(*kind)).collect::<Vec<_>>() {
        // A block of names fits other files, too, but none has one.
        fitting if fitting.first() == Some(&FileKind::Directory) && !body.is_inline() => {
            vec![FileKind::Directory]
        }
        fitting => fitting,
    }
}

/// False if the contents of an inode contradict the type.
pub(super) fn allows(around: &dyn Around, ino: Ino, record: &Record, kind: FileKind) -> bool {
    Body { around, ino, record }.allows(kind)
}

/// Can the contents of an inode be those of another type, too, which its names have? What has
/// nothing is a regular file rather than anything else.
pub(crate) fn may_be(around: &dyn Around, ino: Ino, record: &Record, said: FileKind) -> bool {
    let body = Body { around, ino, record };
    let is_plain = FileKind::from_mode(record.mode.into()) == Some(FileKind::Regular);
    let fits = match body.is_inline() {
        true => said == FileKind::Regular || (said == FileKind::Symlink && body.is_inline_target()),
        false => body.fits(said),
    };
    fits && !(is_plain && body.is_empty())
}

/// The type of an inode whose mode its contents contradict, and whether its names prove it. `None`
/// if the mode is to be believed. `said` is what the names say; `Some(None)` if they differ.
pub(crate) fn decided(
    record: &Record,
    said: Option<Option<FileKind>>,
    fitting: &[FileKind],
) -> Option<(FileKind, bool)> {
    let stored = FileKind::from_mode(record.mode.into());
    match said {
        Some(Some(kind)) if fitting.contains(&kind) => Some((kind, true)),
        // Mode and names agree, and a map of blocks does not contradict both.
        Some(Some(said))
            if Some(said) == stored && (!SPECIAL.contains(&said) || has_no_map(record)) =>
        {
            None
        }
        _ => fitting.first().map(|kind| (*kind, false)),
    }
}

/// The mode with another type.
pub(crate) fn mode_of(mode: u16, kind: FileKind) -> u16 {
    mode & !mode::TYPE | u16::try_from(kind.mode_bits()).unwrap_or(0)
}

/// What an inode has besides its mode.
struct Body<'a> {
    around: &'a dyn Around,
    ino: Ino,
    record: &'a Record,
}

impl Body<'_> {
    fn is_inline(&self) -> bool {
        self.record.flags.contains(InodeFlags::INLINE_DATA)
            && self.around.layout().features.incompat(Incompat::INLINE_DATA)
    }

    fn has_extents(&self) -> bool {
        self.record.flags.contains(InodeFlags::EXTENTS)
    }

    fn is_mapped(&self) -> bool {
        self.has_extents() && self.record.block.starts_with(&EXTENT_MAGIC)
    }

    /// False if the contents contradict a mode of this type.
    fn allows(&self, kind: FileKind) -> bool {
        let record = self.record;
        let block = u64::from(self.around.layout().block_size);
        let is_of_blocks = record.size > 0 && record.size.is_multiple_of(block);
        match kind {
            FileKind::Regular | FileKind::Directory if self.is_inline() => true,
            // A shorter one lies where a map would be, and has no flag.
            FileKind::Symlink if self.is_inline() => record.size >= FAST_SYMLINK,
            FileKind::Regular => {
                // A directory has more links than one, or is too large to count them.
                let may_be_directory =
                    is_of_blocks && (record.links != 1 || record.flags.contains(InodeFlags::INDEX));
                !(self.is_fast_symlink() || (may_be_directory && self.has_dots(true)))
            }
            FileKind::Directory => (is_of_blocks && record.links != 1) || self.has_dots(false),
            FileKind::Symlink => self.has_target(),
            _ => {
                let behind = record.block.get(DEVICE_NUMBER..).unwrap_or_default();
                // Some kernels left words there, which lead to no blocks.
                let has_pointers = !self.has_extents()
                    && !self.is_without_blocks()
                    && behind.iter().any(|byte| *byte != 0);
                !self.is_mapped() && !self.is_inline() && record.size == 0 && !has_pointers
            }
        }
    }

    /// True if the contents are possible ones of a file of this type.
    fn fits(&self, kind: FileKind) -> bool {
        match kind {
            _ if self.is_inline() => true,
            FileKind::Directory => self.has_dots(false),
            FileKind::Symlink => self.has_target(),
            FileKind::Regular => {
                let has_pointers = self.has_pointers() && !self.is_fast_symlink();
                self.is_mapped() || has_pointers || self.is_empty()
            }
            _ => self.allows(kind),
        }
    }

    fn is_empty(&self) -> bool {
        self.record.size == 0 && self.record.block.iter().all(|byte| *byte == 0)
    }

    fn has_pointers(&self) -> bool {
        let slots = indirect::decode_inode(&self.record.block);
        let is_inside = |slot: &u32| self.around.layout().contains(Pba((*slot).into()), 1);
        let mut used = slots.iter().filter(|slot| **slot != 0).peekable();
        !self.has_extents() && used.peek().is_some() && used.all(is_inside)
    }

    /// A target in the inode, and no other blocks than those of attributes.
    fn is_fast_symlink(&self) -> bool {
        let is_short = (1..FAST_SYMLINK).contains(&self.record.size) && self.is_without_blocks();
        !self.has_extents() && !self.is_inline() && is_short && self.has_target()
    }

    /// The inode has no blocks besides that of its attributes, as `i_blocks` says.
    fn is_without_blocks(&self) -> bool {
        let layout = self.around.layout();
        let most = match self.record.file_acl {
            Pba(0) => 0,
            _ => (1_u64 << layout.cluster_bits) << layout.block_bits.saturating_sub(9),
        };
        self.record.blocks_512 <= most
    }

    /// The target of a symbolic link, in the inode or a block.
    fn has_target(&self) -> bool {
        let size = self.record.size;
        if size == 0 || size >= u64::from(self.around.layout().block_size) {
            return false;
        }
        if size < FAST_SYMLINK {
            return !self.has_extents() && self.is_target(&self.record.block);
        }
        self.first_block().is_some_and(|block| self.is_target(&block))
    }

    /// The contents in the inode are a target.
    fn is_inline_target(&self) -> bool {
        let size = usize::try_from(self.record.size).unwrap_or(usize::MAX);
        let bytes = inline_contents(self.ino, self.record);
        size > 0 && bytes.get(..size).is_some_and(|target| !target.contains(&0))
    }

    /// A target that is as long as the size says.
    fn is_target(&self, bytes: &[u8]) -> bool {
        let len = match is_encrypted(self.around.layout(), self.record) {
            true => bytes.first_chunk().map_or(0, |len| u16::from_le_bytes(*len)).into(),
            false => bytes.iter().take_while(|byte| **byte != 0).count(),
        };
        let head = if is_encrypted(self.around.layout(), self.record) { 2 } else { 0 };
        len > 0 && as_u64(len).saturating_add(head) == self.record.size
    }

    /// The first block has `.` and `..`; `.` of this inode, if nothing else says so.
    fn has_dots(&self, is_own: bool) -> bool {
        let Some(block) = self.first_block() else { return false };
        let number = block.first_chunk().map(|word| u64::from(u32::from_le_bytes(*word)));
        let is_this = number == Some(self.ino.get());
        let one = block.get(6) == Some(&1) && block.get(8) == Some(&b'.');
        let two = block.get(18) == Some(&2) && block.get(20..22) == Some(b"..");
        one && two && (is_this || !is_own)
    }

    fn first_block(&self) -> Option<Vec<u8>> {
        if self.is_inline() || (self.has_extents() && !self.is_mapped()) {
            return None;
        }
        self.around.first_block(self.ino, self.record)
    }
}

/// Nothing but the number of a device.
fn has_no_map(record: &Record) -> bool {
    let behind = record.block.get(DEVICE_NUMBER..).unwrap_or_default();
    behind.iter().all(|byte| *byte == 0) && !record.flags.contains(InodeFlags::INLINE_DATA)
}
