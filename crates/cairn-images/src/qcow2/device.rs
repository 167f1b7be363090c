//! [`Qcow2`]: the disk as a device.

use std::fmt;
use std::ops::Range;

use cairn_block::{Batch, BlockDevice, Completion, Extent, Geometry, IoBuf, Request, bounds};

use super::clear::Clearing;
use super::error::Result;
use super::image::Image;

/// The disk in a qcow2 image. When it is dropped, everything is flushed; an error is then lost, so
/// flush before.
pub struct Qcow2 {
    image: Image,
    geometry: Geometry,
}

impl fmt::Debug for Qcow2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = &self.image.header;
        f.debug_struct("Qcow2").field("version", &header.version).finish_non_exhaustive()
    }
}

impl Qcow2 {
    pub(super) fn new(image: Image) -> Self {
        let mut geometry = image.host.device().geometry();
        let below = image.backing.as_ref().map(|backing| backing.geometry().logical_block);
        let unit = geometry.logical_block.max(below.unwrap_or(1)).max(1);
        geometry.logical_block = unit;
        geometry.size = image.header.size / u64::from(unit) * u64::from(unit);
        geometry.read_only = image.is_read_only();
        geometry.discard = true;
        Self { image, geometry }
    }

    /// Version of the format: 2 or 3.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.image.header.version
    }

    /// Bytes of a cluster.
    #[must_use]
    pub fn cluster_size(&self) -> u64 {
        self.image.cluster()
    }

    /// Internal snapshots, which writes leave as they are.
    #[must_use]
    pub fn snapshots(&self) -> u32 {
        self.image.header.snapshots
    }

    /// The name of the backing file, as the image has it.
    #[must_use]
    pub fn backing_name(&self) -> Option<&str> {
        self.image.header.backing.as_ref().map(|(name, _)| name.as_str())
    }

    fn run(&self, batch: Batch) -> Result<Vec<IoBuf>> {
        batch.requests.iter().try_for_each(|one| bounds::check(&self.geometry, one))?;
        let durability = batch.durability;
        if durability.preflush {
            self.image.flush()?;
        }
        let (mut reads, mut writes, mut clears) = (Vec::new(), Vec::new(), Vec::new());
        for request in batch.requests {
            match request {
                Request::Read { offset, buf } => reads.push((offset, buf)),
                Request::Write { offset, bufs } => writes.push((offset, bufs)),
                Request::Discard { offset, len } => {
                    clears.push((offset..offset + len, Clearing::Discard));
                }
                Request::WriteZeroes { offset, len } => {
                    clears.push((offset..offset + len, Clearing::Zero));
                }
            }
        }
        let read = if reads.is_empty() {
            Vec::new()
        } else {
            let _clusters = self.image.clusters.read();
            self.image.read(reads)?
        };
        let cleared = !clears.is_empty();
        if !writes.is_empty() {
            self.image.write(writes, durability.fua && !cleared)?;
        }
        for (range, how) in clears {
            self.image.clear(range, how)?;
        }
        if cleared && durability.fua {
            self.image.flush()?;
        }
        Ok(read)
    }
}

impl BlockDevice for Qcow2 {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: Batch) -> Completion {
        Completion::ready(self.run(batch).map_err(Into::into))
    }

    fn extents(&self, range: Range<u64>) -> cairn_block::Result<Vec<Extent>> {
        self.image.extents(range).map_err(Into::into)
    }

    fn flush(&self) -> cairn_block::Result<()> {
        self.image.flush().map_err(Into::into)
    }
}

impl Drop for Qcow2 {
    fn drop(&mut self) {
        // Its failure is what the last flush said, or nobody waits for what was written.
        let _ = self.image.flush();
    }
}
