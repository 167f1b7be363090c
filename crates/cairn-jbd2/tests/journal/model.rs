//! Random operations on a journal, and the state of the volume after each.
//!
//! The operations run one after the other. After a crash the volume must be in the state after one
//! of them: the last one whose commit was waited for, or a later one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_base::{Pba, Tid};
use cairn_block::{BlockDevice, BlockDeviceExt, Bytes};
use cairn_cache::block::BufferCache;
use cairn_jbd2::{Journal, Result};

use crate::fixture::{BLOCK, HOME, read_home, stamp};

/// Blocks that operations change. Block 0 holds the number of the last operation.
pub const BLOCKS: u64 = 48;
/// Least pattern of file data. The stamps of metadata are smaller.
const DATA: u64 = 1 << 40;

/// The use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Metadata(u64),
    Freed,
}

/// File data written to a freed block.
#[derive(Clone, Copy)]
struct Data {
    block: u64,
    value: u64,
    /// Operation that freed the block, and the one that used it for metadata again.
    freed_by: u64,
    taken_by: u64,
    /// Moment at which the data was flushed.
    durable: u64,
}

/// The history of a run.
pub struct Model {
    random: fastrand::Rng,
    now: HashMap<u64, Use>,
    /// State after each operation.
    states: Vec<HashMap<u64, Use>>,
    /// Moments, and the last operation that was known to be durable.
    acknowledged: Vec<(u64, u64)>,
    data: Vec<Data>,
    /// Freed blocks whose transaction is not durable, with the operation that freed them.
    leaving: Vec<(u64, u64, Arc<AtomicBool>)>,
}

impl Model {
    pub fn new(seed: u64) -> Self {
        let now: HashMap<u64, Use> = (0..BLOCKS).map(|block| (block, Use::Metadata(0))).collect();
        Self {
            random: fastrand::Rng::with_seed(seed),
            states: vec![now.clone()],
            now,
            acknowledged: vec![(0, 0)],
            data: Vec::new(),
            leaving: Vec::new(),
        }
    }

    fn last(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    /// One operation in one handle.
    pub fn operate(&mut self, buffers: &BufferCache, journal: &Arc<Journal>) -> Result<Tid> {
        let number = self.last() + 1;
        let handle = journal.start(12)?;
        let mut next = self.now.clone();
        let counter = buffers.get(Pba(HOME))?;
        handle.get_write_access(&counter)?.copy_from_slice(&stamp(number));
        next.insert(0, Use::Metadata(number));
        for _ in 0..self.random.u64(1..8) {
            let block = self.random.u64(1..BLOCKS);
            let pba = Pba(HOME + block);
            match next[&block] {
                Use::Metadata(_) if self.random.u8(..8) == 0 => {
                    handle.forget(pba)?;
                    next.insert(block, Use::Freed);
                    let committed = Arc::new(AtomicBool::new(false));
                    self.leaving.push((block, number, committed.clone()));
                    handle.on_commit(Box::new(move |durable| {
                        committed.store(durable, Ordering::Release)
                    }));
                }
                Use::Metadata(_) => {
                    let buffer = buffers.get(pba)?;
                    handle.get_write_access(&buffer)?.copy_from_slice(&stamp(number));
                    next.insert(block, Use::Metadata(number));
                }
                Use::Freed if self.random.u8(..3) == 0 => {
                    // This may be the transaction that freed the block. Its revoke must be
                    // cancelled.
                    let buffer = handle.get_create_access(pba)?;
                    handle.get_write_access(&buffer)?.copy_from_slice(&stamp(number));
                    next.insert(block, Use::Metadata(number));
                    self.leaving.retain(|(leaving, _, _)| *leaving != block);
                    for data in self.data.iter_mut().filter(|data| data.block == block) {
                        data.taken_by = data.taken_by.min(number);
                    }
                }
                Use::Freed => {}
            }
        }
        let tid = handle.tid();
        drop(handle);
        self.now = next;
        self.states.push(self.now.clone());
        Ok(tid)
    }

    /// Notes that all operations so far are durable.
    pub fn acknowledge(&mut self, moment: u64) {
        let last = self.last();
        self.acknowledged.push((moment, last));
    }

    /// Writes file data to freed blocks as soon as the journal allows it.
    pub fn reuse(&mut self, device: &dyn BlockDevice, moment: impl Fn() -> u64) -> Result<()> {
        let (free, leaving) =
            self.leaving.drain(..).partition(|(_, _, committed)| committed.load(Ordering::Acquire));
        self.leaving = leaving;
        let free: Vec<(u64, u64, Arc<AtomicBool>)> = free;
        if free.is_empty() {
            return Ok(());
        }
        let mut written = Vec::new();
        for (block, freed_by, _) in free {
            let value = DATA + self.random.u64(..DATA);
            device.write_at((HOME + block) * u64::from(BLOCK), Bytes::from(stamp(value)))?;
            written.push((block, freed_by, value));
        }
        device.flush()?;
        let durable = moment();
        for (block, freed_by, value) in written {
            self.data.push(Data { block, value, freed_by, taken_by: u64::MAX, durable });
        }
        Ok(())
    }

    /// Checks a volume after a crash at `moment` and recovery. Returns the last operation that
    /// survived.
    pub fn check(&self, device: &dyn BlockDevice, moment: u64) -> std::result::Result<u64, String> {
        let counter = read_home(device, 0);
        let found = (0..=self.last()).rev().find(|number| counter == expected(*number));
        let Some(found) = found else {
            return Err("the operation counter holds none of its values".into());
        };
        let promised = self
            .acknowledged
            .iter()
            .filter(|(at, _)| *at <= moment)
            .map(|(_, last)| *last)
            .max()
            .unwrap_or(0);
        if found < promised {
            return Err(format!(
                "operation {promised} was durable at moment {moment}, the volume ends with {found}"
            ));
        }
        let state = &self.states[usize::try_from(found).expect("an index")];
        for block in 1..BLOCKS {
            self.check_block(device, block, state[&block], found, moment)?;
        }
        Ok(found)
    }

    fn check_block(
        &self,
        device: &dyn BlockDevice,
        block: u64,
        is: Use,
        found: u64,
        moment: u64,
    ) -> std::result::Result<(), String> {
        match is {
            Use::Metadata(number) => {
                if read_home(device, block) != expected(number) {
                    return Err(format!(
                        "after operation {found} block {block} must hold version {number}"
                    ));
                }
            }
            Use::Freed => {
                let mut of_block = self.data.iter().filter(|data| data.block == block);
                let kept = of_block.rfind(|data| {
                    data.freed_by <= found && data.durable <= moment && data.taken_by > found
                });
                if let Some(data) = kept
                    && read_home(device, block) != stamp(data.value)
                {
                    return Err(format!(
                        "file data in block {block}, freed by operation {}, was overwritten",
                        data.freed_by
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Contents of a block that an operation has changed; zeros for operation 0.
fn expected(number: u64) -> Vec<u8> {
    if number == 0 { vec![0; BLOCK as usize] } else { stamp(number) }
}
