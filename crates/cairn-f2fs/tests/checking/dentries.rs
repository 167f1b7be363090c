//! One field of an entry is wrong: its number, the length of its name, or its hash. A repair
//! without losses gives the entry back what something proves, and leaves the rest.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_f2fs::F2fs;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::readers::View;
use crate::repair::{apply, plan};
use crate::volume::{MIB, open, volume};
use crate::{check, lines};

const REGULAR: u8 = 1;
const DIRECTORY: u8 = 2;
/// In an entry: the hash, the number of the inode, the length of the name, and the type.
const INO_AT: usize = 4;
const LEN_AT: usize = 8;
const ENTRY: usize = 11;

fn create(fs: &F2fs, dir: Ino, name: &str, new: NewInode<'_>) -> Ino {
    fs.create(dir, name.as_bytes(), new, 0o700, &Caller::ROOT).unwrap().ino
}

fn file(fs: &F2fs, dir: Ino, name: &str) -> Ino {
    let ino = create(fs, dir, name, NewInode::Regular);
    fs.write(ino, 0, name.as_bytes(), IoFlags::empty()).unwrap();
    ino
}

/// A directory with files, and files with one and two names.
fn planted() -> (Arc<MemoryDevice>, [u32; 3]) {
    let device = volume(64 * MIB, &[]);
    let fs = open(device.clone(), "");
    let dir = create(&fs, fs.root(), "directory", NewInode::Directory);
    for number in 0..5 {
        file(&fs, dir, &format!("in it {number}"));
    }
    let private = create(&fs, fs.root(), "private", NewInode::Directory);
    let other = file(&fs, private, "other");
    let linked = file(&fs, fs.root(), "first");
    fs.link(linked, fs.root(), b"m27").unwrap();
    fs.link(linked, fs.root(), b"last").unwrap();
    fs.unmount().unwrap();
    (device, [dir, other, linked].map(|ino| u32::try_from(ino.get()).unwrap()))
}

/// A copy of the volume with a change of an entry, in all versions of its block.
fn changed(
    device: &MemoryDevice,
    (ino, len, kind): (u32, usize, u8),
    change: &dyn Fn(&mut [u8]),
) -> Arc<dyn BlockDevice> {
    let damaged = device.fork();
    let len = u16::try_from(len).unwrap().to_le_bytes();
    let wanted = [&ino.to_le_bytes()[..], &len, &[kind]].concat();
    let mut count = 0;
    for at in (0..64 * MIB).step_by(4096) {
        let mut block = damaged.read_at(at, 4096).unwrap().to_vec();
        if let Some(place) = block.windows(wanted.len()).position(|bytes| bytes == wanted) {
            change(&mut block[place - INO_AT..place - INO_AT + ENTRY]);
            damaged.load(at, &block);
            count += 1;
        }
    }
    assert!(count > 0);
    Arc::new(damaged)
}

fn view(device: &MemoryDevice) -> View {
    View::of(&(Arc::new(device.fork()) as Arc<dyn BlockDevice>))
}

/// A repair without losses makes the volume what it was.
fn is_mended(what: &str, device: &Arc<dyn BlockDevice>, sound: &View) {
    let found = lines(&check(device.clone()).unwrap());
    let done = plan(device, Scope::Accounting).unwrap();
    assert!(!done.is_refused && done.after.count() == 0, "{what}:\n{found}");
    assert_eq!(done.steps.losing().count(), 0, "{what}");
    apply(&done, device);
    let wrong = View::of(device).wrong(sound);
    assert!(wrong.is_empty(), "{what}: {wrong:?}\n{found}");
}

/// A repair without losses changes no name. One with losses lists what it does.
fn is_left(what: &str, device: &Arc<dyn BlockDevice>, listed: &str) {
    let before = View::of(device);
    let safe = plan(device, Scope::Accounting).unwrap();
    assert!(safe.after.count() > 0, "{what}");
    apply(&safe, device);
    assert_eq!(View::of(device).wrong(&before), [""; 0], "{what}");
    assert_eq!(before.wrong(&View::of(device)), [""; 0], "{what}");
    let all = plan(device, Scope::All).unwrap();
    assert_eq!(all.after.count(), 0, "{what}:\n{}", lines(&all.after));
    let mut losses = all.steps.losing().map(ToString::to_string);
    assert!(losses.any(|loss| loss.contains(listed)), "{what}: {:?}", all.steps.kept());
}

#[test]
fn the_entry_of_a_directory_gets_its_number_back() {
    let (device, [dir, other, linked]) = planted();
    for number in [other, linked] {
        let entry = (dir, b"directory".len(), DIRECTORY);
        let damaged = changed(&device, entry, &|entry| {
            entry[INO_AT..LEN_AT].copy_from_slice(&number.to_le_bytes());
        });
        is_mended(&format!("number {number}"), &damaged, &view(&device));
    }
}

/// The file with the wrong number has several names, and records none of them.
#[test]
fn an_entry_without_proof_of_its_number_becomes_no_link_without_a_question() {
    let (device, [_, other, linked]) = planted();
    let damaged = changed(&device, (other, b"other".len(), REGULAR), &|entry| {
        entry[INO_AT..LEN_AT].copy_from_slice(&linked.to_le_bytes());
    });
    is_mended("the name is recorded", &damaged, &view(&device));
    let damaged = changed(&device, (linked, b"m27".len(), REGULAR), &|entry| {
        entry[INO_AT..LEN_AT].copy_from_slice(&other.to_le_bytes());
    });
    is_mended("the only name is recorded", &damaged, &view(&device));
    let fs = open(device.clone(), "");
    let private = fs.lookup(fs.root(), b"private").unwrap().ino;
    fs.link(Ino(other.into()), private, b"other's").unwrap();
    fs.unmount().unwrap();
    let damaged = changed(&device, (linked, b"m27".len(), REGULAR), &|entry| {
        entry[INO_AT..LEN_AT].copy_from_slice(&other.to_le_bytes());
    });
    is_left("no name is recorded", &damaged, "if the number of an entry is wrong");
}

#[test]
fn a_name_gets_back_the_length_of_its_hash() {
    let (device, [_, other, linked]) = planted();
    let names = [(linked, "m27"), (linked, "last"), (other, "other")];
    for (ino, name) in names {
        for len in [1, 2] {
            let damaged =
                changed(&device, (ino, name.len(), REGULAR), &|entry| entry[LEN_AT] = len);
            is_mended(&format!("{name}, {len} bytes"), &damaged, &view(&device));
        }
    }
}

/// All of a hash is wrong, and the inode records another name: the name may be the wrong one.
#[test]
fn a_hash_without_proof_is_not_computed_without_a_question() {
    let (device, [_, _, linked]) = planted();
    let entry = (linked, b"m27".len(), REGULAR);
    let damaged = changed(&device, entry, &|entry| entry[2] ^= 0x10);
    is_mended("one bit", &damaged, &view(&device));
    let damaged = changed(&device, entry, &|entry| {
        entry[..INO_AT].iter_mut().for_each(|byte| *byte ^= 0x5a);
    });
    is_left("four bytes", &damaged, "the name m27, if it was another");
}
