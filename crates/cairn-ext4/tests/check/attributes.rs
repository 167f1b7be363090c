//! Entries of attributes that no reader accepts: found, and removed with their names in the list.

use std::path::Path;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{self, KernelMount, mke2fs};

use crate::repaired::{complaint, place_of, repaired, snapshot};

const MAGIC: [u8; 4] = [0, 0, 2, 0xea];
/// Version 2: the owner, user 1000, the group, the mask and others.
const ACL: &[(u16, u16, u32)] =
    &[(1, 6, !0), (2, 7, 1000), (4, 4, !0), (0x10, 7, !0), (0x20, 4, !0)];

/// A volume of a file with attributes: in its inode of so many bytes, or in a block.
fn volume(path: &Path, inode_size: &str) -> (MemoryDevice, u64) {
    volume_with(path, inode_size, "^metadata_csum")
}

fn volume_with(path: &Path, inode_size: &str, features: &str) -> (MemoryDevice, u64) {
    let args = ["-t", "ext4", "-b", "1024", "-I", inode_size, "-O", features];
    mke2fs(path, 8 << 20, &args);
    let mount = KernelMount::new(path, "");
    let file = mount.path().join("file");
    std::fs::write(&file, "contents").unwrap();
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(&file, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    let entries = ACL.iter().flat_map(|(tag, may, id)| {
        [&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat()
    });
    let list: Vec<u8> = 2_u32.to_le_bytes().into_iter().chain(entries).collect();
    set("user.d", b"11");
    set("system.posix_acl_access", &list);
    mount.unmount();
    let device = read_image(path).unwrap();
    let record = place_of(path, "/file");
    let said = judge::run("debugfs", ["-R", "stat /file", path.to_str().unwrap()]);
    let block = said.split("File ACL: ").nth(1).unwrap().split_whitespace().next().unwrap();
    let place = match block.parse().unwrap() {
        0 => {
            let bytes = device.read_at(record, 256).unwrap();
            let at = (128..200).find(|at| bytes[*at..*at + 4] == MAGIC).unwrap();
            record + at as u64 + 4
        }
        block => block * 1024 + 32_u64,
    };
    (device, place)
}

/// The entry with this prefix, and the end of all, counted from the first.
fn entry(device: &MemoryDevice, place: u64, index: u8) -> (u64, u64) {
    let bytes = device.read_at(place, 128).unwrap();
    let (mut at, mut found) = (0, None);
    while bytes[at..at + 4] != [0; 4] {
        if bytes[at + 1] == index {
            found = Some(at as u64);
        }
        at += (usize::from(bytes[at]) + 19) & !3;
    }
    (found.expect("an entry with this prefix"), at as u64)
}

#[test]
fn an_attribute_that_no_reader_accepts_is_removed_with_its_name_in_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let mut wrong = Vec::new();
    for inode_size in ["256", "128"] {
        let (sound, place) = volume(&path, inode_size);
        let (user, end) = entry(&sound, place, 1);
        let (list, _) = entry(&sound, place, 2);
        let word = sound.read_at(place + list + 2, 2).unwrap();
        let offset = u64::from(u16::from_le_bytes([word[0], word[1]]));
        let value = if inode_size == "256" { place + offset } else { place - 32 + offset };
        // The place, the bytes there, and how the list of losses names the attribute.
        let cases = [
            ("no prefix", place + user + 1, &[0_u8][..], "d of the prefix 0"),
            ("a NUL", place + user + 16, &[0], "user.\\x00"),
            ("behind the end", place + end + 1, &[1], "without a name behind 'user.'"),
            ("a wrong tag", value + 4, &[3], "system.posix_acl_access"),
            ("a wrong version", value, &[9], "system.posix_acl_access"),
            ("no entries", place + list + 8, &[4], "system.posix_acl_access"),
            ("another prefix", place + list + 1, &[1, 0, 0], "without a name behind 'user.'"),
            ("others twice", value + 4, &[0x20], "system.posix_acl_access"),
        ];
        for (what, at, bytes, name) in cases {
            let device = sound.fork();
            device.write_at(at, bytes.to_vec()).unwrap();
            let what = format!("{what}, inodes of {inode_size} bytes");
            let mut say = |said: String| wrong.push(format!("{what}: {said}"));
            match repaired(&device, Scope::Accounting) {
                Some((plan, _)) if plan.after.count() > 0 => {}
                Some(_) => say("not found, or mended without a loss".into()),
                None => say("refused".into()),
            }
            let Some((plan, after)) = repaired(&device, Scope::All) else {
                say("all is refused".into());
                continue;
            };
            let lost: Vec<_> = plan.steps.losing().map(ToString::to_string).collect();
            let loss = format!("Lost of /file: the extended attribute {name}.");
            if lost.len() != 1 || !lost.iter().any(|step| step.contains(&loss)) {
                say(format!("{loss} {lost:?}"));
            }
            if let Some(said) = complaint(&after, &hurt) {
                say(said);
            }
            // It reads all attributes of all files.
            snapshot(after);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a block that many inodes share loses is lost to each of them, in one round.
#[test]
fn a_damaged_block_that_many_inodes_share_is_taken_from_all() {
    const FILES: usize = 80;
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let args = ["-t", "ext4", "-b", "1024", "-I", "128", "-N", "256", "-O", "^metadata_csum"];
    mke2fs(&path, 8 << 20, &args);
    let mount = KernelMount::new(&path, "");
    for number in 0..FILES {
        let file = mount.path().join(number.to_string());
        std::fs::write(&file, "contents").unwrap();
        rustix::fs::setxattr(&file, "user.d", b"11", rustix::fs::XattrFlags::empty()).unwrap();
    }
    mount.unmount();
    let said = judge::run("debugfs", ["-R", "stat /7", path.to_str().unwrap()]);
    let block = said.split("File ACL: ").nth(1).unwrap().split_whitespace().next().unwrap();
    let block: u64 = block.parse().unwrap();
    let sound = read_image(&path).unwrap();
    let count = sound.read_at(block * 1024 + 4, 4).unwrap();
    assert_eq!(count[..], [FILES as u8, 0, 0, 0]);
    // Two bytes of the mark of the block, and one of them; the name of the attribute.
    for (at, bytes, lost) in [(2, vec![5; 2], FILES), (2, vec![5], 0), (32 + 16, vec![0], 1)] {
        let device = sound.fork();
        device.write_at(block * 1024 + at, bytes).unwrap();
        let (plan, after) = repaired(&device, Scope::All).unwrap();
        let listed = plan.steps.losing().filter(|step| step.loss.is_some());
        let listed: Vec<_> = listed.map(ToString::to_string).collect();
        assert_eq!(listed.len(), lost, "{listed:?}");
        let shared = format!("the extended attribute user.\\x00, which {FILES} inodes share.");
        assert!(lost != 1 || listed[0].ends_with(&shared), "{listed:?}");
        assert_eq!(complaint(&after, &hurt), None);
        snapshot(after);
    }
}

/// Without its mark, a list of attributes is none for all readers: what follows it proves it.
#[test]
fn a_wrong_byte_in_the_mark_of_attributes_costs_none() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for features in ["^metadata_csum", "metadata_csum"] {
        let (sound, place) = volume_with(&path, "256", features);
        let before = snapshot(sound.fork());
        for byte in 1..=4 {
            let device = sound.fork();
            device.write_at(place - byte, vec![0x55]).unwrap();
            let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
            let codes: Vec<_> = plan.before.counts.iter().map(|(kind, _)| kind.code).collect();
            let left = (codes, plan.after.count());
            assert_eq!(left, (vec!["ext4.xattr.mark"], 0), "{features}: {byte}");
            before.assert_same(&snapshot(after.fork()));
            assert_eq!(complaint(&after, &hurt), None, "{features}: {byte}");
        }
    }
}

/// Values lie side by side up to the end of their container.
#[test]
fn a_wrong_place_of_a_value_costs_none() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let mut wrong = Vec::new();
    for (inode_size, features) in [("256", "^metadata_csum"), ("128", "metadata_csum")] {
        let (sound, place) = volume_with(&path, inode_size, features);
        let before = snapshot(sound.fork());
        let (user, list) = (entry(&sound, place, 1).0, entry(&sound, place, 2).0);
        let field = |at: u64| {
            let bytes = sound.read_at(place + at + 2, 2).unwrap();
            u16::from_le_bytes([bytes[0], bytes[1]])
        };
        for (at, stored) in [user, list].into_iter().flat_map(|at| {
            let right = field(at);
            [right + 1, right ^ 2, right ^ 0x4000, 0].map(|stored| (at, stored))
        }) {
            let device = sound.fork();
            device.write_at(place + at + 2, stored.to_le_bytes().to_vec()).unwrap();
            let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
            let codes: Vec<_> = plan.before.counts.iter().map(|(kind, _)| kind.code).collect();
            before.assert_same(&snapshot(after.fork()));
            // A checksum tells one bit.
            let is_bit = codes == ["ext4.metadata.bit"] && features == "metadata_csum";
            if !(is_bit || codes == ["ext4.xattr.place"]) || plan.after.count() > 0 {
                wrong.push(format!("{features}: {at} -> {stored}: {codes:?}"));
            }
            wrong.extend(complaint(&after, &hurt));
        }
        // Of two wrong places no other value shows any: in inodes values have no hash.
        let device = sound.fork();
        for at in [user, list] {
            let stored = (field(at) - 1).to_le_bytes();
            device.write_at(place + at + 2, stored.to_vec()).unwrap();
        }
        let (plan, after) = repaired(&device, Scope::All).unwrap();
        let lost = plan.steps.losing().count();
        if lost == 0 {
            wrong.push(format!("{features}: nothing is lost"));
        }
        wrong.extend(complaint(&after, &hurt));
        snapshot(after);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Linux reads a list as if the bits beyond `rwx` were not there.
#[test]
fn permissions_beyond_rwx_in_an_access_control_list_cost_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let (sound, place) = volume(&path, "256");
    let (list, _) = entry(&sound, place, 2);
    let word = sound.read_at(place + list + 2, 2).unwrap();
    let at = place + u64::from(u16::from_le_bytes([word[0], word[1]])) + 6;
    let device = sound.fork();
    device.write_at(at, vec![6 | 0xc0, 0x80]).unwrap();
    let (plan, after) = repaired(&device, Scope::All).unwrap();
    assert_eq!((plan.before.count(), plan.changes.is_empty()), (0, true));
    snapshot(sound).assert_same(&snapshot(after));
}

/// A block of attributes that e2fsck would give up, or one hash of it: the entry of an empty value
/// with a place behind the block, and padding that the hash covers. Nothing is lost.
#[test]
fn the_place_of_an_empty_value_and_the_padding_of_others_are_mended() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    mke2fs(&path, 8 << 20, &["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^metadata_csum"]);
    let mount = KernelMount::new(&path, "");
    let file = mount.path().join("file");
    std::fs::write(&file, "contents").unwrap();
    for (name, value) in [("user.empty", ""), ("user.long", "12345")] {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&file, name, value.as_bytes(), flags).unwrap();
    }
    mount.unmount();
    let sound = read_image(&path).unwrap();
    let said = judge::run("debugfs", ["-R", "stat /file", path.to_str().unwrap()]);
    let block = said.split("File ACL: ").nth(1).unwrap().split_whitespace().next().unwrap();
    let block = block.parse::<u64>().unwrap() * 1024;
    let bytes = sound.read_at(block, 1024).unwrap().to_vec();
    let find =
        |what: &[u8]| bytes.windows(what.len()).position(|part| part == what).unwrap() as u64;
    let empty = find(b"empty") - 14;
    let padding = find(b"12345") + 5;
    let before = snapshot(sound.fork());
    for (what, at, new) in [
        ("behind the end", empty, &1025_u16.to_le_bytes()[..]),
        ("far behind the end", empty, &[0xff, 0xff]),
        ("the first byte of the padding", padding, &[1]),
        ("the last byte of the padding", padding + 2, &[0x80]),
    ] {
        let device = sound.fork();
        device.write_at(block + at, new.to_vec()).unwrap();
        assert!(complaint(&device, &hurt).is_some(), "{what}: e2fsck finds nothing");
        let (plan, after) = repaired(&device, Scope::Accounting).expect(what);
        assert!(plan.steps.losing().next().is_none(), "{what}");
        assert_eq!(complaint(&after, &hurt), None, "{what}");
        assert_eq!(snapshot(after), before, "{what}");
    }
    // The last place at which e2fsck finds nothing.
    let device = sound.fork();
    device.write_at(block + empty, 1024_u16.to_le_bytes().to_vec()).unwrap();
    assert_eq!(complaint(&device, &hurt), None);
    let found = crate::support::check(std::sync::Arc::new(device)).unwrap();
    assert_eq!(found.count(), 0);
}
