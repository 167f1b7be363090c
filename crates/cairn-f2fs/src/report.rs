//! What a volume says of itself: `statfs`, and its section of a report.

use std::sync::atomic::Ordering;

use cairn_base::stats::Report;
use cairn_vfs::VolumeStats;

use crate::format::units::{BLOCK_SIZE, NAME_MAX, Nid};
use crate::inodes::Inodes;
use crate::op::Operations;

/// `statfs`, as in Linux: the total is all blocks after the superblocks, the free blocks are those
/// that files can have, and the inodes are bounded by numbers and blocks.
#[must_use]
pub(crate) fn statfs(inodes: &Inodes) -> VolumeStats {
    // Reservations without data count as free.
    inodes.pages.release_reservations();
    let disk = &inodes.disk;
    let checkpoint = &disk.checkpoint.checkpoint;
    let counts = disk.counts();
    let (free, available) = match &disk.store {
        Some(store) => {
            inodes.limit_space(store);
            (store.space.free_blocks(), store.space.available(false))
        }
        None => {
            let free = checkpoint.user_block_count.saturating_sub(counts.valid_blocks);
            (free, free)
        }
    };
    let user_blocks =
        disk.store.as_ref().map_or(checkpoint.user_block_count, |store| store.space.user_blocks());
    // Numbers 0 to 2 are not inodes; every inode needs a block.
    let numbers = u64::from(disk.layout.max_nid().saturating_sub(Nid::ROOT.get()));
    let used = u64::from(counts.valid_nodes);
    // As in Linux: if there are more numbers than blocks, the blocks are the limit.
    let total = numbers.min(user_blocks);
    let fsid =
        disk.superblock.uuid.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    VolumeStats {
        block_size: BLOCK_SIZE as u32,
        blocks: disk.layout.block_count.saturating_sub(disk.layout.cp.into()),
        free_blocks: free,
        available_blocks: available,
        inodes: total,
        free_inodes: numbers.saturating_sub(used).min(available),
        name_max: NAME_MAX as u32,
        fsid,
        // The last checkpoint keeps what it has.
        overwrites_take_blocks: disk
            .store
            .as_ref()
            .is_some_and(|store| store.checkpoints.is_disabled()),
    }
}

/// Bytes that can still be stored, with `reserved` also in root-reserved blocks. None while the
/// device has no room for earlier writes.
#[must_use]
pub(crate) fn bytes_left(inodes: &Inodes, reserved: bool) -> u64 {
    if inodes.pages.lacks_room() {
        return 0;
    }
    let free = inodes.disk.store.as_ref().map_or(0, |store| {
        inodes.limit_space(store);
        store.space.available(reserved)
    });
    free.saturating_mul(BLOCK_SIZE as u64)
}

/// Counters and options in force.
#[must_use]
pub(crate) fn report(ops: &Operations) -> Report {
    let (mount, inodes, disk) = (&ops.mount, &ops.inodes, &ops.disk);
    let (counts, stats) = (disk.counts(), statfs(inodes));
    let free = disk.checkpoint.checkpoint.free_segment_count;
    let mut state = Report::new().with("format", "f2fs");
    match mount.read_only_reason() {
        Some(reason) => state.set("mode", "ro").set("read_only_reason", &*reason),
        None => state.set("mode", "rw"),
    };
    let state = state
        .with("frozen", mount.access.is_frozen())
        .with("block_size", stats.block_size)
        .with("blocks", stats.blocks)
        .with("free_blocks", stats.free_blocks)
        .with("inodes", stats.inodes)
        .with("free_inodes", stats.free_inodes)
        .with("checkpoint_version", disk.version())
        .with("valid_blocks", counts.valid_blocks)
        .with("valid_nodes", u64::from(counts.valid_nodes))
        .with(
            "free_segments",
            u64::from(disk.store.as_ref().map_or(free, |store| store.segments.free_segments())),
        )
        .with("dirty_inodes", inodes.dirty.len())
        .with("dirty_entry_blocks", inodes.dirty_entries.load(Ordering::Relaxed))
        .with("inodes_in_memory", inodes.table.len());
    let report = Report::new().with("options", mount.options().report()).with("state", state);
    let report = report.with("cache", inodes.pages.report());
    match &disk.store {
        Some(store) => report
            .with("store", store.report())
            .with("checkpoint", store.disabled_report())
            .with("fsync", ops.fsyncs.stats.report())
            .with("gc", ops.cleaner.stats.report(store)),
        None => report,
    }
}
