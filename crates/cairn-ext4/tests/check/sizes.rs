//! Files whose size contradicts their blocks, where no checksum tells which is wrong: a repair
//! without losses changes no file.

use std::os::unix::fs::FileExt;
use std::path::Path;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{self, KernelMount, debugfs};

use crate::injected::image;
use crate::repaired::{complaint, injected, plan, repaired, snapshot};
use crate::support::{check, flags};

pub const POINTERS: &[&str] = &["-t", "ext2", "-b", "1024", "-N", "512"];
pub const EXTENTS: &[&str] =
    &["-t", "ext4", "-b", "1024", "-N", "512", "-O", "^metadata_csum,^metadata_csum_seed"];

/// Is nothing that is read changed by a repair without losses, although something is found?
fn asks(device: &MemoryDevice) -> bool {
    let before = snapshot(device.fork());
    let planned = plan(device.fork(), Scope::Accounting).unwrap();
    let after = device.fork();
    let undo = MemoryDevice::new(cairn_check::repair::undo::file_size(&planned.changes));
    planned.apply(&after, &undo).unwrap();
    before.assert_same(&snapshot(after));
    planned.after.count() > 0 && flags(&check(std::sync::Arc::new(device.fork())))
}

#[test]
fn blocks_behind_the_end_of_a_file_are_no_accounting() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    // `/file` has 50,000 bytes in 49 blocks.
    for args in [POINTERS, EXTENTS] {
        image(&path, args);
        for size in ["0", "20", "1024", "40000"] {
            let device = injected(&path, &hurt, &format!("sif /file size {size}"));
            assert!(asks(&device), "{args:?}: {size}");
            let (plan, after) = repaired(&device, Scope::All).unwrap();
            let lost: Vec<_> = plan.steps.losing().map(ToString::to_string).collect();
            let is_listed = lost.len() == 1 && lost[0].contains("Lost of /file: the size");
            assert!(is_listed, "{args:?}: {size}: {lost:?}");
            assert_eq!(complaint(&after, &hurt), None, "{args:?}: {size}");
            let size = debugfs(&hurt, "stat /file");
            assert!(size.contains("Size: 50176"), "{size}");
        }
    }
}

/// What a file loses is lost under each of its names.
#[test]
fn a_loss_is_listed_with_the_names_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, EXTENTS);
    for (more, listed) in [
        (1, "; the file has 1 more name: /again1."),
        (5, "; the file has 5 more names: /again1, /again2, /again3, and 2 besides."),
    ] {
        for number in 1..=more {
            // A name that is there is refused.
            injected(&path, &hurt, &format!("ln /file /again{number}"));
            std::fs::copy(&hurt, &path).unwrap();
        }
        injected(&path, &hurt, &format!("sif /file links_count {}", more + 1));
        let again = dir.path().join("again");
        let device = injected(&hurt, &again, "sif /file size 20");
        let (plan, _) = repaired(&device, Scope::All).unwrap();
        let lost: Vec<_> = plan.steps.losing().map(ToString::to_string).collect();
        let is_listed = lost.len() == 1 && lost[0].contains("Lost of /file: the size");
        assert!(is_listed && lost[0].ends_with(listed), "{lost:?}");
    }
}

/// The inode does not count a block behind the end: it is none of the file.
#[test]
fn a_block_that_a_file_does_not_count_is_not_added_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, POINTERS);
    let small = dir.path().join("small");
    std::fs::write(&small, "12345678901234567890").unwrap();
    let request = format!("write {} small", small.display());
    injected(&path, &hurt, &request);
    std::fs::copy(&hurt, &path).unwrap();
    let sound = read_image(&path).unwrap();
    for pointer in ["block[1] 7000", "block[11] 7000"] {
        let device = injected(&path, &hurt, &format!("sif /small {pointer}"));
        assert!(asks(&device), "{pointer}");
        let (plan, after) = repaired(&device, Scope::All).unwrap();
        let lost: Vec<_> = plan.steps.losing().map(ToString::to_string).collect();
        let loss = "Lost of /small: blocks behind the end of the file";
        assert!(lost.len() == 1 && lost[0].contains(loss), "{pointer}: {lost:?}");
        assert_eq!(complaint(&after, &hurt), None, "{pointer}");
        snapshot(sound.fork()).assert_same(&snapshot(after));
    }
}

