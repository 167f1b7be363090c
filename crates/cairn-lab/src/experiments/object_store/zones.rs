//! [`ObjectZones`]: a model of a zoned device whose zones are objects. The bytes are in memory; the
//! store is asked for what such a device would ask for.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn::MkfsOptions;
use cairn_block::memory::MemoryDevice;
use cairn_block::zoned::{Zone, ZoneLayout, ZoneLimits, ZonedDevice, create_image};
use cairn_block::{Batch, BlockDevice, Completion, Geometry, Request, Result};
use parking_lot::Mutex;

use super::slow::Slow;
use crate::error::Result as LabResult;

/// Bytes of a zone, which is a section and an object.
const ZONE: u64 = 8 << 20;
/// Zones that can be written anywhere.
const CONVENTIONAL: u32 = 8;
/// Bytes of an object there.
const PIECE: u64 = 64 << 10;
/// PUTs beside each other.
const PARALLEL: usize = 8;

/// The device.
pub(super) struct ObjectZones {
    inner: Arc<dyn BlockDevice>,
    store: Arc<Slow>,
    /// Bytes for each object that were written since the last flush, by the object's start.
    fresh: Mutex<BTreeMap<u64, u64>>,
    /// Held while objects are written. Who comes meanwhile shares the next ones.
    flushing: Mutex<()>,
}

impl ObjectZones {
    /// A device of this size with an empty F2FS volume.
    pub(super) fn with_f2fs(store: &Arc<Slow>, size: u64) -> LabResult<Arc<dyn BlockDevice>> {
        let zones = (size / ZONE) as u32;
        let layout = ZoneLayout::new(ZONE, CONVENTIONAL, zones);
        let memory = Arc::new(MemoryDevice::new(layout.image_size()));
        let inner: Arc<dyn BlockDevice> = Arc::new(create_image(memory, layout)?);
        let options = MkfsOptions {
            zoned: true,
            reserved_sections: Some(8),
            ..MkfsOptions::new(cairn::Format::F2fs)
        };
        cairn::mkfs_on(inner.clone(), &options)?;
        let (fresh, flushing) = (Mutex::default(), Mutex::default());
        Ok(Arc::new(Self { inner, store: store.clone(), fresh, flushing }))
    }

    fn note(&self, offset: u64, len: u64) {
        let mut fresh = self.fresh.lock();
        if offset >= u64::from(CONVENTIONAL) * ZONE {
            *fresh.entry(offset / ZONE * ZONE).or_default() += len;
            return;
        }
        for piece in offset / PIECE..(offset + len).div_ceil(PIECE) {
            fresh.insert(piece * PIECE, PIECE);
        }
    }

    fn put_all(&self) {
        let _flushing = self.flushing.lock();
        let fresh: Vec<u64> = std::mem::take(&mut *self.fresh.lock()).into_values().collect();
        for together in fresh.chunks(PARALLEL) {
            std::thread::scope(|scope| {
                for bytes in together {
                    scope.spawn(|| self.store.pretend_to_put(*bytes));
                }
            });
        }
    }
}

impl BlockDevice for ObjectZones {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        let durability = batch.durability;
        for request in &batch.requests {
            if let Request::Write { offset, bufs } = request {
                self.note(*offset, bufs.iter().map(|buf| buf.len() as u64).sum());
            }
        }
        let done = self.inner.submit(batch);
        if durability.preflush || durability.fua {
            self.put_all();
        }
        done
    }

    fn flush(&self) -> Result<()> {
        self.put_all();
        self.inner.flush()
    }

    fn as_zoned(&self) -> Option<&dyn ZonedDevice> {
        Some(self)
    }
}

impl ZonedDevice for ObjectZones {
    fn limits(&self) -> ZoneLimits {
        self.inner.as_zoned().map(ZonedDevice::limits).unwrap_or_default()
    }

    fn report(&self, offset: u64, most: usize) -> Result<Vec<Zone>> {
        self.inner.as_zoned().map_or(Ok(Vec::new()), |zoned| zoned.report(offset, most))
    }

    fn reset(&self, start: u64) -> Result<()> {
        self.fresh.lock().remove(&start);
        self.store.pretend_to_delete();
        self.inner.as_zoned().map_or(Ok(()), |zoned| zoned.reset(start))
    }

    fn finish(&self, start: u64) -> Result<()> {
        self.inner.as_zoned().map_or(Ok(()), |zoned| zoned.finish(start))
    }
}
