//! Fills volumes and judges them.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_ext4::mkfs::MkfsOptions;
use cairn_ext4::mkfs::populate::{Population, Source};
use cairn_ext4::{Ext4, MountOptions};
use cairn_testkit::judge::KernelMount;
use cairn_testkit::tree::{Snapshot, SnapshotOptions, digest_path};
use uuid::Uuid;

use crate::checked::assert_clean;

/// Options of a reproducible volume.
pub fn options(features: &str, block_size: u32) -> MkfsOptions {
    MkfsOptions {
        features: vec![features.into()],
        block_size: Some(block_size),
        uuid: Some(Uuid::from_u128(7)),
        time: Some(1_700_000_000),
        reserved_percent: Some(0.0),
        ..Default::default()
    }
}

/// Fills the smallest volume that holds the tree and `free` bytes.
#[track_caller]
pub fn fill(
    source: Arc<dyn Source>,
    options: &MkfsOptions,
    free: u64,
    threads: usize,
    image: &Path,
) {
    let runtime = Threads::new();
    let population = Population::new(source, options, 1000, &*runtime).expect("a possible tree");
    let size = population.required_bytes(free).expect("a possible size");
    let open = OpenOptions::create(size);
    let device = Arc::new(FileDevice::open(image, open).expect("image"));
    population.write(device, threads, &*runtime).expect("the volume is written");
}

/// The tree in an image as the kernel shows it. e2fsck must find nothing.
#[track_caller]
pub fn judged(image: &Path) -> Snapshot {
    assert_clean(image);
    let mount = KernelMount::new(image, "ro");
    let snapshot =
        digest_path(mount.path(), SnapshotOptions::default()).expect("a tree that can be read");
    mount.unmount();
    snapshot
}

/// Opens a volume for changes.
#[track_caller]
pub fn open(device: Arc<dyn BlockDevice>) -> Arc<Ext4> {
    let options = MountOptions::parse("").expect("valid options");
    Ext4::open(device, Threads::new(), &options).expect("the volume opens")
}
