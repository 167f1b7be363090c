//! `FIEMAP`.

use cairn_base::runtime::simulated::Simulated;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, SetAttributes, fiemap};

use crate::support::{judge, volume};

const BLOCK: u64 = 4096;

/// A block, a hole, a block, a hole to the end.
#[test]
fn the_last_extent_is_marked_whatever_range_is_asked_for() {
    let device = volume(64 << 20, &[]);
    let fs =
        F2fs::open(device.clone(), Simulated::new(1), &MountOptions::default()).expect("it opens");
    let ino = fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    for block in [0, 40] {
        fs.write(ino, block * BLOCK, &[1; 4096], IoFlags::empty()).unwrap();
    }
    let size = SetAttributes { size: Some(4096 * BLOCK), ..Default::default() };
    fs.setattr(ino, &size).unwrap();

    let asked = |first: u64, blocks: u64| {
        let mut found = Vec::new();
        fs.extents(ino, first * BLOCK, blocks * BLOCK, true, &mut |extent| {
            found.push((extent.logical / BLOCK, extent.flags & fiemap::LAST != 0));
            true
        })
        .unwrap();
        found
    };
    assert_eq!(asked(0, 4096), [(0, false), (40, true)]);
    assert_eq!(asked(0, 20), [(0, false)]);
    assert_eq!(asked(30, 11), [(40, true)]);
    assert_eq!(asked(30, 1000), [(40, true)]);
    assert_eq!(asked(41, 4000), []);

    fs.unmount().unwrap();
    drop(fs);
    judge(&device);
}
