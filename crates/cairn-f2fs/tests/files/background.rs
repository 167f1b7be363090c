//! Background cleaning with a simulated clock: when it sleeps, when it works, and that it cleans
//! for writers.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::support::{judge, volume};

const BLOCK: u64 = 4096;

/// An idle volume with sections that are half valid.
fn worn(
    runtime: &Arc<Simulated>,
    megabytes: u64,
    options: &str,
) -> (Arc<cairn_block::memory::MemoryDevice>, Arc<F2fs>, Ino) {
    let device = volume(megabytes << 20, &[]);
    let options = MountOptions::parse(options).expect("valid options");
    let fs = F2fs::open(device.clone(), runtime.clone(), &options).expect("the volume opens");
    let ino = fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    let write = |index: u64, byte: u8| {
        assert_eq!(fs.write(ino, index * BLOCK, &[byte; 4096], IoFlags::empty()).unwrap(), 4096);
    };
    (0..8192).for_each(|index| write(index, 1));
    fs.sync().unwrap();
    (0..8192).step_by(2).for_each(|index| write(index, 2));
    fs.sync().unwrap();
    (device, fs, ino)
}

fn cleaned(fs: &F2fs) -> u64 {
    fs.gc_stats().data_sections.get()
}

fn finish(device: &cairn_block::memory::MemoryDevice, fs: Arc<F2fs>, ino: Ino) {
    for index in (0..8192_u64).step_by(97) {
        let mut buf = [0; 4096];
        assert_eq!(fs.read(ino, index * BLOCK, &mut buf, IoFlags::empty()).unwrap(), 4096);
        assert_eq!(buf, [if index % 2 == 0 { 2 } else { 1 }; 4096], "block {index}");
    }
    fs.unmount().unwrap();
    drop(fs);
    judge(device);
}

#[test]
fn an_idle_volume_is_cleaned_section_by_section() {
    let runtime = Simulated::new(1);
    let (device, fs, ino) = worn(&runtime, 256, "mode=lfs,checkpoint_interval=86400");
    assert_eq!(cleaned(&fs), 0);
    // Half a minute of sleep and a margin of five seconds.
    runtime.advance(Duration::from_secs(50));
    let first = cleaned(&fs);
    assert!(first >= 1, "nothing was cleaned");
    runtime.advance(Duration::from_secs(600));
    let stats = fs.gc_stats();
    assert!(cleaned(&fs) >= first + 3, "{} sections", cleaned(&fs));
    assert!(stats.calls_bg.get() >= cleaned(&fs) && stats.calls_fg.get() == 0);
    assert_eq!(stats.data_blocks_bg.get(), stats.data_blocks_moved.get());
    // Once nothing is worth cleaning, the daemon looks more rarely.
    runtime.advance(Duration::from_secs(7200));
    let (calls, none) = (stats.calls_bg.get(), stats.no_victim.get());
    assert!(none > 0, "{calls} calls all found something");
    runtime.advance(Duration::from_secs(3000));
    assert!(
        stats.calls_bg.get() - calls <= 10,
        "{} calls in 50 minutes",
        stats.calls_bg.get() - calls
    );
    finish(&device, fs, ino);
}

#[test]
fn a_volume_in_use_is_left_alone() {
    let runtime = Simulated::new(2);
    let (device, fs, ino) = worn(&runtime, 256, "mode=lfs,checkpoint_interval=86400");
    for _ in 0..150 {
        runtime.advance(Duration::from_secs(2));
        assert_eq!(fs.write(ino, 0, &[2; 4096], IoFlags::empty()).unwrap(), 4096);
        fs.fsync(ino, 0, false).unwrap();
    }
    assert_eq!(cleaned(&fs), 0);
    finish(&device, fs, ino);
}

#[test]
fn it_can_be_switched_off_and_on() {
    let runtime = Simulated::new(3);
    let (device, fs, ino) =
        worn(&runtime, 256, "mode=lfs,background_gc=off,checkpoint_interval=86400");
    runtime.advance(Duration::from_secs(1000));
    assert_eq!(cleaned(&fs), 0);
    fs.remount("background_gc=sync,gc_victim=adaptive,gc_merge").unwrap();
    runtime.advance(Duration::from_secs(1000));
    assert!(cleaned(&fs) > 0);
    assert!(fs.remount("atgc").is_err());
    finish(&device, fs, ino);
}

#[test]
fn the_daemon_cleans_for_writers_that_need_room() {
    for policy in ["greedy", "data_first", "adaptive"] {
        daemon_cleans(policy);
    }
}

fn daemon_cleans(policy: &str) {
    let runtime = Simulated::new(4);
    let (device, fs, ino) =
        worn(&runtime, 96, &format!("mode=lfs,gc_merge,cache=8M,gc_victim={policy}"));
    let fill = fs.create(fs.root(), b"fill", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    let mut at = 0;
    while fs
        .write(fill, at * BLOCK, &[3; 4096], IoFlags::empty())
        .is_ok_and(|written| written == 4096)
    {
        at += 1;
    }
    assert!(at > 1000, "{at} blocks fitted");
    let stats = fs.gc_stats();
    let calls = stats.calls_fg.get();
    assert!(calls > 0 && cleaned(&fs) > 0, "{policy}: {calls} calls, {} sections", cleaned(&fs));
    finish(&device, fs, ino);
}