/// Nor are those of another file, which come first.
#[test]
fn blocks_of_another_file_behind_the_end_are_not_added_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, EXTENTS);
    let before = snapshot(read_image(&path).unwrap());
    let first = debugfs(&path, "bmap /file 3");
    let first: u64 = first.lines().find_map(|line| line.trim().parse().ok()).unwrap();
    std::fs::copy(&path, &hurt).unwrap();
    let name = "\"/tree/a name of some length 150\"";
    let words = [(0, 0x2_f30a), (6, 8), (7, 4), (8, first)];
    for (word, value) in words {
        let request = format!("sif {name} block[{word}] {value}");
        judge::run("debugfs", ["-w", "-R", &request, hurt.to_str().unwrap()]);
    }
    let device = read_image(&hurt).unwrap();
    let (planned, after) = repaired(&device, Scope::All).unwrap();
    assert_eq!(planned.after.count(), 0);
    assert_eq!(complaint(&after, &hurt), None);
    before.assert_same(&snapshot(after));
}

/// A file of 20 blocks with holes between them, and the byte of its leaf.
pub fn with_holes(path: &Path) -> u64 {
    image(path, EXTENTS);
    let mount = KernelMount::new(path, "");
    let file = std::fs::File::create(mount.path().join("holes")).unwrap();
    for at in 0..20 {
        file.write_at(&[at + 1; 1024], u64::from(at) * 2048).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    mount.unmount();
    let said = debugfs(path, "stat /holes");
    let rest = said.split("(ETB0):").nth(1).expect("a leaf");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse::<u64>().unwrap() * 1024
}

/// The volume with another first block of an extent.
fn moved(sound: &MemoryDevice, leaf: u64, extent: u64, bits: u32) -> MemoryDevice {
    let device = sound.fork();
    let at = leaf + 12 + 12 * extent;
    let start = device.read_at(at, 4).unwrap();
    let start = u32::from_le_bytes(start[..4].try_into().unwrap()) ^ bits;
    device.write_at(at, start.to_le_bytes().to_vec()).unwrap();
    device
}

/// An extent that is far away, by a wrong bit, has one place between its neighbours.
#[test]
fn an_extent_far_away_goes_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let leaf = with_holes(&path);
    let sound = read_image(&path).unwrap();
    let before = snapshot(sound.fork());
    let far = |extent| [31, 20, 14].map(|bit| (extent, 1_u32 << bit));
    let near = [(0, 1 << 7), (7, 1 << 6), (18, 1 << 6)];
    for (extent, bits) in [0, 1, 10, 18, 19].into_iter().flat_map(far).chain(near) {
        let what = format!("extent {extent} ^ {bits:#x}");
        let device = moved(&sound, leaf, extent, bits);
        let (plan, after) = repaired(&device, Scope::Accounting).expect(&what);
        let codes: Vec<_> = plan.before.counts.iter().map(|(kind, _)| kind.code).collect();
        let is_told = |code: &&str| ["ext4.extent.start", "ext4.map.bit"].contains(code);
        assert!(codes.iter().any(is_told), "{what}: {codes:?}");
        assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0), "{what}");
        assert_eq!(complaint(&after, &hurt), None, "{what}");
        before.assert_same(&snapshot(after));
    }
    // One extent that is the whole file, in the inode.
    for bit in [31, 30, 16, 14] {
        let device = injected(&path, &hurt, &format!("sif /file block[3] {}", 1_u32 << bit));
        let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
        assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0), "bit {bit}");
        assert_eq!(complaint(&after, &hurt), None, "bit {bit}");
        before.assert_same(&snapshot(after));
    }
}

