//! The write pointers of zones against the blocks in use.
//!
//! A log need not be at its zone's write pointer: the power may have failed while the next
//! checkpoint was written. Then the next mount moves the log.

use cairn_block::zoned::Zone;
use cairn_check::{Finding, Place};

use super::context::Context;
use super::kinds;
use crate::error::Result;
use crate::format::bits;
use crate::format::units::{BLOCK_BYTES, BLOCKS_PER_SEGMENT, SegNo};

/// Checks every zone of the main area that is written in order.
///
/// # Errors
/// The device's.
pub(super) fn check(context: &Context) -> Result<()> {
    let Some(device) = context.volume.device.as_zoned() else { return Ok(()) };
    for zone in device.report(0, usize::MAX)?.iter().filter(|zone| zone.is_sequential()) {
        check_zone(context, zone);
    }
    Ok(())
}

fn check_zone(context: &Context, zone: &Zone) {
    let layout = &context.layout;
    let main = u64::from(layout.main).saturating_mul(BLOCK_BYTES);
    let section_bytes = u64::from(layout.segs_per_sec)
        .saturating_mul(BLOCKS_PER_SEGMENT.into())
        .saturating_mul(BLOCK_BYTES);
    let section = zone.start.checked_sub(main).and_then(|at| at.checked_div(section_bytes));
    let Some(section) = section
        .and_then(|section| u32::try_from(section).ok())
        .filter(|section| *section < layout.sections)
    else {
        return;
    };
    let first = layout.first_segment(section);
    let segments = (first.get()..first.get().saturating_add(layout.segs_per_sec)).map(SegNo);
    let last = segments.rev().find_map(|segno| {
        let last = bits::last_set(&context.claims.valid_map(segno))?;
        Some(layout.address(segno, u16::try_from(last).ok()?))
    });
    let written = zone.write_pointer.div_ceil(BLOCK_BYTES);
    if let Some(last) = last.filter(|last| u64::from(last.get()) >= written) {
        let place = Place::segment(first.get()).at_block(last.get());
        context.add(Finding::new(&kinds::ZONE, place).stored(written));
    }
}
