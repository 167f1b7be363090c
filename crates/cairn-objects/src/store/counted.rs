//! [`Counted`]: counts the requests to a store and their bytes.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::stats::{Counter, Report};

use super::{Condition, Listed, Object, Result, Store, Stranger, Swept, Tag, total};

/// What a store was asked for.
#[derive(Debug, Default)]
pub struct Counters {
    /// PUTs of data objects and fences.
    pub log_puts: Counter,
    /// PUTs of manifests.
    pub manifest_puts: Counter,
    /// PUTs of map objects.
    pub map_puts: Counter,
    /// Bytes of all PUTs.
    pub put_bytes: Counter,
    /// GETs, whole objects and ranges.
    pub gets: Counter,
    /// Bytes that they gave.
    pub get_bytes: Counter,
    /// LISTs.
    pub lists: Counter,
    /// DELETEs.
    pub deletes: Counter,
    /// Requests that failed, those whose condition did not hold included.
    pub errors: Counter,
}

impl Counters {
    /// All requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        let Self { log_puts, manifest_puts, map_puts, gets, lists, deletes, .. } = self;
        [log_puts, manifest_puts, map_puts, gets, lists, deletes].map(Counter::get).iter().sum()
    }

    pub(crate) fn report(&self) -> Report {
        Report::new()
            .with("log_puts", &self.log_puts)
            .with("manifest_puts", &self.manifest_puts)
            .with("map_puts", &self.map_puts)
            .with("put_bytes", &self.put_bytes)
            .with("gets", &self.gets)
            .with("get_bytes", &self.get_bytes)
            .with("lists", &self.lists)
            .with("deletes", &self.deletes)
            .with("errors", &self.errors)
    }
}

/// A store whose requests are counted.
pub struct Counted {
    inner: Arc<dyn Store>,
    counters: Arc<Counters>,
}

impl Counted {
    /// Around `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, counters: Arc::default() }
    }

    /// The counters, which go on counting.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    fn observe<T>(&self, answer: Result<T>) -> Result<T> {
        self.counters.errors.add(u64::from(answer.is_err()));
        answer
    }
}

impl Store for Counted {
    fn put(&self, name: &str, parts: &[Bytes], condition: Condition<'_>) -> Result<Tag> {
        let counters = &*self.counters;
        let kind = match name.split('/').next() {
            Some("log") => &counters.log_puts,
            Some("map") => &counters.map_puts,
            _ => &counters.manifest_puts,
        };
        kind.add(1);
        counters.put_bytes.add(total(parts));
        self.observe(self.inner.put(name, parts, condition))
    }

    fn get(&self, name: &str) -> Result<Object> {
        self.counters.gets.add(1);
        let answer = self.observe(self.inner.get(name))?;
        self.counters.get_bytes.add(answer.bytes.len() as u64);
        Ok(answer)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.counters.gets.add(1);
        let answer = self.observe(self.inner.get_range(name, range))?;
        self.counters.get_bytes.add(answer.len() as u64);
        Ok(answer)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Vec<Listed>> {
        self.counters.lists.add(1);
        self.observe(self.inner.list(prefix, after))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.counters.deletes.add(1);
        self.observe(self.inner.delete(name))
    }

    fn sweep(&self) -> Result<Swept> {
        self.inner.sweep()
    }

    fn strangers(&self) -> Result<Vec<Stranger>> {
        self.inner.strangers()
    }

    fn is_foreign(&self, name: &str) -> bool {
        self.inner.is_foreign(name)
    }

    fn holds(&self, path: &Path) -> bool {
        self.inner.holds(path)
    }

    fn is_made(&self) -> Result<bool> {
        self.inner.is_made()
    }
}
