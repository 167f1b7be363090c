//! The inode table of a group is lost: what a repair loses is listed by its path, and a rescue
//! takes the copies that the journal still has. Where only its place is lost, nothing is.

use cairn_block::BlockDeviceExt;
use cairn_check::repair::Scope;
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{self, KernelMount};

use crate::forms::rescued;
use crate::injected::image;
use crate::repaired::{complaint, place_of, plan, repaired, snapshot};

const BLOCK: u64 = 1024;

#[test]
fn what_is_lost_with_a_table_is_listed_and_rescued_from_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, &["-t", "ext4", "-b", "1024", "-N", "512"]);
    let sound = read_image(&path).unwrap();
    let files = rescued(&sound).files;
    let said = judge::run("debugfs", ["-R", "imap <1>", path.to_str().unwrap()]);
    let table = said.split("located at block ").nth(1).unwrap().split(',').next().unwrap();
    let table: u64 = table.parse().unwrap();
    // 32 inodes of 256 bytes, behind those that mke2fs wrote and those of the directories.
    let (start, len) = ((table + 4) * BLOCK, 8 * BLOCK);
    for noise in [0, 0x5a] {
        let device = sound.fork();
        device.write_at(start, vec![noise; len as usize]).unwrap();
        let found = rescued(&device);
        assert!(found.files == files, "{} of {} files", found.files.len(), files.len());
        let is_told = |path: &[u8]| found.told.iter().any(|told| told == path);
        assert!(is_told(b"tree/a name of some length 20"));
        let (plan, after) = repaired(&device, Scope::All).unwrap();
        let lost: Vec<_> = plan.steps.losing().map(ToString::to_string).collect();
        let names = |step: &String| step.contains("Lost of /tree/a name of some length 20:");
        assert!(lost.iter().any(names), "{noise}: {lost:?}");
        let said = complaint(&after, &hurt);
        assert!(said.is_none(), "{}", said.unwrap_or_default());
    }
}

/// Bitmaps and counts know the files of which nothing is left: a repair would make an empty volume.
#[test]
fn an_empty_table_of_inodes_is_no_empty_volume() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    for features in ["metadata_csum", "^metadata_csum"] {
        image(&path, &["-t", "ext4", "-b", "1024", "-N", "512", "-O", features]);
        let sound = read_image(&path).unwrap();
        let said = judge::run("debugfs", ["-R", "imap <1>", path.to_str().unwrap()]);
        let table = said.split("located at block ").nth(1).unwrap().split(',').next().unwrap();
        let table: u64 = table.parse().unwrap();
        let device = sound.fork();
        device.write_at(table * BLOCK, vec![0; 128 * BLOCK as usize]).unwrap();
        let error = plan(device, Scope::All).err().expect("it is refused").to_string();
        assert!(error.contains("a repair would lose"), "{features}: {error}");
    }
}

/// The count of links became 0. Names lead to the inode, the bitmap has it, and it has no deletion
/// time: it is no deleted one.
#[test]
fn an_inode_that_counts_no_links_keeps_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for features in ["^metadata_csum", "metadata_csum"] {
        image(&path, &["-t", "ext4", "-b", "1024", "-N", "512", "-O", features]);
        let mount = KernelMount::new(&path, "");
        std::fs::hard_link(mount.path().join("file"), mount.path().join("tree/hard")).unwrap();
        mount.unmount();
        let sound = read_image(&path).unwrap();
        let tree = snapshot(sound.fork());
        for name in ["/file", "/tree", "/tree/below", "/tree/a name of some length 20"] {
            write_image(&sound, &path).unwrap();
            let request = format!("sif \"{name}\" links_count 0");
            judge::run("debugfs", ["-w", "-R", &request, path.to_str().unwrap()]);
            let device = read_image(&path).unwrap();
            let (plan, after) = repaired(&device, Scope::Accounting).expect(name);
            assert_eq!(plan.steps.losing().count(), 0, "{features} {name}");
            assert_eq!(complaint(&after, &hurt), None, "{features} {name}");
            assert_eq!(snapshot(after), tree, "{features} {name}");
        }
    }
}

/// One group has no backup of its descriptor, and without checksums nothing says that it is wrong.
#[test]
fn the_place_of_the_first_table_is_found_by_the_root() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let mut wrong = Vec::new();
    for args in [
        &["-t", "ext4", "-b", "1024", "-N", "512", "-O", "^metadata_csum"][..],
        &["-t", "ext2", "-b", "1024", "-N", "512"],
        &["-t", "ext4", "-b", "4096", "-N", "512", "-O", "^metadata_csum,bigalloc", "-C", "16384"],
    ] {
        image(&path, args);
        let sound = read_image(&path).unwrap();
        let tree = snapshot(sound.fork());
        let size = if args.contains(&"4096") { 4096 } else { 1024 };
        let at = if size == 1024 { 2 * size } else { size } + 8;
        let stored = sound.read_at(at, 4).unwrap();
        let stored = u32::from_le_bytes(stored.first_chunk().copied().unwrap());
        for value in [stored * 2, stored + 1, stored - 1, stored ^ 0x10, stored ^ 0x200, 1, 0] {
            let device = sound.fork();
            device.write_at(at, value.to_le_bytes().to_vec()).unwrap();
            let what = format!("{args:?}: {stored} -> {value}");
            let Some((plan, after)) = repaired(&device, Scope::All) else {
                wrong.push(format!("{what}: refused"));
                continue;
            };
            if let Some(said) = complaint(&after, &hurt) {
                wrong.push(format!("{what}: {said}"));
            } else if snapshot(after) != tree {
                let lost: Vec<_> = plan.steps.losing().map(ToString::to_string).collect();
                wrong.push(format!("{what}: another tree: {lost:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A rescue copies what a root with a wrong checksum has, and says so.
#[test]
fn a_rescue_tells_of_a_damaged_root() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    image(&path, &["-t", "ext4", "-b", "1024", "-N", "512"]);
    let sound = read_image(&path).unwrap();
    let files = rescued(&sound).files;
    let device = sound.fork();
    // Four bytes of the times.
    device.write_at(place_of(&path, "<2>") + 8, vec![0x3c; 4]).unwrap();
    let found = rescued(&device);
    assert!(found.files == files);
    assert!(found.told.iter().any(|told| told == b"/"), "{:?}", found.told);
}
