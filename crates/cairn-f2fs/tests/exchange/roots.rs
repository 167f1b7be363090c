//! Damaged inodes of the root directory: Cairn mounts and refuses the same volumes as Linux.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::crash::read_image;
use cairn_testkit::vm::Vm;

use crate::support::{Kind, disk};

const BLOCK: usize = 4096;

/// A change: what it makes, where it is in the inode's block, the bytes, and whether Linux mounts
/// such a volume.
type Change = (&'static str, u64, &'static [u8], bool);

const CHANGES: &[Change] = &[
    ("a file", 0, &0o100_644_u16.to_le_bytes(), false),
    ("a symbolic link", 0, &0o120_777_u16.to_le_bytes(), false),
    ("of no type", 0, &0_u16.to_le_bytes(), false),
    ("without links", 12, &0_u32.to_le_bytes(), false),
    ("with one link", 12, &1_u32.to_le_bytes(), true),
    ("with the most links", 12, &u32::MAX.to_le_bytes(), true),
    ("without bytes", 16, &0_u64.to_le_bytes(), false),
    ("with less than a block of bytes", 16, &100_u64.to_le_bytes(), true),
    ("without blocks", 24, &0_u64.to_le_bytes(), false),
    // The inode's own block is counted.
    ("without blocks but its inode", 24, &1_u64.to_le_bytes(), false),
    ("with more blocks than the volume", 24, &(1_u64 << 40).to_le_bytes(), true),
    ("without levels", 72, &0_u32.to_le_bytes(), true),
    ("with a hole at its beginning", 360, &0_u32.to_le_bytes(), true),
    ("with an address beyond the volume", 360, &0x7fff_ffff_u32.to_le_bytes(), true),
    ("of another inode", 4076, &7_u32.to_le_bytes(), false),
    ("of another node", 4072, &7_u32.to_le_bytes(), false),
];

/// The address of the root's inode: the block whose footer names node 3 of inode 3.
fn root_inode(image: &Path) -> u64 {
    let bytes = fs::read(image).unwrap();
    let footer = [3, 0, 0, 0, 3, 0, 0, 0];
    let mut found =
        bytes.chunks(BLOCK).enumerate().filter(|(_, block)| block[4072..4080] == footer);
    let (index, _) = found.next().expect("the volume has a root");
    assert!(found.next().is_none(), "mkfs.f2fs wrote the root once");
    (index * BLOCK) as u64
}

/// True if Cairn opens the image with these options. What it refuses it does not write.
fn opens(image: &Path, options: &str) -> bool {
    let device = Arc::new(read_image(image).unwrap());
    let options = MountOptions::parse(options).unwrap();
    let opened = F2fs::open(device.clone(), Threads::new(), &options);
    if opened.is_err() {
        let size = usize::try_from(device.geometry().size).unwrap();
        assert!(device.read_at(0, size).unwrap()[..] == fs::read(image).unwrap()[..], "written");
    }
    opened.is_ok()
}

#[test]
fn damaged_roots_are_mounted_and_refused_as_by_linux() {
    let directory = tempfile::tempdir().unwrap();
    let sound = directory.path().join("sound");
    Kind::new("roots", 64, &[]).make(&sound);
    let root = root_inode(&sound);
    let (mut vm, mut script, mut ours) = (Vm::new(), String::new(), Vec::new());
    for (index, (what, at, bytes, _)) in CHANGES.iter().enumerate() {
        let image = directory.path().join(index.to_string());
        fs::copy(&sound, &image).unwrap();
        File::options().write(true).open(&image).unwrap().write_all_at(bytes, root + at).unwrap();
        let for_reading = opens(&image, "ro");
        assert_eq!(opens(&image, ""), for_reading, "a root {what}: for reading and for writing");
        ours.push(for_reading);
        vm = vm.disk(&image);
        script += &format!(
            "for how in ro rw; do if mount -t f2fs -o $how {} /mnt 2>/dev/null; then umount /mnt; \
             echo @mounted; else echo @refused; fi; done\n",
            disk(index)
        );
    }
    let told = vm.check(&script);
    let told: Vec<_> = told.lines().filter_map(|line| line.trim().strip_prefix('@')).collect();
    assert_eq!(told.len(), 2 * CHANGES.len(), "{told:?}");
    for (((what, .., mounts), ours), linux) in CHANGES.iter().zip(ours).zip(told.chunks(2)) {
        let expected = if *mounts { "mounted" } else { "refused" };
        assert_eq!(linux, [expected; 2], "Linux and a root {what}");
        assert_eq!(ours, *mounts, "Cairn and a root {what}");
    }
}
