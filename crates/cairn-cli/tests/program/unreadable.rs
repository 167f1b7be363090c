//! What holds an image cannot be read: lost objects of a pool, a server with errors, a backing file
//! that is gone. It is an input/output error of that, and no repair of the filesystem helps.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use cairn_testkit::judge;

use crate::support::{cairn, fails, in_dir, works};

/// All files below a directory, by name.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// A command that reads fails as a device does.
#[track_caller]
fn fails_to_read(context: &str, words: &[&str]) -> Option<String> {
    let (status, _, said) = cairn(words);
    assert!(!said.contains("cairn check"), "{context}: {words:?}: {said}");
    assert!(!said.contains("damaged"), "{context}: {words:?}: {said}");
    assert!(matches!(status, 0 | 3 | 7), "{context}: {words:?}: {status}: {said}");
    (status != 0).then_some(said)
}

/// Every object of a volume is lost, or cut, in turn.
#[test]
fn a_lost_object_is_no_damage_of_the_filesystem() {
    for format in ["ext4", "f2fs"] {
        let (dir, pool) = in_dir("pool");
        let volume = format!("file-store://{pool}@v");
        let size = if format == "ext4" { "24M" } else { "64M" };
        works(&["mkfs", "-t", format, "--size", size, &volume]);
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        for number in 0..40 {
            fs::write(tree.join(format!("n{number}")), vec![number; 5000]).unwrap();
        }
        let out = dir.path().join("out");
        let (tree, out) = (tree.to_str().unwrap(), out.to_str().unwrap());
        let tar = &format!("{out}.tar");
        works(&["put", &volume, tree, "/"]);
        works(&["put", &volume, &format!("{tree}/n1"), "/alone"]);
        let mut lost = (0, 0, 0);
        for object in files(Path::new(&pool)) {
            let name = object.to_str().unwrap();
            if !name.contains("/log/") && !name.contains("/map/") {
                continue;
            }
            let whole = fs::read(&object).unwrap();
            for cut in [false, true] {
                match cut {
                    true => fs::write(&object, &whole[..whole.len() - 1]).unwrap(),
                    false => fs::remove_file(&object).unwrap(),
                }
                let context = format!("{format}: {name}: {cut}");
                let said = fails_to_read(&context, &["get", &volume, "/", out]);
                let _ = fs::remove_dir_all(out);
                if let Some(said) = said {
                    lost.0 += 1;
                    // The last part of a name is in every message about its object.
                    let end = object.file_name().unwrap().to_str().unwrap();
                    assert!(said.contains(end), "{context}: {said}");
                    assert!(said.contains("from a copy of the store"), "{context}: {said}");
                    if said.contains("skipped") {
                        lost.1 += 1;
                        assert!(said.contains("run cairn gc --verify"), "{context}: {said}");
                        let (status, _, said) = cairn(&["gc", "--verify", &volume]);
                        assert!(status == 4 && said.contains(end), "{context}: {status}: {said}");
                    }
                }
                if let Some(said) = fails_to_read(&context, &["export", "-o", tar, &volume]) {
                    assert!(said.contains("from a copy of the store"), "{context}: {said}");
                    assert!(said.contains(&volume) && !said.contains("inode"), "{context}: {said}");
                    lost.2 += 1;
                }
                let _ = fs::remove_file(tar);
                fails_to_read(&context, &["ls", "-lR", &volume, "/"]);
                fails_to_read(&context, &["cat", &volume, "/alone"]);
                fails_to_read(&context, &["find", &volume, "/"]);
                fs::write(&object, &whole).unwrap();
            }
        }
        assert!(lost.0 > 4 && lost.1 > 0 && lost.2 > 4, "{format}: {lost:?}");
        works(&["get", &volume, "/", out]);
    }
}

