//! What a volume says of itself: `statfs`, and its section of a report.

use cairn_base::stats::Report;
use cairn_vfs::VolumeStats;

use crate::alloc::Class;
use crate::volume::Volume;

/// Bytes that can still be stored. With `reserved`, root-reserved blocks count. None while the
/// device has no room for dirty data.
pub(crate) fn room(volume: &Volume, reserved: bool) -> u64 {
    if volume.pages.lacks_room() {
        return 0;
    }
    let class = if reserved { Class::Privileged } else { Class::User };
    volume.space.available(class).saturating_mul(u64::from(volume.layout.block_size))
}

/// `statfs`.
pub(crate) fn statfs(volume: &Volume) -> VolumeStats {
    // Blocks reserved ahead of a writer count as free.
    volume.pages.release_reservations();
    let layout = &volume.layout;
    let overhead = if volume.options.get().minix_df { 0 } else { volume.overhead };
    let free = volume.space.unused();
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
        available_blocks: volume.space.available(Class::User).min(free),
        inodes: u64::from(layout.inodes_count),
        free_inodes: volume.groups.free_inodes_total(),
        name_max: 255,
        fsid: half(0) ^ half(8),
    }
}

/// Options, state, and the counters of all parts.
pub(crate) fn report(volume: &Volume) -> Report {
    let mut report = Report::new();
    report.set(
        "options",
        volume.options.get().report().with("errors", volume.options.on_damage().name()),
    );
    report.set("state", state(volume));
    if let Some(journal) = volume.journal() {
        report.set("journal", journal.report());
    }
    report.set("cache", volume.pages.report());
    report
}

fn state(volume: &Volume) -> Report {
    let stats = statfs(volume);
    let mut state = Report::new().with("format", "ext4");
    match volume.read_only_reason() {
        Some(reason) => state.set("mode", "ro").set("read_only_reason", &*reason),
        None => state.set("mode", "rw"),
    };
    state.set("frozen", volume.access.is_frozen());
    if let Some(reason) = volume.journal().and_then(|journal| journal.aborted()) {
        state.set("journal_aborted", &*reason);
    }
    state
        .set("block_size", stats.block_size)
        .set("blocks", stats.blocks)
        .set("free_blocks", stats.free_blocks);
    state.set("inodes", stats.inodes).set("free_inodes", stats.free_inodes);
    state.set("inodes_in_memory", volume.inodes.len());
    state
}
