//! The report of a mounted volume ([`cairn_vfs::FileSystem::report`]).

use cairn_base::stats::Report;

use crate::volume::Volume;

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
    let stats = volume.statfs();
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
