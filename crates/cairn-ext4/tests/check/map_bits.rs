//! Single bits of block maps where no checksum tells them: what the inode counts, the size and the
//! bitmaps say which bit is wrong, so that no file changes.

use std::path::Path;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::{Scope, undo};
use cairn_testkit::crash::read_image;
use cairn_testkit::deep;
use cairn_testkit::judge::{self, KernelMount, debugfs, mke2fs};
use cairn_testkit::tree::Snapshot;

use crate::injected::image;
use crate::repaired::{complaint, injected, place_of, plan, repaired, snapshot};
use crate::sizes::{EXTENTS, POINTERS, with_holes};

/// `i_block` of an inode.
const I_BLOCK: u64 = 40;

fn flipped(sound: &MemoryDevice, at: u64, bit: u64) -> MemoryDevice {
    let device = sound.fork();
    let byte = device.read_at(at + bit / 8, 1).unwrap()[0];
    device.write_at(at + bit / 8, vec![byte ^ 1 << (bit % 8)]).unwrap();
    device
}

/// One in so many bits is tried.
fn step() -> usize {
    if deep() { 1 } else { 5 }
}

/// Do only the bitmaps contradict the map? They may be old ones, and no repair without losses
/// changes anything.
fn is_disputed(device: &MemoryDevice, what: &str) -> bool {
    let kept = plan(device.fork(), Scope::Accounting).expect(what);
    let found = kept.before.counts.iter().any(|(kind, _)| kind.code == "ext4.map.disputed");
    assert!(!found || kept.changes.is_empty() && kept.after.count() > 0, "{what}");
    found
}

/// The files after a repair with losses, which names the one that is in dispute.
fn with_losses(device: &MemoryDevice, hurt: &Path, what: &str) -> Snapshot {
    let (plan, after) = repaired(device, Scope::All).expect(what);
    assert_eq!((plan.steps.losing().count(), plan.after.count()), (1, 0), "{what}");
    assert_eq!(complaint(&after, hurt), None, "{what}");
    snapshot(after)
}

/// Is the bit corrected by a repair without losses, after which all files are as before?
fn assert_corrected(device: &MemoryDevice, before: &Snapshot, hurt: &Path, what: &str) {
    if is_disputed(device, what) {
        return before.assert_same(&with_losses(device, hurt, what));
    }
    let (plan, after) = repaired(device, Scope::Accounting).expect(what);
    let left: Vec<_> = plan.after.findings.iter().map(ToString::to_string).collect();
    assert!(left.is_empty(), "{what}: {left:#?}");
    assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0), "{what}");
    assert!(plan.before.count() > 0, "{what}");
    assert_eq!(complaint(&after, hurt), None, "{what}");
    before.assert_same(&snapshot(after));
}

/// Is it corrected, or only the bitmap, because that may be what is wrong? Other files are as
/// before.
fn is_corrected(
    device: &MemoryDevice,
    before: &Snapshot,
    hurt: &Path,
    (name, what): (&[u8], &str),
) -> bool {
    if is_disputed(device, what) {
        return with_losses(device, hurt, what) == *before;
    }
    let (plan, after) = repaired(device, Scope::Accounting).expect(what);
    assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0), "{what}");
    assert_eq!(complaint(&after, hurt), None, "{what}");
    let after = snapshot(after);
    before.clone().without(name).assert_same(&after.clone().without(name));
    after == *before
}

#[test]
fn a_wrong_bit_of_an_extent_is_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let leaf = with_holes(&path);
    let sound = read_image(&path).unwrap();
    let before = snapshot(sound.fork());
    let root = place_of(&path, "/file") + I_BLOCK;
    // The header; of the extent all but the bit of those that were never written.
    let header = (0..64).map(|bit| (root, bit));
    let extent = (0..96).filter(|bit| *bit != 47).map(|bit| (root + 12, bit));
    let middle = (48..96).map(|bit| (leaf + 12 + 12 * 10, bit));
    for (at, bit) in header.chain(extent).step_by(step()) {
        let what = format!("byte {at}, bit {bit}");
        assert_corrected(&flipped(&sound, at, bit), &before, &hurt, &what);
    }
    let corrected = middle.step_by(step()).filter(|(at, bit)| {
        let what = format!("byte {at}, bit {bit}");
        is_corrected(&flipped(&sound, *at, *bit), &before, &hurt, (b"holes", &what))
    });
    assert!(corrected.count() >= 48 / step() / 2);
}

