//! What a volume says of itself: `statfs`, and its section of a report.

use cairn_base::stats::Report;
use cairn_vfs::VolumeStats;

use crate::alloc::Class;
use crate::op::Operations;

/// Bytes that can still be stored. With `reserved`, root-reserved blocks count. None while the
/// device has no room for dirty data.
pub(crate) fn room(ops: &Operations, reserved: bool) -> u64 {
    if ops.pages.lacks_room() {
        return 0;
    }
    let class = if reserved { Class::Privileged } else { Class::User };
    ops.space.available(class).saturating_mul(u64::from(ops.layout.block_size))
}

/// `statfs`.
pub(crate) fn statfs(ops: &Operations) -> VolumeStats {
    // Blocks reserved ahead of a writer count as free.
    ops.pages.release_reservations();
    let layout = &ops.layout;
    let overhead = if ops.options.get().minix_df { 0 } else { ops.overhead };
    let free = ops.space.unused();
    let uuid = layout.uuid;
    let half = |at: usize| {
        uuid.get(at..)
            .and_then(|rest| rest.first_chunk::<8>())
            .map_or(0, |raw| u64::from_le_bytes(*raw))
    };
    VolumeStats {
        block_size: layout.block_size,
        blocks: layout.blocks_count.saturating_sub(overhead),
        free_blocks: free,
        available_blocks: ops.space.available(Class::User).min(free),
        inodes: u64::from(layout.inodes_count),
        free_inodes: ops.groups.free_inodes_total(),
        name_max: 255,
        fsid: half(0) ^ half(8),
        overwrites_take_blocks: false,
    }
}

/// Options, state, and the counters of all parts.
pub(crate) fn report(ops: &Operations) -> Report {
    let mut report = Report::new();
    report
        .set("options", ops.options.get().report().with("errors", ops.options.on_damage().name()));
    report.set("state", state(ops));
    if let Some(journal) = ops.journal() {
        report.set("journal", journal.report());
    }
    report.set("cache", ops.pages.report());
    report
}

fn state(ops: &Operations) -> Report {
    let stats = statfs(ops);
    let mut state = Report::new().with("format", "ext4");
    // A journal that was aborted in the background stops the volume at the next look.
    let _ = ops.check_writable();
    match ops.read_only_reason() {
        Some(reason) => state.set("mode", "ro").set("read_only_reason", &*reason),
        None => state.set("mode", "rw"),
    };
    state.set("frozen", ops.access.is_frozen());
    if let Some(reason) = ops.journal().and_then(|journal| journal.aborted()) {
        state.set("journal_aborted", &*reason);
    }
    state
        .set("block_size", stats.block_size)
        .set("blocks", stats.blocks)
        .set("free_blocks", stats.free_blocks);
    state.set("inodes", stats.inodes).set("free_inodes", stats.free_inodes);
    state.set("inodes_in_memory", ops.table.len());
    state
}
