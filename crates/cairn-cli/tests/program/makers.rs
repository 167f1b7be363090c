//! The program called by the names of other makers, with their options; and volumes that nobody
//! shall write.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use cairn_testkit::judge::{self, KernelMount};

use crate::support::{cairn, fails, in_dir, works};

/// Status and standard error of the program, called by this name.
fn called(name: &str, words: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cairn"));
    let output = command.arg0(name).args(words).stdin(std::process::Stdio::null()).output();
    let output = output.unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn makes(name: &str, words: &[&str]) {
    assert_eq!(called(name, words), (0, String::new()), "{name} {words:?}");
}

#[test]
fn mkfs_ext4_takes_the_options_of_mke2fs() {
    let (_dir, image) = in_dir("image");
    let uuid = "123e4567-e89b-42d3-a456-426614174000";
    let seed = "00112233-4455-6677-8899-aabbccddeeff";
    let extended = format!("hash_seed={seed},root_owner=5:6,lazy_itable_init=1,nodiscard");
    let words = ["-q", "-L", "label", "-U", uuid, "-E", &extended, "-O", "^has_journal,^64bit"];
    let more = ["-b", "4096", "-I", "512", "-N", "5000", "-m", "1", "-r", "1", &image, "64m"];
    makes("mkfs.ext4", &[&words[..], &more].concat());
    judge::assert_clean(Path::new(&image));
    let info = judge::dumpe2fs(Path::new(&image));
    for word in
        [uuid, seed, "label", "Inode size:	          512", "Block count:              16384"]
    {
        assert!(info.contains(word), "{word}: {info}");
    }
    assert!(!info.contains("64bit") && !info.contains("has_journal"), "{info}");
    assert_eq!(works(&["stat", "-c", "%u:%g", &image, "/"]), "5:6\n");
    // Without a terminal it is overwritten, as by mke2fs.
    makes("/sbin/mke2fs", &["-t", "ext4", "-J", "size=4", "-T", "largefile", &image]);
    judge::assert_clean(Path::new(&image));
    let info = judge::dumpe2fs(Path::new(&image));
    assert!(info.contains("has_journal") && !info.contains(seed), "{info}");
    makes("mke2fs", &[&format!("{image}?io=direct")]);
    let info = judge::dumpe2fs(Path::new(&image));
    assert!(!info.contains("has_journal") && !info.contains("extent"), "{info}");
    judge::assert_clean(Path::new(&image));
}

/// The line of buildroot, and an archive.
#[test]
fn a_tree_is_put_in_by_d() {
    let (dir, image) = in_dir("image");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(at("target")).unwrap();
    std::fs::write(at("target/file"), "contents\n").unwrap();
    judge::run("tar", ["-C", &at("target"), "-cf", &at("t.tar"), "."]);
    let rest = ["-r", "1", "-N", "0", "-m", "5", "-L", "rootfs", "-O", "^64bit"];
    for source in ["target", "t.tar"] {
        let source = at(source);
        let words = [&["-d", source.as_str()][..], &rest, &[&image, "60M"]].concat();
        makes("mkfs.ext4", &words);
        judge::assert_clean(Path::new(&image));
        assert_eq!(std::fs::metadata(&image).unwrap().len(), 60 << 20);
        let kernel = KernelMount::new(Path::new(&image), "ro");
        let file = std::fs::read_to_string(kernel.path().join("file")).unwrap();
        kernel.unmount();
        assert_eq!(file, "contents\n");
        // The file is there with its size now.
        makes("mkfs.ext4", &["-F", "-i", "4096", &image, "-d", &source]);
        judge::assert_clean(Path::new(&image));
        assert_eq!(std::fs::metadata(&image).unwrap().len(), 60 << 20);
    }
    let device = judge::LoopDevice::attach(Path::new(&image), false);
    let path = device.path().to_str().unwrap();
    makes("mkfs.ext4", &["-F", "-L", "whole", "-d", &at("target"), path]);
    assert_eq!(works(&["cat", path, "/file"]), "contents\n");
    assert!(works(&["info", path]).contains("60.0 MiB"));
    drop(device);
    judge::assert_clean(Path::new(&image));
}

#[test]
fn mkfs_f2fs_takes_its_options() {
    let (_dir, image) = in_dir("image");
    let words = ["-l", "data", "-a", "1", "-o", "7", "-O", "extra_attr,inode_checksum", "-t", "1"];
    makes("mkfs.f2fs", &[&words[..], &["-T", "1700000000", &image, "262144"]].concat());
    judge::assert_f2fs_clean(Path::new(&image));
    assert!(works(&["info", &image]).contains("data"));
    let (status, said) = called("mkfs.f2fs", &[&image]);
    assert!(status == 1 && said.contains("--force"), "{status}: {said}");
    makes("mkfs.f2fs", &["-f", "-i", "-s", "2", "-z", "2", "-d", "1", "-q", &image]);
    judge::assert_f2fs_clean(Path::new(&image));
}

#[test]
fn what_other_makers_have_and_cairn_has_not_is_refused() {
    let (_dir, image) = in_dir("image");
    for (name, words, why) in [
        ("mkfs.ext4", &["-c", &image, "10m"][..], "-c: Cairn does not have this option"),
        ("mkfs.ext4", &["-E", "stride=16", &image, "10m"], "-E stride=16"),
        ("mkfs.ext4", &[&image], "size"),
        ("mkfs.f2fs", &["-e", "mp4", &image, "262144"], "-e"),
        ("mkfs.ext4", &["-d", "/none/such", &image, "10m"], "/none/such"),
    ] {
        let (status, said) = called(name, words);
        assert!(status == 1 && said.contains(why), "{words:?}: {status}: {said}");
        assert!(!Path::new(&image).exists() && said.lines().count() == 1, "{said}");
    }
    let (status, text, _) = cairn(&["mkfs.ext4", "--help"]);
    assert!(status == 0 && text.starts_with("Usage: mkfs.ext4 "), "{text}");
    works(&["mkfs.ext4", "-O", "none,extent", &image, "10m"]);
    judge::assert_clean(Path::new(&image));
}

#[test]
fn a_read_only_image_has_nothing_to_spare() {
    let (dir, image) = in_dir("image");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(at("rootfs")).unwrap();
    for number in 0..200 {
        std::fs::write(at(&format!("rootfs/{number}")), vec![7; number * 300]).unwrap();
    }
    let source = format!("{}/", at("rootfs"));
    works(&["build", "--read-only", &image, &source]);
    judge::assert_clean(Path::new(&image));
    let info = judge::dumpe2fs(Path::new(&image));
    let number = |key: &str| -> u64 {
        let line = info.lines().find(|line| line.starts_with(key)).expect(&info);
        line.split_whitespace().last().unwrap().parse().unwrap()
    };
    assert!(info.contains("read-only") && !info.contains("has_journal"), "{info}");
    assert!(number("Free blocks:") <= 4 && number("Free inodes:") < 32, "{info}");
    // The kernel is not asked for a read-only mount.
    let kernel = KernelMount::new(Path::new(&image), "rw");
    let refused = std::fs::write(kernel.path().join("new"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(std::fs::read(kernel.path().join("199")).unwrap(), vec![7; 199 * 300]);
    kernel.unmount();
    assert!(fails(&["mkdir", &image, "/x"], 5).contains("read-only"));
    works(&["build", "-F", "--read-only", "--free", "5M", &image, &source]);
    judge::assert_clean(Path::new(&image));
    for other in [&["-t", "f2fs"][..], &["-O", "^extent"]] {
        let words = [&["build", "-F", "--read-only"], other, &[&image, &source]].concat();
        assert!(fails(&words, 2).contains("read-only layout is for ext4"));
    }
}
