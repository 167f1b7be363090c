//! Volumes whose sections are half valid: operations that need room clean some of them, or write
//! into their holes.

use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::F2fs;
use cairn_testkit::modes::Mode;
use cairn_vfs::{AllocateMode, Caller, Error, FileSystem, IoFlags, NewInode};

use crate::support::{ZONED, open, volume};

const PIECE: u64 = 64 << 10;

/// Such a volume in one of the modes, with the counters of its mounts.
pub struct Worn {
    pub mode: &'static Mode,
    size: u64,
    mounts: Mutex<Vec<Arc<F2fs>>>,
}

impl Worn {
    /// Makes a volume of this size.
    pub fn new(mode: &'static Mode, size: u64) -> Self {
        Self { mode, size, mounts: Mutex::new(Rank::Volume, Vec::new()) }
    }

    /// A file fills the volume, and then half of it is freed.
    pub fn make(&self) -> Arc<MemoryDevice> {
        let device = volume(self.size, if self.mode.zoned { ZONED } else { &[] });
        let fs = open(device.clone(), "mode=lfs,cache=4M");
        let ino =
            fs.create(fs.root(), b"filler", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
        let mut end = 0;
        loop {
            match fs.write(ino, end, &[0xf1; PIECE as usize], IoFlags::empty()) {
                Ok(written) => end += written as u64,
                Err(Error::NoSpace) => break,
                Err(error) => panic!("the filler ends at {end}: {error}"),
            }
        }
        fs.sync().unwrap();
        for at in (0..end).step_by(2 * PIECE as usize) {
            fs.allocate(ino, AllocateMode::PunchHole, at, PIECE).unwrap();
        }
        fs.unmount().unwrap();
        drop(fs);
        device
    }

    /// Opens it in its mode, with a small cache.
    pub fn open(&self, device: &Arc<MemoryDevice>) -> Arc<F2fs> {
        let options = ["cache=1M", self.mode.options].join(",");
        let fs = open(device.clone(), options.trim_end_matches(','));
        self.mounts.lock().push(fs.clone());
        fs
    }

    /// Asserts that its mounts cleaned or filled holes, and merged checkpoints or not, as the mode
    /// demands.
    #[track_caller]
    pub fn check(&self) {
        let mounts = self.mounts.lock();
        let sum = |count: &dyn Fn(&F2fs) -> u64| mounts.iter().map(|fs| count(fs)).sum::<u64>();
        let cleaned = sum(&|fs| fs.gc_stats().data_sections.get());
        let filled = sum(&|fs| fs.store().unwrap().segments.stats.segments_ssr.get());
        let merged = sum(&|fs| fs.store().unwrap().checkpoints.merge_stats().total.get());
        let used = if self.mode.is_lfs() { cleaned } else { cleaned + filled };
        assert!(used > 0, "{:?}: {cleaned} sections cleaned, {filled} segments filled", self.mode);
        assert_eq!(merged > 0, self.mode.merges(), "{:?}: {merged} merged requests", self.mode);
    }
}
