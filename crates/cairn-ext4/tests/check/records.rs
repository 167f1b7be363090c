//! Single bytes of inodes and of blocks of attributes, on volumes without checksums: what readers
//! refuse is found by the check, and after a repair readers accept everything.
//!
//! One case in many is tried; with `CAIRN_SWEEP=1` or `CAIRN_DEEP=1` all.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_check::repair::undo::file_size;
use cairn_ext4::{Error, Ext4, MountOptions};
use cairn_testkit::crash::read_image;
use cairn_testkit::deep;
use cairn_testkit::judge::{self, KernelMount, debugfs, mke2fs};
use cairn_testkit::tree::{Snapshot, SnapshotOptions, digest_volume};

use crate::checked::lines;
use crate::file_types::{PLAIN, sound};
use crate::repaired::{complaint, place_of, plan};
use crate::support::{check, flags};

/// One in so many cases is tried, and those that once failed.
const EVERY: usize = 41;
const KNOWN: &[&str] =
    &["/dir/slow, byte 57: 0x0 -> 0x80", "attributes of /one, byte 64: 0x1c -> 0x0"];
/// Bytes of a record that are left alone: a size of petabytes takes too long to read.
const SIZES: [std::ops::Range<u64>; 2] = [6..8, 108..112];

/// What readers see of all files, or the first error.
fn read(device: &MemoryDevice) -> Result<Snapshot, String> {
    let options = MountOptions::parse("ro").unwrap();
    let volume = Ext4::open(Arc::new(device.fork()), Threads::new(), &options);
    let volume = volume.map_err(|error| error.to_string())?;
    digest_volume(&*volume, SnapshotOptions::default()).map_err(|error| error.to_string())
}

/// What is wrong with how a change is judged and repaired.
fn judge(hurt: &MemoryDevice, at: &Path) -> Result<(), String> {
    let found = check(Arc::new(hurt.fork()));
    if !flags(&found) {
        return read(hurt).map(drop).map_err(|why| format!("nothing is found, and {why}"));
    }
    let planned = match plan(hurt.fork(), Scope::All) {
        Ok(planned) => planned,
        Err(Error::Refused(_)) => return Ok(()),
        Err(error) => return found.map_or(Ok(()), |_| Err(error.to_string())),
    };
    if planned.is_refused {
        return Err(format!("not repaired:\n{}", lines(&Ok(planned.after))));
    }
    planned.apply(hurt, &MemoryDevice::new(file_size(&planned.changes))).unwrap();
    read(hurt).map_err(|why| format!("after the repair {why}"))?;
    complaint(hurt, at).map_or(Ok(()), |said| Err(format!("e2fsck after the repair: {said}")))
}

