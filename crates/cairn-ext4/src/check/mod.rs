//! The check of a whole volume: every structure, against every other. It writes nothing.
//!
//! Phases: the superblock and the groups (`open`, `groups`); every inode with its block map
//! (`inodes`), which claims blocks; every directory (`directories`), which counts names; the
//! tree and the links (`links`); the bitmaps and counts against what was claimed and counted
//! (`bitmaps`). Inodes and groups are divided among threads.
//!
//! Whatever the bytes are, a check ends: each block of a map is descended from once, and what
//! several files share is read at most as often as the volume has blocks. Memory: one bit a cluster
//! and a block where some are in use, 16 bytes an inode, a name's hash and place for the names of
//! one directory a thread.

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

mod attributes;
mod backup;
mod bitmaps;
mod claims;
mod contents;
mod corrected;
mod counted;
mod dir_blocks;
mod directories;
mod directory;
mod disputes;
mod doubted_lists;
mod doubted_marks;
mod each_entry;
mod entries;
mod evidence;
mod examine;
mod extents;
mod facts;
mod features;
mod file_type;
mod form;
mod groups;
mod htree;
mod indirect;
mod inodes;
mod kinds;
mod links;
mod list_bit;
mod log;
mod magic;
mod map;
mod map_bit;
mod mmp;
mod named;
mod one_bit;
mod open;
mod orphan_inode;
mod orphans;
mod owners;
mod placed;
mod plain_bit;
mod proved;
mod quota;
mod record;
pub mod repair;
mod reserved;
mod resize_inode;
mod secret;
mod source;
mod starts;
mod state;
mod strays;
mod superblock;
mod unsealed;
mod value;
mod visitor;

pub use kinds::ALL;

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_block::wrap::ReadAhead;
use cairn_check::{Findings, Observer, Report};

use crate::error::Result;
use examine::examine;

/// Can a volume be checked although its only superblock has one wrong bit, or no magic number?
///
/// # Errors
/// The device failed.
pub fn has_superblock(device: &dyn BlockDevice) -> Result<bool> {
    Ok(unsealed::with_right_bit(device)?.is_some() || plain_bit::right(device)?.is_some())
}

/// Checks the volume on a device, which is only read. A volume that was not unmounted cleanly is
/// recovered in memory first.
///
/// # Errors
/// There is no volume that can be read, its features are unknown, or there is not enough memory.
pub fn check(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
) -> Result<Report> {
    let device = Arc::new(ReadAhead::new(device));
    Ok(examine(device, &runtime, &observer, Findings::new, true)?.report)
}
