//! [`Slow`]: a store in memory that takes the time of one in the network, and counts.

use std::ops::Range;
use std::time::Duration;

use cairn_block::Bytes;
use cairn_objects::store::{Condition, Listed, MemoryStore, Object, Result, Store, Tag};
use parking_lot::Mutex;

/// Time of a PUT without its bytes.
pub(super) const PUT: Duration = Duration::from_millis(20);
/// Time of another request without its bytes.
pub(super) const OTHER: Duration = Duration::from_millis(10);
/// Bytes of one connection in a second.
pub(super) const BYTES_PER_S: u64 = 100 << 20;
/// Dollars for a PUT or a LIST.
const DOLLARS_PUT: f64 = 5e-6;
/// Dollars for a GET.
const DOLLARS_GET: f64 = 4e-7;

/// What a store was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) puts: u64,
    pub(super) gets: u64,
    pub(super) lists: u64,
    pub(super) deletes: u64,
    pub(super) put_bytes: u64,
    pub(super) get_bytes: u64,
}

impl Usage {
    pub(super) const fn requests(&self) -> u64 {
        self.puts + self.gets + self.lists + self.deletes
    }

    pub(super) fn dollars(&self) -> f64 {
        (self.puts + self.lists) as f64 * DOLLARS_PUT + self.gets as f64 * DOLLARS_GET
    }

    /// What was added since.
    pub(super) const fn since(&self, before: &Self) -> Self {
        Self {
            puts: self.puts - before.puts,
            gets: self.gets - before.gets,
            lists: self.lists - before.lists,
            deletes: self.deletes - before.deletes,
            put_bytes: self.put_bytes - before.put_bytes,
            get_bytes: self.get_bytes - before.get_bytes,
        }
    }
}

/// The store.
#[derive(Default)]
pub(super) struct Slow {
    inner: MemoryStore,
    usage: Mutex<Usage>,
}

impl Slow {
    pub(super) fn usage(&self) -> Usage {
        *self.usage.lock()
    }

    /// Takes the time of a request, and counts it.
    fn take(&self, base: Duration, bytes: u64, count: impl FnOnce(&mut Usage)) {
        std::thread::sleep(base + Duration::from_nanos(bytes * 1_000_000_000 / BYTES_PER_S));
        count(&mut self.usage.lock());
    }

    /// A PUT of so many bytes that nobody reads.
    pub(super) fn pretend_to_put(&self, bytes: u64) {
        self.take(PUT, bytes, |usage| {
            usage.puts += 1;
            usage.put_bytes += bytes;
        });
    }

    /// A DELETE of what was pretended.
    pub(super) fn pretend_to_delete(&self) {
        self.take(OTHER, 0, |usage| usage.deletes += 1);
    }
}

impl Store for Slow {
    fn put(&self, name: &str, parts: &[Bytes], condition: Condition<'_>) -> Result<Tag> {
        self.pretend_to_put(parts.iter().map(|part| part.len() as u64).sum());
        self.inner.put(name, parts, condition)
    }

    fn get(&self, name: &str) -> Result<Object> {
        let answer = self.inner.get(name);
        let bytes = answer.as_ref().map_or(0, |object| object.bytes.len() as u64);
        self.take(OTHER, bytes, |usage| {
            usage.gets += 1;
            usage.get_bytes += bytes;
        });
        answer
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let answer = self.inner.get_range(name, range);
        let bytes = answer.as_ref().map_or(0, |bytes| bytes.len() as u64);
        self.take(OTHER, bytes, |usage| {
            usage.gets += 1;
            usage.get_bytes += bytes;
        });
        answer
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Vec<Listed>> {
        let answer = self.inner.list(prefix, after);
        // Servers give at most 1,000 names at once.
        let pages = answer.as_ref().map_or(1, |names| names.len().div_ceil(1000).max(1)) as u64;
        for _ in 0..pages {
            self.take(OTHER, 0, |usage| usage.lists += 1);
        }
        answer
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.take(OTHER, 0, |usage| usage.deletes += 1);
        self.inner.delete(name)
    }
}
