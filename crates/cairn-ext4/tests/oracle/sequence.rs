//! Seeded sequences of all operations on every kind of volume. Answers and trees equal the model's.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_testkit::deep;
use cairn_testkit::durability::Opened;
use cairn_testkit::oracle::{Evictable, Subject, run};
use cairn_vfs::FileSystem;

use crate::support::{GRAINS, judge, open, volume, with_grain};

/// One kind of volume.
struct Format {
    name: &'static str,
    args: &'static [&'static str],
    options: &'static str,
    extents: bool,
}

const FORMATS: &[Format] = &[
    Format { name: "default", args: &["-t", "ext4", "-b", "4096"], options: "", extents: true },
    Format { name: "1K", args: &["-t", "ext4", "-b", "1024"], options: "cache=1M", extents: true },
    Format {
        name: "orphan_file",
        args: &["-t", "ext4", "-b", "4096", "-O", "orphan_file,metadata_csum_seed"],
        options: "cache=1M",

        extents: true,
    },
    Format {
        name: "ext2",
        args: &["-t", "ext2", "-b", "1024"],
        options: "cache=1M",
        extents: false,
    },
    Format { name: "ext3", args: &["-t", "ext3", "-b", "4096"], options: "", extents: false },
];

/// A format with one folio size.
struct Mounted {
    format: &'static Format,
    options: String,
}

impl Subject for Mounted {
    fn name(&self) -> String {
        format!("{} ({})", self.format.name, self.options)
    }

    fn make(&self) -> Arc<MemoryDevice> {
        volume(64 << 20, self.format.args)
    }

    fn open(&self, device: &Arc<MemoryDevice>) -> Arc<dyn FileSystem> {
        open(device, &self.options)
    }

    fn judge(&self, device: &MemoryDevice) {
        judge(device);
    }

    fn allocates(&self) -> bool {
        self.format.extents
    }
}

impl Evictable for Mounted {
    fn open_evictable(&self, device: &Arc<MemoryDevice>) -> Opened {
        let fs = open(device, &self.options);
        Opened { fs: fs.clone(), evict: Arc::new(move || fs.shrink_inodes()) }
    }
}

#[test]
fn every_answer_is_the_models() {
    let (seeds, steps) = if deep() { (400, 20_000) } else { (20, 2_000) };
    for seed in 0..seeds {
        let format = &FORMATS[seed as usize % FORMATS.len()];
        // Each format is combined with each folio size.
        let grain = GRAINS[seed as usize / FORMATS.len() % GRAINS.len()];
        run(&Mounted { format, options: with_grain(format.options, grain) }, seed, steps);
    }
}