/// A volume that a writer has changed since it was opened is another matter than a lost object: the
/// library says which it is (`cairn-objects`, test `lost`).
#[test]
fn a_pool_that_cannot_be_made_says_where() {
    let said = fails(&["mkfs", "--size", "16M", "file-store:///proc/none@v"], 3);
    assert!(said.contains("the directory /proc/none cannot be made"), "{said}");
}

#[test]
fn a_missing_backing_file_is_named_with_its_place() {
    let (dir, image) = in_dir("upper.qcow2");
    let create = |name: &str| {
        let words = ["create", "-q", "-f", "qcow2", "-F", "raw", "-u", "-b", name, &image, "16M"];
        judge::run("qemu-img", words);
    };
    for name in ["gone.img", "below/gone.img"] {
        create(name);
        let said = fails(&["ls", &image], 3);
        let place = dir.path().join(name).display().to_string();
        assert!(
            said.contains(&format!("the backing file \"{name}\", which the header"))
                && said.contains(&format!("open {place}: no such file: put it there"))
                && said.contains("qemu-img rebase -u -F FORMAT -b NAME IMAGE")
                && !said.contains("make Cairn open other"),
            "{said}"
        );
    }
    // Of what is elsewhere nobody learns whether it is there.
    for name in ["/nowhere/at/all", "/etc/passwd", "../gone.img"] {
        create(name);
        let said = fails(&["ls", &image], 3);
        assert!(said.contains("make Cairn open other files: put it there"), "{said}");
    }
}

/// Of a chain of images, the one that is damaged is named, once.
#[test]
fn a_damaged_backing_file_is_named() {
    let (dir, upper) = in_dir("upper.qcow2");
    let at = |name: &str| dir.path().join(name).display().to_string();
    works(&["mkfs", "-t", "ext4", "--size", "16M", &at("raw.img")]);
    judge::run("qemu-img", ["convert", "-O", "qcow2", &at("raw.img"), &at("lower.qcow2")]);
    let over = |name: &str, below: &str| {
        judge::run("qemu-img", ["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", below, name]);
    };
    over(&at("middle.qcow2"), "lower.qcow2");
    over(&upper, "middle.qcow2");
    works(&["ls", &upper]);
    let lower = fs::OpenOptions::new().write(true).open(at("lower.qcow2")).unwrap();
    let size = lower.metadata().unwrap().len();
    lower.set_len(size / 2).unwrap();
    let (_, _, said) = cairn(&["get", &upper, "/", &at("out")]);
    let named = said.matches("the backing file").count();
    assert!(said.contains("the backing file \"lower.qcow2\"") && named == 1, "{said}");
    lower.write_all_at(&[0; 512], 0).unwrap();
    let said = fails(&["ls", &upper], 3);
    let named = said.matches("the backing file").count();
    assert!(said.contains("the backing file \"lower.qcow2\"") && named == 1, "{said}");
    // A loop.
    let loop_ = ["rebase", "-u", "-F", "qcow2", "-b", "upper.qcow2", &upper];
    judge::run("qemu-img", loop_);
    let said = fails(&["ls", &upper], 3);
    assert!(said.contains("back each other") && said.len() < 400, "{said}");
}

/// What a name says wrong is told before anybody is asked for a passphrase.
#[test]
fn an_offset_beyond_an_encrypted_disk_asks_for_nothing() {
    let (dir, image) = in_dir("luks.img");
    fs::File::create(&image).unwrap().set_len(20 << 20).unwrap();
    let key = dir.path().join("key");
    fs::write(&key, "secret").unwrap();
    let key = key.to_str().unwrap();
    let format = ["luksFormat", "--batch-mode", "--type", "luks2", "--pbkdf", "pbkdf2"];
    let format = [&format[..], &["--pbkdf-force-iterations", "1000", &image, key]].concat();
    judge::run("cryptsetup", &format);
    // The data begins at 16 MiB, so the disk has 4.
    for offset in ["4M", "19M", "1G"] {
        let said = fails(&["ls", &format!("{image}?offset={offset}")], 3);
        assert!(said.contains("beyond the end (4194304 bytes)"), "{offset}: {said}");
    }
    let said = fails(&["ls", &format!("{image}?offset=1M")], 3);
    assert!(said.contains("passphrase"), "{said}");
    let said = fails(&["ls", &format!("{image}?key-file={key}&offset=4M")], 3);
    assert!(said.contains("beyond the end"), "{said}");
    let said = fails(&["ls", &format!("{image}?format=raw&offset=20M")], 3);
    assert!(said.contains("beyond the end (20971520 bytes)"), "{said}");
}