/// Where one bit of the size may be wrong as well, a repair without losses changes nothing.
#[test]
fn an_extent_behind_a_hole_goes_back_with_losses_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let leaf = with_holes(&path);
    let sound = read_image(&path).unwrap();
    let before = snapshot(sound.fork());
    for bit in [6, 7, 8] {
        let device = flipped(&sound, leaf + 12 + 12 * 19, bit);
        let kept = plan(device.fork(), Scope::Accounting).unwrap();
        assert!(kept.changes.is_empty() && kept.after.count() > 0, "bit {bit}");
        let (plan, after) = repaired(&device, Scope::All).unwrap();
        let lost: Vec<_> = plan.steps.losing().map(ToString::to_string).collect();
        assert!(lost.len() == 1 && lost[0].contains("Lost of /holes"), "bit {bit}: {lost:?}");
        assert_eq!(complaint(&after, &hurt), None, "bit {bit}");
        before.assert_same(&snapshot(after));
    }
}

/// A size with one wrong bit, by which the file ends in an earlier block.
#[test]
fn a_wrong_bit_of_a_size_is_corrected_with_losses_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for args in [POINTERS, EXTENTS] {
        image(&path, args);
        let sound = read_image(&path).unwrap();
        let before = snapshot(sound.fork());
        // 50,000 bytes.
        for bit in [15, 14] {
            let device = flipped(&sound, place_of(&path, "/file") + 4, bit);
            let kept = plan(device.fork(), Scope::Accounting).unwrap();
            assert!(kept.changes.is_empty() && kept.after.count() > 0, "{args:?}, bit {bit}");
            let (_, after) = repaired(&device, Scope::All).unwrap();
            assert_eq!(complaint(&after, &hurt), None, "{args:?}, bit {bit}");
            before.assert_same(&snapshot(after));
        }
    }
}

#[test]
fn a_wrong_bit_of_a_pointer_is_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, POINTERS);
    let sound = read_image(&path).unwrap();
    let before = snapshot(sound.fork());
    let root = place_of(&path, "/file") + I_BLOCK;
    let said = debugfs(&path, "stat /file");
    let rest = said.split("(IND):").nth(1).expect("an indirect block");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let indirect = digits.parse::<u64>().unwrap() * 1024;
    for at in [root, root + 4 * 5, root + 4 * 12, indirect, indirect + 4 * 20] {
        let corrected = (0..32).step_by(step()).filter(|bit| {
            let what = format!("byte {at}, bit {bit}");
            is_corrected(&flipped(&sound, at, *bit), &before, &hurt, (b"file", &what))
        });
        assert!(corrected.count() >= 32 / step() / 2, "byte {at}");
    }
    // Attributes that the file does not have.
    for bit in (0..32).step_by(step()) {
        let what = format!("attributes, bit {bit}");
        let at = root - I_BLOCK + 104;
        assert_corrected(&flipped(&sound, at, bit), &before, &hurt, &what);
    }
    // Slots that the file does not use.
    for (at, bit) in
        [(root + 4 * 13, 12), (root + 4 * 14, 9), (root + 4 * 14, 2), (indirect + 4 * 200, 11)]
    {
        let what = format!("byte {at}, bit {bit}");
        assert_corrected(&flipped(&sound, at, bit), &before, &hurt, &what);
    }
}

fn last_block(image: &Path, name: &str) -> u64 {
    let said = debugfs(image, &format!("blocks {name}"));
    said.split_whitespace().filter_map(|word| word.parse().ok()).next_back().expect("a block")
}

