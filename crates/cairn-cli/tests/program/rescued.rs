//! `rescue`: what it makes on the host, and what it says.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use cairn::{ImageSpec, OpenOptions};
use cairn_testkit::judge;
use cairn_vfs::{Caller, IoFlags, NewInode};
use serde_json::Value;

use crate::support::{cairn, cairn_as_user, in_dir, works};

/// An image with this tree, and the path of a directory to be made.
fn built(dir: &Path, image: &str, format: &str) -> String {
    let tree = dir.join("tree");
    works(&["build", "-t", format, "-F", image, &format!("{}/", tree.display())]);
    dir.join("out").to_str().unwrap().to_owned()
}

/// The index of a directory ends where the checksum of other blocks is.
#[test]
fn an_indexed_directory_loses_nothing() {
    let (dir, image) = in_dir("disk.img");
    let many = dir.path().join("tree/many");
    fs::create_dir_all(&many).unwrap();
    for number in 0..800 {
        fs::write(many.join(format!("a name of some length {number}")), "").unwrap();
    }
    let out = built(dir.path(), &image, "ext4");
    let said = works(&["dump", &image, "htree", "/many"]);
    assert!(said.contains("checksum_right"), "{said}");
    let said = works(&["rescue", &image, "-o", &out]);
    assert!(said.ends_with("; 0 losses\n"), "{said}");
    assert_eq!(fs::read_dir(Path::new(&out).join("many")).unwrap().count(), 800);
}

/// Linux uses a number again at once.
#[test]
fn a_deleted_file_does_not_get_the_name_of_the_next() {
    let (dir, image) = in_dir("disk.img");
    let path = Path::new(&image);
    judge::mke2fs(path, 7 << 20, &["-t", "ext4", "-b", "1024"]);
    let kernel = judge::KernelMount::new(path, "");
    let sync = || judge::run("sync", ["-f", kernel.path().to_str().unwrap()]);
    let old = ["old1", "old2", "old3"];
    for name in old {
        fs::write(kernel.path().join(name), name.repeat(2000)).unwrap();
    }
    let numbers = old.map(|name| kernel.path().join(name).metadata().unwrap().ino());
    sync();
    for name in old {
        fs::remove_file(kernel.path().join(name)).unwrap();
    }
    sync();
    fs::create_dir(kernel.path().join("new")).unwrap();
    for name in ["g1", "g2", "g3"] {
        fs::write(kernel.path().join("new").join(name), "").unwrap();
    }
    let again = kernel.path().join("new").metadata().unwrap().ino();
    assert!(numbers.contains(&again), "{again} is not one of {numbers:?}");
    sync();
    kernel.unmount();
    let said = works(&["rescue", "--deleted", "--json", &image]);
    let list: Value = serde_json::from_str(&said).unwrap();
    let list = list["deleted"].as_array().unwrap();
    for (name, number) in old.iter().zip(numbers) {
        let one = list.iter().find(|one| one["inode"] == number).unwrap();
        assert_eq!(one["path"], *name, "{one}");
    }
    let out = dir.path().join("out");
    cairn(&["rescue", "--deleted", &image, "-o", out.to_str().unwrap()]);
    for one in list.iter().filter(|one| one["remains"] == "whole") {
        let name = one["path"].as_str().unwrap();
        assert_eq!(fs::read_to_string(out.join(name)).unwrap(), name.repeat(2000));
    }
    assert!(!out.join("new").exists());
}