/// One rule: what is there already is status 1, whichever command would have made it.
#[test]
fn what_is_there_already_has_one_status() {
    let (dir, image) = in_dir("disk.img");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (tree, tar, packed) = (at("tree/"), at("all.tar"), at("packed"));
    fs::create_dir(&tree).unwrap();
    for name in ["tree/file", "tree/other"] {
        fs::write(at(name), "contents").unwrap();
    }
    let pool = format!("file-store://{}@v", at("pool"));
    works(&["build", "--size", "16M", &image, &tree]);
    works(&["export", "-o", &tar, &image]);
    works(&["sparse", &image, &packed]);
    works(&["mkfs", "--size", "16M", &pool]);
    works(&["snapshot", &pool, "copy"]);
    for words in [
        &["build", &image, &tree][..],
        &["build", &pool, &tree],
        &["export", "-o", &tar, &image],
        &["sparse", &image, &packed],
        &["unsparse", &packed, &image],
        &["mkfs", &image],
        &["mkfs", "--size", "16M", &pool],
        &["mkdir", &image, "/lost+found"],
        &["ln", &image, "/file", "/other"],
        &["snapshot", &pool, "copy"],
        &["clone", &pool, "copy"],
    ] {
        let said = fails(words, 1);
        let is_named = ["exists", "there is a volume", "would be lost"];
        assert!(is_named.iter().any(|what| said.contains(what)), "{words:?}: {said}");
    }
}

/// Linux' client uses whole blocks only, too.
#[test]
fn an_export_of_an_odd_size_has_a_volume() {
    let (_dir, image) = in_dir("odd.img");
    fs::File::create(&image).unwrap().set_len(20_000_001).unwrap();
    let program = env!("CARGO_BIN_EXE_cairn");
    let work = format!("{program} mkfs -t ext4 \"$uri\" && {program} check \"$uri\"");
    let output = Command::new("nbdkit")
        .args(["-U", "-", "file", &image, "--run", &work])
        .output()
        .expect("nbdkit: apt-get install nbdkit");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    judge::run("e2fsck", ["-fn", &image]);
}

/// nbdkit answers reads of a part of the disk with an error.
#[test]
fn errors_of_a_server_are_no_damage() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "-t", "ext4", "--size", "16M", &image]);
    let script = dir.path().join("plugin");
    let text = format!(
        "#!/bin/sh\ncase $1 in get_size) stat -c %s {image};; pread) [ $4 -ge 0 ] && echo EIO bad \
         sector >&2; exit 1;; *) exit 2;; esac\n"
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let socket = dir.path().join("socket");
    let mut server = Command::new("nbdkit")
        .args(["-f", "-U", socket.to_str().unwrap(), "sh", script.to_str().unwrap()])
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("nbdkit: apt-get install nbdkit");
    let started = std::time::Instant::now();
    while !socket.exists() {
        assert!(started.elapsed().as_secs() < 60, "nbdkit does not listen");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let export = format!("nbd+unix:///?socket={}", socket.display());
    let said = fails(&["ls", &export], 7);
    let _ = server.kill();
    server.wait().unwrap();
    let advice = "see to the disk that the server exports";
    assert!(said.contains("the NBD server answered: input/output error"), "{said}");
    assert!(said.matches(advice).count() == 1 && !said.contains("(error"), "{said}");
    assert!(!said.contains("cairn check") && !said.contains("host"), "{said}");
}
