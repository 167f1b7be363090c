//! `async_checkpoint` and `checkpoint_clean` at mount and remount: accepted and refused values, and
//! reports.

use std::sync::Arc;

use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_block::wrap::ReadOnly;
use cairn_ext4::{Ext4, MountOptions};
use cairn_vfs::{Caller, FileSystem, NewInode};

use crate::support::{judge, volume};

fn open(device: Arc<dyn BlockDevice>, options: &str) -> Result<Arc<Ext4>, String> {
    let options = MountOptions::parse(options).expect("well-formed options");
    Ext4::open(device, Simulated::new(1), &options).map_err(|error| error.to_string())
}

fn refused(outcome: Result<Arc<Ext4>, String>) -> String {
    outcome.err().expect("the option is refused")
}

fn make_directory(fs: &Ext4, name: &str) {
    fs.create(fs.root(), name.as_bytes(), NewInode::Directory, 0o755, &Caller::ROOT).unwrap();
    fs.sync().unwrap();
}

#[test]
fn a_volume_without_a_journal_refuses_to_checkpoint_ahead_and_goes_on() {
    let device = volume(16 << 20, &["-t", "ext4", "-O", "^has_journal"]);
    let message = refused(open(device.clone(), "async_checkpoint=30"));
    assert!(
        message.contains("async_checkpoint") && message.contains("has no journal"),
        "{message}"
    );
    let fs = open(device.clone(), "noasync_checkpoint,checkpoint_clean=scan").unwrap();
    let message = fs.remount("async_checkpoint").unwrap_err().to_string();
    assert!(
        message.contains("async_checkpoint") && message.contains("has no journal"),
        "{message}"
    );
    fs.remount("noasync_checkpoint,checkpoint_clean=bail_out").unwrap();
    make_directory(&fs, "still");
    fs.unmount().unwrap();
    judge(&device);
    // The default has no effect on it, but it cannot be asked for.
    let fs = open(device.clone(), "").unwrap();
    fs.remount("noatime").unwrap();
    assert!(fs.remount("async_checkpoint").unwrap_err().to_string().contains("has no journal"));
    fs.unmount().unwrap();
}

#[test]
fn a_volume_that_cannot_be_written_refuses_to_checkpoint_ahead() {
    let device = volume(16 << 20, &["-t", "ext4"]);
    let message = refused(open(Arc::new(ReadOnly::new(device.clone())), "async_checkpoint"));
    assert!(message.contains("async_checkpoint") && message.contains("not writable"), "{message}");
    let fs = open(device.clone(), "ro").unwrap();
    assert!(fs.remount("async_checkpoint").unwrap_err().to_string().contains("read-only"));
    fs.unmount().unwrap();
}

#[test]
fn every_transition_takes_effect_and_is_reported() {
    let device = volume(16 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
    let fs = open(device.clone(), "").unwrap();
    let percent = |fs: &Ext4| fs.report().u64("journal.checkpoint.async_percent").unwrap();
    assert_eq!(percent(&fs), 50);
    let mut number = 0;
    for (options, now, clean) in [
        ("async_checkpoint=99", 99, "counted"),
        ("checkpoint_clean=scan", 99, "scan"),
        ("noasync_checkpoint", 0, "scan"),
        ("async_checkpoint=7%,checkpoint_clean=bail_out", 7, "bail_out"),
        (
            "async_checkpoint=80,noasync_checkpoint,async_checkpoint,checkpoint_clean=counted",
            50,
            "counted",
        ),
    ] {
        fs.remount(options).unwrap();
        assert_eq!(percent(&fs), now, "{options}");
        assert_eq!(fs.report().text("journal.checkpoint_clean"), Some(clean), "{options}");
        // Enough for the log to wrap in each of them.
        for _ in 0..60 {
            number += 1;
            make_directory(&fs, &format!("d{number}"));
        }
    }
    for bad in [
        "async_checkpoint=0",
        "async_checkpoint=100",
        "checkpoint_clean=none",
        "noatime,async_checkpoint=x",
    ] {
        fs.remount(bad).unwrap_err();
        assert_eq!(percent(&fs), 50, "{bad}");
    }
    let report = fs.report();
    assert!(report.u64("journal.checkpointed").unwrap() > 200, "{report:?}");
    fs.unmount().unwrap();
    judge(&device);
}