/// A block that a bitmap calls free, and another one, one bit away, that it calls used: the map is
/// right.
#[test]
fn two_wrong_bits_of_a_bitmap_change_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let [path, half, hurt] = ["image", "half", "hurt"].map(|name| dir.path().join(name));
    for args in [POINTERS, EXTENTS] {
        image(&path, args);
        let before = snapshot(read_image(&path).unwrap());
        let mut tried = 0;
        for name in ["/file", "/slow", "\"/tree/a name of some length 7\"", "/tree"] {
            let block = last_block(&path, name);
            for other in
                (0..13).map(|bit| block ^ 1 << bit).filter(|other| (1..8192).contains(other))
            {
                if debugfs(&path, &format!("testb {other}")).contains("marked in use") {
                    continue;
                }
                injected(&path, &half, &format!("freeb {block}"));
                let device = injected(&half, &hurt, &format!("setb {other}"));
                let (_, after) = repaired(&device, Scope::Accounting).unwrap();
                before.assert_same(&snapshot(after.fork()));
                assert_eq!(complaint(&after, &hurt), None, "{args:?}: {name}, {other}");
                tried += 1;
            }
        }
        assert!(tried > 3, "{args:?}: {tried}");
    }
}

/// A bitmap that has lost a write calls blocks used that a file had, which was removed since, and
/// those of a newer file free. No repair without losses gives the newer file the older one's
/// blocks or attributes.
#[test]
fn an_old_bitmap_gives_no_file_the_blocks_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let [path, hurt] = ["image", "hurt"].map(|name| dir.path().join(name));
    let write = |path: &Path, name: &str, remove: Option<&str>| {
        let mount = KernelMount::new(path, "");
        let file = mount.path().join(name);
        std::fs::write(&file, vec![name.as_bytes()[0]; 64 << 10]).unwrap();
        let none = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&file, "user.a", &[name.as_bytes()[0]; 500], none).unwrap();
        if let Some(name) = remove {
            std::fs::remove_file(mount.path().join(name)).unwrap();
        }
        mount.unmount();
    };
    mke2fs(&path, 16 << 20, &["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^metadata_csum"]);
    write(&path, "G", None);
    let older = read_image(&path).unwrap();
    write(&path, "F", Some("G"));
    let newer = read_image(&path).unwrap();
    let before = snapshot(newer.fork());
    let mut tried = 0;
    for group in 0..2 {
        let said = debugfs(&path, "show_super_stats");
        let bitmap = said.split("block bitmap at ").nth(1 + group).unwrap();
        let bitmap: String = bitmap.chars().take_while(char::is_ascii_digit).collect();
        let at = bitmap.parse::<u64>().unwrap() * 1024;
        let bytes = older.read_at(at, 1024).unwrap().to_vec();
        if *bytes == *newer.read_at(at, 1024).unwrap() {
            continue;
        }
        let device = newer.fork();
        device.write_at(at, bytes).unwrap();
        let planned = plan(device.fork(), Scope::Accounting).unwrap();
        planned.apply(&device, &MemoryDevice::new(undo::file_size(&planned.changes))).unwrap();
        before.assert_same(&snapshot(device.fork()));
        if planned.after.count() == 0 {
            assert_eq!(complaint(&device, &hurt), None);
        }
        tried += 1;
    }
    assert!(tried > 0);
}

/// A file of one block whose pointer leads to that of another one: the other one keeps it.
#[test]
fn the_map_of_a_file_is_not_corrected_for_that_of_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    for args in [POINTERS, EXTENTS] {
        mke2fs(&path, 8 << 20, args);
        let mount = KernelMount::new(&path, "");
        for number in 0..64 {
            std::fs::write(mount.path().join(number.to_string()), [number; 900]).unwrap();
        }
        mount.unmount();
        let sound = read_image(&path).unwrap();
        let before = snapshot(sound.fork());
        let of: Vec<u64> = (0..64).map(|number| last_block(&path, &format!("/{number}"))).collect();
        let mut tried = 0;
        for (number, block) in of.iter().enumerate().step_by(3) {
            let at = place_of(&path, &format!("/{number}")) + I_BLOCK;
            let at = if args == POINTERS { at } else { at + 12 + 8 };
            for bit in (0..13).filter(|bit| of.contains(&(block ^ 1 << bit))) {
                let device = flipped(&sound, at, bit);
                let (_, after) = repaired(&device, Scope::All).unwrap();
                let name = number.to_string();
                before
                    .clone()
                    .without(name.as_bytes())
                    .assert_same(&snapshot(after).without(name.as_bytes()));
                let planned = plan(device.fork(), Scope::Accounting).unwrap();
                let kept = device.fork();
                let undo = MemoryDevice::new(undo::file_size(&planned.changes));
                planned.apply(&kept, &undo).unwrap();
                before
                    .clone()
                    .without(name.as_bytes())
                    .assert_same(&snapshot(kept).without(name.as_bytes()));
                tried += 1;
            }
        }
        assert!(tried > 10, "{args:?}: {tried}");
    }
}

