//! Disks with sectors of 4,096 bytes, of which no part can be read or written: every command that
//! works on a volume which is not mounted.

use std::os::unix::fs::FileExt;
use std::path::Path;

use cairn_testkit::judge::{self, LoopDevice};

use crate::support::{fails, in_dir, works};

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * seed / 7) as u8).collect()
}

/// Everything that only reads.
fn reads(device: &str, to: &Path, journal: bool) {
    let (saved, file) = (to.join("saved"), bytes(5, 70_001));
    works(&["rescue", device, "-o", saved.to_str().unwrap()]);
    assert_eq!(std::fs::read(saved.join("file")).unwrap(), file);
    std::fs::remove_dir_all(&saved).unwrap();
    works(&["rescue", "--deleted", device]);
    for structure in [&["superblock"][..], &["inode", "/file"], &["xattrs", "/"], &["block", "1"]] {
        works(&[&["dump", device][..], structure].concat());
    }
    if journal {
        works(&["journal", device]);
    }
    works(&["info", device]);
    works(&["check", device]);
}

#[test]
fn ext4_on_a_disk_with_large_sectors() {
    let (dir, image) = in_dir("disk.img");
    let file = dir.path().join("file");
    std::fs::write(&file, bytes(5, 70_001)).unwrap();
    std::fs::File::create(&image).unwrap().set_len(192 << 20).unwrap();
    let disk = LoopDevice::with_large_sectors(Path::new(&image));
    let device = disk.path().to_str().unwrap();
    // Small volumes have small blocks, and this one has two groups.
    let said = fails(&["mkfs", "-b", "1024", "--size", "160M", device], 2);
    assert!(said.contains("smaller than the sectors of the device: give at least 4096"), "{said}");
    works(&["mkfs", "--size", "16M", device]);
    works(&["mkfs", "-F", "--size", "160M", device]);
    works(&["put", device, file.to_str().unwrap(), "/file"]);
    reads(device, dir.path(), true);
    works(&["tune", "-L", "label", "-U", "random", device]);
    works(&["tune", "--journal-size", "4M", device]);
    works(&["resize", device, "192M"]);
    works(&["resize", device, "140M"]);
    works(&["resize", device, "192M"]);
    reads(device, dir.path(), true);
    // Without its first superblock, and with a wrong count in it.
    for (at, len) in [(1024, 1024), (1024 + 12, 4)] {
        let raw = std::fs::File::options().read(true).write(true).open(device).unwrap();
        raw.write_all_at(&vec![0; len], at).unwrap();
        raw.sync_all().unwrap();
        drop(raw);
        crate::support::cairn(&["rescue", device, "-o", dir.path().join("out").to_str().unwrap()]);
        let undo = format!("{image}.undo{at}");
        let (status, stdout, stderr) =
            crate::support::cairn(&["check", "--repair", "--undo", &undo, device]);
        assert_eq!(status, 1, "byte {at}: {stdout}{stderr}");
        reads(device, dir.path(), true);
    }
    judge::assert_clean(disk.path());
}

/// Linux does not mount them either. What only reads gets everything.
#[test]
fn blocks_smaller_than_the_sectors_can_be_read() {
    let (dir, image) = in_dir("disk.img");
    let file = dir.path().join("file");
    std::fs::write(&file, bytes(5, 70_001)).unwrap();
    judge::mke2fs(Path::new(&image), 16 << 20, &["-t", "ext4", "-b", "1024"]);
    works(&["put", &image, file.to_str().unwrap(), "/file"]);
    let disk = LoopDevice::with_large_sectors(Path::new(&image));
    let device = disk.path().to_str().unwrap();
    reads(device, dir.path(), true);
    for refused in [&["ls", device][..], &["tune", "-L", "x", device], &["resize", device, "8M"]] {
        let said = fails(refused, 5);
        assert!(said.contains("blocks of 1024 bytes") && said.contains("copy it"), "{said}");
    }
}

#[test]
fn f2fs_on_a_disk_with_large_sectors() {
    let (dir, image) = in_dir("disk.img");
    let file = dir.path().join("file");
    std::fs::write(&file, bytes(5, 70_001)).unwrap();
    std::fs::File::create(&image).unwrap().set_len(96 << 20).unwrap();
    let disk = LoopDevice::with_large_sectors(Path::new(&image));
    let device = disk.path().to_str().unwrap();
    works(&["mkfs", "-t", "f2fs", "--size", "64M", device]);
    works(&["put", device, file.to_str().unwrap(), "/file"]);
    reads(device, dir.path(), true);
    works(&["tune", "-L", "label", device]);
    works(&["resize", device, "96M"]);
    reads(device, dir.path(), true);
    // One copy of the superblock differs from the other.
    let raw = std::fs::File::options().read(true).write(true).open(device).unwrap();
    raw.write_all_at(&[0xff], 1024 + 36).unwrap();
    raw.sync_all().unwrap();
    drop(raw);
    let undo = format!("{image}.undo");
    let (status, stdout, stderr) =
        crate::support::cairn(&["check", "--repair", "--undo", &undo, device]);
    assert_eq!(status, 1, "{stdout}{stderr}");
    reads(device, dir.path(), true);
}
