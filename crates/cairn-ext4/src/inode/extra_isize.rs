//! Grows an inode's fields beyond the first 128 bytes (`i_extra_isize`) to the size that the volume
//! prefers.
//!
//! As in Linux, every write of a record does this, because inodes of older systems lack the fields
//! for finer times or projects. Attributes in the inode move to the block if they no longer fit. If
//! even `s_min_extra_isize` is impossible, the inode stays as it is until it is loaded again, and
//! the operation continues.

use cairn_base::Ino;

use crate::error::{Error, Result};
use crate::inode::State;
use crate::op::Operations;
use crate::txn::Handle;
use crate::xattr_ops::{self, Room};

/// Grows the record in memory. The caller writes it in `handle`.
///
/// # Errors
/// The journal or the device failed.
pub(super) fn grow(ops: &Operations, handle: &Handle, ino: Ino, state: &mut State) -> Result<()> {
    let layout = &ops.layout;
    let have = state.record.extra_isize;
    if have >= layout.want_extra_isize || state.stays_small || state.record.links == 0 {
        return Ok(());
    }
    for wanted in [layout.want_extra_isize, layout.min_extra_isize]
        .into_iter()
        .filter(|wanted| *wanted > have)
    {
        match xattr_ops::make_room(ops, handle, ino, state, (wanted - have).into()) {
            Ok(Room::Made(area)) => {
                state.record.grow_extra(wanted, area);
                return Ok(());
            }
            Ok(Room::Later) => return Ok(()),
            Ok(Room::None) | Err(Error::Vfs(_) | Error::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
    }
    state.stays_small = true;
    Ok(())
}
