//! The checksum of an inode block.

use zerocopy::IntoBytes;

use super::extra::CHECKSUM_AT;
use super::raw::{view, view_mut};
use super::{ExtraAttr, InlineFlags};
use crate::corrupt::Corrupt;
use crate::format::checksum::crc32;
use crate::format::features::Features;
use crate::format::layout::Layout;
use crate::format::node::NodeFooter;
use crate::format::units::Nid;

/// The checksum over an inode block, if the features and the inode have one.
fn checksum(block: &[u8], layout: &Layout) -> Option<u32> {
    let raw = view(block);
    let has_extra =
        InlineFlags::from_bits_retain(raw.head.i_inline).contains(InlineFlags::EXTRA_ATTR);
    if !layout.features.contains(Features::INODE_CHECKSUM)
        || !has_extra
        || !ExtraAttr::read(&raw.i_addr).has_checksum()
    {
        return None;
    }
    let ino = NodeFooter::read(block).ino.get().to_le_bytes();
    let seed = crc32(crc32(crc32(!0, &layout.uuid), &ino), raw.head.i_generation.as_bytes());
    let (before, rest) = block.split_at(CHECKSUM_AT);
    let (_, after) = rest.split_at(size_of::<u32>());
    Some(crc32(crc32(crc32(seed, before), &[0; 4]), after))
}

/// Verifies an inode block's checksum, if it has one. A block that was changed after [`seal`]
/// fails.
///
/// # Errors
/// It does not match.
pub fn verify(block: &[u8], ino: Nid, layout: &Layout) -> Result<(), Corrupt> {
    match checksums(block, layout) {
        Some((stored, computed)) if stored != computed => {
            Err(Corrupt::Checksum { what: "inode", place: ino.get().into(), stored, computed })
        }
        _ => Ok(()),
    }
}

/// Stored and computed checksum of an inode block, if it has one.
#[must_use]
pub(crate) fn checksums(block: &[u8], layout: &Layout) -> Option<(u32, u32)> {
    let computed = checksum(block, layout)?;
    Some((ExtraAttr::read(&view(block).i_addr).inode_checksum, computed))
}

/// Writes the checksum, if the inode has one. It covers the footer, so this is the last step before
/// the block goes to the device.
pub fn seal(block: &mut [u8], layout: &Layout) {
    if let Some(sum) = checksum(block, layout) {
        ExtraAttr::write_checksum(&mut view_mut(block).i_addr, sum);
    }
}
