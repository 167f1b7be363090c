//! A zoned block device of the host: Linux's null_blk, which refuses what breaks a rule of its
//! zones. The test program itself runs in the virtual machine, beside Linux's own F2FS.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_block::tagged::{BLOCK, Tag};
use cairn_block::zoned::HostZoned;
use cairn_f2fs::F2fs;
use cairn_f2fs::mkfs::{self, MkfsOptions, NamedDevice};
use cairn_testkit::judge::f2fs_alarms;
use cairn_testkit::vm::Vm;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::support::{FREE_SEGMENTS, open};

/// The conventional device, and the one with zones.
const PATHS: [&str; 2] = ["/dev/vda", "/dev/nullb0"];
/// Each of 64 zones has 16 MiB, of which 3 MiB can be written. Six zones can be active, one per
/// log.
const NULL_BLK: &str = "nr_devices=1 zoned=1 zone_size=16 zone_capacity=3 zone_nr_conv=0 \
    zone_max_open=6 zone_max_active=6 memory_backed=1 gb=1";
/// Environment variable with the job of the program in the machine.
const VARIABLE: &str = "CAIRN_ZONES";
const OPTIONS: &str = "cache=16M";
const BLOCKS: u64 = 12_500;
/// Blocks overwritten in each mount of the volume.
const LIVES: [u32; 3] = [4000, 3000, 1000];

fn devices() -> [Arc<dyn BlockDevice>; 2] {
    let plain =
        FileDevice::open(PATHS[0], OpenOptions { write: true, ..OpenOptions::default() }).unwrap();
    [Arc::new(plain), Arc::new(HostZoned::open(PATHS[1]).unwrap().expect("a zoned device"))]
}

fn volume() -> Arc<F2fs> {
    open(cairn_f2fs::devices::assemble(devices().to_vec()).unwrap(), OPTIONS)
}

/// The overwrites of all mounts up to this one, in order: mount, block, version.
fn overwrites(last: usize) -> impl Iterator<Item = (usize, u64, u32)> {
    let mut rng = fastrand::Rng::with_seed(0x20ed);
    let lives = LIVES.into_iter().enumerate().take(last + 1);
    let all = lives.flat_map(|(life, count)| (0..count).map(move |_| life));
    (1..).zip(all).map(move |(version, life)| (life, rng.u64(0..BLOCKS), version))
}

fn filled(index: u64, version: u32) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    Tag { file: 1, index: index as u32, version }.fill(&mut block);
    block
}

fn live(fs: &F2fs, ino: Ino, this: usize) {
    for (_, index, version) in overwrites(this).filter(|(life, ..)| *life == this) {
        fs.write(ino, index * BLOCK as u64, &filled(index, version), IoFlags::empty()).unwrap();
        if version % 500 == 0 {
            fs.fsync(ino, 0, false).unwrap();
        }
    }
}

/// Asserts that every block has the version that the mounts up to `last` have written.
fn check(last: usize, mut read: impl FnMut(u64, &mut [u8])) {
    let mut versions = vec![0; BLOCKS as usize];
    overwrites(last).for_each(|(_, index, version)| versions[index as usize] = version);
    let mut buf = vec![0; BLOCK];
    for (index, version) in (0..).zip(versions) {
        read(index * BLOCK as u64, &mut buf);
        assert!(
            buf == filled(index, version),
            "block {index}, version {version}: {:?}",
            Tag::of(&buf)
        );
    }
}

fn check_in(fs: &F2fs, ino: Ino, last: usize) {
    check(last, |at, buf| assert_eq!(fs.read(ino, at, buf, IoFlags::empty()).unwrap(), BLOCK));
}

