//! [`Runs`]: the contents of a file that lies in runs of blocks.

use std::sync::Arc;

use cairn_block::{BlockDevice, BlockDeviceExt};

use super::{Allowance, Contents, Faults};

/// Bytes read at once.
const CHUNK: u64 = 1 << 20;
/// The fault of a file whose contents are not read.
const TOO_MUCH: &str =
    "the files of the volume name far more blocks than it has: its contents are left out";

/// Blocks of a file that follow each other on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first file block.
    pub start: u64,
    /// Its block on the device.
    pub block: u64,
    /// How many.
    pub len: u64,
}

/// A file's blocks on the device, and what of them is not known.
pub struct Runs {
    device: Arc<dyn BlockDevice>,
    block_size: u64,
    size: u64,
    runs: Vec<Run>,
    /// What could not be read.
    pub faults: Faults,
}

impl Runs {
    /// Those of a file with so many bytes.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>, block_size: u32, size: u64) -> Self {
        let block_size = u64::from(block_size.max(1));
        Self { device, block_size, size, runs: Vec::new(), faults: Faults::default() }
    }

    /// Adds the part of a run that lies in the file, to the last one if it continues that.
    pub fn push(&mut self, run: Run) {
        let left = self.size.div_ceil(self.block_size).saturating_sub(run.start);
        let run = Run { len: run.len.min(left), ..run };
        if run.len == 0 {
            return;
        }
        match self.runs.last_mut() {
            Some(last)
                if last.start.saturating_add(last.len) == run.start
                    && last.block.saturating_add(last.len) == run.block =>
            {
                last.len = last.len.saturating_add(run.len);
            }
            _ => self.runs.push(run),
        }
    }

    /// Takes the blocks, and `more`, from what may be read. Without them the file has no contents,
    /// and this is false.
    pub fn take_from(&mut self, allowance: &Allowance, more: u64) -> bool {
        let blocks = self.runs.iter().fold(more, |all, run| all.saturating_add(run.len));
        let are_left = allowance.contents(blocks);
        if !are_left {
            self.runs.clear();
            self.faults.add(TOO_MUCH);
        }
        are_left
    }

    /// The part of bytes at an offset that the file has.
    #[must_use]
    pub fn clip<'b>(&self, offset: u64, bytes: &'b [u8]) -> &'b [u8] {
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        bytes.get(..left).unwrap_or(bytes)
    }

    /// Reads whole blocks: a device has no smaller part.
    fn read(&self, block: u64, blocks: u64) -> Option<Vec<u8>> {
        let at = block.checked_mul(self.block_size)?;
        let len = blocks.checked_mul(self.block_size)?;
        if at.checked_add(len)? > self.device.geometry().size {
            return None;
        }
        let bytes = self.device.read_at(at, usize::try_from(len).ok()?).ok()?;
        Some(bytes.to_vec())
    }

    /// Hands out a piece of a run: block by block if it cannot be read at once.
    fn copy_piece(&mut self, piece: Run, to: &mut dyn FnMut(u64, &[u8]) -> bool) -> bool {
        let Run { start, block, len } = piece;
        let offset = start.saturating_mul(self.block_size);
        if let Some(bytes) = self.read(block, len) {
            return to(offset, self.clip(offset, &bytes));
        }
        if len == 1 {
            self.faults.add_block(start);
            return true;
        }
        (0..len).all(|within| {
            let start = start.saturating_add(within);
            let block = block.saturating_add(within);
            self.copy_piece(Run { start, block, len: 1 }, to)
        })
    }
}

impl Contents for Runs {
    fn copy(&mut self, to: &mut dyn FnMut(u64, &[u8]) -> bool) -> Vec<String> {
        let most = CHUNK.checked_div(self.block_size).unwrap_or(1).max(1);
        'runs: for run in std::mem::take(&mut self.runs) {
            let mut done = 0_u64;
            while done < run.len {
                let len = most.min(run.len.saturating_sub(done));
                let start = run.start.saturating_add(done);
                let block = run.block.saturating_add(done);
                if !self.copy_piece(Run { start, block, len }, to) {
                    break 'runs;
                }
                done = done.saturating_add(len);
            }
        }
        std::mem::take(&mut self.faults).into_list()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_block::memory::MemoryDevice;
    use cairn_block::wrap::{Fault, Operation};

    #[test]
    fn all_but_what_cannot_be_read_is_handed_out() {
        let bytes: Vec<u8> = (0..16_u32 * 1024).map(|at| (at / 1024) as u8).collect();
        let device = Arc::new(MemoryDevice::from_image(&bytes));
        let fault = Arc::new(Fault::new(device));
        fault.fail_range(Operation::Read, 5 * 1024..6 * 1024);
        // Blocks 0 to 3 are those from 4 on, and block 9 ends in the midst.
        let mut runs = Runs::new(fault, 1024, 9 * 1024 + 100);
        for run in [(0, 4, 2), (2, 6, 2), (9, 1, 7), (12, 3, 1), (3, 100, 1)] {
            let (start, block, len) = run;
            runs.push(Run { start, block, len });
        }
        assert_eq!(runs.runs.len(), 3, "{:?}", runs.runs);
        let mut found = Vec::new();
        let faults = runs.copy(&mut |offset, part| {
            found.push((offset, part.len(), part[0]));
            true
        });
        assert_eq!(found, [(0, 1024, 4), (2048, 1024, 6), (3072, 1024, 7), (9216, 100, 1)]);
        assert_eq!(faults, ["block 1 of it cannot be read", "block 3 of it cannot be read"]);
    }

    #[test]
    fn blocks_that_many_files_name_are_read_so_often_and_not_more() {
        let device = Arc::new(MemoryDevice::new(1 << 20));
        let allowance = Allowance::new(1);
        let all = |len| {
            let mut runs = Runs::new(device.clone(), 1024, u64::MAX);
            runs.push(Run { start: 0, block: 0, len });
            runs.take_from(&allowance, 0)
        };
        assert!(all(60_000) && !all(60_000) && all(5_000));
    }
}
