//! Images of mkfs.f2fs and sload.f2fs, in memory.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::judge::{mkfs_f2fs, sload_f2fs};

pub const MIB: u64 = 1 << 20;

/// An image made with these arguments of mkfs.f2fs, with a tree in it.
pub fn image(size: u64, arguments: &[&str], tree: Option<&Path>) -> Arc<MemoryDevice> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    mkfs_f2fs(&path, size, arguments);
    if let Some(tree) = tree {
        sload_f2fs(&path, tree);
    }
    in_memory(&path)
}

/// The bytes of a file, as a device.
pub fn in_memory(path: &Path) -> Arc<MemoryDevice> {
    let bytes = std::fs::read(path).unwrap();
    let device = MemoryDevice::new(bytes.len() as u64);
    for (index, chunk) in (0_u64..).zip(bytes.chunks(1 << 20)) {
        if chunk.iter().any(|byte| *byte != 0) {
            device.write_at(index * MIB, chunk.to_vec()).unwrap();
        }
    }
    Arc::new(device)
}

/// Opens for reading.
pub fn open(device: Arc<dyn BlockDevice>) -> cairn_f2fs::Result<Arc<F2fs>> {
    let options =
        MountOptions { read_only: true, cache_bytes: 32 << 20, ..MountOptions::default() };
    F2fs::open(device, Threads::new(), &options)
}
