//! Random operations on one file, compared with a vector of its bytes.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_testkit::deep;
use cairn_testkit::modes::MODES;
use cairn_testkit::oracle::Subject;
use cairn_testkit::oracle::fsx::{Shape, run};
use cairn_vfs::FileSystem;

use crate::support::{judge, open, volume};
use crate::worn::Worn;

/// One kind of run, on blocks of 4096 bytes.
struct Run {
    args: &'static [&'static str],
    options: &'static str,
    /// Largest size of the file.
    max: u64,
}

impl Subject for Run {
    fn name(&self) -> String {
        format!("{:?} ({}), up to {}", self.args, self.options, self.max)
    }

    fn make(&self) -> Arc<MemoryDevice> {
        volume(96 << 20, self.args)
    }

    fn open(&self, device: &Arc<MemoryDevice>) -> Arc<dyn FileSystem> {
        open(device.clone(), self.options)
    }

    fn judge(&self, device: &MemoryDevice) {
        judge(device);
    }
}

const RUNS: &[Run] = &[
    Run { args: &[], options: "", max: 256 << 10 },
    Run { args: &[], options: "mode=lfs,nobuffered_iomap", max: 256 << 10 },
    Run { args: &[], options: "cache=1M,max_folio=64K", max: 12 << 20 },
    Run { args: &["-s", "2"], options: "cache=1M,mode=lfs", max: 12 << 20 },
];

#[test]
fn a_file_is_what_was_done_to_it() {
    let steps = if deep() { 300_000 } else { 6000 };
    for (seed, kind) in (1..).zip(RUNS) {
        run(kind, Shape { max: kind.max, block: 4096 }, seed, steps);
    }
}

impl Subject for Worn {
    fn name(&self) -> String {
        format!("worn, {:?}", self.mode)
    }

    fn make(&self) -> Arc<MemoryDevice> {
        Worn::make(self)
    }

    fn open(&self, device: &Arc<MemoryDevice>) -> Arc<dyn FileSystem> {
        Worn::open(self, device)
    }

    fn judge(&self, device: &MemoryDevice) {
        judge(device);
    }
}

/// On a volume whose sections are cleaned during the run.
#[test]
fn a_file_is_what_was_done_to_it_in_every_mode() {
    let steps = if deep() { 300_000 } else { 4000 };
    for (seed, mode) in (11..).zip(&MODES) {
        let worn = Worn::new(mode, 64 << 20);
        run(&worn, Shape { max: 8 << 20, block: 4096 }, seed, steps);
        worn.check();
    }
}
