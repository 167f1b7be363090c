//! Blocks of the volume's structures that have lost a write: they are sound, and older than the
//! rest. What is newer stays.

use std::path::Path;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::Report;
use cairn_check::repair::Scope;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{self, KernelMount, debugfs, mke2fs};

use crate::injected::image;
use crate::repaired::{complaint, place_of, plan, repaired, snapshot};

/// The block that `show_super_stats` names for the first group.
fn place(said: &str, what: &str) -> u64 {
    let rest = said.split(&format!("{what} at ")).nth(1).unwrap();
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// The descriptors and the bitmap of inodes know nothing of the newest files. Names lead to them.
#[test]
fn inodes_behind_those_that_an_old_descriptor_knows_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for features in ["metadata_csum", "uninit_bg,^metadata_csum,^metadata_csum_seed"] {
        mke2fs(&path, 8 << 20, &["-t", "ext4", "-b", "1024", "-N", "512", "-O", features]);
        let older = read_image(&path).unwrap();
        let mount = KernelMount::new(&path, "");
        for number in 0..30 {
            let name = mount.path().join(format!("file {number}"));
            std::fs::write(name, vec![number; 500]).unwrap();
        }
        mount.unmount();
        let device = read_image(&path).unwrap();
        let sound = snapshot(device.fork());
        let bitmap = place(&debugfs(&path, "show_super_stats"), "inode bitmap");
        for block in [2, bitmap] {
            device
                .write_at(block * 1024, older.read_at(block * 1024, 1024).unwrap().to_vec())
                .unwrap();
        }
        let (planned, after) = repaired(&device, Scope::Accounting).unwrap();
        assert_eq!(planned.after.count(), 0, "{features}: {:?}", planned.after.findings);
        assert_eq!(complaint(&after, &hurt), None, "{features}");
        sound.assert_same(&snapshot(after));
    }
}

/// A bitmap block has more bits than a group has blocks. All of them are set.
#[test]
fn bits_behind_the_blocks_of_a_small_group_are_set() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    mke2fs(&path, 16 << 20, &["-t", "ext4", "-b", "1024", "-g", "4096", "-O", "^metadata_csum"]);
    let mount = KernelMount::new(&path, "");
    std::fs::write(mount.path().join("file"), vec![b'f'; 9000]).unwrap();
    mount.unmount();
    let device = read_image(&path).unwrap();
    let bitmap = place(&debugfs(&path, "show_super_stats"), "block bitmap");
    device.write_at(bitmap * 1024 + 512, vec![0; 512]).unwrap();
    let planned = plan(device.fork(), Scope::Accounting).unwrap();
    assert!(planned.before.count() > 0);
    let (_, after) = repaired(&device, Scope::Accounting).unwrap();
    assert_eq!(complaint(&after, &hurt), None);
}

/// A mount marks a volume with a file of orphans. After a power cut the file may be empty.
#[test]
fn the_mark_of_orphans_goes_with_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    mke2fs(&path, 16 << 20, &["-t", "ext4", "-b", "1024", "-O", "orphan_file"]);
    let mount = KernelMount::new(&path, "");
    let file = std::fs::File::create(mount.path().join("file")).unwrap();
    file.sync_all().unwrap();
    let device = read_image(&path).unwrap();
    drop(file);
    mount.unmount();
    let (planned, after) = repaired(&device, Scope::Accounting).unwrap();
    assert_eq!(planned.after.count(), 0, "{:?}", planned.after.findings);
    assert_eq!(complaint(&after, &hurt), None);
}

