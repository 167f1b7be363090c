//! Targets of symbolic links: what reading a link needs.

use cairn_base::units::as_u64;
use cairn_check::{Finding, Place};

use super::context::{Context, Scratch};
use super::kinds;
use crate::error::Result;
use crate::format::Inode;
use crate::format::inode::{Advise, InlineFlags};
use crate::format::units::{BLOCK_BYTES, Nid};

/// Checks the target of a link.
///
/// # Errors
/// The device's.
pub(super) fn check(
    context: &Context,
    scratch: &mut Scratch,
    (ino, record, image): (Nid, &Inode, &[u8]),
) -> Result<()> {
    let is_size = (1..BLOCK_BYTES).contains(&record.size);
    let contents = contents(context, scratch, record, image)?;
    let len = contents.map(|bytes| {
        let end = bytes.iter().position(|byte| *byte == 0);
        as_u64(end.unwrap_or(bytes.len()))
    });
    // Of an encrypted target, only the size shows the length.
    let is_hidden = record.advise.contains(Advise::ENCRYPT);
    let is_target = match len {
        Some(_) if is_hidden => is_size,
        Some(len) => len > 0 && (is_size || len < BLOCK_BYTES),
        None => false,
    };
    let place = Place::inode(ino.get());
    if !is_target {
        context.add(Finding::new(&kinds::INODE_TARGET, place));
    } else if !is_size {
        context.add(Finding::new(&kinds::INODE_SIZE, place.in_field("i_size")).stored(record.size));
    }
    Ok(())
}

/// The bytes that a target lies in. `None` if its block is missing.
///
/// # Errors
/// The device's.
pub(super) fn contents(
    context: &Context,
    scratch: &mut Scratch,
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
    if !context.layout.in_main(addr) {
        return Ok(None);
    }
    let blocks = context.read(scratch, &[addr])?;
    let bytes = blocks.iter().next().map(<[u8]>::to_vec);
    scratch.recycle(blocks);
    Ok(bytes)
}
