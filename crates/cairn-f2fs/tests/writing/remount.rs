//! Options of mounted volumes, and volumes that were not unmounted.

use cairn_f2fs::F2fs;
use cairn_testkit::{freezing, times};
use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode};

use crate::support::{KINDS, find, judge, make, open, remount, snapshot, volume};

#[test]
fn a_volume_turns_read_only_and_back() {
    for args in KINDS {
        let device = volume(64 << 20, args);
        let fs = open(&device, "");
        let unnamed = fs.tmpfile(fs.root(), 0o600, &Caller::ROOT).unwrap();
        fs.write(unnamed.ino, 0, &[1; 100_000], IoFlags::empty()).unwrap();
        let kept = make(&fs, fs.root(), b"kept", NewInode::Regular).unwrap();
        fs.write(kept.ino, 0, &[2; 100_000], IoFlags::empty()).unwrap();
        fs.remount("ro,cache=8M").unwrap();
        judge(&device);
        let refused =
            fs.create(fs.root(), b"x", NewInode::Regular, 0o644, &Caller::ROOT).unwrap_err();
        assert!(refused.to_string().contains("remounted with ro"), "{refused}");
        assert!(fs.write(kept.ino, 0, b"x", IoFlags::empty()).is_err());
        // The last reference is dropped while the volume is read-only. The inode is deleted when
        // the volume becomes writable.
        fs.forget(unnamed.ino, 1);
        for wrong in ["mode=lfs", "nonsense", "max_folio=5"] {
            assert!(fs.check_remount(wrong).is_err() && fs.remount(wrong).is_err(), "{wrong}");
        }
        fs.remount("rw").unwrap();
        assert!(fs.getattr(unnamed.ino).is_err());
        make(&fs, fs.root(), b"more", NewInode::Directory).unwrap();
        remount(&device, fs).unmount().unwrap();
    }
}

#[test]
fn orphans_of_a_volume_that_was_not_unmounted_go() {
    let device = volume(64 << 20, &[]);
    let fs = open(&device, "");
    let free = fs.statfs().unwrap().free_blocks;
    let open_file = fs.create(fs.root(), b"gone", NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
    fs.write(open_file.ino, 0, &[1; 9_000_000], IoFlags::empty()).unwrap();
    let directory =
        fs.create(fs.root(), b"dir", NewInode::Directory, 0o755, &Caller::ROOT).unwrap();
    fs.unlink(fs.root(), b"gone").unwrap();
    fs.rmdir(fs.root(), b"dir").unwrap();
    fs.sync().unwrap();
    fs.shutdown(false).unwrap();
    assert!(fs.sync().is_err());
    drop::<std::sync::Arc<F2fs>>(fs);
    let fs = open(&device, "");
    assert!(fs.getattr(open_file.ino).is_err() && fs.getattr(directory.ino).is_err());
    assert_eq!(fs.statfs().unwrap().free_blocks, free);
    remount(&device, fs).unmount().unwrap();
}

#[test]
fn a_full_volume_takes_no_names_and_loses_none() {
    for args in KINDS {
        let device = volume(64 << 20, args);
        let fs = open(&device, "");
        let directory = make(&fs, fs.root(), b"d", NewInode::Directory).unwrap().ino;
        let name = |index: u32| {
            format!("a name of some length, so that blocks are needed {index}").into_bytes()
        };
        let target = vec![b't'; 4000];
        let made = (0..).take_while(|index| {
            let made = make(&fs, directory, &name(*index), NewInode::Symlink(&target));
            assert!(matches!(made, Ok(_) | Err(Error::NoSpace)), "{made:?}");
            made.is_ok()
        });
        let made = made.count() as u32;
        assert!(made > 1000, "only {made} links fit");
        let before = snapshot(&fs);
        assert!(make(&fs, directory, b"one more", NewInode::Symlink(&target)).is_err());
        before.assert_same(&snapshot(&fs));
        let fs = remount(&device, fs);
        for index in 0..made {
            fs.unlink(directory, &name(index)).unwrap();
        }
        make(&fs, directory, b"one more", NewInode::Symlink(&target)).unwrap();
        find(&fs, directory, b"one more").unwrap();
        remount(&device, fs).unmount().unwrap();
    }
}

#[test]
fn frozen_it_is_clean_on_disk_and_readable() {
    for args in KINDS {
        let device = volume(64 << 20, args);
        freezing::in_order(&*open(&device, ""), &device, &judge);
    }
}

#[test]
fn shut_down_while_it_is_frozen() {
    freezing::shut_down(&*open(&volume(64 << 20, &[]), ""));
}

#[test]
fn without_checkpoints_nothing_is_frozen() {
    let device = volume(64 << 20, &[]);
    let fs = open(&device, "checkpoint=disable");
    let refused = fs.freeze().unwrap_err().to_string();
    assert!(refused.contains("checkpoint=enable") && !fs.is_frozen(), "{refused}");
    make(&fs, fs.root(), b"goes on", NewInode::Regular).unwrap();
    fs.remount("checkpoint=enable").unwrap();
    fs.freeze().unwrap();
    judge(&device);
    fs.unmount().unwrap();
}

#[test]
fn frozen_and_thawed_under_load() {
    for options in
        ["checkpoint_interval=1,background_gc=sync", "nocheckpoint_merge,mode=lfs,gc_merge"]
    {
        let device = volume(64 << 20, &[]);
        let fs = open(&device, options);
        freezing::under_load(&*fs, &device, &judge);
        remount(&device, fs).unmount().unwrap();
    }
}

#[test]
fn reading_renews_old_access_times() {
    let device = volume(64 << 20, &[]);
    let fs = open(&device, "");
    times::make(&*fs);
    assert!(times::are_new(&times::after_reading(&*fs, 1_000)));
    fs.remount("noatime").unwrap();
    assert_eq!(times::after_reading(&*fs, 1_000), [1_000; 3]);
    fs.remount("relatime").unwrap();
    let renewed = times::after_reading(&*fs, 2_000);
    assert!(times::are_new(&renewed));
    // `support::remount` would read everything.
    fs.unmount().unwrap();
    drop(fs);
    judge(&device);
    let fs = open(&device, "");
    assert_eq!(times::kept(&*fs), renewed);
    fs.unmount().unwrap();
    judge(&device);
}
