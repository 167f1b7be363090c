//! [`Volatile`]: a device that loses what was not flushed.

use std::sync::Mutex;

use cairn_block::memory::MemoryDevice;
use cairn_block::{
    Batch, BlockDevice, BlockDeviceExt, Bytes, Completion, Geometry, Request, Result,
};

/// A device with a cache. [`Volatile::cut`] is a power cut.
pub(super) struct Volatile(Mutex<Contents>);

struct Contents {
    /// What reads see.
    cached: MemoryDevice,
    /// What a cut leaves.
    medium: MemoryDevice,
    /// Writes since the last flush, and whether they were forced; no data for zeros.
    pending: Vec<(u64, Option<Bytes>, u64, bool)>,
    flushes: u64,
}

impl Volatile {
    pub(super) fn new(size: u64) -> Self {
        let medium = MemoryDevice::new(size);
        let cached = medium.fork();
        Self(Mutex::new(Contents { cached, medium, pending: Vec::new(), flushes: 0 }))
    }

    /// Loses writes that were not flushed: each with the given chance of ten. A forced write stays,
    /// and no older one comes over it.
    pub(super) fn cut(&self, random: &mut fastrand::Rng, chance: u8) {
        let mut contents = self.0.lock().unwrap();
        for (offset, data, len, forced) in std::mem::take(&mut contents.pending) {
            if forced || random.u8(0..10) >= chance {
                put(&contents.medium, offset, data, len);
            }
        }
        contents.cached = contents.medium.fork();
    }

    /// Bytes that a cut would leave.
    pub(super) fn on_medium(&self, offset: u64, len: usize) -> Vec<u8> {
        let contents = self.0.lock().unwrap();
        contents.medium.read_at(offset, len).unwrap().to_vec()
    }

    pub(super) fn flushes(&self) -> u64 {
        self.0.lock().unwrap().flushes
    }
}

fn put(device: &MemoryDevice, offset: u64, data: Option<Bytes>, len: u64) {
    match data {
        Some(data) => device.write_at(offset, data).unwrap(),
        None => device.write_zeroes(offset, len).unwrap(),
    }
}

impl Contents {
    fn flush(&mut self) {
        self.pending.clear();
        self.medium = self.cached.fork();
        self.flushes += 1;
    }

    fn change(&mut self, offset: u64, data: Option<Bytes>, len: u64, fua: bool) {
        put(&self.cached, offset, data.clone(), len);
        if fua {
            put(&self.medium, offset, data.clone(), len);
        }
        self.pending.push((offset, data, len, fua));
    }
}

impl BlockDevice for Volatile {
    fn geometry(&self) -> Geometry {
        self.0.lock().unwrap().medium.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        let mut contents = self.0.lock().unwrap();
        let fua = batch.durability.fua;
        if batch.durability.preflush {
            contents.flush();
        }
        let mut read = Vec::new();
        for request in batch.requests {
            match request {
                Request::Read { offset, buf } => match contents.cached.read_into(offset, buf) {
                    Ok(buf) => read.push(buf),
                    Err(error) => return Completion::ready(Err(error)),
                },
                Request::Write { offset, bufs } => {
                    let data: Vec<u8> = bufs.concat();
                    let len = data.len() as u64;
                    contents.change(offset, Some(data.into()), len, fua);
                }
                Request::Discard { offset, len } | Request::WriteZeroes { offset, len } => {
                    contents.change(offset, None, len, fua);
                }
            }
        }
        Completion::ready(Ok(read))
    }

    fn flush(&self) -> Result<()> {
        self.0.lock().unwrap().flush();
        Ok(())
    }
}
