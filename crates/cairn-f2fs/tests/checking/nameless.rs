//! Inodes that have lost their only name. A repair without losses gives them no other one: it needs
//! a record that is not marked as an older one, or a free slot with the only name that is left.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_f2fs::F2fs;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, RenameMode};

use crate::inject::{Injection, Target};
use crate::names::{NAMES_AT, SLOT};
use crate::readers::View;
use crate::repair::{apply, damaged, fsck, plan};
use crate::volume::{MIB, open, volume};
use crate::{check, lines};

const CODE: &str = "f2fs.inode.name: ";

/// How a file came to its last name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Created,
    Renamed,
    Linked,
}

/// What became of the slot of its first name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Kept,
    Reused,
}

fn file(fs: &F2fs, name: &[u8]) -> cairn_base::Ino {
    let ino = fs.create(fs.root(), name, NewInode::Regular, 0o640, &Caller::ROOT).unwrap().ino;
    fs.write(ino, 0, name, IoFlags::empty()).unwrap();
    ino
}

/// A volume whose root has a file with the name `two`, and others. After an fsync of it, its record
/// is not marked.
fn planted(how: How, first: First, is_fsynced: bool) -> Arc<MemoryDevice> {
    let device = volume(64 * MIB, &[]);
    let fs = open(device.clone(), "");
    let root = fs.root();
    // More than the inode has room for.
    for number in 0..100 {
        file(&fs, format!("another {number}").as_bytes());
    }
    if how == How::Created {
        file(&fs, b"two");
    } else {
        let ino = file(&fs, b"one");
        fs.sync().unwrap();
        if how == How::Renamed {
            fs.rename(root, b"one", root, b"two", RenameMode::Replace).unwrap();
        } else {
            fs.link(ino, root, b"two").unwrap();
            fs.unlink(root, b"one").unwrap();
        }
        if first == First::Reused {
            file(&fs, b"three");
        }
        if is_fsynced {
            fs.sync().unwrap();
            for _ in 0..2 {
                fs.fsync(ino, 0, false).unwrap();
            }
        }
    }
    fs.unmount().unwrap();
    device
}

/// A repair without losses makes the volume what it was.
fn is_mended(what: &str, target: &Target, injection: &Injection) {
    let device: Arc<dyn BlockDevice> = Arc::new(damaged(target, injection));
    let sound = View::of(&(Arc::new(target.device.fork()) as Arc<dyn BlockDevice>));
    let found = lines(&check(device.clone()).unwrap());
    assert!(found.contains("f2fs.inode.unreachable: ") && !found.contains(CODE), "{what}: {found}");
    let done = plan(&device, Scope::Accounting).unwrap();
    assert!(!done.is_refused && done.after.count() == 0, "{what}:\n{}", lines(&done.after));
    assert_eq!(done.steps.losing().count(), 0, "{what}");
    apply(&done, &device);
    let after = View::of(&device);
    assert_eq!(after.wrong(&sound), [""; 0], "{what}");
    assert_eq!(after.found.len(), sound.found.len(), "{what}");
}

/// A repair without losses changes nothing. One with losses lists the name, and gives the file the
/// one at this path.
fn is_lost(what: &str, target: &Target, injection: &Injection, (path, loss): (&[u8], &str)) {
    let device: Arc<dyn BlockDevice> = Arc::new(damaged(target, injection));
    let found = lines(&check(device.clone()).unwrap());
    assert!(found.contains(CODE), "{what}: {found}");
    let safe = plan(&device, Scope::Accounting).unwrap();
    assert!(safe.changes.is_empty() && safe.after.count() > 0, "{what}: {:?}", safe.steps.kept());
    let all = plan(&device, Scope::All).unwrap();
    assert_eq!(all.after.count(), 0, "{what}:\n{}", lines(&all.after));
    let mut losses = all.steps.losing().map(ToString::to_string);
    assert!(losses.any(|line| line.contains(loss)), "{what}: {:?}", all.steps.kept());
    apply(&all, &device);
    let after = View::of(&device);
    assert!(after.found.keys().any(|name| name.starts_with(path)), "{what}: {:?}", after.failed);
}

