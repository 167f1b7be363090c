//! Random operations on one file, compared with a vector of its bytes.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_testkit::deep;
use cairn_testkit::oracle::Subject;
use cairn_testkit::oracle::fsx::{Shape, run};
use cairn_vfs::FileSystem;

use crate::support::{GRAINS, judge, open, volume, with_grain};

/// One kind of run.
struct Run {
    name: &'static str,
    args: &'static [&'static str],
    options: &'static str,
    shape: Shape,
    extents: bool,
}

struct Mounted<'a> {
    run: &'a Run,
    options: String,
}

impl Subject for Mounted<'_> {
    fn name(&self) -> String {
        format!("{} ({})", self.run.name, self.options)
    }

    fn make(&self) -> Arc<MemoryDevice> {
        volume(24 << 20, self.run.args)
    }

    fn open(&self, device: &Arc<MemoryDevice>) -> Arc<dyn FileSystem> {
        open(device, &self.options)
    }

    fn judge(&self, device: &MemoryDevice) {
        judge(device);
    }

    fn allocates(&self) -> bool {
        self.run.extents
    }
}

const RUNS: &[Run] = &[
    Run {
        name: "default",
        args: &["-t", "ext4", "-b", "4096"],
        options: "",
        shape: Shape { max: 256 << 10, block: 4096 },
        extents: true,
    },
    Run {
        name: "1K",
        args: &["-t", "ext4", "-b", "1024"],
        options: "",
        shape: Shape { max: 128 << 10, block: 1024 },
        extents: true,
    },
    Run {
        name: "small cache",
        args: &["-t", "ext4", "-b", "4096"],
        options: "cache=1M",
        shape: Shape { max: 3 << 20, block: 4096 },
        extents: true,
    },
    Run {
        name: "ext2",
        args: &["-t", "ext2", "-b", "1024"],
        options: "",
        shape: Shape { max: 512 << 10, block: 1024 },
        extents: false,
    },
    Run {
        name: "ext3, small cache",
        args: &["-t", "ext3", "-b", "1024"],
        options: "cache=1M",
        shape: Shape { max: 2 << 20, block: 1024 },
        extents: false,
    },
];

#[test]
fn a_file_is_what_was_done_to_it() {
    let steps = if deep() { 300_000 } else { 11_000 };
    let grains = |run| GRAINS.iter().map(move |grain| (run, *grain));
    for (seed, (kind, grain)) in (1..).zip(RUNS.iter().flat_map(grains)) {
        run(
            &Mounted { run: kind, options: with_grain(kind.options, grain) },
            kind.shape,
            seed,
            steps,
        );
    }
}
