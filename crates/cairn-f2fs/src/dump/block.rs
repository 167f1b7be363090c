//! What a block is, whose it is, and its bytes.

use cairn_base::Pba;
use cairn_check::{Detail, Fields};

use super::inode::put_footer;
use super::tables::put_owner;
use crate::error::{Error, Result};
use crate::format::layout::Side;
use crate::format::node::NodeFooter;
use crate::format::units::{BLOCK_BYTES, BLOCKS_PER_SEGMENT, BlockAddr};
use crate::raw::RawVolume;

/// A block.
///
/// # Errors
/// The volume has no such block.
pub(super) fn show(volume: &RawVolume, number: u64) -> Result<Fields> {
    let last = volume.layout.block_count.saturating_sub(1);
    let none = || Error::Option(format!("no block {number}: they count from 0 to {last}"));
    let addr = u32::try_from(number).ok().filter(|_| number <= last).map(BlockAddr);
    let addr = addr.ok_or_else(none)?;
    let mut fields =
        Fields::new().with("block", number).with("byte", number.saturating_mul(BLOCK_BYTES));
    fields.put("area", area(volume, addr.get()));
    let image = volume.block(Pba(number));
    if let Some((segno, offset)) = volume.layout.segment_of(addr) {
        fields.put("segno", segno.get());
        fields.put("offset", offset);
        if let Some(valid) = volume.is_valid(addr) {
            fields.put("valid", valid);
        }
        if let Some((is_node, summary)) = volume.owner(addr) {
            put_owner(&mut fields, is_node, summary);
            if let (true, Ok(image)) = (is_node, &image) {
                put_footer(&mut fields, &NodeFooter::read(image));
            }
        }
    }
    match image {
        Ok(image) => fields.put("bytes", Detail::Bytes(image.to_vec())),
        Err(error) => fields.put("error", error.to_string()),
    }
    Ok(fields)
}

fn area(volume: &RawVolume, block: u32) -> String {
    let layout = &volume.layout;
    let copy = |start: u32, name: &str| format!("{name}, block {}", block.saturating_sub(start));
    if block < 2 {
        return format!("superblock {block}");
    }
    let second = layout.pack_start(Side::Second).get();
    if block < layout.cp {
        "before the first segment".into()
    } else if u64::from(block) < second {
        copy(layout.cp, "checkpoint pack 1")
    } else if block < layout.sit {
        let second = u32::try_from(second).unwrap_or(u32::MAX);
        copy(second, "checkpoint pack 2")
    } else if block < layout.nat {
        copy(layout.sit, "SIT")
    } else if block < layout.ssa {
        let within = block.saturating_sub(layout.nat);
        let pair = within.div_euclid(BLOCKS_PER_SEGMENT.saturating_mul(2));
        let rest = within.rem_euclid(BLOCKS_PER_SEGMENT.saturating_mul(2));
        let index = rest.rem_euclid(BLOCKS_PER_SEGMENT);
        let logical = pair.saturating_mul(BLOCKS_PER_SEGMENT).saturating_add(index);
        let side = if rest < BLOCKS_PER_SEGMENT { 1 } else { 2 };
        format!("NAT, copy {side} of block {logical}")
    } else if block < layout.main {
        copy(layout.ssa, "summary of segment").replace(", block", "")
    } else if layout.in_main(BlockAddr(block)) {
        "main".into()
    } else {
        "behind the main area".into()
    }
}
