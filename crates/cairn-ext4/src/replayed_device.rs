//! [`ReplayedDevice`]: the device of a volume whose log was replayed in memory. File data is in the
//! log, too, with `data=journal`, so data is read through this.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use cairn_block::{
    Batch, BlockDevice, Completion, Error, ErrorKind, Extent, Geometry, IoBuf, Request, Result,
};
use cairn_cache::block::Image;
use cairn_jbd2::Images;

/// A device that is read with the blocks of the log in place of its own. It is not written.
pub(crate) struct ReplayedDevice {
    below: Arc<dyn BlockDevice>,
    block_size: u64,
    images: BTreeMap<u64, Image>,
}

impl ReplayedDevice {
    /// `device` with `images`, of blocks of so many bytes.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, block_size: u32, images: &Images) -> Self {
        let images = images.iter().map(|(pba, image)| (pba.get(), image.clone())).collect();
        Self { below: device, block_size: block_size.into(), images }
    }

    /// The numbers of the blocks that a range touches.
    fn blocks(&self, offset: u64, len: usize) -> Range<u64> {
        let end = offset.saturating_add(len as u64);
        offset / self.block_size..end.div_ceil(self.block_size)
    }

    fn is_touched(&self, request: &Request) -> bool {
        match request {
            Request::Read { offset, buf } => {
                self.images.range(self.blocks(*offset, buf.len())).next().is_some()
            }
            _ => false,
        }
    }

    /// Replaces the parts of what was read that the log has.
    fn patch(&self, offset: u64, buf: &mut IoBuf) {
        let end = offset.saturating_add(buf.len() as u64);
        for (block, image) in self.images.range(self.blocks(offset, buf.len())) {
            let at = block * self.block_size;
            let (from, to) = (at.max(offset), (at + self.block_size).min(end));
            let place = (from - offset) as usize..(to - offset) as usize;
            buf[place].copy_from_slice(&image[(from - at) as usize..(to - at) as usize]);
        }
    }

    fn read(&self, batch: Batch) -> Result<Vec<IoBuf>> {
        let offsets: Vec<u64> = batch
            .requests
            .iter()
            .filter_map(|request| match request {
                Request::Read { offset, .. } => Some(*offset),
                _ => None,
            })
            .collect();
        let mut read = self.below.submit(batch).wait()?;
        read.iter_mut().zip(offsets).for_each(|(buf, offset)| self.patch(offset, buf));
        Ok(read)
    }
}

impl BlockDevice for ReplayedDevice {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        let is_read = |request: &Request| matches!(request, Request::Read { .. });
        if !batch.requests.iter().all(is_read) {
            let why = "the journal was replayed in memory only";
            return Completion::ready(Err(Error::new(ErrorKind::ReadOnly, "write", why)));
        }
        if batch.requests.iter().any(|request| self.is_touched(request)) {
            return Completion::ready(self.read(batch));
        }
        self.below.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        self.below.flush()
    }

    fn extents(&self, range: Range<u64>) -> Result<Vec<Extent>> {
        let blocks = self.blocks(range.start, (range.end - range.start) as usize);
        if self.images.range(blocks).next().is_none() {
            return self.below.extents(range);
        }
        let mut extents = Vec::new();
        Extent::data(range).push(&mut extents);
        Ok(extents)
    }
}
