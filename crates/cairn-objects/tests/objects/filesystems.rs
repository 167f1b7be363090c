//! ext4 and F2FS on a volume: what was synced survives the writer's death, and the assembled image
//! is clean.

use std::path::Path;

use cairn::{Format, ImageSpec, MkfsOptions, OpenOptions};
use cairn_objects::store::Trouble;
use cairn_testkit::judge::{assert_clean, assert_f2fs_clean};
use cairn_testkit::tree::{SnapshotOptions, TreeSpec, VolumeTarget, build, digest_volume, plan};

use super::*;

const VOLUME: u64 = 64 << 20;

/// Copies a device to a file.
fn assemble(device: &dyn BlockDevice, image: &Path) {
    let file = std::fs::File::create(image).unwrap();
    file.set_len(VOLUME).unwrap();
    for at in (0..VOLUME).step_by(1 << 20) {
        let bytes = device.read_at(at, 1 << 20).unwrap();
        if bytes.iter().any(|byte| *byte != 0) {
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes, at).unwrap();
        }
    }
}

/// A new volume with a new filesystem.
fn make(format: Format, place: &Path) -> Arc<MemoryStore> {
    let image = place.join("new.img");
    let options = MkfsOptions { size: Some(VOLUME), ..MkfsOptions::new(format) };
    cairn::mkfs(&ImageSpec::whole(&image), &options).unwrap();
    let store = Arc::new(MemoryStore::new());
    let create = CreateOptions { object_size: 1 << 20, ..CreateOptions::default() };
    create_in(store.clone(), "main", VOLUME, &create, &super::options()).unwrap();
    let device = open(store.clone()).unwrap();
    let bytes = std::fs::read(&image).unwrap();
    for (chunk, at) in bytes.chunks(64 << 10).zip((0..).step_by(64 << 10)) {
        if chunk.iter().any(|byte| *byte != 0) {
            device.write_at(at, chunk.to_vec()).unwrap();
        }
    }
    device.close().unwrap();
    store
}

fn lives_on_objects(format: Format, clean: fn(&Path)) {
    let place = tempfile::tempdir().unwrap();
    let memory = make(format, place.path());
    let store = Arc::new(Trouble::new(memory.clone()));
    let device = Arc::new(open(store.clone()).unwrap());
    let mounted = |device: Arc<ObjectVolume>| {
        let runtime = Threads::new();
        cairn::open_on(device, runtime, &OpenOptions::default()).unwrap()
    };
    let volume = mounted(device.clone());
    build(&VolumeTarget::new(&**volume.filesystem()), &plan(&TreeSpec::small(3)));
    volume.filesystem().sync().unwrap();
    let synced = digest_volume(&**volume.filesystem(), SnapshotOptions::default()).unwrap();
    let puts = device.requests().log_puts.get();
    // The writer dies.
    store.set(|_, _, _, _| true);
    let _ = volume.filesystem().shutdown(false);
    drop(volume);
    drop(device);

    let device = Arc::new(open(memory).unwrap());
    let volume = mounted(device.clone());
    let found = digest_volume(&**volume.filesystem(), SnapshotOptions::default()).unwrap();
    synced.assert_same(&found);
    volume.filesystem().unmount().unwrap();
    drop(volume);
    let image = place.path().join("assembled.img");
    assemble(&*device, &image);
    clean(&image);
    println!("{puts} objects; then {:?}", device.requests());
}

#[test]
fn ext4_lives_on_objects() {
    lives_on_objects(Format::Ext4, assert_clean);
}

#[test]
fn f2fs_lives_on_objects() {
    lives_on_objects(Format::F2fs, assert_f2fs_clean);
}
