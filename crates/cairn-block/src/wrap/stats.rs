//! [`Stats`]: counts the requests to a device, and their latencies.

#![allow(
    clippy::disallowed_methods,
    reason = "latencies of real devices are measured with the system's clock"
)]

use std::sync::Arc;
use std::time::Instant;

use cairn_base::stats::Counter;
use serde::Serialize;

use crate::bounds::total_len;
use crate::device::{Batch, BlockDevice, Completion, Geometry, Growable, Request};
use crate::error::Result;
use crate::zoned::ZonedDevice;

/// Counts requests, bytes, barriers and time.
pub struct Stats {
    inner: Arc<dyn BlockDevice>,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Counters {
    batches: Counter,
    reads: Counter,
    read_bytes: Counter,
    writes: Counter,
    write_bytes: Counter,
    discards: Counter,
    discard_bytes: Counter,
    write_zeroes: Counter,
    write_zeroes_bytes: Counter,
    flushes: Counter,
    preflushes: Counter,
    fua_writes: Counter,
    errors: Counter,
    batch_ns: Counter,
    flush_ns: Counter,
}

/// The counters at one moment. They are read one after the other, not all at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatsSnapshot {
    /// Batches submitted.
    pub batches: u64,
    /// Read requests.
    pub reads: u64,
    /// Bytes they asked for.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes they held.
    pub write_bytes: u64,
    /// Discard requests.
    pub discards: u64,
    /// Bytes they covered.
    pub discard_bytes: u64,
    /// Requests to write zeros.
    pub write_zeroes: u64,
    /// Bytes they covered.
    pub(crate) write_zeroes_bytes: u64,
    /// Explicit flushes.
    pub flushes: u64,
    /// Batches that asked for a flush before them.
    pub preflushes: u64,
    /// Write requests in batches with forced unit access.
    pub fua_writes: u64,
    /// Batches and flushes that failed.
    pub errors: u64,
    /// Nanoseconds between submission and completion, summed over batches.
    pub(crate) batch_ns: u64,
    /// Nanoseconds spent in explicit flushes.
    pub(crate) flush_ns: u64,
}

impl Stats {
    /// Around `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { inner, counters: Arc::default() }
    }

    /// The counters now.
    #[must_use]
    pub fn snapshot(&self) -> StatsSnapshot {
        let counters = &*self.counters;
        StatsSnapshot {
            batches: counters.batches.get(),
            reads: counters.reads.get(),
            read_bytes: counters.read_bytes.get(),
            writes: counters.writes.get(),
            write_bytes: counters.write_bytes.get(),
            discards: counters.discards.get(),
            discard_bytes: counters.discard_bytes.get(),
            write_zeroes: counters.write_zeroes.get(),
            write_zeroes_bytes: counters.write_zeroes_bytes.get(),
            flushes: counters.flushes.get(),
            preflushes: counters.preflushes.get(),
            fua_writes: counters.fua_writes.get(),
            errors: counters.errors.get(),
            batch_ns: counters.batch_ns.get(),
            flush_ns: counters.flush_ns.get(),
        }
    }
}

impl Counters {
    fn count(&self, batch: &Batch) {
        self.batches.add(1);
        self.preflushes.add(u64::from(batch.durability.preflush));
        for request in &batch.requests {
            let (number, bytes, len) = match request {
                Request::Read { buf, .. } => (&self.reads, &self.read_bytes, buf.len() as u64),
                Request::Write { bufs, .. } => (&self.writes, &self.write_bytes, total_len(bufs)),
                Request::Discard { len, .. } => (&self.discards, &self.discard_bytes, *len),
                Request::WriteZeroes { len, .. } => {
                    (&self.write_zeroes, &self.write_zeroes_bytes, *len)
                }
            };
            number.add(1);
            bytes.add(len);
            let forced = batch.durability.fua && matches!(request, Request::Write { .. });
            self.fua_writes.add(u64::from(forced));
        }
    }
}

impl BlockDevice for Stats {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        self.counters.count(&batch);
        let counters = self.counters.clone();
        let start = Instant::now();
        self.inner.submit(batch).map(move |outcome| {
            counters.batch_ns.add(nanoseconds_since(start));
            counters.errors.add(u64::from(outcome.is_err()));
            outcome
        })
    }

    fn flush(&self) -> Result<()> {
        let start = Instant::now();
        let outcome = self.inner.flush();
        self.counters.flushes.add(1);
        self.counters.flush_ns.add(nanoseconds_since(start));
        self.counters.errors.add(u64::from(outcome.is_err()));
        outcome
    }

    fn as_zoned(&self) -> Option<&dyn ZonedDevice> {
        self.inner.as_zoned()
    }

    fn as_growable(&self) -> Option<&dyn Growable> {
        self.inner.as_growable()
    }
}

fn nanoseconds_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