/// A change of all versions of the block of the root with the name `two`.
fn changed(target: &Target, change: impl Fn(&mut Vec<u8>, usize)) -> Injection {
    let mut blocks = Vec::new();
    for at in (0..64 * MIB).step_by(4096) {
        let mut bytes = target.read(at);
        let has = |slot: &usize| {
            let is_used = bytes[slot / 8] & 1 << (slot % 8) != 0;
            is_used && bytes[NAMES_AT + slot * SLOT..].starts_with(b"two\0")
        };
        if let Some(slot) = (0..214).find(has) {
            change(&mut bytes, slot);
            blocks.push((at, bytes));
        }
    }
    assert!(!blocks.is_empty(), "no directory has the name");
    Injection { what: "two".into(), blocks }
}

/// The slot of the name is marked as free.
fn freed(target: &Target) -> Injection {
    changed(target, |bytes, slot| bytes[slot / 8] &= !(1 << (slot % 8)))
}

/// The block with the name is zeros.
fn zeroed(target: &Target) -> Injection {
    changed(target, |bytes, _| bytes.fill(0))
}

#[test]
fn the_only_name_in_a_free_slot_is_the_last_one() {
    for how in [How::Renamed, How::Linked] {
        let target = Target::of(&planted(how, First::Reused, false));
        is_mended(&format!("{how:?}"), &target, &freed(&target));
    }
    let target = Target::of(&planted(How::Created, First::Reused, false));
    is_mended("created", &target, &freed(&target));
}

#[test]
fn one_of_several_names_in_free_slots_is_no_proof() {
    let expected = (&b"/two"[..], "the name, if it was another than two");
    for how in [How::Renamed, How::Linked] {
        for is_fsynced in [false, true] {
            let target = Target::of(&planted(how, First::Kept, is_fsynced));
            let what = format!("{how:?}, fsynced {is_fsynced}");
            is_lost(&what, &target, &freed(&target), expected);
        }
    }
}

#[test]
fn a_marked_record_is_no_proof_where_a_block_of_a_directory_is_lost() {
    let expected = (&b"/lost+found/#"[..], "the name; it may have been two");
    for how in [How::Renamed, How::Linked] {
        let target = Target::of(&planted(how, First::Reused, false));
        is_lost(&format!("{how:?}"), &target, &zeroed(&target), expected);
    }
}

/// A block of a directory without a name, and without `.` and `..`: writers free such a block.
#[test]
fn a_record_without_a_mark_is_the_last_name() {
    for how in [How::Created, How::Renamed, How::Linked] {
        let target = Target::of(&planted(how, First::Reused, true));
        is_mended(&format!("{how:?}"), &target, &zeroed(&target));
    }
}

/// The free slot in the other directory has a name from before: that in the lost block is unknown.
#[test]
fn a_former_name_in_a_free_slot_does_not_come_back() {
    let device = planted(How::Created, First::Kept, false);
    let fs = open(device.clone(), "");
    let dir = fs.create(fs.root(), b"dir", NewInode::Directory, 0o755, &Caller::ROOT).unwrap().ino;
    let ino = fs.create(dir, b"former", NewInode::Regular, 0o640, &Caller::ROOT).unwrap().ino;
    fs.write(ino, 0, b"secret", IoFlags::empty()).unwrap();
    fs.rename(dir, b"former", fs.root(), b"new", RenameMode::Replace).unwrap();
    fs.unmount().unwrap();
    let target = Target::of(&device);
    let expected = (&b"/lost+found/#"[..], "the name; it may have been new");
    is_lost("moved", &target, &zeroed(&target), expected);
    let overlay = Overlay::new(Arc::new(target.device.fork())).unwrap();
    for (at, bytes) in zeroed(&target).blocks {
        overlay.write_at(at, bytes).unwrap();
    }
    let overlay = Arc::new(overlay);
    let mended: Arc<dyn BlockDevice> = overlay.clone();
    apply(&plan(&mended, Scope::All).unwrap(), &mended);
    assert!(!View::of(&mended).found.contains_key(&b"/dir/former"[..]));
    fsck(&target, &overlay).unwrap();
}
