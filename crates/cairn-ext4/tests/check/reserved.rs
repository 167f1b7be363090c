//! The inodes that belong to the volume, and what the superblock says of them.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_ext4::{Ext4, MountOptions};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{KernelMount, dumpe2fs, e2fsck_check, mke2fs};

use crate::checked::assert_clean;
use crate::repaired::{complaint, injected, place_of, repaired, snapshot};
use crate::support::{check, flags};

const ARGS: &[&str] = &["-t", "ext4", "-b", "1024", "-N", "512", "-O", "orphan_file"];

fn volume(at: &Path) -> MemoryDevice {
    mke2fs(at, 16 << 20, ARGS);
    let mount = KernelMount::new(at, "");
    std::fs::create_dir(mount.path().join("dir")).unwrap();
    for number in 0..20 {
        std::fs::write(mount.path().join(format!("dir/file{number}")), "contents").unwrap();
    }
    mount.unmount();
    read_image(at).unwrap()
}

/// What makes an inode of the volume another one, and whether e2fsck sees it.
const REQUESTS: &[&str] = &[
    "sif <7> mode 0",
    "sif <7> flags 0x80000",
    "sif <7> links_count 0",
    "sif <7> size 5",
    "sif <2> links_count 1",
    "sif <8> links_count 0",
    "sif <8> mode 0",
    "sif <9> mode 0100644",
    "sif <1> mode 0100600",
    "sif <12> size 0",
    "sif <12> size 1024",
    "sif <12> size 99999",
    "sif <12> flags 0",
    "sif <12> mode 0",
    "sif <12> mode 040755",
    "sif <12> links_count 0",
    "clri <12>",
    "clri <8>",
    "clri <7>",
];

#[test]
fn an_inode_of_the_volume_that_is_another_one_is_found_and_mended() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, hurt) = (dir.path().join("sound"), dir.path().join("hurt"));
    let before = snapshot(volume(&sound));
    let mut wrong = Vec::new();
    for request in REQUESTS {
        let device = injected(&sound, &hurt, request);
        write_image(&device, &hurt).unwrap();
        let is_clean = e2fsck_check(&hurt).is_clean();
        let found = check(std::sync::Arc::new(device.fork()));
        if !is_clean && !flags(&found) {
            wrong.push(format!("{request}: e2fsck finds what the check does not"));
        }
        for scope in [Scope::Accounting, Scope::All] {
            let Some((plan, after)) = repaired(&device, scope) else {
                wrong.push(format!("{request}, {scope:?}: refused"));
                continue;
            };
            let is_left = plan.after.count() > 0;
            if is_left && scope == Scope::Accounting {
                continue;
            }
            if let Some(said) = complaint(&after, &hurt) {
                wrong.push(format!("{request}, {scope:?}: {said}"));
            }
            before.assert_same(&snapshot(after));
            let keeps = dumpe2fs(&hurt).contains("Orphan file inode:");
            if !keeps && *request != "clri <12>" {
                wrong.push(format!("{request}, {scope:?}: the file of orphans is gone"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), REQUESTS.len(), wrong.join("\n"));
}

/// Writes the superblock with other feature flags, sealed.
fn with_features(device: &MemoryDevice, at: usize, change: impl Fn(u32) -> u32) -> MemoryDevice {
    let device = device.fork();
    let mut bytes = device.read_at(1024, 1024).unwrap().to_vec();
    let old = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    bytes[at..at + 4].copy_from_slice(&change(old).to_le_bytes());
    let sum = cairn_base::checksum::crc32c(!0, &bytes[..1020]);
    bytes[1020..].copy_from_slice(&sum.to_le_bytes());
    device.write_at(1024, bytes).unwrap();
    device
}

const RO_COMPAT: usize = 100;
const GDT_CSUM: u32 = 0x10;
const ORPHAN_PRESENT: u32 = 0x1_0000;

#[test]
fn two_kinds_of_checksums_at_once_are_found_and_mended() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("image");
    let device = with_features(&volume(&at), RO_COMPAT, |old| old | GDT_CSUM);
    assert!(flags(&check(std::sync::Arc::new(device.fork()))));
    let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
    assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0));
    assert_eq!(complaint(&after, &at), None);
    let raw = after.read_at(1024 + RO_COMPAT as u64, 4).unwrap();
    assert_eq!(u32::from_le_bytes(raw[..4].try_into().unwrap()) & GDT_CSUM, 0);
}

/// Without the mark, Linux does not look into the file of orphans, and what waits there stays.
#[test]
fn orphans_without_their_mark_are_found_and_ended() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("image");
    volume(&at);
    let mount = KernelMount::new(&at, "");
    let path = mount.path().join("dir/open");
    let file = std::fs::File::create(&path).unwrap();
    file.sync_all().unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::File::open(mount.path().join("dir")).unwrap().sync_all().unwrap();
    let crashed = read_image(&at).unwrap();
    drop(file);
    mount.unmount();
    // Replayed, but not finished.
    write_image(&crashed, &at).unwrap();
    let replayed = injected(&at, &dir.path().join("replayed"), "jr");
    let device = with_features(&replayed, RO_COMPAT, |old| old & !ORPHAN_PRESENT);
    let found = check(std::sync::Arc::new(device.fork())).unwrap();
    assert!(found.counts.iter().any(|(kind, _)| kind.code.starts_with("ext4.orphan.")));
    let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
    assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0));
    assert_eq!(complaint(&after, &at), None);
}