/// A wrong count of blocks is set, also beside a wrong bit of another map: no file is cut for it.
#[test]
fn a_wrong_count_of_blocks_cuts_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let [path, half, hurt] = ["image", "half", "hurt"].map(|name| dir.path().join(name));
    for args in [POINTERS, EXTENTS] {
        image(&path, args);
        let before = snapshot(read_image(&path).unwrap());
        let place = place_of(&path, "/file") + I_BLOCK + if args == EXTENTS { 12 + 9 } else { 1 };
        let name = "\"/tree/a name of some length 7\"";
        for count in ["0", "6", "10"] {
            let counted = injected(&path, &half, &format!("sif {name} blocks {count}"));
            for device in [counted.fork(), flipped(&counted, place, 6)] {
                let (_, after) = repaired(&device, Scope::Accounting).unwrap();
                before.assert_same(&snapshot(after.fork()));
                assert_eq!(complaint(&after, &hurt), None, "{args:?}: {count}");
            }
        }
    }
}

/// The map of a directory, and a block that another file has.
#[test]
fn a_wrong_bit_of_a_directory_is_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, EXTENTS);
    let sound = read_image(&path).unwrap();
    let before = snapshot(sound.fork());
    let root = place_of(&path, "/tree") + I_BLOCK + 12;
    let first = judge::run("debugfs", ["-R", "bmap /tree 0", path.to_str().unwrap()]);
    println!("the directory begins at {first}");
    for bit in (48..96).step_by(step()) {
        let what = format!("bit {bit}");
        assert_corrected(&flipped(&sound, root, bit), &before, &hurt, &what);
    }
}

/// The indirect block of a file is one bit away from contents that only it leads to.
#[test]
fn a_wrong_bit_may_lead_to_contents_of_the_file_itself() {
    let dir = tempfile::tempdir().unwrap();
    let [path, moved, hurt] = ["image", "moved", "hurt"].map(|name| dir.path().join(name));
    image(&path, POINTERS);
    let blocks = debugfs(&path, "blocks /file");
    let blocks: Vec<u64> = blocks.split_whitespace().filter_map(|one| one.parse().ok()).collect();
    // 12 blocks of contents, the indirect one, and those that it leads to.
    let (indirect, below) = (blocks[12], &blocks[13..]);
    let place = place_of(&path, "/file") + I_BLOCK + 12 * 4;
    let is_free = |block: u64| debugfs(&path, &format!("testb {block}")).contains("not in use");
    let mut tried = 0;
    for (leads, bit) in
        below.iter().step_by(5).flat_map(|leads| [7, 9, 10, 11].map(|b| (*leads, b)))
    {
        let there = leads ^ 1 << bit;
        if !is_free(there) {
            continue;
        }
        std::fs::copy(&path, &moved).unwrap();
        for request in [format!("setb {there}"), format!("freeb {indirect}")] {
            judge::run("debugfs", ["-w", "-R", &request, moved.to_str().unwrap()]);
        }
        let sound = read_image(&moved).unwrap();
        let pointers = sound.read_at(indirect * 1024, 1024).unwrap().to_vec();
        sound.write_at(there * 1024, pointers).unwrap();
        sound.write_at(place, u32::try_from(there).unwrap().to_le_bytes().to_vec()).unwrap();
        assert_eq!(complaint(&sound, &hurt), None, "{there}");
        let device = flipped(&sound, place, bit);
        assert_corrected(&device, &snapshot(sound), &hurt, &format!("{there} as {leads}"));
        tried += 1;
    }
    assert!(tried > 5, "{tried} bits");
}
