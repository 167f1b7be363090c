//! Inodes whose record contradicts what they hold are not opened, so that nothing is written to
//! what was misread. A repair gives them back.

use std::sync::Arc;

use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_vfs::{Caller, FileSystem, NewInode};

use crate::check;
use crate::types::Judge;
use crate::volume::open;

const TYPE_AT: usize = 1;
const FLAGS_AT: usize = 3;
const LINKS_AT: usize = 12;
const SIZE_AT: usize = 16;
const EXTRA_AT: usize = 360;
const NIDS_AT: usize = 4052;
const DATA: u8 = 2;
const DENTRY: u8 = 4;

/// A file, what is wrong, and the change.
type Case = (&'static str, &'static str, fn(&mut Vec<u8>));

fn extra(bytes: &mut [u8], size: u16) {
    bytes[EXTRA_AT..EXTRA_AT + 2].copy_from_slice(&size.to_le_bytes());
}

const CASES: [Case; 8] = [
    ("inline", "the flag for contents is gone", |bytes| bytes[FLAGS_AT] ^= DATA),
    ("small", "the flag for entries is gone", |bytes| bytes[FLAGS_AT] ^= DENTRY),
    ("large", "there are no entries in it", |bytes| bytes[FLAGS_AT] ^= DENTRY),
    ("inline", "pointers beside contents", |bytes| bytes[NIDS_AT] = 77),
    ("large", "it ends before its blocks", |bytes| bytes[SIZE_AT..SIZE_AT + 8].fill(0)),
    ("pointers", "it has a name, and no link", |bytes| bytes[LINKS_AT] = 0),
    ("pointers", "its contents are no FIFO's", |bytes| bytes[TYPE_AT] ^= 0x90),
    ("large", "its contents are no file's", |bytes| bytes[TYPE_AT] ^= 0xc0),
];

const EXTRA: [Case; 7] = [
    ("inline", "no writer gives this size", |bytes| extra(bytes, 28)),
    ("pointers", "no writer gives this size", |bytes| extra(bytes, 20)),
    ("pointers", "no room for the checksum", |bytes| extra(bytes, 4)),
    ("small", "the entries begin elsewhere", |bytes| extra(bytes, 24)),
    ("inline", "the contents begin elsewhere", |bytes| extra(bytes, 24)),
    ("pointers", "the pointers begin elsewhere", |bytes| extra(bytes, 24)),
    ("nodes", "the pointers begin elsewhere", |bytes| extra(bytes, 24)),
];

fn are_not_opened(arguments: &[&str], cases: &[Case]) {
    let judge = Judge::new(arguments);
    for (name, what, change) in cases {
        let mut injection = judge.change(name, &|bytes| change(bytes));
        injection.what = format!("{name}: {what}");
        let what = &injection.what;
        let base: Arc<dyn BlockDevice> = Arc::new(judge.target.device.fork());
        let device: Arc<dyn BlockDevice> = Arc::new(Overlay::new(base).unwrap());
        let (at, bytes) = &injection.blocks[0];
        device.write_at(*at, bytes.clone()).unwrap();
        assert!(check(device.clone()).unwrap().count() > 0, "{what}");
        let fs = open(device.clone(), "");
        let error = fs.lookup(fs.root(), name.as_bytes()).unwrap_err();
        let ino = judge.numbers[name];
        assert!(error.to_string().contains(&format!("inode {ino}: ")), "{what}: {error}");
        // The rest of the volume is written as ever.
        let new = NewInode::Regular;
        fs.create(fs.root(), b"new", new, 0o600, &Caller::ROOT).unwrap();
        fs.unmount().unwrap();
        assert!(device.read_at(*at, bytes.len()).unwrap()[..] == bytes[..], "{what}");
        let (tree, lost) = judge.repair(&injection, Scope::All);
        assert!(lost.is_empty() && tree.unwrap() == judge.sound, "{what}: {lost:?}");
    }
}

#[test]
fn a_misread_inode_is_not_opened() {
    are_not_opened(&[], &CASES);
}

#[test]
fn a_misread_inode_is_not_opened_with_extra_attributes() {
    are_not_opened(&["-O", "extra_attr,inode_checksum,inode_crtime"], &EXTRA);
}