/// The directory was deleted with what was in it.
#[test]
fn a_deleted_directory_of_f2fs_gives_its_name() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "-t", "f2fs", "--size", "64M", &image]);
    let options = OpenOptions { mount_options: "nodiscard".into(), ..OpenOptions::default() };
    let volume = cairn::open(&ImageSpec::whole(&image), &options).unwrap();
    let (fs, root) = (volume.filesystem(), Caller::ROOT);
    let top = fs.create(fs.root(), b"dd", NewInode::Directory, 0o755, &root).unwrap().ino;
    let file = fs.create(top, b"in", NewInode::Regular, 0o644, &root).unwrap().ino;
    fs.write(file, 0, &[7; 9000], IoFlags::empty()).unwrap();
    fs.fsync(file, 0, false).unwrap();
    fs.sync().unwrap();
    fs.forget(file, 1);
    fs.unlink(top, b"in").unwrap();
    fs.forget(top, 1);
    fs.rmdir(fs.root(), b"dd").unwrap();
    fs.unmount().unwrap();
    drop(volume);
    let out = dir.path().join("out");
    let to = out.to_str().unwrap();
    let said = works(&["rescue", "--deleted", &image, "-o", to, "dd/in", "dd/in"]);
    assert!(said.contains("rescued 1 file, 0 directories,"), "{said}");
    assert_eq!(fs::read(out.join("dd/in")).unwrap(), [7; 9000]);
}

#[test]
fn what_is_in_the_directory_stays() {
    let (dir, image) = in_dir("disk.img");
    for name in ["many", "docs", "file"] {
        fs::create_dir_all(dir.path().join("tree").join(name)).unwrap();
        fs::write(dir.path().join("tree").join(name).join("in"), name).unwrap();
    }
    let out = built(dir.path(), &image, "ext4");
    let (out, elsewhere) = (Path::new(&out), dir.path().join("elsewhere"));
    fs::create_dir_all(out.join("docs")).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, out.join("many")).unwrap();
    fs::write(out.join("file"), "kept").unwrap();
    fs::set_permissions(out.join("docs"), PermissionsExt::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(out.join("docs"), Some(777), Some(777)).unwrap();
    let said = works(&["rescue", &image, "-o", out.to_str().unwrap()]);
    assert!(said.ends_with("; 0 losses\n"), "{said}");
    let docs = out.join("docs").metadata().unwrap();
    assert_eq!((docs.mode() & 0o7777, docs.uid(), docs.gid()), (0o700, 777, 777));
    assert_eq!(fs::read_to_string(out.join("docs/in")).unwrap(), "docs");
    assert_eq!(fs::read_to_string(out.join("file")).unwrap(), "kept");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    for name in ["many", "file"] {
        let found = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().file_name());
        let mut found = found.filter_map(|entry| entry.into_string().ok());
        let given = found.find(|entry| entry.starts_with(&format!("{name}~"))).unwrap();
        assert_eq!(fs::read_to_string(out.join(given).join("in")).unwrap(), name);
    }
}

/// Rights of user 5: version 2; owner, user, group, mask, others.
fn rights(of_user: u8) -> Vec<u8> {
    let entries =
        [(1, 7, u32::MAX), (2, of_user, 5), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)];
    let mut list = vec![2, 0, 0, 0];
    for (tag, rights, id) in entries {
        list.extend([tag, 0, rights, 0]);
        list.extend(id.to_le_bytes());
    }
    list
}