/// With clusters, each block that the resize inode lists counts as one.
#[test]
fn a_resize_inode_counts_clusters() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, hurt) = (dir.path().join("sound"), dir.path().join("hurt"));
    let args = ["-t", "ext4", "-b", "2048", "-O", "bigalloc,resize_inode", "-C", "8192"];
    mke2fs(&sound, 256 << 20, &args);
    for (request, code) in
        [("sif <7> blocks 508", "ext4.inode.blocks"), ("clri <7>", "ext4.inode.resize")]
    {
        let device = injected(&sound, &hurt, request);
        assert!(!e2fsck_check(&hurt).is_clean(), "{request}");
        let (plan, after) = repaired(&device, Scope::Accounting).expect(request);
        let codes: Vec<_> = plan.steps.kept().iter().map(|step| step.kind.code).collect();
        assert!(codes.contains(&code) && plan.after.count() == 0, "{request}: {codes:?}");
        let said = complaint(&after, &hurt);
        assert!(said.is_none(), "{request}: {}", said.unwrap_or_default());
    }
}

/// What a mount refuses of a file that belongs to the volume, a check finds and a repair mends.
#[test]
fn what_a_mount_refuses_of_the_volumes_files_is_mended() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, hurt) = (dir.path().join("sound"), dir.path().join("hurt"));
    let features = ["-O", "orphan_file,quota,project", "-E", "quotatype=usrquota:prjquota"];
    mke2fs(&sound, 16 << 20, &[ARGS, &features].concat());
    let said = dumpe2fs(&sound);
    let number = |before: &str| -> u64 {
        let line = said.lines().find_map(|line| line.strip_prefix(before));
        line.expect(before).trim().parse().unwrap()
    };
    let orphans = number("Orphan file inode:");
    let project = number("Project quota inode:");
    let before = snapshot(read_image(&sound).unwrap());
    let long = "size 549755828224";
    let mut requests = vec![
        format!("sif <{project}> links_count 0"),
        format!("sif <{project}> {long}"),
        format!("sif <3> {long}"),
    ];
    for ino in [3, 8, orphans, project] {
        // The first block of the first extent, and its length: unwritten.
        for change in ["block[3] 1", "block[3] 65535", "block[4] 32769"] {
            requests.push(format!("sif <{ino}> {change}"));
        }
    }
    let mut wrong = Vec::new();
    for request in &requests {
        let device = injected(&sound, &hurt, request);
        let options = MountOptions::parse("ro").unwrap();
        let opened = Ext4::open(Arc::new(device.fork()), Threads::new(), &options);
        if opened.is_err() && !flags(&check(Arc::new(device.fork()))) {
            wrong.push(format!("{request}: no mount, and nothing is found"));
        }
        drop(opened);
        for scope in [Scope::Accounting, Scope::All] {
            let Some((plan, after)) = repaired(&device, scope) else {
                wrong.push(format!("{request}, {scope:?}: refused"));
                continue;
            };
            if scope == Scope::Accounting && plan.after.count() > 0 {
                continue;
            }
            if let Some(said) = complaint(&after, &hurt) {
                wrong.push(format!("{request}, {scope:?}: {said}"));
            }
            before.assert_same(&snapshot(after));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), requests.len(), wrong.join("\n"));
}

/// Of the list of bad blocks, and of limits that a volume does not have, the check finds what
/// e2fsck finds, and nothing that nobody looks at.
#[test]
fn fields_of_unused_inodes_that_nobody_reads_are_no_finding() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, hurt) = (dir.path().join("sound"), dir.path().join("hurt"));
    let mut wrong = Vec::new();
    for kind in ["ext2", "ext4"] {
        let checksums = if kind == "ext4" { "^metadata_csum" } else { "none,filetype" };
        mke2fs(&sound, 4 << 20, &["-t", kind, "-b", "1024", "-N", "64", "-O", checksums]);
        let device = read_image(&sound).unwrap();
        for ino in [1, 3, 4] {
            let record = place_of(&sound, &format!("<{ino}>"));
            // A block of the list of bad blocks may be one of the volume's structures.
            let fields = (0..40).chain(100..132);
            let bits = |at| if (32..36).contains(&at) { 0..8 } else { ino % 7..ino % 7 + 1 };
            for (at, bit) in fields.flat_map(|at| bits(at).map(move |bit| (at, bit))) {
                let changed = device.fork();
                let byte = changed.read_at(record + at, 1).unwrap()[0];
                changed.write_at(record + at, vec![byte ^ 1 << bit]).unwrap();
                let said = complaint(&changed, &hurt);
                let found = flags(&check(Arc::new(changed)));
                if said.is_some() != found {
                    wrong.push(format!("{kind}, inode {ino}, byte {at}, bit {bit}: {said:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// mke2fs lists bad blocks also where copies of the superblock are.
#[test]
fn bad_blocks_in_copies_of_the_superblock_are_sound() {
    let dir = tempfile::tempdir().unwrap();
    let (image, list) = (dir.path().join("image"), dir.path().join("list"));
    std::fs::write(&list, "8193\n8194\n20000\n24577\n33000\n").unwrap();
    let list = list.to_str().unwrap();
    for kind in ["ext2", "ext4"] {
        mke2fs(&image, 48 << 20, &["-t", kind, "-b", "1024", "-l", list]);
        assert_clean(&image);
        let device = read_image(&image).unwrap();
        let (plan, _) = repaired(&device, Scope::All).unwrap();
        assert!(plan.changes.is_empty(), "{kind}");
    }
}