fn sweep(image: &Path, places: &[(String, u64, u64)]) {
    let device = read_image(image).unwrap();
    let at = image.with_extension("hurt");
    let all = deep() || std::env::var_os("CAIRN_SWEEP").is_some();
    let (mut wrong, mut tried, mut number) = (Vec::new(), 0, 0);
    for (what, from, len) in places {
        for byte in (0..*len).filter(|byte| !SIZES.iter().any(|size| size.contains(byte))) {
            let stored = device.read_at(from + byte, 1).unwrap()[0];
            for value in [0, 1, stored ^ 4, stored.wrapping_add(1), 0x80, 0xff] {
                number += 1;
                let case = format!("{what}, byte {byte}: {stored:#x} -> {value:#x}");
                let is_chosen = all || usize::is_multiple_of(number, EVERY);
                if value == stored || !(is_chosen || KNOWN.contains(&&*case)) {
                    continue;
                }
                tried += 1;
                let hurt = device.fork();
                hurt.write_at(from + byte, vec![value]).unwrap();
                if let Err(why) = judge(&hurt, &at) {
                    wrong.push(format!("{case}: {why}"));
                    println!("{}", wrong.last().unwrap());
                }
            }
        }
    }
    println!("{tried} tried");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_readers_refuse_of_an_inode_is_found_and_mended() {
    let dir = tempfile::tempdir().unwrap();
    for (number, features) in ["extents", "inline_data"].iter().enumerate() {
        let features = format!("{features},{PLAIN}");
        let args = ["-t", "ext4", "-b", "1024", "-I", "256", "-O", &features];
        let at = dir.path().join(number.to_string());
        std::fs::create_dir(&at).unwrap();
        let path = sound(&at, &args);
        let paths = crate::file_types::PATHS;
        let places = paths.iter().map(|inode| (inode.to_string(), place_of(&path, inode), 256));
        sweep(&path, &places.collect::<Vec<_>>());
    }
}

/// Linux and e2fsck read the target of a link whose block is marked as never written.
#[test]
fn a_link_in_a_block_that_is_marked_as_unwritten_stays() {
    let dir = tempfile::tempdir().unwrap();
    let features = format!("extents,{PLAIN}");
    let path = sound(dir.path(), &["-t", "ext4", "-b", "1024", "-I", "256", "-O", &features]);
    let device = read_image(&path).unwrap();
    let hurt = device.fork();
    // The high bit of the length of the first extent.
    hurt.write_at(place_of(&path, "/dir/slow") + 57, vec![0x80]).unwrap();
    assert!(!flags(&check(Arc::new(hurt.fork()))));
    assert_eq!(complaint(&hurt, &dir.path().join("hurt")), None);
    read(&device).unwrap().assert_same(&read(&hurt).unwrap());
    // One without a target, too, is found.
    let start = hurt.read_at(place_of(&path, "/dir/slow") + 60, 4).unwrap();
    let block = u64::from(u32::from_le_bytes(start[..4].try_into().unwrap()));
    hurt.write_at(block * 1024, vec![0; 1024]).unwrap();
    assert!(flags(&check(Arc::new(hurt))));
}

/// The byte of the first block of what debugfs calls so.
fn block(path: &Path, request: &str) -> u64 {
    let said = debugfs(path, request);
    said.lines().find_map(|line| line.trim().parse::<u64>().ok()).unwrap() * 1024
}

#[test]
fn what_readers_refuse_of_attributes_is_found_and_mended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let features = format!("ea_inode,{PLAIN}");
    mke2fs(&path, 4 << 20, &["-t", "ext4", "-b", "1024", "-N", "64", "-O", &features]);
    let mount = KernelMount::new(&path, "");
    let set = |file: &str, name: &str, value: &[u8]| {
        let at = mount.path().join(file);
        rustix::fs::setxattr(&at, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    let list = [2_u32, 0x6_0001, !0, 0x7_0002, 1000, 0x4_0004, !0, 0x7_0010, !0, 0x4_0020, !0];
    let list: Vec<u8> = list.iter().flat_map(|word| word.to_le_bytes()).collect();
    for file in ["one", "two"] {
        std::fs::write(mount.path().join(file), "contents").unwrap();
    }
    set("one", "user.d", b"11");
    set("one", "system.posix_acl_access", &list);
    set("two", "system.posix_acl_access", &list);
    set("two", "user.in the block", &[b'v'; 200]);
    set("two", "user.in an inode", &[b'v'; 3000]);
    mount.unmount();
    let stat = judge::run("debugfs", ["-R", "stat /two", path.to_str().unwrap()]);
    let acl = stat.split("File ACL: ").nth(1).unwrap().split_whitespace().next().unwrap();
    let acl: u64 = acl.parse().unwrap();
    let has_flag = |ino: &u32| debugfs(&path, &format!("stat <{ino}>")).contains("Flags: 0x2");
    let value = (11..20).find(has_flag).expect("an inode with the value");
    let value = format!("<{value}>");
    sweep(
        &path,
        &[
            ("the block".into(), acl * 1024, 160),
            ("attributes of /one".into(), place_of(&path, "/one") + 128, 128),
            ("the inode of a value".into(), place_of(&path, &value), 256),
            ("a value".into(), block(&path, &format!("bmap {value} 0")), 20),
        ],
    );
}