#[test]
fn attributes_come_out_as_far_as_the_host_has_them() {
    const ACCESS: &str = "system.posix_acl_access";
    const DEFAULT: &str = "system.posix_acl_default";
    for format in ["ext4", "f2fs"] {
        let (dir, image) = in_dir("disk.img");
        let top = dir.path().join("tree/d");
        fs::create_dir_all(&top).unwrap();
        fs::write(top.join("plain"), "").unwrap();
        fs::write(top.join("file"), "").unwrap();
        xattr::set(top.join("file"), "user.colour", &[b'x'; 3000]).unwrap();
        xattr::set(top.join("file"), "trusted.secret", b"s").unwrap();
        xattr::set(top.join("file"), ACCESS, &rights(6)).unwrap();
        xattr::set(&top, "user.of", b"directory").unwrap();
        xattr::set(&top, DEFAULT, &rights(7)).unwrap();
        let out = built(dir.path(), &image, format);
        let out = Path::new(&out);
        // What is made here gets no rights from here.
        fs::create_dir(out).unwrap();
        xattr::set(out, DEFAULT, &rights(1)).unwrap();
        let said = works(&["rescue", &image, "-o", out.to_str().unwrap()]);
        assert!(said.starts_with("rescued 2 files, "), "{format}: {said}");
        let get = |path: &str, name: &str| xattr::get(out.join(path), name).unwrap();
        assert_eq!(get("d/file", "user.colour"), Some(vec![b'x'; 3000]), "{format}");
        assert_eq!(get("d/file", "trusted.secret"), Some(b"s".to_vec()), "{format}");
        assert_eq!(get("d/file", ACCESS), Some(rights(6)), "{format}");
        assert_eq!(get("d", "user.of"), Some(b"directory".to_vec()), "{format}");
        assert_eq!(get("d", DEFAULT), Some(rights(7)), "{format}");
        assert_eq!((get("d", ACCESS), get("d/plain", ACCESS)), (None, None), "{format}");
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, PermissionsExt::from_mode(0o777)).unwrap();
        let user = shared.join("out");
        let words = ["rescue", "--json", &image, "-o", user.to_str().unwrap()];
        let (status, said) = cairn_as_user(dir.path(), &image, &words);
        assert_eq!((status, said.as_str()), (0, ""), "{format}");
        let colour = xattr::get(user.join("d/file"), "user.colour").unwrap();
        assert_eq!(colour.map_or(0, |value| value.len()), 3000, "{format}");
        assert_eq!(xattr::get(user.join("d/file"), "trusted.secret").unwrap_or_default(), None);
    }
}

/// The exit status and the text say what was not restored, and why nothing is found.
#[test]
fn what_cannot_be_restored_is_said() {
    let (dir, image) = in_dir("disk.img");
    judge::mke2fs(Path::new(&image), 8 << 20, &["-t", "ext2"]);
    let to = dir.path().join("out");
    let to = to.to_str().unwrap();
    let said = works(&["rescue", "--deleted", &image]);
    assert!(said.starts_with("0 deleted inodes\nnote: Linux and Cairn clear an inode"), "{said}");
    let file = dir.path().join("file");
    fs::write(&file, vec![9; 9000]).unwrap();
    works(&["put", &image, file.to_str().unwrap(), "/gone"]);
    judge::run("debugfs", ["-w", "-R", "rm /gone", &image]);
    let list: Value =
        serde_json::from_str(&works(&["rescue", "--deleted", "--json", &image])).unwrap();
    let ino = list["deleted"][0]["inode"].to_string();
    // Its blocks are used again.
    let map: Value =
        serde_json::from_str(&works(&["dump", "--json", &image, "extents", &ino])).unwrap();
    for extent in map["extents"].as_array().unwrap() {
        let used = format!("setb {} {}", extent["block"], extent["len"]);
        judge::run("debugfs", ["-w", "-R", &used, &image]);
    }
    let said = works(&["rescue", "--deleted", &image]);
    assert!(said.contains("overwritten") && said.ends_with("1 deleted inode\n"), "{said}");
    let (status, stdout, stderr) = cairn(&["rescue", "--deleted", &image, "-o", to]);
    assert_eq!((status, stderr.as_str()), (8, ""), "{stdout}");
    assert!(stdout.contains("others use all of its blocks"), "{stdout}");
    assert!(stdout.ends_with("; 1 loss\n"), "{stdout}");
    let empty = dir.path().join("empty.img");
    fs::File::create(&empty).unwrap().set_len(8 << 20).unwrap();
    let (status, _, stderr) = cairn(&["rescue", empty.to_str().unwrap(), "-o", to]);
    assert_eq!(status, 8, "{stderr}");
    let (status, stdout, _) = cairn(&["dump", "--json", &image, "nat", "4294967296"]);
    let error: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((status, &error["status"]), (2, &2.into()), "{stdout}");
}

