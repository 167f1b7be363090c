//! [`CacheCounters`]: the counters of a volume's page cache. They are relaxed atomics; a call
//! raises one or two of them.

use cairn_base::stats::{Counter, Gauge, Report};

use super::order::ORDERS;

/// The counters of a volume's page cache.
#[derive(Debug, Default)]
pub(crate) struct CacheCounters {
    /// Folios in the cache now, by order (0 is 4 KiB).
    pub(crate) folios_by_order: [Gauge; ORDERS],
    /// Calls of [`FileMapper::lookup`](crate::mapper::FileMapper::lookup).
    pub(crate) map_lookups: Counter,
    /// Calls of [`FileMapper::reserve`](crate::mapper::FileMapper::reserve).
    pub(crate) map_reserves: Counter,
    /// Calls of [`FileMapper::place`](crate::mapper::FileMapper::place).
    pub(crate) map_places: Counter,
    /// Bytes read through the cache by its users.
    pub(crate) read_bytes: Counter,
    /// Those of them that were answered from the cache's memory, without a copy.
    pub(crate) shared_bytes: Counter,
    /// Bytes written into the cache by its users.
    pub(crate) written_bytes: Counter,
    /// Those of them whose memory the cache kept instead of a copy.
    pub(crate) given_bytes: Counter,
    /// Bytes read from the device for files.
    pub(crate) device_read_bytes: Counter,
    /// Those of them that were read ahead.
    pub(crate) readahead_bytes: Counter,
    /// Bytes of files written to the device.
    pub(crate) device_written_bytes: Counter,
    /// Copies to readers from cached blocks.
    pub(crate) hits: Counter,
    /// Look-ups of blocks that were not cached.
    pub(crate) misses: Counter,
    /// Times a reader waited for blocks that another thread was reading.
    pub(crate) readahead_waits: Counter,
    /// Device batches of write-back.
    pub(crate) writeback_batches: Counter,
    /// Times a writer was throttled.
    pub(crate) throttles: Counter,
    /// Folios that were evicted for memory.
    pub(crate) evictions: Counter,
    /// Folios that were copied for a change because a write or a reader pinned their memory.
    pub(crate) copies: Counter,
    /// Slabs that were recycled.
    pub(crate) slabs_recycled: Counter,
    /// Slabs that were prepared before they were needed.
    pub(crate) slabs_prepared: Counter,
    /// Slabs that were allocated when they were needed.
    pub(crate) slabs_fresh: Counter,
}

impl CacheCounters {
    /// All calls of file mappers.
    #[must_use]
    pub(crate) fn map_calls(&self) -> u64 {
        self.map_lookups.get() + self.map_reserves.get() + self.map_places.get()
    }

    /// All counters, for the section `cache` of a volume's report. The keys of `folios_by_order`
    /// are folio sizes.
    #[must_use]
    pub(crate) fn report(&self) -> Report {
        let mut folios = Report::new();
        for (order, count) in self.folios_by_order.iter().enumerate() {
            folios.set(&format!("{}K", 4_u64 << order), count);
        }
        Report::new()
            .with("folios_by_order", folios)
            .with("map_calls", self.map_calls())
            .with("map_lookups", &self.map_lookups)
            .with("map_reserves", &self.map_reserves)
            .with("map_places", &self.map_places)
            .with("read", &self.read_bytes)
            .with("read_shared", &self.shared_bytes)
            .with("write", &self.written_bytes)
            .with("write_given", &self.given_bytes)
            .with("writeback", &self.device_written_bytes)
            .with("device_read", &self.device_read_bytes)
            .with("readahead", &self.readahead_bytes)
            .with("readahead_waits", &self.readahead_waits)
            .with("hits", &self.hits)
            .with("misses", &self.misses)
            .with("writeback_batches", &self.writeback_batches)
            .with("throttles", &self.throttles)
            .with("evictions", &self.evictions)
            .with("copies", &self.copies)
            .with("slabs_recycled", &self.slabs_recycled)
            .with("slabs_prepared", &self.slabs_prepared)
            .with("slabs_fresh", &self.slabs_fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::stats::Value;

    #[test]
    fn the_report_sums_the_calls_and_names_the_folios() {
        let counters = CacheCounters::default();
        counters.map_lookups.add(1);
        counters.map_reserves.add(2);
        counters.map_places.add(4);
        counters.folios_by_order[9].add(3);
        let report = counters.report();
        assert_eq!(report.get("map_calls"), Some(&Value::U64(7)));
        assert_eq!(
            report.get("folios_by_order.2048K"),
            Some(&Value::from(&counters.folios_by_order[9]))
        );
    }
}
