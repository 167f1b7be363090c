//! [`CacheCounters`]: what the cache of a volume has done. Relaxed atomics, raised at most once or twice a call.

use cairn_base::stats::{Counter, Gauge, Report};

use super::order::ORDERS;

/// What the cache of a volume has done.
#[derive(Debug, Default)]
pub struct CacheCounters {
    /// Folios now cached, by order (0 is 4 KiB).
    pub folios_by_order: [Gauge; ORDERS],
    /// Questions to file mappers: where is it?
    pub map_lookups: Counter,
    /// Promises of space asked of file mappers.
    pub map_reserves: Counter,
    /// Addresses asked of file mappers.
    pub map_places: Counter,
    /// Bytes read through the cache by its users.
    pub read_bytes: Counter,
    /// Bytes written into the cache by its users.
    pub written_bytes: Counter,
    /// Bytes read from the device for files.
    pub device_read_bytes: Counter,
    /// Of these, bytes read before anybody asked for them.
    pub readahead_bytes: Counter,
    /// Bytes of files written to the device.
    pub device_written_bytes: Counter,
    /// Copies to readers that needed no I/O.
    pub hits: Counter,
    /// Look-ups that found nothing cached.
    pub misses: Counter,
    /// Times a reader waited for blocks that were being read ahead.
    pub readahead_waits: Counter,
    /// Device batches of write-back.
    pub writeback_batches: Counter,
    /// Times a writer had to write back before it could go on.
    pub throttles: Counter,
    /// Folios thrown out for want of memory.
    pub evictions: Counter,
    /// Folios copied because their memory was on its way to the device.
    pub copies: Counter,
    /// Slabs that were used before.
    pub slabs_recycled: Counter,
    /// Slabs that were made ready before they were needed.
    pub slabs_prepared: Counter,
    /// Slabs whose memory the system had to give at once.
    pub slabs_fresh: Counter,
}

impl CacheCounters {
    /// All questions to file mappers.
    #[must_use]
    pub fn map_calls(&self) -> u64 {
        self.map_lookups.get() + self.map_reserves.get() + self.map_places.get()
    }

    /// All of them, for the section `cache` of a volume's report. `folios_by_order` is keyed by the folio's size.
    #[must_use]
    pub fn report(&self) -> Report {
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
            .with("write", &self.written_bytes)
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
        assert_eq!(report.get("folios_by_order.2048K"), Some(&Value::from(&counters.folios_by_order[9])));
    }
}
