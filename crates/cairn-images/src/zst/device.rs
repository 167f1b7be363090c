//! [`Zst`]: the disk.

use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::{Batch, BlockDevice, Completion, Geometry, IoBuf, Request, bounds};

use super::index::{self, Frame, Index, MOST_CONTENTS, Result, damaged};
use super::scan::scan;
use crate::zstd_frame::{self, WINDOW_LOG_MAX};

/// Memory for decoded frames. The last two are kept however large they are.
const MEMORY: u64 = 128 << 20;

/// A disk compressed with zstd, in many frames.
pub struct Zst {
    device: Arc<dyn BlockDevice>,
    index: Index,
    geometry: Geometry,
    /// Decoded frames by their number; the one used last is the last.
    decoded: Mutex<Vec<(usize, Arc<[u8]>)>>,
}

/// Opens the disk in the file that `device` holds.
///
/// # Errors
/// [`Error::LargeFrame`](super::Error::LargeFrame) for one frame around everything, as `zstd` makes
/// it; [`Error::Damaged`](super::Error::Damaged), [`Error::Device`](super::Error::Device).
pub fn open(device: Arc<dyn BlockDevice>) -> Result<Zst> {
    let index = match index::table(&*device)? {
        Some(index) => index,
        None => scan(&device)?,
    };
    let mut geometry = device.geometry();
    geometry.size = index.size();
    geometry.logical_block = 1;
    geometry.read_only = true;
    geometry.discard = false;
    let decoded = Mutex::new(Rank::Leaf, Vec::new());
    let disk = Zst { device, index, geometry, decoded };
    // Of a table that is wrong one learns now.
    if let Some(first) = disk.index.first() {
        disk.frame(0, &first)?;
    }
    Ok(disk)
}

impl std::fmt::Debug for Zst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zst").field("size", &self.geometry.size).finish_non_exhaustive()
    }
}

impl Zst {
    fn frame(&self, number: usize, frame: &Frame) -> Result<Arc<[u8]>> {
        if let Some(known) = self.known(number) {
            return Ok(known);
        }
        let packed = index::read(&*self.device, frame.offset, frame.len)?;
        let len = frame.contents.min(MOST_CONTENTS) as usize;
        let contents = zstd_frame::decode(&packed, len, WINDOW_LOG_MAX);
        let contents: Arc<[u8]> = contents.map_err(|reason| damaged(frame.offset, reason))?.into();
        let mut decoded = self.decoded.lock();
        decoded.push((number, contents.clone()));
        let mut memory: u64 = decoded.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        while memory > MEMORY && decoded.len() > 2 {
            memory -= decoded.remove(0).1.len() as u64;
        }
        Ok(contents)
    }

    fn known(&self, number: usize) -> Option<Arc<[u8]>> {
        let mut decoded = self.decoded.lock();
        let at = decoded.iter().position(|(of, _)| *of == number)?;
        let found = decoded.remove(at);
        let bytes = found.1.clone();
        decoded.push(found);
        Some(bytes)
    }

    fn fill(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let Some((number, frame)) = self.index.at(at) else {
                return Err(damaged(self.device.geometry().size, "it ends too early"));
            };
            let contents = self.frame(number, &frame)?;
            let from = (at - frame.at) as usize;
            let len = (contents.len() - from).min(buf.len() - done);
            buf[done..done + len].copy_from_slice(&contents[from..from + len]);
            done += len;
        }
        Ok(())
    }

    fn run(&self, batch: Batch) -> cairn_block::Result<Vec<IoBuf>> {
        batch.requests.iter().try_for_each(|one| bounds::check(&self.geometry, one))?;
        let mut read = Vec::new();
        for request in batch.requests {
            if let Request::Read { offset, mut buf } = request {
                self.fill(offset, &mut buf)?;
                read.push(buf);
            }
        }
        Ok(read)
    }
}

impl BlockDevice for Zst {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: Batch) -> Completion {
        Completion::ready(self.run(batch))
    }

    fn flush(&self) -> cairn_block::Result<()> {
        Ok(())
    }
}
