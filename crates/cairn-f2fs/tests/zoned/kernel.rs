//! Linux mounts a zoned volume of two devices that Cairn has made and written without breaking a
//! rule of its zones.

use std::fmt::Write;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::tagged::{BLOCK, Tag};
use cairn_block::wrap::Concat;
use cairn_block::zoned::{Emulated, Zone, ZoneLayout};
use cairn_f2fs::mkfs::{self, MkfsOptions, NamedDevice};
use cairn_testkit::crash::write_image;
use cairn_testkit::judge::f2fs_alarms;
use cairn_testkit::vm::Vm;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::support::{FREE_SEGMENTS, open};

const MIB: u64 = 1 << 20;
/// null_blk's zones: 128 of 8 MiB, none of them conventional.
const ZONES: ZoneLayout = ZoneLayout::new(8 * MIB, 0, 128);
const CONVENTIONAL: u64 = 60 * MIB;
const NULL_BLK: &str =
    "nr_devices=1 zoned=1 zone_size=8 zone_nr_conv=0 memory_backed=1 gb=1 zone_capacity=";

/// The lines of a script that copy the written part of each zone.
fn copy_zones(zones: &[Zone]) -> String {
    let mut script = String::new();
    for zone in zones.iter().filter(|zone| zone.is_sequential() && zone.written() > 0) {
        let (at, count) = (zone.start / BLOCK as u64, zone.written() / BLOCK as u64);
        let from_to = "dd if=/dev/vdb of=/dev/nullb0 bs=4096 oflag=direct conv=notrunc";
        writeln!(script, "{from_to} skip={at} seek={at} count={count} 2>/dev/null").unwrap();
    }
    script
}

#[test]
fn linux_mounts_what_was_written_to_zones() {
    exchange(8);
}

/// The third segment of each zone ends in the middle.
#[test]
fn linux_mounts_what_was_written_to_zones_with_less_capacity_than_size() {
    exchange(5);
}

/// `capacity` MiB of each zone can be written.
fn exchange(capacity: u64) {
    let first_memory = Arc::new(MemoryDevice::new(CONVENTIONAL));
    let conventional: Arc<dyn BlockDevice> = first_memory.clone();
    let memory = Arc::new(MemoryDevice::new(ZONES.size()));
    let zoned: Arc<dyn BlockDevice> = Arc::new(
        Emulated::new(memory.clone(), ZoneLayout { capacity: capacity * MIB, ..ZONES }).unwrap(),
    );
    let named = |path: &str, device: &Arc<dyn BlockDevice>| NamedDevice {
        path: path.into(),
        device: device.clone(),
    };
    let devices = [named("/dev/vda", &conventional), named("/dev/nullb0", &zoned)];
    let options = MkfsOptions { zoned: true, ..MkfsOptions::default() };
    mkfs::make_on(&devices, &options, &*Threads::new()).unwrap();
    assert_eq!(cairn_f2fs::devices::paths(&*conventional).unwrap(), ["/dev/vda", "/dev/nullb0"]);
    let whole = cairn_f2fs::devices::assemble(vec![conventional.clone(), zoned.clone()]).unwrap();
    let fs = open(whole, "cache=8M");
    let made = fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
    let mut rng = fastrand::Rng::with_seed(4);
    let mut contents = vec![0; 3000 * BLOCK];
    for version in 0..9000 {
        let index = rng.usize(0..3000);
        let block = &mut contents[index * BLOCK..][..BLOCK];
        Tag { file: 1, index: index as u32, version }.fill(block);
        let flags = if version % 16 == 0 { IoFlags::DIRECT } else { IoFlags::empty() };
        fs.write(made.ino, (index * BLOCK) as u64, block, flags).unwrap();
        if version % 500 == 0 {
            fs.fsync(made.ino, 0, false).unwrap();
        }
    }
    let size = fs.getattr(made.ino).unwrap().size;
    fs.unmount().unwrap();
    drop(fs);

    let dir = tempfile::tempdir().unwrap();
    let [first, second, plain] = ["vda", "vdb", "plain"].map(|name| dir.path().join(name));
    write_image(&first_memory, &first).unwrap();
    write_image(&memory, &second).unwrap();
    std::fs::write(&plain, &contents[..size as usize]).unwrap();
    let sum = std::process::Command::new("md5sum").arg(&plain).output().unwrap().stdout;
    let sum = String::from_utf8(sum).unwrap().split_whitespace().next().unwrap().to_owned();
    let zones = zoned.as_zoned().unwrap().report(0, usize::MAX).unwrap();
    let script = format!(
        "insmod /modules/configfs.ko || true\ninsmod /modules/null_blk.ko {NULL_BLK}{capacity}\n{}\
         fsck.f2fs --dry-run /dev/vda || true\nmount -t f2fs /dev/vda /mnt\nmd5sum /mnt/file\n\
         dd if=/dev/zero of=/mnt/more bs=1M count=30 2>/dev/null\nrm /mnt/file\nsync\numount /mnt\n\
         fsck.f2fs --dry-run /dev/vda || true\n",
        copy_zones(&zones)
    );
    let text =
        Vm::new().disk(&first).disk(&second).tool("fsck.f2fs").memory_mib(1500).check(&script);
    assert!(text.contains(&sum), "{text}");
    assert_eq!(
        text.matches("other corrupted bugs                           [Ok..]").count(),
        2,
        "{text}"
    );
    // fsck.f2fs 1.15 takes half of each zone of a second device for unusable. It finds too few free
    // segments, both before and after Linux has written. Without zones it agrees (the other tests
    // here).
    let alarms: Vec<_> = f2fs_alarms(&text).filter(|line| !line.contains(FREE_SEGMENTS)).collect();
    assert!(alarms.is_empty(), "{text}");
}

#[test]
fn a_device_that_is_missing_is_named() {
    let one: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(100 * MIB));
    let two: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(200 * MIB));
    let named = |path: &str, device: &Arc<dyn BlockDevice>| NamedDevice {
        path: path.into(),
        device: device.clone(),
    };
    let devices = [named("one", &one), named("two", &two)];
    mkfs::make_on(&devices, &MkfsOptions::default(), &*Threads::new()).unwrap();
    let error = cairn_f2fs::devices::assemble(vec![one.clone()]).err().unwrap().to_string();
    assert!(error.contains('2'), "{error}");
    let whole = cairn_f2fs::devices::assemble(vec![one.clone(), two]).unwrap();
    let fs = open(whole, "");
    let made = fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
    fs.write(made.ino, 0, &vec![5; 150 << 20], IoFlags::empty()).unwrap();
    fs.unmount().unwrap();
    // One of the two devices alone is no volume.
    let small = Concat::new(vec![(one, 50 * MIB)]).unwrap();
    assert!(cairn_f2fs::probe(&small).is_err());
}
