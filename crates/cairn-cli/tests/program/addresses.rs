//! Images that are not a file with the bytes of a disk: qcow2, zstd, LUKS, exports of NBD servers.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cairn_testkit::judge;
use cairn_testkit::place::Place;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{cairn, fails, in_dir, works};

/// Runs a program that must succeed.
fn run(program: &str, arguments: &[&str]) -> String {
    judge::run(program, arguments)
}

/// `cairn info --json`: the kinds of what the image is made of.
fn made_of(image: &str) -> Vec<String> {
    let info: serde_json::Value = serde_json::from_str(&works(&["info", "--json", image])).unwrap();
    let links = info["device"].as_array().unwrap();
    links.iter().map(|link| link["kind"].as_str().unwrap().to_owned()).collect()
}

/// Makes a volume in what is there, and works on it.
fn use_volume(image: &str) {
    // What is encrypted looks like data.
    works(&["mkfs", "-F", "-t", "ext4", image]);
    works(&["mkdir", image, "/dir"]);
    works(&["touch", image, "/dir/file"]);
    assert!(works(&["ls", image, "/dir"]).contains("file"));
    works(&["check", image]);
}

#[test]
fn a_volume_in_qcow2_is_used_like_any_other() {
    let (dir, image) = in_dir("disk.qcow2");
    run("qemu-img", &["create", "-q", "-f", "qcow2", &image, "64M"]);
    use_volume(&image);
    assert_eq!(made_of(&image), ["file", "qcow2"]);
    assert!(run("qemu-img", &["check", &image]).contains("No errors"));
    let raw = dir.path().join("raw");
    run("qemu-img", &["convert", "-O", "raw", &image, raw.to_str().unwrap()]);
    judge::assert_clean(&raw);
    let built = dir.path().join("built").to_str().unwrap().to_owned();
    works(&["build", "-t", "f2fs", &built, &image]);
    works(&["diff", &built, &image]);
    // Its size is not that of the file.
    for arguments in [
        &["mkfs", "-F", "-t", "ext4", "--size", "128M", &image][..],
        &["resize", &image, "128M"],
        &["mkfs", "-F", "-t", "f2fs", "--size", "16M", &image],
    ] {
        let (status, _, said) = cairn(arguments);
        assert!(matches!(status, 1 | 2), "{arguments:?}: {status} {said}");
        assert!(run("qemu-img", &["check", &image]).contains("No errors"), "{arguments:?}");
    }
    works(&["resize", &image, "32M"]);
    assert!(run("qemu-img", &["info", &image]).contains("64 MiB"));
    works(&["check", &image]);
    let (status, _, said) = cairn(&["ls", &format!("{image}?format=raw")]);
    assert!(status == 4, "as a raw disk it holds nothing: {said}");
}

/// A container that this program cannot open holds a disk all the same.
#[test]
fn a_container_that_cannot_be_opened_is_not_replaced() {
    let (_dir, image) = in_dir("disk.qcow2");
    let with = |options: &[&str]| {
        let make = [&["create", "-q", "-f", "qcow2"], options, &[&image, "64M"]].concat();
        run("qemu-img", &make);
        fs::read(&image).unwrap()
    };
    let data = format!("data_file={image}.data");
    let external = with(&["-o", &data]);
    let subclusters = with(&["-o", "extended_l2=on"]);
    let plain = with(&[]);
    let changed = |at: usize, value: u8| {
        let mut bytes = plain.clone();
        bytes[at] = value;
        bytes
    };
    for (bytes, said) in [
        (external, "external data file"),
        (subclusters, "extended L2 entries"),
        (changed(74, 1), "incompatible feature bit 40"),
        (changed(35, 2), "encrypted with LUKS"),
        (changed(7, 9), "version 9"),
        (changed(23, 40), "cluster_bits"),
        ([&b"\x28\xb5\x2f\xfd"[..], &[0; 1 << 20]].concat(), "zstd"),
    ] {
        fs::write(&image, &bytes).unwrap();
        for size in [&[][..], &["--size", "64M"]] {
            // One is damaged, and so is the other, which nobody could write either.
            let status = match said {
                "cluster_bits" => 3,
                "zstd" if !size.is_empty() => 3,
                _ => 5,
            };
            let line = fails(&[&["mkfs", "-F"], size, &[&image]].concat(), status);
            assert!(line.contains(said) && line.contains("only as IMAGE?format=raw"), "{line}");
            assert!(fs::read(&image).unwrap() == bytes, "{said}: it was changed");
        }
    }
    works(&["mkfs", "-F", "--size", "64M", &format!("{image}?format=raw")]);
    judge::assert_clean(Path::new(&image));
}

