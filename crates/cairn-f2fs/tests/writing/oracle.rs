//! Seeded sequences of all operations, and contending threads, on every kind of volume.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_testkit::contention::share;
use cairn_testkit::deep;
use cairn_testkit::durability::Opened;
use cairn_testkit::oracle::{Evictable, Subject, run};
use cairn_vfs::FileSystem;

use crate::support::{EXTRA, ZONED, judge, open, volume};

/// A kind of volume, with mount options.
#[derive(Clone, Copy)]
struct Kind {
    size: u64,
    args: &'static [&'static str],
    options: &'static str,
}

impl Subject for Kind {
    fn name(&self) -> String {
        format!("{} MiB {:?} ({})", self.size >> 20, self.args, self.options)
    }

    fn make(&self) -> Arc<MemoryDevice> {
        volume(self.size, self.args)
    }

    fn open(&self, device: &Arc<MemoryDevice>) -> Arc<dyn FileSystem> {
        open(device, self.options)
    }

    fn judge(&self, device: &MemoryDevice) {
        judge(device);
    }
}

impl Evictable for Kind {
    fn open_evictable(&self, device: &Arc<MemoryDevice>) -> Opened {
        let fs = open(device, self.options);
        Opened { fs: fs.clone(), evict: Arc::new(move || fs.inodes().table.shrink()) }
    }
}

const KINDS: [Kind; 6] = [
    Kind { size: 96 << 20, args: &[], options: "" },
    Kind { size: 96 << 20, args: &["-O", EXTRA], options: "cache=1M" },
    Kind {
        size: 256 << 20,
        args: &["-s", "2"],
        options: "mode=lfs,nobuffered_iomap,gc_victim=data_first,gc_merge",
    },
    Kind { size: 64 << 20, args: &[], options: "nocheckpoint_merge,gc_victim=greedy" },
    Kind { size: 96 << 20, args: ZONED, options: "cache=1M" },
    Kind { size: 96 << 20, args: &["-i"], options: "cache=1M,max_folio=64K,nodiscard" },
];

#[test]
fn every_answer_is_the_models() {
    let (seeds, steps) = if deep() { (400, 20_000) } else { (12, 2_000) };
    for seed in 0..seeds {
        run(&KINDS[seed as usize % KINDS.len()], seed, steps);
    }
}

#[test]
fn threads_share_names_files_and_the_last_blocks() {
    let steps = if deep() { 100_000 } else { 2_500 };
    for kind in KINDS {
        share(&kind, steps);
    }
}
