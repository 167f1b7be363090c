//! Which counters of a report are metrics, and under which names. Names do not change; new ones may
//! be added.

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, while the mount lives.
    Counter,
    /// It goes up and down.
    Gauge,
    /// A distribution of times.
    Histogram,
}

/// Where its values are in a report.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// A value at a path. What its name ends with gives its unit: `_ns` and `_ms` become seconds.
    At(&'static str),
    /// Several values, each with a value of a label: label, and pairs of value and path.
    Several(&'static str, &'static [(&'static str, &'static str)]),
    /// Each value of a section, with its name as the value of this label.
    Each(&'static str, &'static str),
    /// A number of blocks, as bytes.
    Blocks(&'static str),
    /// 1 if there is this text at the path, else 0.
    Is(&'static str, &'static str),
}

/// Metrics of one name.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Without `cairn_` and, of a counter, without `_total`.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Where its values are.
    pub source: Source,
    /// What it counts, in one sentence.
    pub help: &'static str,
}

const fn counter(name: &'static str, path: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, source: Source::At(path), help }
}

const fn gauge(name: &'static str, path: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, source: Source::At(path), help }
}

const fn times(name: &'static str, path: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Histogram, source: Source::At(path), help }
}

const fn of(kind: Kind, name: &'static str, source: Source, help: &'static str) -> Family {
    Family { name, kind, source, help }
}

use Kind::{Counter, Gauge};
use Source::{Blocks, Each, Is, Several};