#[test]
fn a_partition_in_qcow2_has_its_number() {
    let (dir, image) = in_dir("disk.qcow2");
    let raw = dir.path().join("raw");
    fs::File::create(&raw).unwrap().set_len(64 << 20).unwrap();
    run("sgdisk", &["-n", "1:2048:+40M", raw.to_str().unwrap()]);
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", raw.to_str().unwrap(), &image]);
    let part = format!("{image}#1");
    use_volume(&part);
    assert_eq!(made_of(&part), ["file", "qcow2", "partition"]);
}

#[test]
fn a_backing_file_is_opened_beside_the_image_alone() {
    let (dir, base) = in_dir("base.img");
    works(&["mkfs", "-t", "ext4", "--size", "32M", &base]);
    works(&["touch", &base, "/from base"]);
    let before = fs::read(&base).unwrap();
    let upper = dir.path().join("upper.qcow2");
    let upper = upper.to_str().unwrap();
    let create = |name: &str| {
        run("qemu-img", &["create", "-q", "-f", "qcow2", "-F", "raw", "-b", name, upper]);
    };
    create("base.img");
    works(&["touch", upper, "/from upper"]);
    let listed = works(&["ls", upper]);
    assert!(listed.contains("from base") && listed.contains("from upper"), "{listed}");
    assert!(fs::read(&base).unwrap() == before, "the backing file was written");
    fs::remove_file(upper).unwrap();
    let other = tempfile::tempdir().unwrap();
    let secret = other.path().join("secret");
    fs::copy(&base, &secret).unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    for name in [&secret, &link] {
        create(name.to_str().unwrap());
        let (status, _, said) = cairn(&["ls", upper]);
        assert!(status != 0 && said.contains("qemu-img rebase"), "{said}");
    }
}

/// A guest can write what it likes to the first block of its disk.
#[test]
fn a_raw_disk_that_begins_like_another_format_is_not_opened_as_that() {
    let (_dir, image) = in_dir("disk.img");
    works(&["mkfs", "-t", "ext4", "--size", "16M", &image]);
    let mut bytes = fs::read(&image).unwrap();
    bytes[..4].copy_from_slice(b"QFI\xfb");
    fs::write(&image, &bytes).unwrap();
    let (status, _, said) = cairn(&["ls", &image]);
    assert!(status != 0 && said.contains("?format=raw"), "{said}");
    works(&["ls", &format!("{image}?format=raw")]);
}

#[test]
fn a_disk_in_frames_of_zstd_is_read() {
    let (dir, raw) = in_dir("raw");
    works(&["mkfs", "-t", "ext4", "--size", "8M", &raw]);
    works(&["touch", &raw, "/file"]);
    let image = dir.path().join("disk.img.zst");
    let mut packed = Vec::new();
    for (number, piece) in fs::read(&raw).unwrap().chunks(1 << 20).enumerate() {
        let part = dir.path().join(format!("part{number}"));
        fs::write(&part, piece).unwrap();
        run("zstd", &["-q", part.to_str().unwrap()]);
        packed.extend(fs::read(dir.path().join(format!("part{number}.zst"))).unwrap());
    }
    fs::write(&image, packed).unwrap();
    let image = image.to_str().unwrap();
    assert!(works(&["ls", image]).contains("file"));
    assert_eq!(made_of(image), ["file", "zstd"]);
    let (status, _, said) = cairn(&["touch", image, "/other"]);
    assert!(status == 5 && said.contains("can only be read"), "{status}: {said}");
    let info = works(&["info", image]);
    assert!(info.contains("read-only: it is compressed with zstd"), "{info}");
}

/// An encrypted disk, and a file with its passphrase.
fn encrypted() -> (Place, String) {
    let (dir, image) = in_dir("disk.luks");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let key = dir.path().join("key");
    fs::write(&key, "a passphrase").unwrap();
    let key = key.to_str().unwrap();
    let cheap = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];
    let format = [&["luksFormat", "-q", "--type", "luks2"][..], &cheap, &[&image, key]].concat();
    run("cryptsetup", &format);
    (dir, image)
}

fn program() -> &'static str {
    env!("CARGO_BIN_EXE_cairn")
}

#[test]
fn an_encrypted_disk_opens_with_its_key_file() {
    let (dir, image) = encrypted();
    let key = dir.path().join("key");
    let key = key.to_str().unwrap();
    let (status, _, said) = cairn(&["ls", &image]);
    assert!(status == 3 && said.contains("?key-file=FILE"), "{status}: {said}");
    let opened = format!("{image}?key-file={key}");
    use_volume(&opened);
    assert_eq!(made_of(&opened), ["file", "LUKS"]);
    let wrong = dir.path().join("wrong");
    fs::write(&wrong, "a passphrase\n").unwrap();
    let (status, _, said) = cairn(&["ls", &format!("{image}?key-file={}", wrong.display())]);
    assert!(status == 3 && said.contains("passphrase opens none"), "{status}: {said}");
}

