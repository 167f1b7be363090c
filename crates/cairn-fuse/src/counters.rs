//! Counters of the FUSE side, and their report.
//!
//! Requests that the filesystem is not asked about (such as INTERRUPT) are not counted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_base::stats::{Counter, Histogram, Report};

/// Requests that take this long are told in the debug log.
const SLOW: Duration = Duration::from_millis(100);

macro_rules! operations {
    ($($operation:ident = $name:literal,)*) => {
        /// The requests that reach the filesystem.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Operation {
            $($operation,)*
        }

        /// Their names, in the same order.
        const NAMES: &[&str] = &[$($name,)*];
    };
}

operations! {
    Lookup = "lookup",
    GetAttr = "getattr",
    Read = "read",
    Write = "write",
    ReadDirPlus = "readdirplus",
    Forget = "forget",
    Create = "create",
    Unlink = "unlink",
    Fsync = "fsync",
    SetAttr = "setattr",
    MkDir = "mkdir",
    RmDir = "rmdir",
    Rename = "rename",
    Link = "link",
    SymLink = "symlink",
    ReadLink = "readlink",
    MkNod = "mknod",
    Open = "open",
    Release = "release",
    ReadDir = "readdir",
    FsyncDir = "fsyncdir",
    StatFs = "statfs",
    GetXattr = "getxattr",
    ListXattr = "listxattr",
    SetXattr = "setxattr",
    RemoveXattr = "removexattr",
    Fallocate = "fallocate",
    Seek = "lseek",
    CopyFileRange = "copy_file_range",
    Ioctl = "ioctl",
    Statx = "statx",
    TmpFile = "tmpfile",
    SyncFs = "syncfs",
    Access = "access",
}

impl Operation {
    /// True for an operation that frees memory or writes accepted data. It is never refused for
    /// lack of memory.
    pub(crate) const fn gives_up(self) -> bool {
        use Operation as O;
        matches!(
            self,
            O::Forget | O::Release | O::Fsync | O::FsyncDir | O::SyncFs | O::StatFs | O::GetAttr
        )
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES[*self as usize])
    }
}

struct ByOperation([Counter; NAMES.len()]);

impl Default for ByOperation {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::new()))
    }
}

/// What the requests of one mount have been so far.
#[derive(Default)]
pub(crate) struct Counters {
    by_operation: ByOperation,
    errors: Counter,
    in_progress: AtomicU64,
    in_progress_peak: AtomicU64,
    request_ns: Histogram,
    pub(crate) read_bytes: Counter,
    pub(crate) written_bytes: Counter,
    /// References that the kernel gave back; many in one request.
    pub(crate) forgotten: Counter,
    pub(crate) room: RoomCounters,
}

/// What [`crate::guard`] did.
#[derive(Default)]
pub(crate) struct RoomCounters {
    /// The kernel asks before it takes a write.
    pub(crate) near_full: AtomicBool,
    pub(crate) asked: Counter,
    pub(crate) refused: Counter,
    /// How often the kernel's dirty data was fetched.
    pub(crate) fetched: Counter,
}

impl RoomCounters {
    fn report(&self) -> Report {
        Report::new()
            .with("near_full", self.near_full.load(Ordering::Relaxed))
            .with("asked", &self.asked)
            .with("refused", &self.refused)
            .with("fetched", &self.fetched)
    }
}

impl Counters {
    /// Counts a request as running until the result is dropped.
    pub(crate) fn begin(&self, operation: Operation) -> InProgress<'_> {
        self.by_operation.0[operation as usize].add(1);
        let now = self.in_progress.fetch_add(1, Ordering::Relaxed) + 1;
        if now > self.in_progress_peak.load(Ordering::Relaxed) {
            self.in_progress_peak.fetch_max(now, Ordering::Relaxed);
        }
        InProgress { counters: self, operation, began: Instant::now() }
    }

    pub(crate) fn count_error(&self) {
        self.errors.add(1);
    }
}

/// A request that is being carried out.
pub(crate) struct InProgress<'a> {
    counters: &'a Counters,
    operation: Operation,
    began: Instant,
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.counters.in_progress.fetch_sub(1, Ordering::Relaxed);
        let took = self.began.elapsed();
        if took >= SLOW {
            tracing::debug!("{} took {} ms", self.operation, took.as_millis());
        }
        self.counters.request_ns.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// The threads of a mount.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) threads: usize,
    /// Of these, with no request.
    pub(crate) idle: usize,
    /// A request waits to be taken.
    pub(crate) queued: bool,
    pub(crate) device: DeviceLoad,
    /// `None`: all requests come through `/dev/fuse`.
    pub(crate) ring: Option<RingLoad>,
}