/// The metrics, in the order of the output. A volume has those whose values its report has.
pub const FAMILIES: &[Family] = &[
    gauge("uptime_seconds", "mount.uptime_s", "Time since the mount."),
    gauge("daemon_resident_bytes", "mount.resident_bytes", "Memory of the daemon."),
    of(Gauge, "size_bytes", Blocks("state.blocks"), "Size of the volume for files."),
    of(Gauge, "free_bytes", Blocks("state.free_blocks"), "Free space of the volume."),
    gauge("inodes", "state.inodes", "Inodes of the volume."),
    gauge("free_inodes", "state.free_inodes", "Inodes that are free."),
    gauge("inodes_in_memory", "state.inodes_in_memory", "Inodes that the daemon has in memory."),
    of(Gauge, "read_only", Is("state.mode", "ro"), "1 if the volume is read-only."),
    gauge("frozen", "state.frozen", "1 if the volume is frozen."),
    of(Counter, "requests", Each("fuse.requests", "operation"), "Requests of the kernel."),
    counter(
        "request_errors",
        "fuse.errors",
        "Requests that were answered with an error, but for missing names and attributes.",
    ),
    times("request_duration_seconds", "fuse.request_ns", "Time that requests took."),
    gauge("requests_in_progress", "fuse.queue_now", "Requests that are being answered."),
    counter("read_bytes", "fuse.read_bytes", "Bytes that requests have read."),
    counter("written_bytes", "fuse.written_bytes", "Bytes that requests have written."),
    gauge("threads", "fuse.threads", "Threads of the daemon that answer requests."),
    gauge("threads_idle", "fuse.threads_idle", "Threads of the daemon that wait for requests."),
    counter("refused_writes", "fuse.room.refused", "Writes for which there was no room."),
    counter("cache_hits", "cache.hits", "Reads that the cache answered."),
    counter("cache_misses", "cache.misses", "Reads that went to the device."),
    counter("device_read_bytes", "cache.device_read", "Bytes of files read from the device."),
    counter("writeback_bytes", "cache.writeback", "Bytes of files written to the device."),
    counter("write_throttles", "cache.throttles", "Writers that waited for write-back."),
    counter("cache_evictions", "cache.evictions", "Pieces that made room in the cache."),
    gauge("cache_limit_bytes", "cache.budget.limit_bytes", "Limit of the caches."),
    of(Gauge, "cache_used_bytes", Several("use", CACHE), "What the caches hold."),
    gauge("dirty_bytes", "cache.budget.dirty_bytes", "File data that is not on the device yet."),
    counter("journal_commits", "journal.transactions", "Transactions that were committed."),
    counter("journal_handles", "journal.handles", "Operations that joined a transaction."),
    counter("journal_blocks_written", "journal.log_blocks", "Blocks written to the journal."),
    times("journal_commit_duration_seconds", "journal.commit_ns", "Time that commits took."),
    counter("journal_checkpointed", "journal.checkpointed", "Transactions that were checkpointed."),
    counter(
        "journal_forced_checkpoints",
        "journal.forced_checkpoints",
        "Checkpoints that an operation waited for.",
    ),
    counter("journal_stalls", "journal.stalls.count", "Operations that waited for the journal."),
    counter(
        "journal_stall_seconds",
        "journal.stalls.total_ns",
        "Time that operations waited for the journal.",
    ),
    gauge("journal_blocks", "journal.blocks", "Blocks of the journal."),
    gauge("journal_free_blocks", "journal.free_blocks", "Blocks of the journal that are free."),
    of(
        Counter,
        "checkpoints",
        Each("store.ckpt.written", "reason"),
        "Checkpoints of F2FS that were written.",
    ),
    times("checkpoint_duration_seconds", "store.ckpt.whole_ns", "Time that checkpoints took."),
    times(
        "checkpoint_closed_seconds",
        "store.ckpt.closed_ns",
        "Time of checkpoints in which operations wait.",
    ),
    times(
        "checkpoint_wait_seconds",
        "store.ckpt.wait_ns",
        "Time that requests for a checkpoint waited.",
    ),
    gauge("checkpoint_queued", "store.ckpt.queued", "Requests that wait for a checkpoint."),
    of(Counter, "fsyncs", Several("by", FSYNCS), "Calls of fsync, by what they wrote."),
    gauge("free_sections", "store.segments.free_sections", "Sections of F2FS that are free."),
    of(
        Counter,
        "cleaning_calls",
        Several("kind", CLEANING),
        "Calls of the cleaner, in an operation or in the background.",
    ),
    of(Counter, "cleaned_sections", Several("of", CLEANED), "Sections that were cleaned."),
    of(Counter, "moved_blocks", Several("of", MOVED), "Blocks that the cleaner moved."),
    of(
        Counter,
        "device_written_blocks",
        Each("gc.written", "what"),
        "Blocks written to the device, by what they are.",
    ),
    counter("object_flushes", "object_volume.flushes", "Flushes of an object volume."),
    counter("objects_written", "object_volume.objects", "Data objects that were put."),
    counter(
        "object_logged_flushes",
        "object_volume.logged_flushes",
        "Flushes that were made durable in the local log.",
    ),
    counter(
        "object_log_fallbacks",
        "object_volume.log_fallbacks",
        "Flushes that the local log did not take, and that waited for the store.",
    ),
    gauge("object_log_in_use", "object_volume.log_in_use", "1 if the local log is used."),
    of(
        Counter,
        "log_messages",
        Several("level", &[("error", "log.errors"), ("warning", "log.warnings")]),
        "Problems that the daemon has logged.",
    ),
];

const CACHE: &[(&str, &str)] = &[
    ("file_data", "cache.budget.file_data_bytes"),
    ("metadata", "cache.budget.metadata_bytes"),
    ("directory", "cache.budget.directory_bytes"),
    ("inode", "cache.budget.inode_bytes"),
    ("overhead", "cache.budget.overhead_bytes"),
];

const FSYNCS: &[(&str, &str)] = &[
    ("nodes", "fsync.by_nodes"),
    ("checkpoint", "fsync.by_checkpoint"),
    ("data_only", "fsync.data_only"),
];

const CLEANING: &[(&str, &str)] = &[("foreground", "gc.calls_fg"), ("background", "gc.calls_bg")];

const CLEANED: &[(&str, &str)] = &[("data", "gc.data_sections"), ("node", "gc.node_sections")];

const MOVED: &[(&str, &str)] =
    &[("data", "gc.data_blocks_moved"), ("node", "gc.node_blocks_moved")];
