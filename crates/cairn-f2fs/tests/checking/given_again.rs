//! An old entry of the NAT comes back, whose number, or the number of whose directory, another
//! inode has now.

use std::sync::Arc;

use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_vfs::{FileSystem, NewInode};

use crate::given_away::{file, led, make};
use crate::inject::Target;
use crate::listed::word;
use crate::pointers::NIDS_AT;
use crate::readers::View;
use crate::repair::{apply, fsck, plan};
use crate::stale::place_of;
use crate::volume::{MIB, open, volume};
use crate::{check, lines};

/// The number of a node of a deleted file is a new file's. Its old entry comes back: the present
/// one is found, because the SIT, the summary and the later version say which it is.
#[test]
fn a_number_that_another_inode_has_now_is_led_to_that() {
    let device = volume(96 * MIB, &[]);
    let fs = open(device.clone(), "nodiscard");
    let gone = file(&fs, fs.root(), "gone", 1000 * 4096).get() as u32;
    fs.unmount().unwrap();
    let node = word(&device.read_at(place_of(&device, gone), 4096).unwrap(), NIDS_AT);
    let place = place_of(&device, node);
    let fs = open(device.clone(), "nodiscard");
    fs.unlink(fs.root(), b"gone").unwrap();
    fs.unmount().unwrap();
    let is_given = (0..20).any(|round| {
        let fs = open(device.clone(), "nodiscard");
        let new = |number| file(&fs, fs.root(), &format!("{round} {number}"), 5000).get() as u32;
        let is_given = (0..100).map(new).filter(|ino| *ino == node).count() > 0;
        fs.unmount().unwrap();
        is_given
    });
    assert!(is_given);
    let target = Target::of(&device);
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    let overlay = led(&target, &[(node, gone, (place >> 12) as u32)]);
    let device: Arc<dyn BlockDevice> = overlay.clone();
    let done = plan(&device, Scope::Accounting).unwrap();
    assert_eq!(done.after.count(), 0, "{}\n{}", lines(&done.before), lines(&done.after));
    apply(&done, &device);
    let wrong = View::of(&device).wrong(&sound);
    assert!(wrong.is_empty(), "{wrong:?}");
    fsck(&target, &overlay).unwrap();
}

/// The number of a deleted directory is that of another user's directory now. A file that was
/// deleted with it comes back: that user does not get it.
#[test]
fn a_file_that_comes_back_gets_no_name_in_the_directory_of_another_user() {
    let device = volume(96 * MIB, &[]);
    let fs = open(device.clone(), "nodiscard");
    let alice = make(&fs, fs.root(), "alice", NewInode::Directory);
    let gone = make(&fs, alice, "gone", NewInode::Directory);
    let secret = file(&fs, gone, "secret", 9000);
    fs.unmount().unwrap();
    let place = place_of(&device, secret.get() as u32);
    let fs = open(device.clone(), "nodiscard");
    fs.unlink(gone, b"secret").unwrap();
    fs.rmdir(alice, b"gone").unwrap();
    fs.unmount().unwrap();
    // A new directory has the number of the old one.
    let mut bob = None;
    for round in 0..20 {
        let fs = open(device.clone(), "nodiscard");
        let names: Vec<String> = (0..100).map(|number| format!("{round} {number}")).collect();
        for name in &names {
            let ino = make(&fs, fs.root(), name, NewInode::Directory);
            match ino == gone {
                true => bob = Some(name.clone()),
                false => fs.rmdir(fs.root(), name.as_bytes()).unwrap(),
            }
        }
        fs.unmount().unwrap();
        if bob.is_some() {
            break;
        }
    }
    let bob = bob.expect("the number was given away");
    // The journal of the NAT has other entries.
    let fs = open(device.clone(), "nodiscard");
    for number in 0..100 {
        file(&fs, fs.root(), &format!("more {number}"), 600);
    }
    fs.unmount().unwrap();
    let fs = open(device.clone(), "nodiscard");
    for number in 0..100 {
        fs.unlink(fs.root(), format!("more {number}").as_bytes()).unwrap();
    }
    fs.unmount().unwrap();
    let target = Target::of(&device);
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    for scope in [Scope::Accounting, Scope::All] {
        let overlay =
            led(&target, &[(secret.get() as u32, secret.get() as u32, (place >> 12) as u32)]);
        let device: Arc<dyn BlockDevice> = overlay.clone();
        let found = lines(&check(device.clone()).unwrap());
        assert!(found.contains("f2fs.inode.unreachable"), "{found}");
        let done = plan(&device, scope).unwrap();
        assert_eq!(done.after.count(), 0, "{}", lines(&done.after));
        apply(&done, &device);
        let view = View::of(&device);
        assert!(!view.found.contains_key(format!("/{bob}/secret").as_bytes()));
        let back = [
            "/lost+found: it was not there".to_owned(),
            format!("/lost+found/#{secret}: it was not there"),
        ];
        assert_eq!(view.wrong(&sound), back);
        let fs = open(device.clone(), "");
        let back = fs.lookup(fs.root(), b"lost+found").unwrap();
        assert_eq!((back.permissions & 0o777, back.uid), (0o700, 0));
        fs.unmount().unwrap();
        fsck(&target, &overlay).unwrap();
    }
}
