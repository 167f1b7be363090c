//! `rescue`: deleted files come back as they were, damaged volumes give what they have, existing
//! files stay, and the image is only read.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use cairn::{ImageSpec, OpenOptions};
use cairn_testkit::judge;
use cairn_vfs::{Caller, IoFlags, NewInode};
use serde_json::Value;

use crate::support::{cairn, cairn_as_user, in_dir, works};

/// Bytes that differ from file to file.
fn contents(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 ^ seed ^ (at as u8).wrapping_mul(31)).collect()
}

fn deleted(image: &str) -> Vec<Value> {
    let list: Value =
        serde_json::from_str(&works(&["rescue", "--json", "--deleted", image])).unwrap();
    list["deleted"].as_array().unwrap().clone()
}

fn named<'l>(list: &'l [Value], path: &str) -> &'l Value {
    list.iter().find(|one| one["path"] == path).unwrap_or_else(|| panic!("{path} in {list:?}"))
}

/// What a command deletes is discarded, and the note says so.
#[test]
fn nothing_is_left_of_what_was_discarded_and_the_note_says_why() {
    let (_dir, image) = in_dir("disk.img");
    works(&["mkfs", "-t", "f2fs", "--size", "64M", &image]);
    works(&["put", &image, "/etc/hostname", "/name"]);
    works(&["rm", &image, "/name"]);
    let said = works(&["rescue", "--deleted", &image]);
    assert!(
        said.contains("note: ") && said.contains("mounted with the option nodiscard"),
        "{said}"
    );
}

#[test]
fn the_kernel_s_deleted_files_come_back() {
    let (dir, image) = in_dir("disk.img");
    let path = Path::new(&image);
    judge::mke2fs(path, 32 << 20, &["-t", "ext4", "-b", "1024"]);
    let kernel = judge::KernelMount::new(path, "");
    std::fs::create_dir(kernel.path().join("letters")).unwrap();
    std::fs::write(kernel.path().join("letters/one.txt"), contents(1, 5000)).unwrap();
    std::fs::write(kernel.path().join("letters/two.bin"), contents(2, 300_000)).unwrap();
    std::fs::write(kernel.path().join("stays"), contents(3, 5000)).unwrap();
    judge::run("sync", ["-f", kernel.path().to_str().unwrap()]);
    std::fs::remove_file(kernel.path().join("letters/one.txt")).unwrap();
    std::fs::remove_file(kernel.path().join("letters/two.bin")).unwrap();
    kernel.unmount();
    let before = std::fs::read(path).unwrap();
    let list = deleted(&image);
    for (name, size) in [("letters/one.txt", 5000), ("letters/two.bin", 300_000)] {
        let one = named(&list, name);
        assert_eq!((&one["remains"], &one["size"]), (&"whole".into(), &size.into()), "{one}");
        assert!(one["deleted"].as_i64().unwrap() > 0, "{one}");
    }
    let out = dir.path().join("out");
    let to = out.to_str().unwrap();
    works(&["rescue", "--deleted", &image, "-o", to, "/letters/one.txt", "letters/two.bin"]);
    assert_eq!(std::fs::read(out.join("letters/one.txt")).unwrap(), contents(1, 5000));
    assert_eq!(std::fs::read(out.join("letters/two.bin")).unwrap(), contents(2, 300_000));
    assert!(!out.join("stays").exists());
    // Existing files are not replaced.
    works(&["rescue", "--deleted", &image, "-o", to, "/letters/one.txt"]);
    assert_eq!(std::fs::read_dir(out.join("letters")).unwrap().count(), 3);
    assert!(std::fs::read(path).unwrap() == before, "a rescue has written");
}

/// In one mount, because the next one begins the log of ext4 anew; without discard, after which the
/// image has holes where files of F2FS were.
#[test]
fn cairn_s_deleted_files_come_back() {
    let files = [("one", contents(4, 9000)), ("two", contents(5, 700_000))];
    for format in ["ext4", "f2fs"] {
        let (dir, image) = in_dir("disk.img");
        works(&["mkfs", "-t", format, "--size", "64M", &image]);
        let options = OpenOptions { mount_options: "nodiscard".into(), ..OpenOptions::default() };
        let volume = cairn::open(&ImageSpec::whole(&image), &options).unwrap();
        let fs = volume.filesystem();
        for (name, bytes) in &files {
            let (name, caller) = (name.as_bytes(), Caller::ROOT);
            let made = fs.create(fs.root(), name, NewInode::Regular, 0o640, &caller).unwrap();
            assert_eq!(fs.write(made.ino, 0, bytes, IoFlags::empty()).unwrap(), bytes.len());
            fs.fsync(made.ino, 0, false).unwrap();
            fs.forget(made.ino, 1);
        }
        fs.sync().unwrap();
        for (name, _) in &files {
            fs.unlink(fs.root(), name.as_bytes()).unwrap();
        }
        fs.unmount().unwrap();
        drop(volume);
        let list = deleted(&image);
        let out = dir.path().join("out");
        let to = out.to_str().unwrap();
        for (name, bytes) in &files {
            let one = named(&list, name);
            assert_eq!(
                (&one["remains"], &one["mode"]),
                (&"whole".into(), &"100640".into()),
                "{format}: {one}"
            );
            works(&["rescue", "--deleted", &image, "-o", to, name]);
            assert!(std::fs::read(out.join(name)).unwrap() == *bytes, "{format}: {name}");
        }
    }
}

