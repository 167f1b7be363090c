//! What an inode is: its form (`shape`) and its type (`types`), as its body and what lies around it
//! prove them; which inodes a reader asks (`suspect`); what features the volume has (`features`);
//! how a directory stores names (`names`), and what an inode counts (`quota`). The check, the
//! rescue, a mount and mkfs ask the same questions.

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

pub(crate) mod features;
pub(crate) mod names;
pub(crate) mod quota;
pub(crate) mod shape;
pub(crate) mod suspect;
pub(crate) mod types;

use crate::error::Result;
use crate::format::inode::InlineFlags;
use crate::format::layout::Layout;
use crate::format::units::BlockAddr;
use crate::format::{Inode, Summary};

/// What lies around an inode.
pub(crate) trait Around {
    /// The volume's.
    fn layout(&self) -> &Layout;

    /// What the summary says of a block: whether it is a node, and whose.
    ///
    /// # Errors
    /// The device's.
    fn owner(&mut self, addr: BlockAddr) -> Result<Option<(bool, Summary)>>;

    /// A block of the main area.
    ///
    /// # Errors
    /// The device's.
    fn block(&mut self, addr: BlockAddr) -> Result<Option<Vec<u8>>>;

    /// The root's inode, if it can be read.
    ///
    /// # Errors
    /// The device's.
    fn root(&mut self) -> Result<Option<Inode>>;
}

/// The bytes of inline contents, or of the first block. `None` if that is missing.
///
/// # Errors
/// The device's.
pub(crate) fn contents(
    around: &mut dyn Around,
    record: &Inode,
    image: &[u8],
) -> Result<Option<Vec<u8>>> {
    if record.inline.contains(InlineFlags::DATA) {
        return Ok(image.get(record.inline_data_range()).map(<[u8]>::to_vec));
    }
    if record.address_slots() == 0 {
        return Ok(None);
    }
    let addr = record.data_pointer(image, 0);
    if around.layout().in_main(addr) { around.block(addr) } else { Ok(None) }
}