/// A volume that is nearly full; the process ends without unmounting it.
fn begin() {
    let named =
        |(path, device): (&str, Arc<dyn BlockDevice>)| NamedDevice { path: path.into(), device };
    let devices: Vec<_> = PATHS.into_iter().zip(devices()).map(named).collect();
    let options = MkfsOptions { zoned: true, ..MkfsOptions::default() };
    mkfs::make_on(&devices, &options, &*Threads::new()).unwrap();
    drop(devices);
    let fs = volume();
    let ino = fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    for first in (0..BLOCKS).step_by(250) {
        let piece: Vec<u8> = (first..first + 250).flat_map(|index| filled(index, 0)).collect();
        fs.write(ino, first * BLOCK as u64, &piece, IoFlags::empty()).unwrap();
    }
    let space = fs.statfs().unwrap();
    assert!(space.free_blocks * 5 < space.blocks, "{space:?}");
    live(&fs, ino, 0);
    std::process::exit(0);
}

/// Finds all contents, writes until zones are cleaned, and unmounts.
fn recover() {
    let fs = volume();
    let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
    check_in(&fs, ino, 0);
    live(&fs, ino, 1);
    let (moved, reset) = (
        fs.gc_stats().data_blocks_moved.get(),
        fs.store().unwrap().segments.stats.zones_reset.get(),
    );
    assert!(moved > 0 && reset > 0, "{moved} blocks moved, {reset} zones reset");
    check_in(&fs, ino, 1);
    fs.unmount().unwrap();
}

/// The contents that Linux sees after the mounts up to `last`.
fn linux(last: usize) {
    let file = std::fs::File::open("/mnt/file").unwrap();
    check(last, |at, buf| file.read_exact_at(buf, at).unwrap());
}

/// Linux has made another file.
fn go_on() {
    let fs = volume();
    let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
    check_in(&fs, ino, 1);
    assert_eq!(fs.getattr(fs.lookup(fs.root(), b"more").unwrap().ino).unwrap().size, 5 << 20);
    live(&fs, ino, 2);
    check_in(&fs, ino, 2);
    fs.unmount().unwrap();
}

/// The machine runs this test.
#[test]
#[ignore = "runs in the virtual machine"]
fn in_the_machine() {
    match std::env::var(VARIABLE).as_deref() {
        Ok("begin") => begin(),
        Ok("recover") => recover(),
        Ok("linux") => linux(1),
        Ok("linux-recovers") => linux(0),
        Ok("go-on") => go_on(),
        _ => {}
    }
}

#[test]
fn a_zoned_block_device_is_written_beside_linux() {
    let plain = tempfile::NamedTempFile::new().unwrap();
    plain.as_file().set_len(96 << 20).unwrap();
    let part = |name| {
        format!("{VARIABLE}={name} agent --ignored --exact host::in_the_machine --test-threads=1\n")
    };
    let script = format!(
        "insmod /modules/configfs.ko || true\ninsmod /modules/null_blk.ko {NULL_BLK}\n{}{}\
         fsck.f2fs --dry-run /dev/vda || true\nmount -t f2fs /dev/vda /mnt\n{}\
         dd if=/dev/zero of=/mnt/more bs=1M count=5 2>/dev/null\numount /mnt\n{}\
         fsck.f2fs --dry-run /dev/vda || true\n\
         {}mount -t f2fs /dev/vda /mnt\n{}umount /mnt\nfsck.f2fs --dry-run /dev/vda || true\n",
        part("begin"),
        part("recover"),
        part("linux"),
        part("go-on"),
        // The volume is made again, with a power cut. This time Linux recovers.
        part("begin"),
        part("linux-recovers"),
    );
    let text =
        Vm::new().disk(plain.path()).tool("fsck.f2fs").agent().memory_mib(1500).check(&script);
    assert_eq!(
        text.matches("other corrupted bugs                           [Ok..]").count(),
        3,
        "{text}"
    );
    // As in `kernel`: fsck.f2fs 1.15 takes the wrong part of a second device's zones for unusable.
    let alarms: Vec<_> = f2fs_alarms(&text).filter(|line| !line.contains(FREE_SEGMENTS)).collect();
    assert!(alarms.is_empty(), "{text}");
}