/// debugfs leaves the map in the inode.
#[test]
fn files_that_debugfs_removed_come_back() {
    let (dir, image) = in_dir("disk.img");
    judge::mke2fs(Path::new(&image), 16 << 20, &["-t", "ext2"]);
    let file = dir.path().join("file");
    std::fs::write(&file, contents(6, 90_000)).unwrap();
    works(&["put", &image, file.to_str().unwrap(), "/gone"]);
    judge::run("debugfs", ["-w", "-R", "rm /gone", &image]);
    let list = deleted(&image);
    assert_eq!(list.len(), 1, "{list:?}");
    assert_eq!(list[0]["remains"], "whole", "{list:?}");
    let out = dir.path().join("out");
    let ino = list[0]["inode"].to_string();
    works(&["rescue", "--deleted", &image, "-o", out.to_str().unwrap(), &ino]);
    let path = list[0]["path"].as_str().map_or(format!("lost/{ino}"), str::to_owned);
    assert_eq!(std::fs::read(out.join(path)).unwrap(), contents(6, 90_000));
}

#[test]
fn a_sound_volume_comes_out_whole() {
    for format in ["ext4", "f2fs"] {
        let (dir, image) = in_dir("disk.img");
        works(&["mkfs", "-t", format, "--size", "64M", &image]);
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("a/b")).unwrap();
        std::fs::write(tree.join("a/file"), contents(7, 20_000)).unwrap();
        std::fs::hard_link(tree.join("a/file"), tree.join("a/b/same")).unwrap();
        symlink("file", tree.join("a/link")).unwrap();
        let sparse = std::fs::File::create(tree.join("a/sparse")).unwrap();
        sparse.set_len(5 << 20).unwrap();
        works(&["put", &image, tree.to_str().unwrap(), "/"]);
        let out = dir.path().join("out");
        let said = works(&["rescue", &image, "-o", out.to_str().unwrap()]);
        assert!(said.ends_with("; 0 losses\n"), "{format}: {said}");
        let top = out.join("tree");
        judge::run(
            "diff",
            ["-r", "--no-dereference", tree.to_str().unwrap(), top.to_str().unwrap()],
        );
        let same =
            |path: &str| std::os::unix::fs::MetadataExt::ino(&top.join(path).metadata().unwrap());
        assert_eq!(same("a/file"), same("a/b/same"), "{format}");
    }
}

#[test]
fn a_damaged_volume_gives_what_it_has() {
    let (dir, image) = in_dir("disk.img");
    judge::mke2fs(Path::new(&image), 24 << 20, &["-t", "ext4", "-b", "1024"]);
    let file = dir.path().join("file");
    std::fs::write(&file, contents(8, 9000)).unwrap();
    works(&["mkdir", &image, "/d"]);
    works(&["put", &image, file.to_str().unwrap(), "/d/kept"]);
    works(&["put", &image, file.to_str().unwrap(), "/d/cleared"]);
    judge::run("debugfs", ["-w", "-R", "clri /d/cleared", &image]);
    let out = dir.path().join("out");
    let to = out.to_str().unwrap();
    let (status, stdout, stderr) = cairn(&["rescue", "--json", &image, "-o", to]);
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (status, &document["status"], &document["losses"]),
        (1, &1.into(), &1.into()),
        "{stderr}"
    );
    assert_eq!(document["lost"][0]["path"], "d/cleared");
    assert_eq!(std::fs::read(out.join("d/kept")).unwrap(), contents(8, 9000));
    let (status, stdout, _) = cairn(&["rescue", &image, "-o", to]);
    assert!(status == 1 && stdout.contains("lost: /d/cleared (inode "), "{stdout}");
    let (status, _, said) = cairn(&["rescue", &image]);
    assert!(status == 2 && said.contains("give a directory with -o"), "{said}");
}

