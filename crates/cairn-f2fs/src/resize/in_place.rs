//! The size changes and the tables stay: the superblock and a checkpoint change together.
//!
//! They are two blocks, and no order of the two writes leaves nothing in between. Everything else
//! is written before. A crash between the two leaves a checkpoint that says that the size changes,
//! beside the other size: the next mount takes the sizes from the superblock (`sizes::adopted`), as
//! `cairn check` does. The larger main area always belongs to the superblock then, because Linux
//! refuses a checkpoint that has more blocks than the superblock.

use std::sync::Arc;

use cairn_block::BlockDevice;

use crate::disk::{write_first_superblock, write_second_superblock};
use crate::error::Result;
use crate::format::{Layout, Superblock};
use crate::sizes::Sizes;
use crate::tables::{OpenPack, Tables};

/// Makes the main area larger. The volume is closed.
///
/// # Errors
/// The device failed.
pub(super) fn extend(
    device: &Arc<dyn BlockDevice>,
    old: &Layout,
    target: &Superblock,
    sizes: Sizes,
) -> Result<()> {
    let pack = prepare(device, old, target, sizes, false)?;
    write_first_superblock(&**device, target)?;
    pack.close(&**device)
}

/// Makes the main area smaller, whose end is empty. The volume is closed, and says that its size
/// changes until it is mounted again.
///
/// # Errors
/// A segment behind the new end is in use, or the device failed.
pub(super) fn shrink(
    device: &Arc<dyn BlockDevice>,
    old: &Layout,
    target: &Superblock,
    sizes: Sizes,
) -> Result<()> {
    let pack = prepare(device, old, target, sizes, true)?;
    pack.close(&**device)?;
    write_first_superblock(&**device, target)
}

fn prepare(
    device: &Arc<dyn BlockDevice>,
    old: &Layout,
    target: &Superblock,
    sizes: Sizes,
    pending: bool,
) -> Result<OpenPack> {
    let new = Layout::new(target, device.geometry().size)?;
    let pack = Tables::read(device, old)?.repack(&new, sizes, pending)?;
    write_second_superblock(&**device, target)?;
    Ok(pack)
}
