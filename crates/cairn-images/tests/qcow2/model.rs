//! Seeded changes of a disk, and the bytes that it must have afterwards.

use cairn_block::{Batch, BlockDevice, BlockDeviceExt, Bytes, Durability, Request};

/// The bytes of a disk.
pub(crate) struct Model {
    pub(crate) bytes: Vec<u8>,
    rng: fastrand::Rng,
    /// Units of the changes.
    unit: u64,
    next: u8,
}

impl Model {
    pub(crate) fn new(bytes: Vec<u8>, unit: u64, seed: u64) -> Self {
        println!("seed {seed}");
        Self { bytes, rng: fastrand::Rng::with_seed(seed), unit, next: 0 }
    }

    /// A range of at most `most` bytes.
    pub(crate) fn range(&mut self, most: u64) -> (u64, u64) {
        let units = self.bytes.len() as u64 / self.unit;
        let first = self.rng.u64(0..units);
        let count = self.rng.u64(1..=(most / self.unit).min(units - first).max(1));
        (first * self.unit, count * self.unit)
    }

    /// Other bytes than the last ones, none of them 0.
    pub(crate) fn data(&mut self, len: u64) -> Vec<u8> {
        self.next = self.next % 250 + 1;
        vec![self.next; len as usize]
    }

    pub(crate) fn set(&mut self, offset: u64, data: &[u8]) {
        self.bytes[offset as usize..][..data.len()].copy_from_slice(data);
    }

    /// One change of the disk: a write, a batch of small ones, zeros, or a flush. Discards would
    /// leave it open what is read.
    pub(crate) fn step(&mut self, disk: &dyn BlockDevice, most: u64) {
        let (offset, len) = self.range(most);
        match self.rng.u32(0..10) {
            0..=4 => {
                let data = self.data(len);
                self.set(offset, &data);
                disk.write_at(offset, data).unwrap();
            }
            5..=6 => self.batch(disk, offset, len),
            7..=8 => {
                self.set(offset, &vec![0; len as usize]);
                disk.write_zeroes(offset, len).unwrap();
            }
            _ => disk.flush().unwrap(),
        }
    }

    /// Small writes in no order, with gaps.
    fn batch(&mut self, disk: &dyn BlockDevice, offset: u64, len: u64) {
        let mut requests = Vec::new();
        for at in (offset..offset + len).step_by(self.unit as usize).take(20) {
            if self.rng.u32(0..4) > 0 {
                let data = self.data(self.unit);
                self.set(at, &data);
                requests.push(Request::Write { offset: at, bufs: vec![Bytes::from(data)] });
            }
        }
        self.rng.shuffle(&mut requests);
        let durability = Durability { preflush: self.rng.bool(), fua: self.rng.bool() };
        disk.submit(Batch { requests, durability }).wait().unwrap();
    }

    /// The disk has these bytes.
    pub(crate) fn compare(&self, disk: &dyn BlockDevice) {
        let read = disk.read_at(0, self.bytes.len()).unwrap();
        self.same(&read, "read at once");
        for at in (0..self.bytes.len()).step_by(7 * 512) {
            let len = 9000.min(self.bytes.len() - at);
            let part = disk.read_at(at as u64, len).unwrap();
            assert!(part[..] == self.bytes[at..at + len], "bytes {at} to {}", at + len);
        }
    }

    pub(crate) fn same(&self, bytes: &[u8], how: &str) {
        assert_eq!(bytes.len(), self.bytes.len(), "{how}");
        let differ = bytes.iter().zip(&self.bytes).position(|(one, other)| one != other);
        assert_eq!(differ, None, "the first byte that differs, {how}");
    }
}