/// A name with a slash, and one that leads out of the directory.
#[test]
fn hostile_names_and_links_stay_in_the_directory() {
    let (dir, image) = in_dir("disk.img");
    judge::mke2fs(Path::new(&image), 8 << 20, &["-t", "ext2", "-b", "1024"]);
    let file = dir.path().join("file");
    std::fs::write(&file, b"hostile").unwrap();
    works(&["put", &image, file.to_str().unwrap(), "/xx0sneaky"]);
    works(&["mkdir", &image, "/way"]);
    works(&["put", &image, file.to_str().unwrap(), "/way/out"]);
    // The name becomes "../sneaky" on the disk.
    let mut bytes = std::fs::read(&image).unwrap();
    let at = bytes.windows(9).position(|window| window == b"xx0sneaky").unwrap();
    bytes[at..at + 9].copy_from_slice(b"../sneaky");
    std::fs::write(&image, bytes).unwrap();
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let elsewhere = dir.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, out.join("way")).unwrap();
    works(&["rescue", &image, "-o", out.to_str().unwrap()]);
    assert!(!dir.path().join("sneaky").exists());
    assert_eq!(std::fs::read(out.join(".._sneaky")).unwrap(), b"hostile");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0, "a link was followed");
    let names = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
    let way = names.into_iter().find(|path| path.to_str().unwrap().contains("/way~")).unwrap();
    assert_eq!(std::fs::read(way.join("out")).unwrap(), b"hostile");
}

/// A device reads whole sectors only; the last block of most files is not full.
#[test]
fn a_block_device_gives_every_byte() {
    let (dir, image) = in_dir("disk.img");
    let source = dir.path().join("source");
    std::fs::write(&source, contents(6, 299_999)).unwrap();
    works(&["mkfs", "--size", "64M", &image]);
    works(&["put", &image, source.to_str().unwrap(), "/file"]);
    let device = judge::LoopDevice::attach(Path::new(&image), true);
    let out = dir.path().join("out");
    works(&["rescue", device.path().to_str().unwrap(), "-o", out.to_str().unwrap()]);
    assert_eq!(std::fs::read(out.join("file")).unwrap(), contents(6, 299_999));
}

/// The program would run as the user who has rescued it.
#[test]
fn a_set_id_bit_is_kept_only_with_its_owner() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "64M", &image]);
    works(&["touch", &image, "/file"]);
    works(&["chown", &image, "1234:1234", "/file"]);
    works(&["chmod", &image, "6755", "/file"]);
    let host = dir.path().join("host");
    std::fs::create_dir(&host).unwrap();
    std::fs::set_permissions(&host, PermissionsExt::from_mode(0o777)).unwrap();
    let out = host.join("out");
    let words = ["rescue", &image, "-o", out.to_str().unwrap()];
    let (status, said) = cairn_as_user(dir.path(), &image, &words);
    assert_eq!((status, said.as_str()), (0, ""));
    let mode = std::fs::metadata(out.join("file")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

/// Without checksums only its places tell that a descriptor is lost.
#[test]
fn descriptors_without_checksums_come_from_a_backup() {
    let (dir, image) = in_dir("disk.img");
    let features = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^uninit_bg"];
    judge::mke2fs(Path::new(&image), 20 << 20, &features);
    let source = dir.path().join("source");
    std::fs::write(&source, contents(7, 90_000)).unwrap();
    works(&["put", &image, source.to_str().unwrap(), "/file"]);
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[2048..3072].fill(0);
    std::fs::write(&image, bytes).unwrap();
    let out = dir.path().join("out");
    let said = works(&["rescue", &image, "-o", out.to_str().unwrap()]);
    let note = "note: the descriptors of 3 of 3 groups are damaged: those of a backup are used\n";
    assert!(said.starts_with(note) && said.ends_with("; 0 losses\n"), "{said}");
    assert_eq!(std::fs::read(out.join("file")).unwrap(), contents(7, 90_000));
}

/// mke2fs takes any size of groups, so a backup may be anywhere.
#[test]
fn a_backup_in_an_unusual_place_is_found() {
    let (dir, image) = in_dir("disk.img");
    let size = ["-t", "ext4", "-b", "1024", "-g", "4096"];
    judge::mke2fs(Path::new(&image), 20 << 20, &size);
    let source = dir.path().join("source");
    std::fs::write(&source, contents(8, 90_000)).unwrap();
    works(&["put", &image, source.to_str().unwrap(), "/file"]);
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[1024..2048].fill(0);
    std::fs::write(&image, bytes).unwrap();
    let (status, said, _) = cairn(&["check", &image]);
    assert!(status == 4 && said.starts_with("ext4.superblock.damaged: "), "{status}: {said}");
    let ways: [(&str, &[&str]); 2] = [("out", &[]), ("named", &["--superblock", "4097"])];
    for (name, words) in ways {
        let out = dir.path().join(name);
        let words = [&["rescue", &image, "-o", out.to_str().unwrap()], words].concat();
        let said = works(&words);
        assert_eq!(said.contains("that of group 1, at byte 4195328"), name == "out", "{said}");
        assert_eq!(std::fs::read(out.join("file")).unwrap(), contents(8, 90_000));
    }
    let nothing = dir.path().join("nothing.img");
    std::fs::write(&nothing, vec![7; 1 << 20]).unwrap();
    let out = dir.path().join("no");
    let (status, _, said) =
        cairn(&["rescue", nothing.to_str().unwrap(), "-o", out.to_str().unwrap()]);
    assert!(status == 8 && said.contains("is left in all of its 1.0 MiB"), "{said}");
}
