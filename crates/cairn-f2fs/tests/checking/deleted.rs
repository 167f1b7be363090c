//! A deletion frees what is the file's own, whatever its damaged fields name.

use std::sync::Arc;

use cairn_block::BlockDeviceExt;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, XattrMode};

use crate::volume::{MIB, open, volume};

const XATTR_NID: std::ops::Range<usize> = 76..80;
/// In the footer of a node: its number, and that of its inode.
const NID: std::ops::Range<usize> = 4072..4076;
const INO: std::ops::Range<usize> = 4076..4080;

#[test]
fn the_node_of_another_file_is_not_freed_with_the_attributes() {
    let device = volume(64 * MIB, &[]);
    let fs = open(device.clone(), "");
    let create = |name: &[u8]| {
        fs.create(fs.root(), name, NewInode::Regular, 0o600, &Caller::ROOT).unwrap().ino
    };
    let (kept, gone) = (create(b"kept"), create(b"gone"));
    let contents: Vec<u8> = (0..6 * MIB).map(|at| (at / 4096) as u8 | 1).collect();
    fs.write(kept, 0, &contents, IoFlags::empty()).unwrap();
    fs.setxattr(gone, b"user.large", &[7; 2000], XattrMode::Set).unwrap();
    fs.unmount().unwrap();

    let number = |bytes: &[u8], at: std::ops::Range<usize>| {
        u64::from(u32::from_le_bytes(bytes[at].try_into().unwrap()))
    };
    let blocks: Vec<(u64, Vec<u8>)> = (0..64 * MIB)
        .step_by(4096)
        .map(|at| (at, device.read_at(at, 4096).unwrap().to_vec()))
        .filter(|(_, block)| block[4000..].iter().any(|byte| *byte != 0))
        .collect();
    let of = |ino: u64| blocks.iter().filter(move |(_, block)| number(block, INO) == ino);
    let other = of(kept.get()).map(|(_, block)| number(block, NID)).find(|nid| *nid != kept.get());
    let mut changed = 0;
    for (at, block) in of(gone.get()).filter(|(_, block)| number(block, NID) == gone.get()) {
        let mut block = block.clone();
        block[XATTR_NID].copy_from_slice(&(other.unwrap() as u32).to_le_bytes());
        device.load(*at, &block);
        changed += 1;
    }
    assert!(changed > 0);

    let fs = open(device.clone(), "");
    // The name goes; what the file has stays, because it may be anybody's.
    let _ = fs.unlink(fs.root(), b"gone");
    let _ = fs.unmount();
    let fs = open(Arc::new(device.fork()), "");
    let mut read = vec![0; contents.len()];
    let ino = fs.lookup(fs.root(), b"kept").unwrap().ino;
    assert_eq!(fs.read(ino, 0, &mut read, IoFlags::empty()).unwrap(), contents.len());
    assert!(read == contents);
}