/// A block of the table of inodes, or of a map, knows nothing of what a file got last. Bitmap and
/// counts do: the blocks do not become free without a word.
#[test]
fn blocks_that_an_old_inode_does_not_have_are_not_freed_without_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^metadata_csum"], &["-t", "ext3"]] {
        mke2fs(&path, 16 << 20, &[args, &["-b", "1024", "-N", "512"]].concat());
        let write = |len: usize| {
            let mount = KernelMount::new(&path, "");
            std::fs::write(mount.path().join("file"), vec![b'f'; len]).unwrap();
            mount.unmount();
            read_image(&path).unwrap()
        };
        let older = write(3000);
        let device = write(200_000);
        let block = place_of(&path, "/file") & !1023;
        device.write_at(block, older.read_at(block, 1024).unwrap().to_vec()).unwrap();
        let planned = plan(device.fork(), Scope::Accounting).unwrap();
        let left = |report: &Report| {
            report.findings.iter().any(|found| found.kind.code == "ext4.block_bitmap.left")
        };
        assert!(left(&planned.before) && left(&planned.after), "{:?}", planned.after.findings);
        assert!(planned.changes.is_empty(), "{args:?}");
        let (planned, after) = repaired(&device, Scope::All).unwrap();
        assert!(planned.steps.losing().count() > 0, "{args:?}");
        assert_eq!(complaint(&after, &hurt), None, "{args:?}");
    }
}

/// A repair without losses changes nothing of a volume, and one with losses says what it does.
fn is_doubted(device: &MemoryDevice, hurt: &Path) {
    let planned = plan(device.fork(), Scope::Accounting).unwrap();
    let codes: Vec<_> = planned.before.counts.iter().map(|(kind, _)| kind.code).collect();
    assert!(codes.contains(&"ext4.inode.owners"), "{codes:?}");
    assert!(planned.changes.is_empty() && planned.after.count() > 0);
    let (planned, after) = repaired(device, Scope::All).unwrap();
    assert!(planned.steps.losing().count() > 0);
    assert_eq!(complaint(&after, hurt), None);
}

/// A block of a directory has the name of a file that was removed. Its number is another one's now.
#[test]
fn an_old_name_makes_no_hard_link_without_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    mke2fs(&path, 8 << 20, &["-t", "ext4", "-b", "1024", "-N", "512"]);
    let mount = KernelMount::new(&path, "");
    for name in ["one", "other"] {
        std::fs::create_dir(mount.path().join(name)).unwrap();
    }
    std::fs::write(mount.path().join("one/file"), [1; 3000]).unwrap();
    mount.unmount();
    let older = read_image(&path).unwrap();
    let number = debugfs(&path, "stat /one/file").split(' ').nth(1).unwrap().to_owned();
    let mount = KernelMount::new(&path, "");
    std::fs::remove_file(mount.path().join("one/file")).unwrap();
    std::fs::write(mount.path().join("other/secret"), [2; 3000]).unwrap();
    mount.unmount();
    assert!(debugfs(&path, "stat /other/secret").starts_with(&format!("Inode: {number} ")));
    let block = debugfs(&path, "bmap /one 0");
    let block: u64 = block.lines().find_map(|line| line.trim().parse().ok()).unwrap();
    let device = read_image(&path).unwrap();
    device.write_at(block * 1024, older.read_at(block * 1024, 1024).unwrap().to_vec()).unwrap();
    is_doubted(&device, &hurt);
}

/// An inode has the place of attributes that are another one's now.
#[test]
fn an_old_inode_gets_no_attributes_of_another_without_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, &["-t", "ext4", "-b", "1024", "-N", "512"]);
    let value = dir.path().join("value");
    std::fs::write(&value, [b'v'; 300]).unwrap();
    let change = |request: &str| {
        judge::run("debugfs", ["-w", "-R", request, path.to_str().unwrap()]);
    };
    change(&format!("ea_set -f {} /file user.name", value.display()));
    let said = debugfs(&path, "stat /file");
    let block = said.split("File ACL: ").nth(1).unwrap().split_whitespace().next().unwrap();
    let other = "\"/tree/a name of some length 150\"";
    change(&format!("sif {other} file_acl {block}"));
    change(&format!("sif {other} blocks 4"));
    is_doubted(&read_image(&path).unwrap(), &hurt);
}
