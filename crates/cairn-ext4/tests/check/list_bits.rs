//! Single bits of `i_file_acl`, the place of an inode's attribute block, where no checksum tells
//! them. A repair without losses sets the bit right or changes nothing of what is in doubt; one
//! with losses names the file. All other files keep their contents and attributes.

use std::path::Path;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::undo;
use cairn_check::repair::{Plan, Scope};
use cairn_testkit::crash::read_image;
use cairn_testkit::deep;
use cairn_testkit::judge::{KernelMount, debugfs, mke2fs};
use cairn_testkit::tree::Snapshot;

use crate::repaired::{complaint, place_of, plan, repaired, snapshot};

const LAYOUTS: &[&[&str]] = &[
    &["-t", "ext2", "-b", "1024", "-I", "128", "-N", "256"],
    &["-t", "ext3", "-b", "1024", "-I", "256", "-N", "256"],
    &["-t", "ext4", "-b", "1024", "-I", "128", "-N", "256", "-O", "^metadata_csum,64bit"],
];
const SIZE: u64 = 20 << 20;
/// `i_file_acl_lo` and `l_i_file_acl_high` of an inode.
const LOW: u64 = 104;
const HIGH: u64 = 118;

fn set(file: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(file, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

/// An access control list with which a file has the mode `0o6?4`: a user has these permissions.
fn list(mask: u16) -> Vec<u8> {
    let all = [(1, 6, !0), (2, mask, 1000), (4, 4, !0), (0x10, mask, !0), (0x20, 4, !0)];
    let entries = all.iter().flat_map(|(tag, may, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat()
    });
    2_u32.to_le_bytes().into_iter().chain(entries).collect()
}

/// Files with attributes of their own, with the same, with access control lists, and without; and a
/// block of attributes that is free.
fn volume(path: &Path, args: &[&str]) {
    mke2fs(path, SIZE, args);
    let mount = KernelMount::new(path, "");
    let at = |name: &str| mount.path().join(name);
    for number in 0..12 {
        let name = format!("own{number}");
        std::fs::write(at(&name), vec![number; 700 * usize::from(number)]).unwrap();
        set(&at(&name), "user.own", &[number; 150]);
    }
    for number in 0..3 {
        let name = format!("same{number}");
        std::fs::write(at(&name), name.as_bytes()).unwrap();
        set(&at(&name), "user.same", &[b's'; 150]);
    }
    for (number, mask) in [4, 6, 7, 5].into_iter().enumerate() {
        let name = format!("list{number}");
        std::fs::write(at(&name), name.as_bytes()).unwrap();
        set(&at(&name), "user.long", &[b'l'; 120]);
        set(&at(&name), "system.posix_acl_access", &list(mask));
    }
    std::fs::create_dir(at("directory")).unwrap();
    set(&at("directory"), "user.directory", &[b'd'; 150]);
    std::fs::write(at("bare"), vec![b'b'; 30_000]).unwrap();
    std::fs::write(at("empty"), "").unwrap();
    for number in 0..4 {
        let name = format!("gone{number}");
        std::fs::write(at(&name), "gone").unwrap();
        set(&at(&name), "user.gone", &[number; 150]);
    }
    mount.unmount();
    let mount = KernelMount::new(path, "");
    for number in 0..4 {
        std::fs::remove_file(mount.path().join(format!("gone{number}"))).unwrap();
    }
    mount.unmount();
}

/// The attribute block of a file.
fn list_of(image: &Path, name: &str) -> u64 {
    let said = debugfs(image, &format!("stat /{name}"));
    let block = said.split("File ACL: ").nth(1).unwrap().split_whitespace().next().unwrap();
    block.parse().unwrap()
}

fn flipped(sound: &MemoryDevice, record: u64, bit: u64) -> MemoryDevice {
    let device = sound.fork();
    let at = record + if bit < 32 { LOW + bit / 8 } else { HIGH + (bit - 32) / 8 };
    let byte = device.read_at(at, 1).unwrap()[0];
    device.write_at(at, vec![byte ^ 1 << (bit % 8)]).unwrap();
    device
}

fn applied(device: &MemoryDevice, plan: &Plan) -> MemoryDevice {
    let after = device.fork();
    plan.apply(&after, &MemoryDevice::new(undo::file_size(&plan.changes))).unwrap();
    after
}

/// A file with one wrong bit.
struct Case<'a> {
    name: &'a str,
    /// The right block, and the stored one.
    right: u64,
    stored: u64,
    what: &'a str,
    hurt: &'a Path,
}

/// Does a repair without losses set the bit right? What is wrong with the repairs goes to a list.
fn is_corrected(
    case: &Case<'_>,
    device: &MemoryDevice,
    before: &Snapshot,
    wrong: &mut Vec<String>,
) -> bool {
    let Case { name, what, .. } = *case;
    let mut say = |said: String| wrong.push(format!("{what}: {said}"));
    let others = |of: &Snapshot| of.clone().without(name.as_bytes());
    let safe = plan(device.fork(), Scope::Accounting).unwrap();
    let after = applied(device, &safe);
    let is_corrected = safe.after.count() == 0;
    if !plan(after.fork(), Scope::Accounting).unwrap().changes.is_empty() {
        say("a second repair without losses".into());
    }
    let codes = |plan: &Plan| -> Vec<&str> {
        plan.before.counts.iter().map(|(kind, _)| kind.code).collect()
    };
    if is_corrected {
        if snapshot(after.fork()) != *before {
            say(format!("mended as a count: {:?}", codes(&safe)));
        }
        if !codes(&safe).contains(&"ext4.map.bit") {
            say(format!("no bit: {:?}", codes(&safe)));
        }
    } else if case.right != 0 {
        // What is in doubt stays: both blocks, and the mark of the right one.
        std::fs::write(case.hurt, after.read_at(0, SIZE as usize).unwrap()).unwrap();
        let said = debugfs(case.hurt, &format!("testb {}", case.right));
        if said.contains("not in use") {
            say("the right block is free".into());
        }
        for block in [case.right, case.stored].into_iter().filter(|block| *block < SIZE / 1024) {
            let bytes = |of: &MemoryDevice| of.read_at(block * 1024, 1024).unwrap();
            if bytes(device)[..] != bytes(&after)[..] && block > 2 {
                say(format!("block {block} changes"));
            }
        }
    }
    let Some((all, after)) = repaired(device, Scope::All) else {
        say("refused".into());
        return is_corrected;
    };
    let now = snapshot(after.fork());
    if others(&now) != others(before) {
        say("another file changes".into());
    }
    let lost: Vec<String> = all.steps.losing().map(ToString::to_string).collect();
    let is_named = lost.iter().any(|step| step.contains(&format!("Lost of /{name}: ")));
    if is_corrected != lost.is_empty() || now != *before && !is_named {
        say(format!("not named: {lost:?}"));
    }
    if let Some(said) = complaint(&after, case.hurt) {
        say(said);
    }
    is_corrected
}

/// Files whose bits are tried.
const NAMES: &[&str] =
    &["own1", "own6", "same0", "same2", "list0", "list1", "directory", "bare", "empty"];

#[test]
fn a_wrong_bit_of_the_place_of_attributes_changes_no_other_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let (mut wrong, mut tried, mut corrected) = (Vec::new(), 0, 0);
    for (layout, args) in LAYOUTS.iter().enumerate() {
        volume(&path, args);
        let sound = read_image(&path).unwrap();
        let before = snapshot(sound.fork());
        assert_eq!(complaint(&sound, &hurt), None);
        let bits = if layout == 2 { 48 } else { 32 };
        for (index, name) in NAMES.iter().enumerate() {
            let right = list_of(&path, name);
            let record = place_of(&path, &format!("/{name}"));
            for bit in 0..bits {
                if !deep() && !(bit as usize + index + layout).is_multiple_of(4) {
                    continue;
                }
                let device = flipped(&sound, record, bit);
                let stored = right ^ 1 << bit;
                let what = format!("{args:?}: {name}, {right} -> {stored}");
                let case = Case { name, right, stored, what: &what, hurt: &hurt };
                tried += 1;
                let is_right = is_corrected(&case, &device, &before, &mut wrong);
                corrected += usize::from(is_right);
                if !is_right {
                    println!("{what}: not corrected");
                }
            }
        }
    }
    println!("{corrected} of {tried} corrected");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(corrected * 10 > tried * 9, "{corrected} of {tried}");
}