/// Where nothing says where the extent was, it is lost. The file keeps its size, which is less than
/// that of the volume.
#[test]
fn an_extent_far_away_does_not_make_a_file_longer_than_its_volume() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let leaf = with_holes(&path);
    let sound = read_image(&path).unwrap();
    for (extent, bits) in [(19, 0xc000_0000), (19, 0x0300_0000), (10, 0xc000_0000)] {
        let what = format!("extent {extent} ^ {bits:#x}");
        let device = moved(&sound, leaf, extent, bits);
        let kept = plan(device.fork(), Scope::Accounting).unwrap();
        assert!(kept.changes.is_empty() && kept.after.count() > 0, "{what}");
        let (plan, after) = repaired(&device, Scope::All).expect(&what);
        let lost: Vec<_> = plan.steps.losing().map(ToString::to_string).collect();
        let is_listed = lost.len() == 1 && lost[0].contains("Lost of /holes: contents from");
        assert!(is_listed && plan.after.count() == 0, "{what}: {lost:?}");
        assert_eq!(complaint(&after, &hurt), None, "{what}");
        assert!(debugfs(&hurt, "stat /holes").contains("Size: 39936"), "{what}");
        let mount = KernelMount::new(&hurt, "ro");
        let read = std::fs::read(mount.path().join("holes")).unwrap();
        for at in (0..20_u8).filter(|at| u64::from(*at) != extent) {
            let from = usize::from(at) * 2048;
            assert!(read[from..from + 1024] == [at + 1; 1024], "{what}: block {at}");
        }
        mount.unmount();
    }
}

/// Pointers behind the target of a symbolic link: the target is not lost with them.
#[test]
fn a_symbolic_link_with_other_blocks_keeps_its_target() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, POINTERS);
    let sound = snapshot(read_image(&path).unwrap());
    // A block of zeros that is free, one outside the volume, and one of the inode table.
    for place in ["1", "11", "IND", "DIND", "TIND"] {
        for block in [6000, 100_000, 40] {
            let device = injected(&path, &hurt, &format!("sif /slow block[{place}] {block}"));
            let what = format!("block[{place}] {block}");
            let (plan, after) = repaired(&device, Scope::All).unwrap();
            assert!(plan.steps.count() > 0 && plan.after.count() == 0, "{what}");
            let said = complaint(&after, &hurt);
            assert!(said.is_none(), "{what}: {}", said.unwrap_or_default());
            let after = snapshot(after);
            assert_eq!(sound.diff(&after), "", "{what}");
        }
    }
}

/// A pointer behind the end of a file, and another one that leads outside the volume: what is
/// before both stays.
#[test]
fn two_wrong_pointers_behind_the_end_cost_nothing_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, POINTERS);
    let sound = snapshot(read_image(&path).unwrap());
    for (place, block) in [("DIND", 100_000), ("TIND", 100_000)] {
        let device = injected(&path, &hurt, &format!("sif /file block[{place}] {block}"));
        // The indirect block of `/file` has 37 pointers.
        let ind = debugfs(&hurt, "stat /file");
        let at = ind.split("(IND):").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        let pointer = at.parse::<u64>().unwrap() * 1024 + 60 * 4;
        device.write_at(pointer, 7000_u32.to_le_bytes().to_vec()).unwrap();
        let (plan, after) = repaired(&device, Scope::All).unwrap();
        assert!(plan.steps.count() > 0 && plan.after.count() == 0);
        let said = complaint(&after, &hurt);
        assert!(said.is_none(), "{place} {block}: {}", said.unwrap_or_default());
        let changed = sound.diff(&snapshot(after));
        assert!(!changed.contains("absent"), "{changed}");
        let steps: Vec<String> = plan.steps.kept().iter().map(ToString::to_string).collect();
        assert_eq!(changed, "", "{place} {block}: {steps:?}");
    }
}
