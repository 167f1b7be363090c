//! Commands that change an image or write a tree, on a host whose disk is full at some point: they
//! say so, and what they leave is whole. With more room, a second run finishes.

use std::fs;
use std::path::Path;
use std::process::Command;

use cairn_testkit::judge;
use cairn_testkit::place::Place;

use crate::support::{cairn, works};

const FORMATS: [&str; 2] = ["ext4", "f2fs"];
const KIB: u64 = 1024;

/// A file system of the host with a size.
struct Host {
    place: Place,
}

impl Host {
    /// Room for what is on it, and some more.
    fn new() -> Self {
        let place = Place::new();
        fs::create_dir(place.path().join("disk")).unwrap();
        let host = Self { place };
        judge::run("mount", ["-t", "tmpfs", "-o", "size=256M", "cairn-test", &host.at("")]);
        host
    }

    fn at(&self, name: &str) -> String {
        self.place.path().join("disk").join(name).to_str().unwrap().to_owned()
    }

    /// Leaves this much room.
    fn leave(&self, bytes: u64) {
        let used = judge::run("df", ["-B1", "--output=used", &self.at("")]);
        let used: u64 = used.lines().last().unwrap().trim().parse().unwrap();
        self.resize(used + bytes);
    }

    fn resize(&self, bytes: u64) {
        judge::run("mount", ["-o", &format!("remount,size={bytes}"), &self.at("")]);
    }
}

fn check(format: &str, image: &str) {
    match format {
        "ext4" => judge::assert_clean(Path::new(image)),
        _ => judge::assert_f2fs_clean(Path::new(image)),
    }
}

/// An image with some files.
fn image(host: &Host, format: &str) -> String {
    let image = host.at("image");
    let script = format!(
        "cd {}; rm -rf image tree; mkdir -p tree/d; seq 20000 >tree/numbers; \
         seq 9 >tree/d/few; ln tree/numbers tree/d/link; head -c 3000000 /dev/zero | tr '\\0' x \
         >tree/large",
        host.at("")
    );
    judge::run("sh", ["-ec", &script]);
    works(&["build", "-t", format, "--free", "40M", &image, &host.at("tree/")]);
    image
}

/// Commands that change an image, by format.
const CHANGES: [(&str, &[&str]); 8] = [
    ("ext4", &["tune", "-L", "another", "IMAGE"]),
    ("ext4", &["tune", "-O", "^has_journal", "IMAGE"]),
    ("ext4", &["resize", "IMAGE", "160M"]),
    ("ext4", &["resize", "IMAGE", "min"]),
    ("ext4", &["sync", "SOURCE", "IMAGE"]),
    ("f2fs", &["resize", "IMAGE", "600M"]),
    ("f2fs", &["resize", "IMAGE", "min"]),
    ("f2fs", &["sync", "SOURCE", "IMAGE"]),
];

#[test]
fn a_full_host_leaves_a_volume_that_a_second_run_changes() {
    let host = Host::new();
    for (format, command) in CHANGES {
        let mut failures = 0;
        for room in [0, 16 * KIB, 64 * KIB, 512 * KIB] {
            host.resize(256 << 20);
            let image = image(&host, format);
            judge::run("sh", ["-ec", &format!("cd {}; seq 9 >tree/new", host.at(""))]);
            let source = host.at("tree/");
            let word = |word: &&'static str| match *word {
                "IMAGE" => image.clone(),
                "SOURCE" => source.clone(),
                word => word.to_owned(),
            };
            let words: Vec<String> = command.iter().map(word).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            host.leave(room);
            let (status, _, said) = cairn(&words);
            failures += u32::from(status != 0);
            assert!(status == 0 || !said.is_empty(), "{words:?}: {said}");
            host.resize(256 << 20);
            if status != 0 {
                after_a_failure(format, command, &image, (status, &said));
            }
            works(&words);
            check(format, &image);
            assert_eq!(works(&["cat", &image, "/d/few"]), "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
            let differs = cairn(&["diff", &image, &source]).0;
            assert_eq!(differs, i32::from(command[0] != "sync"), "{words:?}");
        }
        println!("{format}, {command:?}: {failures} of 4 failed");
    }
}

