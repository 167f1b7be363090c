//! How a check reads a device.

use std::fs;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Stats;
use cairn_block::{
    Batch, BlockDevice, BlockDeviceExt, Completion, Error, ErrorKind, Geometry, Operation, Request,
};
use cairn_check::repair::Scope;
use cairn_testkit::judge::mke2fs;

use crate::checked::lines;
use crate::support::check;

#[test]
fn blocks_that_follow_each_other_are_read_together() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    for number in 0..600 {
        fs::create_dir_all(tree.join(format!("{}/directory {number}", number % 20))).unwrap();
    }
    mke2fs(&image, 64 << 20, &["-t", "ext4", "-d", tree.to_str().unwrap()]);
    let device = MemoryDevice::from_image(&fs::read(&image).unwrap());
    let stats = Arc::new(Stats::new(Arc::new(device)));
    let report = check(stats.clone()).unwrap();
    assert_eq!((report.count(), report.usage.directories), (0, 622));
    let found = stats.snapshot();
    assert!(found.reads < 100, "{} reads", found.reads);
    assert!(found.read_bytes < 12 << 20, "{} bytes", found.read_bytes);
}

/// A disk with blocks of 4,096 bytes.
struct LargeBlocks(MemoryDevice);

impl BlockDevice for LargeBlocks {
    fn geometry(&self) -> Geometry {
        Geometry { logical_block: 4096, ..self.0.geometry() }
    }

    fn submit(&self, batch: Batch) -> Completion {
        let is_whole = |number: u64| number.is_multiple_of(4096);
        for request in &batch.requests {
            if let Request::Read { offset, buf } = request
                && !(is_whole(*offset) && is_whole(buf.len() as u64))
            {
                let why = "a part of a block";
                return Completion::ready(Err(Error::new(
                    ErrorKind::OutOfRange,
                    Operation::Read,
                    why,
                )));
            }
        }
        self.0.submit(batch)
    }

    fn flush(&self) -> cairn_block::Result<()> {
        self.0.flush()
    }
}

/// A volume on a disk with blocks of 4,096 bytes, of which no part can be read, is checked as on
/// any other disk.
#[test]
fn a_device_with_large_blocks_is_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    mke2fs(&image, 24 << 20, &["-t", "ext4", "-b", "4096"]);
    let bytes = fs::read(&image).unwrap();
    // A sound volume; one without its superblock; one whose superblock has a wrong checksum, a
    // wrong bit, or another revision.
    let damages: [(usize, &[u8]); 5] =
        [(0, &[]), (0, &[0x5a; 4096]), (2044, &[1, 2, 3, 4]), (1080, &[0x52]), (1100, &[0])];
    for (at, damage) in damages {
        let mut bytes = bytes.clone();
        bytes[at..at + damage.len()].copy_from_slice(damage);
        let small = MemoryDevice::from_image(&bytes);
        let large = LargeBlocks(small.fork());
        assert!(large.read_at(1024, 1024).is_err());
        let devices: [Arc<dyn BlockDevice>; 2] = [Arc::new(small), Arc::new(large)];
        let [one, other] =
            devices.each_ref().map(|device| cairn_ext4::check::has_superblock(device).unwrap());
        assert_eq!(one, other, "byte {at}");
        let [one, other] = devices.each_ref().map(|device| check(device.clone()));
        assert_eq!(lines(&one), lines(&other), "byte {at}");
        let [one, other] = devices.map(|device| {
            let (threads, scope) = (Threads::new(), Scope::All);
            match cairn_ext4::check::repair::plan(&device, threads, Arc::new(()), scope) {
                Ok(plan) => plan.steps.kept().iter().map(ToString::to_string).collect(),
                Err(error) => error.to_string(),
            }
        });
        assert_eq!(one, other, "byte {at}");
    }
}
