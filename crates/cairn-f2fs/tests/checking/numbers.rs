//! The number of an entry is wrong, and leads to another inode that exists: the check finds it, and
//! a repair that loses nothing gives the entry its inode back where a record shows which it is.

use std::sync::Arc;

use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_f2fs::F2fs;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::readers::View;
use crate::repair::{apply, plan};
use crate::volume::{MIB, open, volume};
use crate::{check, lines};

/// The inode number and the length of the name in an entry.
fn entry(ino: u64, name: &str) -> Vec<u8> {
    let ino = u32::try_from(ino).unwrap().to_le_bytes();
    let len = u16::try_from(name.len()).unwrap().to_le_bytes();
    [&ino[..], &len, &[1]].concat()
}

/// A file of each past: created, renamed, renamed over another, linked.
fn plant(fs: &F2fs) -> Vec<(&'static str, u64)> {
    let root = fs.root();
    let create = |name: &str| {
        let new = NewInode::Regular;
        let ino = fs.create(root, name.as_bytes(), new, 0o600, &Caller::ROOT).unwrap().ino;
        fs.write(ino, 0, name.as_bytes(), IoFlags::empty()).unwrap();
        ino
    };
    let created = create("created");
    let other = create("also created");
    let renamed = create("before");
    fs.rename(root, b"before", root, b"renamed afterwards", cairn_vfs::RenameMode::Replace)
        .unwrap();
    let linked = create("one of two");
    fs.link(linked, root, b"one of these two").unwrap();
    vec![
        ("created", created.get()),
        ("also created", other.get()),
        ("renamed afterwards", renamed.get()),
        ("one of two", linked.get()),
        ("one of these two", linked.get()),
    ]
}

#[test]
fn an_entry_with_the_number_of_another_inode_is_found() {
    let device = volume(64 * MIB, &[]);
    let fs = open(device.clone(), "");
    let files = plant(&fs);
    fs.unmount().unwrap();
    let sound: Arc<dyn BlockDevice> = Arc::new(device.fork());
    let view = View::of(&sound);
    // The entries are in the root's inode, of which older versions are left.
    let blocks: Vec<u64> = (0..64 * MIB).step_by(1 << 20).collect();
    let mut mended = 0;
    for (name, ino) in &files {
        for (other, number) in files.iter().filter(|(_, number)| number != ino) {
            let what = format!("{name} leads to {other}");
            let damaged = device.fork();
            for at in &blocks {
                let bytes = damaged.read_at(*at, 1 << 20).unwrap().to_vec();
                let wanted = entry(*ino, name);
                let found: Vec<_> = bytes
                    .chunks(4096)
                    .zip((*at..).step_by(4096))
                    .filter(|(block, _)| block.iter().any(|byte| *byte != 0))
                    .filter_map(|(block, at)| {
                        let slot = block.windows(wanted.len()).position(|word| word == wanted)?;
                        Some((at, slot, block.to_vec()))
                    })
                    .collect();
                for (at, slot, mut block) in found {
                    block[slot..slot + 4]
                        .copy_from_slice(&u32::try_from(*number).unwrap().to_le_bytes());
                    damaged.load(at, &block);
                }
            }
            let device: Arc<dyn BlockDevice> = Arc::new(damaged);
            assert!(!View::of(&device).wrong(&view).is_empty(), "{what}: nothing was changed");
            let found = check(device.clone()).unwrap();
            assert!(found.count() > 0, "{what}: nothing is found");
            let done = plan(&device, Scope::Accounting).unwrap();
            assert_eq!(done.steps.losing().count(), 0, "{what}");
            let is_shown =
                *name == "created" || *name == "also created" || other.contains("created");
            if !is_shown {
                continue;
            }
            assert!(!done.is_refused && done.after.count() == 0, "{what}:\n{}", lines(&found));
            apply(&done, &device);
            let wrong = View::of(&device).wrong(&view);
            assert!(wrong.is_empty(), "{what}: {wrong:?}\n{}", lines(&found));
            mended += 1;
        }
    }
    assert!(mended >= 14, "{mended}");
}