#[test]
fn a_full_host_is_said_with_what_came_out() {
    let (dir, image) = in_dir("disk.img");
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), vec![1; 100_000]).unwrap();
    fs::write(tree.join("b"), vec![2; 3 << 20]).unwrap();
    built(dir.path(), &image, "ext4");
    let point = dir.path().join("small");
    fs::create_dir(&point).unwrap();
    judge::run("mount", ["-t", "tmpfs", "-o", "size=1M", "small", point.to_str().unwrap()]);
    for json in [false, true] {
        let out = point.join(format!("out{json}"));
        let words = ["rescue", &image, "-o", out.to_str().unwrap(), "--json"];
        let (status, stdout, stderr) = cairn(&words[..if json { 5 } else { 4 }]);
        assert_eq!(status, 1, "{stdout}{stderr}");
        assert!(stderr.contains("/b: no space left") && stderr.contains("neither it"), "{stderr}");
        // A file that is cut is lost, and no file is there that seems to be it.
        assert!(out.join("a").exists() && !out.join("b").exists(), "{stdout}");
        if json {
            let document: Value = serde_json::from_str(&stdout).unwrap();
            assert!(document["error"].as_str().unwrap().contains("/b: no space"), "{stdout}");
            assert_eq!((&document["files"], &document["losses"]), (&1.into(), &1.into()));
            assert_eq!(document["lost"][0]["path"], "b", "{stdout}");
        } else {
            assert!(stdout.contains("lost: /b (inode "), "{stdout}");
            assert!(stdout.contains("rescued 1 file, "), "{stdout}");
            assert!(stdout.contains(" 100000 bytes; 1 loss\n"), "{stdout}");
        }
        fs::remove_dir_all(&out).unwrap();
    }
}

/// mkfs would destroy what is left of it.
#[test]
fn a_volume_without_superblocks_is_no_empty_disk() {
    use std::os::unix::fs::FileExt;
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "-t", "f2fs", "--size", "64M", &image]);
    let file = dir.path().join("file");
    fs::write(&file, "contents").unwrap();
    works(&["put", &image, file.to_str().unwrap(), "/file"]);
    let whole = fs::read(&image).unwrap();
    let raw = fs::File::options().write(true).open(&image).unwrap();
    raw.write_all_at(&[0; 8192], 0).unwrap();
    let (status, _, said) = cairn(&["info", &image]);
    assert_eq!(status, 4, "{said}");
    assert!(said.contains("an F2FS volume without its two superblocks"), "{said}");
    assert!(said.contains("do not make another"), "{said}");
    let (status, _, said) = cairn(&["mkfs", "-t", "ext4", &image]);
    assert!(status != 0 && said.contains("an F2FS volume without its two"), "{said}");
    // The first blocks of both checkpoint packs: the last block of the newer one has the same.
    let lose_blocks_of_packs = |blocks: usize| {
        fs::write(&image, &whole).unwrap();
        for pack in [512, 1024] {
            raw.write_all_at(&vec![0xff; blocks * 4096], pack * 4096).unwrap();
        }
    };
    lose_blocks_of_packs(1);
    let (status, _, said) = cairn(&["ls", &image, "/"]);
    assert!(status != 0 && said.contains("run `cairn check` on"), "{said}");
    assert_eq!(cairn(&["check", "--repair", "-y", &image]).0, 1);
    assert_eq!(works(&["cat", &image, "/file"]), "contents");
    // The packs.
    lose_blocks_of_packs(8);
    for words in [["info", &image], ["check", &image]] {
        let (_, stdout, stderr) = cairn(&words);
        assert!(format!("{stdout}{stderr}").contains("cairn rescue"), "{stdout}{stderr}");
    }
    let out = dir.path().join("out");
    cairn(&["rescue", &image, "-o", out.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(out.join("file")).unwrap(), "contents");
}