/// What a volume is after a command has failed for lack of room.
fn after_a_failure(format: &str, command: &[&str], image: &str, (status, said): (i32, &str)) {
    match (format, command[0]) {
        // A mount whose journal cannot be written asks for it.
        ("ext4", "sync") => {
            let verdict = judge::e2fsck_preen(Path::new(image));
            assert!(verdict.status <= 1, "{command:?}: {}", verdict.output);
        }
        ("f2fs", "resize") => {
            assert_eq!(status, 1, "{said}");
            let names_sizes = said.contains("no room") && said.contains("bytes");
            assert!(names_sizes && said.contains("run it again"), "{said}");
            judge::assert_f2fs_clean(Path::new(image));
            works(&["check", image]);
        }
        ("f2fs", _) => drop(works(&["check", image])),
        _ => {}
    }
}

#[test]
fn an_export_for_which_there_is_no_room_leaves_nothing() {
    let host = Host::new();
    for format in FORMATS {
        host.resize(256 << 20);
        let image = image(&host, format);
        for (room, to) in [(0, "out/"), (64 * KIB, "out/"), (2048 * KIB, "out/"), (0, "out.tar")] {
            host.leave(room);
            let before = names(&host);
            let (status, _, said) = cairn(&["export", &image, "-o", &host.at(to)]);
            assert!(status != 0 && !said.is_empty(), "{to} with {room} bytes: {said}");
            assert_eq!(names(&host), before, "{to} with {room} bytes");
            host.resize(256 << 20);
        }
        works(&["export", &image, "-o", &host.at("out/")]);
        assert_eq!(works(&["diff", &image, &host.at("out/")]), "");
        fs::remove_dir_all(host.at("out")).unwrap();
    }
}

/// A child that is killed when what it writes has reached some size. True if it did not end before.
fn killed(host: &Host, words: &[&str], before: &[String], size: u64) -> bool {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cairn")).args(words).spawn().unwrap();
    let ended = loop {
        let new = names(host).into_iter().filter(|name| !before.contains(name));
        let mut written = new.map(|name| bytes_in(Path::new(&host.at(&name)))).peekable();
        if written.peek().is_some() && written.sum::<u64>() >= size {
            break child.try_wait().unwrap().is_some();
        }
        if child.try_wait().unwrap().is_some() {
            break true;
        }
    };
    let _ = child.kill();
    child.wait().unwrap();
    !ended
}

/// Bytes of a file, or of all files below a directory. What goes meanwhile does not count.
fn bytes_in(path: &Path) -> u64 {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| bytes_in(&entry.path())).sum(),
        Err(_) => path.symlink_metadata().map_or(0, |found| found.len()),
    }
}

#[test]
fn a_killed_export_leaves_nothing_that_looks_complete() {
    let host = Host::new();
    let image = image(&host, "ext4");
    let script = format!("cd {}; for n in $(seq 8); do cp tree/large tree/n$n; done", host.at(""));
    judge::run("sh", ["-ec", &script]);
    works(&["build", "-F", "--free", "8M", &image, &host.at("tree/")]);
    for name in ["out.tar", "out.tar.zst", "out", "oci"] {
        let to = match name {
            "out" => host.at("out/"),
            "oci" => format!("oci:{}", host.at("oci")),
            name => host.at(name),
        };
        let output = if name == "out" { to.clone() } else { host.at(name) };
        let platform = ["--platform", "linux/amd64"];
        let platform: &[&str] = if name == "oci" { &platform } else { &[] };
        let words = [&["export", &image, "-o", &to][..], platform].concat();
        let mut kills = 0;
        // At once, and when some of it is written; a compressed one is small.
        for size in [0, 1, 10_000, 8_000_000] {
            let before = names(&host);
            kills += u32::from(killed(&host, &words, &before, size));
            for left in names(&host).into_iter().filter(|name| !before.contains(name)) {
                // The name is the last that it gets.
                if !left.starts_with('.') {
                    assert_eq!(left, name, "{words:?}, {size}");
                    assert_eq!(works(&["diff", &image, &output]), "", "{words:?}, {size}");
                }
                remove(&host.at(&left));
            }
        }
        assert!(kills > 0, "{name}: it always ended before");
        works(&words);
        assert_eq!(works(&["diff", &image, &output]), "");
        remove(&host.at(name));
    }
}

fn remove(path: &str) {
    let removed = match Path::new(path).is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    removed.unwrap();
}

fn names(host: &Host) -> Vec<String> {
    let entries = fs::read_dir(host.at("")).unwrap();
    let name =
        |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}
