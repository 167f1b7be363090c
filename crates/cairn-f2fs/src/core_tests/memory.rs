//! Volumes in memory, for states that are made by the dozen; written out for fsck.f2fs.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use crate::segment::Mode;
use crate::store::Store;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_testkit::judge;

use super::volume::{image, move_data, nids, open_with};

const PIECE: usize = 1 << 20;

/// A small volume with a tree.
pub(crate) fn small() -> MemoryDevice {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 64 << 20, &[], &[]);
    MemoryDevice::from_image(&std::fs::read(path).unwrap())
}

pub(crate) fn open(device: Arc<dyn BlockDevice>) -> Store {
    open_with(device, Mode::Adaptive, false).expect("the core opens")
}

/// Asserts that fsck.f2fs finds nothing but, if a checkpoint was cut short, a pack that is not
/// valid.
pub(crate) fn judge(device: &dyn BlockDevice, what: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    write_out(device, &path);
    let output =
        judge::command("fsck.f2fs").arg("--dry-run").arg(&path).output().expect("fsck.f2fs starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let alarm =
        ["[ASSERT]", "[FIX]", "[Fail]", "Corrupted"].iter().any(|alarm| text.contains(alarm));
    assert!(output.status.code() == Some(0) && !alarm, "{what}: {}\n{text}", output.status);
}

fn write_out(device: &dyn BlockDevice, path: &Path) {
    let size = device.geometry().size;
    let mut file = std::fs::File::create(path).unwrap();
    file.set_len(size).unwrap();
    for at in (0..size).step_by(PIECE) {
        let bytes = device.read_at(at, PIECE.min((size - at) as usize)).unwrap();
        if bytes.iter().any(|byte| *byte != 0) {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&bytes).unwrap();
        }
    }
}

/// Moves a part of the data and dirties a part of the nodes.
pub(crate) fn stir(store: &Store, seed: u16) {
    for nid in nids(store).into_iter().filter(|nid| (nid.get() as u16).wrapping_mul(seed) % 7 < 4) {
        let node = store.nodes.get(nid).unwrap();
        move_data(store, &node, |slot| slot.wrapping_mul(seed) % 3 != 0).unwrap();
        let _inside = store.operation_lock.lock_op().unwrap();
        drop(node.modify());
    }
}
