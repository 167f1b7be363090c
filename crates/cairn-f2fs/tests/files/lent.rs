//! Reading without a copy: a lent block has the file's contents and does not change.

use cairn_f2fs::F2fs;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::support::{judge, open, volume};

const LEN: usize = 3 << 20;

fn lend(fs: &F2fs, ino: cairn_base::Ino, flags: IoFlags, mut check: impl FnMut(&[u8])) -> bool {
    let mut calls = 0;
    let lent = fs.read_shared(ino, 0, LEN + 1, flags, &mut |pieces| {
        calls += 1;
        check(&pieces.concat());
    });
    let lent = lent.unwrap();
    assert_eq!(calls, u32::from(lent), "the pieces come in one call");
    lent
}

#[test]
fn what_is_lent_stays_as_it_was() {
    let device = volume(64 << 20, &[]);
    let fs = open(device.clone(), "");
    let ino = fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    fs.write(ino, 0, b"inline", IoFlags::empty()).unwrap();
    assert!(!lend(&fs, ino, IoFlags::empty(), |_| {}), "what is in the inode is not cached");
    let before: Vec<u8> = (0..LEN).map(|at| (at / 513) as u8).collect();
    fs.write(ino, 0, &before, IoFlags::empty()).unwrap();
    assert!(!lend(&fs, ino, IoFlags::DIRECT, |_| {}), "a direct read goes to the device");
    // The block is first dirty, then written. Each time it is changed while it is lent.
    let mut expected = before;
    for round in 0..3_u8 {
        if round == 1 {
            fs.fsync(ino, 0, false).unwrap();
        }
        let next = vec![round; LEN];
        let lent = fs.read_shared(ino, 0, LEN + 1, IoFlags::empty(), &mut |pieces| {
            assert_eq!(fs.write(ino, 0, &next, IoFlags::empty()).unwrap(), LEN);
            fs.sync().unwrap();
            assert!(pieces.concat() == expected, "round {round}: what is lent has changed");
        });
        assert!(lent.unwrap());
        expected = next;
    }
    fs.unmount().unwrap();
    drop(fs);
    judge(&device);
    let fs = open(device, "");
    let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
    assert!(lend(&fs, ino, IoFlags::empty(), |found| assert!(
        found == expected,
        "not what was written last"
    )));
}