/// The requests that were read from `/dev/fuse`: with rings, what does not come through them.
#[derive(Clone, Copy, Default)]
pub(crate) struct DeviceLoad {
    pub(crate) taken: u64,
    pub(crate) answered: u64,
    /// Answers after the end of the connection.
    pub(crate) late: u64,
}

impl DeviceLoad {
    fn report(&self) -> Report {
        Report::new()
            .with("taken", self.taken)
            .with("answered", self.answered)
            .with("late", self.late)
    }
}

/// What the rings of a mount did.
#[derive(Clone, Copy)]
pub(crate) struct RingLoad {
    pub(crate) queues: usize,
    pub(crate) entries: u64,
    pub(crate) taken: u64,
    pub(crate) answered: u64,
    /// Answers after the end of the connection.
    pub(crate) late: u64,
    pub(crate) to_workers: u64,
    /// How often a thread lost its ring because a request kept it.
    pub(crate) taken_over: u64,
}

impl RingLoad {
    fn report(&self) -> Report {
        Report::new()
            .with("queues", self.queues)
            .with("entries", self.entries)
            .with("taken", self.taken)
            .with("answered", self.answered)
            .with("late", self.late)
            .with("to_workers", self.to_workers)
            .with("taken_over", self.taken_over)
    }
}

/// Reads the counters of a mount, also after it has ended.
#[derive(Clone)]
pub struct FuseStats {
    counters: Arc<Counters>,
    load: Arc<dyn Fn() -> Load + Send + Sync>,
}

impl FuseStats {
    pub(crate) fn new(
        counters: Arc<Counters>,
        load: impl Fn() -> Load + Send + Sync + 'static,
    ) -> Self {
        Self { counters, load: Arc::new(load) }
    }

    /// Waits until no request is queued or under way, or `longest` has passed.
    pub fn settle(&self, longest: Duration) {
        let began = Instant::now();
        loop {
            let load = (self.load)();
            if !load.queued && load.idle == load.threads || began.elapsed() >= longest {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The section `fuse`. `requests` has a field for each operation that occurred.
    #[must_use]
    pub fn report(&self) -> Report {
        let counters = &*self.counters;
        let (mut requests, mut total) = (Report::new(), 0);
        for (name, count) in NAMES.iter().zip(&counters.by_operation.0) {
            let count = count.get();
            total += count;
            if count > 0 {
                requests.set(name, count);
            }
        }
        let load = (self.load)();
        let mut report = Report::new()
            .with("transport", if load.ring.is_some() { "ring" } else { "dev" })
            .with("requests_total", total)
            .with("requests", requests)
            .with("errors", &counters.errors)
            .with("read_bytes", &counters.read_bytes)
            .with("written_bytes", &counters.written_bytes)
            .with("forgotten", &counters.forgotten)
            .with("queue_now", counters.in_progress.load(Ordering::Relaxed))
            .with("queue_peak", counters.in_progress_peak.load(Ordering::Relaxed))
            .with("threads", load.threads)
            .with("threads_idle", load.idle)
            .with("request_ns", &counters.request_ns)
            .with("room", counters.room.report())
            .with("device", load.device.report());
        if let Some(ring) = load.ring {
            report.set("ring", ring.report());
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_name_and_depth() {
        let counters = Arc::new(Counters::default());
        let stats = FuseStats::new(counters.clone(), || Load {
            threads: 3,
            idle: 2,
            queued: false,
            device: DeviceLoad::default(),
            ring: None,
        });
        {
            let _first = counters.begin(Operation::Lookup);
            let _second = counters.begin(Operation::Lookup);
            let _last = counters.begin(Operation::SyncFs);
            assert_eq!(stats.report().u64("queue_now"), Some(3));
        }
        drop(counters.begin(Operation::Write));
        let report = stats.report();
        assert_eq!(report.u64("requests.lookup"), Some(2));
        assert_eq!((report.u64("requests.syncfs"), report.u64("requests.read")), (Some(1), None));
        assert_eq!((report.u64("queue_now"), report.u64("queue_peak")), (Some(0), Some(3)));
        assert_eq!(
            (report.u64("requests_total"), report.u64("request_ns.count")),
            (Some(4), Some(4))
        );
    }
}