/// Of the files that have a block, the one whose mode is not that of the list in it is wrong.
#[test]
fn the_mode_of_a_file_proves_its_access_control_list() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let mut tried = 0;
    for args in LAYOUTS {
        volume(&path, args);
        let sound = read_image(&path).unwrap();
        let before = snapshot(sound.fork());
        let names = ["list0", "list1", "list2", "list3"];
        let lists = names.map(|name| list_of(&path, name));
        for (name, right) in names.iter().zip(lists) {
            for stored in lists.into_iter().filter(|other| (other ^ right).is_power_of_two()) {
                let record = place_of(&path, &format!("/{name}"));
                let device = flipped(&sound, record, (stored ^ right).trailing_zeros().into());
                let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
                let codes: Vec<_> = plan.before.counts.iter().map(|(kind, _)| kind.code).collect();
                assert_eq!(codes, ["ext4.map.bit"], "{args:?}: {name}, {right} -> {stored}");
                before.assert_same(&snapshot(after.fork()));
                assert_eq!(complaint(&after, &hurt), None, "{args:?}: {name}");
                tried += 1;
            }
        }
    }
    assert!(tried > 8, "{tried}");
}

/// After a power cut without a journal, the block that nobody has may be that of a deleted file.
#[test]
fn what_was_left_in_use_without_a_journal_proves_no_place_of_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    volume(&path, LAYOUTS[0]);
    let sound = read_image(&path).unwrap();
    // s_state: not valid.
    sound.write_at(1024 + 58, vec![0, 0]).unwrap();
    let before = snapshot(sound.fork()).without(b"own1");
    let (right, record) = (list_of(&path, "own1"), place_of(&path, "/own1"));
    for bit in 0..32 {
        let what = format!("{right} -> {}", right ^ 1 << bit);
        let device = flipped(&sound, record, bit);
        let safe = plan(device.fork(), Scope::Accounting).unwrap();
        assert!(safe.after.count() > 0, "{what}");
        let after = applied(&device, &safe);
        let acl = |of: &MemoryDevice| of.read_at(record + LOW, 4).unwrap().to_vec();
        assert_eq!(acl(&after), acl(&device), "{what}");
        std::fs::write(&hurt, after.read_at(0, SIZE as usize).unwrap()).unwrap();
        assert!(!debugfs(&hurt, &format!("testb {right}")).contains("not in use"), "{what}");
        let (all, after) = repaired(&device, Scope::All).unwrap();
        let lost: Vec<_> = all.steps.losing().map(ToString::to_string).collect();
        assert!(lost.iter().any(|step| step.contains("Lost of /own1: ")), "{what}: {lost:?}");
        before.assert_same(&snapshot(after.fork()).without(b"own1"));
        assert_eq!(complaint(&after, &hurt), None, "{what}");
    }
}

/// Each of several files with a wrong bit gets its own block.
#[test]
fn wrong_bits_of_several_places_of_attributes_are_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for args in LAYOUTS {
        volume(&path, args);
        let sound = read_image(&path).unwrap();
        let before = snapshot(sound.fork());
        let names = ["own1", "own6", "same0", "list2", "directory", "bare", "empty"];
        let device = names.iter().zip([13, 12, 20, 14, 15, 9, 6]).fold(sound, |device, hit| {
            let (name, bit) = hit;
            flipped(&device, place_of(&path, &format!("/{name}")), bit)
        });
        let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
        assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0), "{args:?}");
        before.assert_same(&snapshot(after.fork()));
        assert_eq!(complaint(&after, &hurt), None, "{args:?}");
    }
}
