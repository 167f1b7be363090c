//! Readers and writers of a mounted volume find out whose the block of a wrong pointer is, as
//! readers of a volume that is only read do.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_vfs::{FileSystem, IoFlags};

use crate::inject::Injection;
use crate::listed::word;
use crate::pointers::{NIDS_AT, Volume};
use crate::readers::{View, repaired_views};
use crate::repair::damaged;
use crate::stale::place_of;
use crate::volume::open;

/// A pointer and what is wrong with it.
type Case = (&'static str, Injection);

fn cases(volume: &Volume) -> Vec<Case> {
    let node = (place_of(&volume.device, word(&volume.inode("nodes").1, NIDS_AT)) / 4096) as u32;
    let pointer = |name, slot| volume.pointer((name, slot));
    let wrong = [
        ("hole", 2, pointer("pointers", 3)),
        ("pointers", 3, pointer("nodes", 5)),
        ("pointers", 7, pointer("pointers", 3)),
        ("pointers", 12, node),
        ("nodes", 0, pointer("large", 1)),
        ("long hole", 1, node),
        ("large", 1, pointer("large", 0)),
        ("large", 1, pointer("pointers", 0)),
        // It has lost its block, which lies between those of its neighbours.
        ("pointers", 5, 0),
        ("pointers", 12, 0),
        ("large", 1, 0),
        // It calls the block reserved.
        ("pointers", 0, u32::MAX),
        ("pointers", 5, u32::MAX),
        ("nodes", 7, u32::MAX),
    ];
    let case = |(name, slot, to): (&'static str, usize, u32)| {
        let what = format!("{name}, pointer {slot}: {to:#x}");
        (name, volume.set(&what, &[((name, slot), to)]))
    };
    wrong.into_iter().map(case).collect()
}

#[test]
fn a_mounted_volume_refuses_what_a_reader_refuses() {
    let volume = Volume::new();
    let sound: Arc<dyn BlockDevice> = Arc::new(volume.device.fork());
    let sound = View::of(&sound);
    for (name, injection) in cases(&volume) {
        let what = &injection.what;
        let device = Arc::new(damaged(&volume.judge.target, &injection));
        let only_read = View::of(&(device.clone() as Arc<dyn BlockDevice>));
        let fs = open(device.clone(), "");
        let mounted = View::seen(&fs);
        for view in [&only_read, &mounted] {
            assert!(view.wrong(&sound).is_empty(), "{what}: {:?}", view.wrong(&sound));
            let path = [b"/", name.as_bytes()].concat();
            assert!(
                view.has_failed(&path)
                    || view.failed.iter().any(|failed| failed.starts_with(&path)),
                "{what}"
            );
        }
        assert_eq!(only_read.failed, mounted.failed, "{what}");
        fs.unmount().unwrap();
    }
}

/// The block of another stays as it is, and the file has what was written.
#[test]
fn what_is_written_over_a_wrong_pointer_is_read() {
    let volume = Volume::new();
    let sound: Arc<dyn BlockDevice> = Arc::new(volume.device.fork());
    let sound = View::of(&sound);
    for (name, injection) in cases(&volume).into_iter().filter(|(name, _)| *name != "large") {
        let what = &injection.what;
        for options in ["", "mode=lfs"] {
            let device = Arc::new(damaged(&volume.judge.target, &injection));
            let fs = open(device.clone(), options);
            let attr = fs.lookup(fs.root(), name.as_bytes()).unwrap();
            let contents = vec![0x33; attr.size.min(100_000) as usize];
            fs.write(attr.ino, 0, &contents, IoFlags::empty()).unwrap();
            fs.fsync(attr.ino, 0, false).unwrap();
            fs.unmount().unwrap();
            let device: Arc<dyn BlockDevice> = device;
            for mut view in repaired_views(&device, what) {
                let path = [b"/", name.as_bytes()].concat();
                let read = view.found.get_mut(&path).unwrap();
                assert!(read.bytes[..contents.len()] == contents, "{what}");
                let right = &sound.found[&path];
                assert!(read.bytes[contents.len()..] == right.bytes[contents.len()..], "{what}");
                *read = right.clone();
                assert!(view.wrong(&sound).is_empty(), "{what}: {:?}", view.wrong(&sound));
            }
        }
    }
}

/// A checkpoint gives a changed block of a directory another place. What the pointer led to before
/// is not freed if it is not the directory's, and the checkpoint is written all the same.
#[test]
fn a_checkpoint_moves_a_block_that_is_free() {
    let volume = Volume::new();
    let free = volume.judge.target.free_blocks()[0].0;
    let old = volume.pointer(("large", 0));
    let mut injection = volume.set("large", &[(("large", 0), free)]);
    let bytes = volume.judge.target.read(u64::from(old) * 4096);
    injection.blocks.push((u64::from(free) * 4096, bytes));
    let device = Arc::new(damaged(&volume.judge.target, &injection));
    let fs = open(device.clone(), "");
    let large = fs.lookup(fs.root(), b"large").unwrap().ino;
    fs.unlink(large, b"linked 0").unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.read_only_reason(), None);
    fs.unlink(large, b"linked 1").unwrap();
    fs.unmount().unwrap();
    let device: Arc<dyn BlockDevice> = device;
    let [found, repaired] = repaired_views(&device, "a moved block");
    let fs = open(Arc::new(volume.device.fork()), "");
    for name in [b"linked 0", b"linked 1"] {
        fs.unlink(fs.lookup(fs.root(), b"large").unwrap().ino, name).unwrap();
    }
    let right = View::seen(&fs);
    for view in [found, repaired] {
        assert!(view.wrong(&right).is_empty(), "{:?}", view.wrong(&right));
    }
}