/// What may be overwritten is the disk in it: without the key nobody is told to add `-F`.
#[test]
fn an_encrypted_disk_in_a_container_wants_its_key_first() {
    let (dir, image) = encrypted();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let disk = at("disk.qcow2");
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &image, &disk]);
    let (status, _, said) = cairn(&["mkfs", &disk]);
    assert!(status == 3 && said.contains("?key-file=FILE"), "{status}: {said}");
    assert!(!said.contains("-F") && !said.contains("force"), "{said}");
    let opened = format!("{disk}?key-file={}", at("key"));
    works(&["mkfs", "-F", &opened]);
    assert_eq!(made_of(&opened), ["file", "qcow2", "LUKS"]);
    // A feature that nobody knows is an unsupported one.
    let file = fs::File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&[0x20], 79).unwrap();
    let (status, _, said) = cairn(&["ls", &opened]);
    assert!(status == 5 && said.contains("not supported"), "{status}: {said}");
}

/// How the bytes of an image are transferred is said of sources, too.
#[test]
fn a_source_is_read_as_its_name_says() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    works(&["touch", &image, "/file"]);
    let new = dir.path().join("new.img");
    for io in ["?io=direct", "?io=buffered", "?io=auto"] {
        let source = format!("{image}{io}");
        works(&["diff", &source, &image]);
        works(&["export", &source, "-o", dir.path().join("out.tar").to_str().unwrap(), "-F"]);
        works(&["build", "-F", new.to_str().unwrap(), &source]);
        works(&["diff", new.to_str().unwrap(), &source]);
    }
}

/// Who gives a key means a disk that others cannot read.
#[test]
fn a_key_never_makes_or_opens_a_plain_disk() {
    let (dir, image) = encrypted();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let with_key = |path: &str| format!("{path}?key-file={}", at("key"));
    let (plain, tree) = (at("plain"), at("tree"));
    works(&["mkfs", "--size", "16M", &plain]);
    fs::create_dir(&tree).unwrap();
    fs::write(at("tree/file"), "").unwrap();
    for words in [
        ["ls", &with_key(&plain), "/"].as_slice(),
        &["mkfs", "-F", &with_key(&plain)],
        &["mkfs", "--size", "16M", &with_key(&at("new"))],
        &["mkfs", "-F", "--size", "64M", &format!("{image}?key-file={}", at("tree/file"))],
        &["build", &with_key(&at("new")), &tree],
    ] {
        let (status, _, said) = cairn(words);
        assert!(status != 0 && said.contains("encrypt"), "{words:?}: {status}: {said}");
    }
    assert!(!Path::new(&at("new")).exists() && !Path::new(&with_key(&at("new"))).exists());
    run("cryptsetup", &["open", "--test-passphrase", "--key-file", &at("key"), &image]);
}

#[test]
fn the_second_header_is_enough() {
    let (dir, image) = encrypted();
    let image = format!("{image}?key-file={}", dir.path().join("key").display());
    works(&["mkfs", "-F", &image]);
    works(&["touch", &image, "/file"]);
    let file = fs::File::options().write(true).open(dir.path().join("disk.luks")).unwrap();
    file.write_all_at(&[0; 4096], 0).unwrap();
    assert!(works(&["ls", &image]).contains("file"));
    works(&["mkfs", "-F", &image]);
    assert_eq!(made_of(&image), ["file", "LUKS"]);
}

#[test]
fn an_encrypted_disk_opens_with_a_descriptor() {
    let (_dir, image) = encrypted();
    let opened = format!("{image}?key-fd=0");
    let pipe = |words: &str, command: &str| {
        let script = format!("printf '{words}' | {} {command} '{opened}'", program());
        Command::new("sh").args(["-c", &script]).output().unwrap()
    };
    assert!(pipe("a passphrase", "mkfs -F -t ext4").status.success());
    assert!(pipe("a passphrase", "ls").status.success());
    let wrong = pipe("another", "ls");
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!((wrong.status.code(), said.lines().count()), (Some(3), 1), "{said}");
    let (status, _, said) = cairn(&["ls", &format!("{image}?key-fd=77")]);
    assert!(status == 3 && said.contains("/dev/fd/77"), "{status}: {said}");
}

/// A command opens an image more than once, and a FIFO gives its bytes once.
#[test]
fn an_encrypted_disk_opens_with_what_can_be_read_once() {
    let (dir, image) = encrypted();
    let fifo = dir.path().join("fifo").display().to_string();
    run("mkfifo", &[&fifo]);
    works(&["mkfs", "-F", &format!("{image}?key-file={}", dir.path().join("key").display())]);
    for (words, status) in [("a passphrase", 0), ("another", 3)] {
        let shell = |script: String| {
            let timed = Command::new("timeout").args(["60", "sh", "-c", &script]).output();
            let output = timed.unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(status), "{script}: {said}");
        };
        let named = format!("'{image}?key-file={fifo}'");
        shell(format!("printf '{words}' > {fifo} & {} ls {named}", program()));
        shell(format!("printf '{words}' | {} ls '{image}?key-file=-'", program()));
    }
}

