//! F2FS without checkpoints (`checkpoint=disable`).

use std::fs::{self, File};
use std::io::{ErrorKind, Write};

use crate::fixture::Volume;

/// What the kernel was allowed to take has its place; a write without room fails, an unlink never.
#[test]
fn a_full_volume_refuses_writes_in_time() {
    let mut volume = Volume::f2fs(64 << 20, "");
    fs::write(volume.path("kept"), vec![1; 3 << 20]).unwrap();
    volume.unmount();
    volume.mount("checkpoint=disable");
    let mut full = File::create(volume.path("full")).unwrap();
    let refused = (0..100).find_map(|_| full.write_all(&vec![2; 1 << 20]).err());
    assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::StorageFull));
    full.sync_all().unwrap();
    drop(full);
    // The blocks of the last checkpoint stay, so that new contents need others.
    let mut kept = File::options().write(true).open(volume.path("kept")).unwrap();
    let refused = (0..3).find_map(|_| kept.write_all(&vec![4; 1 << 20]).err());
    assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::StorageFull));
    kept.sync_all().unwrap();
    drop(kept);
    fs::remove_file(volume.path("full")).unwrap();
    fs::write(volume.path("another"), vec![3; 1 << 20]).unwrap();
    // Fails if `cairn umount` does.
    volume.unmount();
    volume.mount("");
    assert_eq!(fs::read(volume.path("kept")).unwrap(), vec![1; 3 << 20]);
    assert!(!volume.path("another").exists(), "nothing stays without a checkpoint");
    volume.unmount();
}
