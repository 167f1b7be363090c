//! A volume after a power cut whose log is damaged: no command shows the state before it as if that
//! were the volume.

use std::fs::File;
use std::path::Path;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{self, KernelMount};

use crate::support::{cairn, fails, in_dir, works};

const BLOCK: u64 = 1024;

/// A volume with ten files, of which five are in the log, and its device.
fn crashed(image: &str) -> MemoryDevice {
    let image = Path::new(image);
    judge::mke2fs(image, 8 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
    let write = |mount: &KernelMount, number: u32| {
        let path = mount.path().join(format!("file{number}"));
        std::fs::write(&path, format!("contents {number}")).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
    };
    let mount = KernelMount::new(image, "");
    (0..5).for_each(|number| write(&mount, number));
    mount.unmount();
    let mount = KernelMount::new(image, "commit=600");
    (5..10).for_each(|number| write(&mount, number));
    let device = read_image(image).unwrap();
    mount.unmount();
    device
}

/// Makes the first block of the log in use noise.
fn damage(device: &MemoryDevice, image: &str) {
    let blocks = judge::debugfs(Path::new(image), "blocks <8>");
    let blocks: Vec<u64> = blocks.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let start = device.read_at(blocks[0] * BLOCK + 28, 4).unwrap();
    let first = blocks[u32::from_be_bytes(start[..4].try_into().unwrap()) as usize] * BLOCK;
    assert_eq!(device.read_at(first, 4).unwrap()[..], [0xc0, 0x3b, 0x39, 0x98]);
    device.write_at(first, vec![0xa5; 1024]).unwrap();
}

#[test]
fn every_command_refuses_a_volume_whose_log_is_damaged() {
    let (dir, image) = in_dir("disk.img");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let device = crashed(&image);
    let good = at("good.img");
    write_image(&device, Path::new(&good)).unwrap();
    assert!(works(&["ls", &good]).contains("file9"));
    // A second image with all files, to be synchronised with the damaged one.
    let tree = at("tree");
    works(&["get", &good, "/file9", &at("file9")]);
    std::fs::create_dir(&tree).unwrap();
    for number in 0..10 {
        std::fs::write(format!("{tree}/file{number}"), "x").unwrap();
    }
    let target = at("target.img");
    works(&["build", "--free", "8M", &target, &format!("{tree}/")]);

    damage(&device, &image);
    write_image(&device, Path::new(&image)).unwrap();
    let (before, kept) = (std::fs::read(&image).unwrap(), std::fs::read(&target).unwrap());
    let (file, point) = (at("file9"), at("mnt"));
    std::fs::create_dir(&point).unwrap();
    for words in [
        &["ls", &image][..],
        &["find", &image, "/"],
        &["cat", &image, "/file1"],
        &["stat", &image, "/file1"],
        &["get", &image, "/file1", &at("out")],
        &["export", &image, "-o", &at("out.tar")],
        &["put", &image, &file, "/new"],
        &["sync", &image, &target],
        &["sync", &format!("{tree}/"), &image],
        &["build", &at("built.img"), &image],
        &["mount", &image, &point],
        &["mount", "-r", &image, &point],
    ] {
        let said = fails(words, 4);
        assert!(
            said.contains("journal") && said.contains("run `cairn check` on"),
            "{words:?}: {said}"
        );
    }
    assert!(std::fs::read(&image).unwrap() == before, "the damaged image was written");
    assert!(std::fs::read(&target).unwrap() == kept, "files of the target were changed");
    let (status, said, _) = cairn(&["check", &image]);
    assert!(status != 0 && said.contains("ext4.journal.replay"), "{status}: {said}");
    cairn(&["rescue", &image, "-o", &at("rescued")]);
    assert!(Path::new(&at("rescued")).join("file1").exists(), "the rescue reads the old files");

    let (status, said, _) = cairn(&["check", "--repair=all", "-y", &image]);
    assert_eq!(status, 1, "{said}");
    assert!(works(&["ls", &image]).contains("file4"));
    judge::assert_clean(Path::new(&image));
}

/// A small volume has no backup of its superblock. With two changed bits in it, the volume is
/// refused by readers, and repaired with what its log holds.
#[test]
fn a_wrong_superblock_without_a_backup_is_repaired_with_the_log() {
    let (_dir, image) = in_dir("disk.img");
    let device = crashed(&image);
    // The name of the volume.
    device.write_at(1024 + 0x78, vec![3]).unwrap();
    write_image(&device, Path::new(&image)).unwrap();
    let (status, said, _) = cairn(&["check", &image]);
    assert!(status == 4 && said.contains("ext4.superblock.checksum"), "{status}: {said}");
    let (status, _, said) = cairn(&["ls", &image]);
    assert_eq!(status, 4, "{said}");
    let (status, said, _) = cairn(&["check", "--repair=all", "-y", &image]);
    assert_eq!(status, 1, "{said}");
    assert_eq!(cairn(&["check", &image]).0, 0);
    assert_eq!(works(&["cat", &image, "/file9"]), "contents 9");
    assert!(judge::e2fsck_check(Path::new(&image)).is_clean());
}
