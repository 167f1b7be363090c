//! What an inode is: the form of its contents (`shape`), its type (`types`) and whether it is
//! encrypted (`context`), as its record and what it holds prove them. Readers refuse what
//! contradicts itself (`loaded`), the check corrects it, and the rescue reads by what is proved:
//! all three ask the same questions.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

pub(crate) mod context;
pub(crate) mod loaded;
pub(crate) mod shape;
pub(crate) mod types;

use cairn_base::Ino;

use crate::format::features::Incompat;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::{Layout, inodes};

/// Offset of `i_flags` in a record.
const FLAGS_AT: usize = 32;

/// What lies around an inode.
pub(crate) trait Around {
    /// The volume's.
    fn layout(&self) -> &Layout;

    /// The first block of a file, if it has one that can be read.
    fn first_block(&self, ino: Ino, record: &Record) -> Option<Vec<u8>>;

    /// The block of attributes of a file, if it has one that can be read.
    fn attribute_block(&self, record: &Record) -> Option<Vec<u8>>;
}

/// Who can follow a whole map.
pub(crate) trait Maps: Around {
    /// The blocks that a map of pointers has, with its own ones, if all of them are possible. Few
    /// blocks of pointers are read.
    fn pointed(&self, ino: Ino, record: &Record) -> Option<u64>;
}

/// Is the inode one of the volume's own, of whose form nothing is asked?
pub(crate) fn is_reserved(layout: &Layout, ino: Ino) -> bool {
    ino.get() < u64::from(layout.first_ino) && ino != inodes::ROOT
}

/// Are the contents encrypted? Without the feature, the flag says nothing.
pub(crate) fn is_encrypted(layout: &Layout, record: &Record) -> bool {
    record.flags.contains(InodeFlags::ENCRYPT) && layout.features.incompat(Incompat::ENCRYPT)
}

/// Puts another mode and other flags into the bytes of a record.
pub(crate) fn set(bytes: &mut [u8], mode: Option<u16>, flags: Option<u32>) {
    if let (Some(mode), Some(place)) = (mode, bytes.first_chunk_mut()) {
        *place = mode.to_le_bytes();
    }
    let place = bytes.get_mut(FLAGS_AT..).and_then(<[u8]>::first_chunk_mut);
    if let (Some(flags), Some(place)) = (flags, place) {
        *place = flags.to_le_bytes();
    }
}

/// The flags in the bytes of a record.
pub(crate) fn stored_flags(bytes: &[u8]) -> u32 {
    let flags = bytes.get(FLAGS_AT..).and_then(<[u8]>::first_chunk);
    u32::from_le_bytes(flags.copied().unwrap_or_default())
}