/// Runs a command on a terminal, and types when it has asked. Gives what the terminal showed.
fn on_terminal(command: &str, asked: &str, typed: impl Fn(u32) -> Option<&'static str>) -> String {
    let script = format!("echo \"pid $$\"; {command}; echo \"status $?\"; stty -a; echo the end");
    let mut child = Command::new("script")
        .args(["-q", "-c", &script, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keyboard, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut shown, mut has_typed) = (Vec::new(), false);
    let mut byte = [0];
    while screen.read(&mut byte).is_ok_and(|count| count > 0) {
        shown.push(byte[0]);
        let text = String::from_utf8_lossy(&shown).into_owned();
        if !has_typed && text.contains(asked) {
            has_typed = true;
            let pid = text.split("pid ").nth(1).unwrap().split_whitespace().next().unwrap();
            if let Some(words) = typed(pid.parse().unwrap()) {
                keyboard.write_all(words.as_bytes()).unwrap();
            }
        }
        if text.contains("the end") {
            break;
        }
    }
    drop(keyboard);
    child.wait().unwrap();
    String::from_utf8_lossy(&shown).into_owned()
}

#[test]
fn a_passphrase_is_typed_on_a_terminal_that_does_not_show_it() {
    let (_dir, image) = encrypted();
    let mkfs = format!("{} mkfs -F -t ext4 '{image}'", program());
    let ls = format!("{} ls '{image}'", program());
    let asked = format!("Passphrase of {image}: ");
    let status = |shown: &str, wanted: &str| {
        assert!(shown.contains(&format!("status {wanted}")), "{shown}");
        assert!(shown.contains(" echo ") && shown.contains(" icanon "), "{shown}");
        assert!(!shown.contains("passphrasX"), "{shown}");
    };
    // With an erased letter, and a line that is given up.
    let right = on_terminal(&mkfs, &asked, |_| Some("other\u{15}a passphrasX\u{7f}e\n"));
    status(&right, "0");
    let wrong = on_terminal(&ls, &asked, |_| Some("passphrasX\n"));
    status(&wrong, "3");
    assert!(wrong.contains("passphrase opens none"), "{wrong}");
    let interrupted = on_terminal(&ls, &asked, |_| Some("passphrasX\u{3}"));
    status(&interrupted, "130");
    let killed = on_terminal(&ls, &asked, |shell| {
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
        let child = children.split_whitespace().next().unwrap().parse().unwrap();
        kill(Pid::from_raw(child), Signal::SIGTERM).unwrap();
        None
    });
    status(&killed, "143");
}

/// A server, killed at the end.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_export_is_used_like_a_file_by_one_writer() {
    let (dir, image) = in_dir("disk.img");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let socket = dir.path().join("socket");
    let server = Command::new("nbdkit")
        .args(["-f", "-U", socket.to_str().unwrap(), "file", &image])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nbdkit: apt-get install nbdkit");
    let _server = Served(server);
    let started = Instant::now();
    while !Path::new(&socket).exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "nbdkit does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    let export = format!("nbd+unix:///?socket={}", socket.display());
    use_volume(&export);
    assert_eq!(made_of(&export), ["NBD export"]);
    works(&["check", &image]);
    judge::assert_clean(Path::new(&image));
    let built = dir.path().join("built").to_str().unwrap().to_owned();
    works(&["build", &built, &export]);
    works(&["diff", &export, &built]);
    let archive = dir.path().join("all.tar").to_str().unwrap().to_owned();
    works(&["export", &export, "-o", &archive]);
    works(&["diff", &image, &archive]);
    let held = cairn::open(
        &cairn::ImageSpec::parse(export.as_ref()).unwrap(),
        &cairn::OpenOptions::default(),
    );
    let held = held.unwrap();
    for arguments in [&["touch", &export, "/second"][..], &["ls", &export]] {
        let (status, _, said) = cairn(arguments);
        assert!(status == 6 && said.contains("in use"), "{status}: {said}");
    }
    held.close().unwrap();
    let (status, _, said) = cairn(&["ls", "nbd+unix:///?socket=/nowhere/at/all"]);
    assert!(status == 3 && said.lines().count() == 1, "{status}: {said}");
    assert!(said.contains("see that the server runs") && !said.contains("mkfs"), "{said}");
    assert!(!said.contains("check the") && said.matches("address").count() == 1, "{said}");
}
