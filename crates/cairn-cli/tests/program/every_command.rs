//! Rules for every command: it has help with an example, it ends without a message if its output
//! has no reader, and its exit status gives the kind of error. A command that is not in the table
//! fails the test.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::pipe;
use std::process::{Command, Stdio};

use cairn_cli::args::Cli;
use cairn_testkit::judge;
use clap::CommandFactory;

use crate::support::{cairn, in_dir, works};

/// Arguments of each command. `IMAGE` stands for an image and `DIR` for a directory of the host.
const TABLE: &[(&str, &[&str])] = &[
    ("mkfs", &["mkfs", "IMAGE"]),
    ("info", &["info", "--json", "IMAGE"]),
    ("info", &["info", "IMAGE"]),
    ("ls", &["ls", "-lR", "IMAGE"]),
    ("ls", &["ls", "--json", "IMAGE"]),
    ("cat", &["cat", "IMAGE", "/file"]),
    ("stat", &["stat", "IMAGE", "/file"]),
    ("stat", &["stat", "--json", "IMAGE", "/file"]),
    ("get", &["get", "IMAGE", "/file", "DIR"]),
    ("put", &["put", "IMAGE", "DIR", "/copy"]),
    ("mkdir", &["mkdir", "-p", "IMAGE", "/made"]),
    ("rm", &["rm", "-rf", "IMAGE", "/made"]),
    ("rmdir", &["rmdir", "--ignore-fail-on-non-empty", "IMAGE", "/copy"]),
    ("ln", &["ln", "-sf", "IMAGE", "file", "/link"]),
    ("mv", &["mv", "-n", "IMAGE", "/file", "/file"]),
    ("chmod", &["chmod", "IMAGE", "644", "/file"]),
    ("chown", &["chown", "IMAGE", "0:0", "/file"]),
    ("df", &["df", "IMAGE"]),
    ("df", &["df", "--json", "IMAGE"]),
    ("du", &["du", "-a", "IMAGE"]),
    ("du", &["du", "--json", "IMAGE"]),
    ("find", &["find", "IMAGE", "/", "-type", "f"]),
    ("find", &["find", "--json", "IMAGE"]),
    ("cp", &["cp", "-a", "IMAGE", "/file", "/copied"]),
    ("touch", &["touch", "IMAGE", "/file"]),
    ("truncate", &["truncate", "-s", "1M", "IMAGE", "/file"]),
    ("mknod", &["mknod", "IMAGE", "/fifo", "p"]),
    ("getfattr", &["getfattr", "-m", "-", "IMAGE", "/file"]),
    ("getfattr", &["getfattr", "--json", "IMAGE", "/file"]),
    ("setfattr", &["setfattr", "-n", "user.a", "-v", "b", "IMAGE", "/file"]),
    ("sparse", &["sparse", "-F", "IMAGE", "DIR/sparse"]),
    ("tune", &["tune", "-L", "new", "IMAGE"]),
    ("resize", &["resize", "IMAGE", "+8M"]),
    ("resize", &["resize", "--json", "IMAGE", "max"]),
    ("check", &["check", "IMAGE"]),
    ("check", &["check", "--json", "IMAGE"]),
    ("dump", &["dump", "IMAGE", "superblock"]),
    ("dump", &["dump", "--json", "IMAGE", "inode", "/file"]),
    ("journal", &["journal", "IMAGE"]),
    ("journal", &["journal", "--json", "IMAGE"]),
    ("rescue", &["rescue", "--deleted", "IMAGE"]),
    ("rescue", &["rescue", "--json", "--deleted", "IMAGE"]),
    ("shell", &["shell", "-c", "ls", "-c", "help", "IMAGE"]),
];

/// Commands without an image. Their output is tested below or in other tests.
const WITHOUT_IMAGE: &[&str] = &[
    "build",
    "export",
    "diff",
    "sync",
    "run",
    "run-stage",
    "unsparse",
    "mount",
    "umount",
    "remount",
    "freeze",
    "thaw",
    "stats",
    "top",
    "generate",
    "lab",
    "serve",
    "serve-nothing",
    "snapshot",
    "clone",
    "gc",
    "help",
];

/// The words with an image and a directory put in.
fn words(line: &[&str], image: &str, directory: &str) -> Vec<String> {
    let word = |word: &&str| word.replace("IMAGE", image).replace("DIR", directory);
    line.iter().map(word).collect()
}

fn run(arguments: &[String], stdout: Stdio, stderr: Stdio) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cairn"));
    command
        .args(arguments)
        .env_remove("CAIRN_LOG")
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr);
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    (
        output.status.code().expect("no signal ended it"),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// A pipe without a reader.
fn broken() -> Stdio {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn every_command_is_in_the_table() {
    let known: BTreeSet<&str> =
        TABLE.iter().map(|(name, _)| *name).chain(WITHOUT_IMAGE.iter().copied()).collect();
    for command in Cli::command().get_subcommands() {
        assert!(known.contains(command.get_name()), "{} is not tested", command.get_name());
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in Cli::command().get_subcommands() {
        let help = works(&[command.get_name(), "--help"]);
        let example = format!("cairn {} ", command.get_name());
        assert!(
            help.contains("Example") && help.contains(&example),
            "{}: {help}",
            command.get_name()
        );
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let (dir, image) = in_dir("disk.img");
    judge::mke2fs(std::path::Path::new(&image), 8 << 20, &["-t", "ext4"]);
    let file = dir.path().join("file");
    std::fs::write(&file, b"contents\n").unwrap();
    works(&["put", &image, file.to_str().unwrap(), "/file"]);
    let (target, _) = in_dir("");
    for (name, line) in TABLE.iter().filter(|(name, _)| !matches!(*name, "mkfs" | "mknod")) {
        let arguments = words(line, &image, target.path().to_str().unwrap());
        let usual = run(&arguments, Stdio::null(), Stdio::piped());
        assert_eq!(usual, (0, String::new()), "{arguments:?}");
        assert_eq!(run(&arguments, broken(), Stdio::piped()), usual, "{name}: {arguments:?}");
    }
    for line in [
        &["lab", "list"][..],
        &["lab", "list", "--json"],
        &["--help"],
        &["ls", "--help"],
        &["--version"],
    ] {
        let arguments = words(line, "", "");
        assert_eq!(run(&arguments, broken(), Stdio::piped()), (0, String::new()), "{arguments:?}");
    }
    judge::assert_clean(std::path::Path::new(&image));
}

/// A part of an image or of an archive looks like a whole one to who does not read it.
#[test]
fn a_closed_pipe_is_a_failure_of_images_and_archives() {
    let (dir, image) = in_dir("disk.img");
    let (tree, sparse) = (dir.path().join("tree"), dir.path().join("disk.simg"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), vec![7; 1 << 20]).unwrap();
    let (tree, sparse) = (format!("{}/", tree.display()), sparse.to_str().unwrap());
    works(&["build", &image, &tree]);
    works(&["sparse", &image, sparse]);
    for line in [
        &["build", "-", &tree][..],
        &["build", "--sparse", "-", &tree],
        &["export", "IMAGE", "-o", "-"],
        &["export", "--compress", "zstd", "IMAGE", "-o", "-"],
        &["sparse", "IMAGE", "-"],
        &["unsparse", sparse, "-"],
    ] {
        let arguments = words(line, &image, "");
        let ended = run(&arguments, broken(), Stdio::piped());
        assert_eq!(ended, (1, String::new()), "{arguments:?}");
    }
}

/// The exit status is right even if standard error goes to the same pipe
/// (`cairn ls disk.img /none 2>&1 | head -0`).
#[test]
fn statuses_arrive_without_a_reader_of_errors() {
    let (_dir, image) = in_dir("disk.img");
    judge::mke2fs(std::path::Path::new(&image), 8 << 20, &["-t", "ext4"]);
    for (line, status) in
        [(&["ls", "IMAGE", "/none"][..], 1), (&["ls", "IMAGE.none"], 3), (&["ls", "--nonsense"], 2)]
    {
        let arguments = words(line, &image, "");
        assert_eq!(run(&arguments, broken(), broken()).0, status, "{arguments:?}");
    }
}

/// A full disk under standard output is reported as a failure.
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let (dir, image) = in_dir("disk.img");
    judge::mke2fs(std::path::Path::new(&image), 8 << 20, &["-t", "ext4"]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (status, said) = run(&words(&["ls", "IMAGE"], &image, ""), full.into(), Stdio::piped());
    assert!(status == 1 && said.contains("standard output: no space left"), "{status}: {said}");
    // For diff, 1 means that something differs.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let line = words(&["diff", "IMAGE", "DIR"], &image, &format!("{}/", dir.path().display()));
    let (status, said) = run(&line, full.into(), Stdio::piped());
    assert!(status == 2 && said.contains("standard output: no space left"), "{status}: {said}");
}

#[test]
fn what_cannot_be_an_image_is_status_3() {
    let (dir, _) = in_dir("");
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let subjects: [&OsStr; 4] =
        [dir.path().as_os_str(), "/dev/null".as_ref(), "/no/such".as_ref(), fifo.as_os_str()];
    for (_, line) in TABLE {
        for subject in subjects {
            let arguments = words(line, subject.to_str().unwrap(), "/dev/shm");
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let (status, stdout, stderr) = cairn(&arguments);
            // A new image needs a size.
            let expected = match &arguments[..] {
                ["mkfs", "/no/such"] => 2,
                // e2fsck's.
                ["check", ..] => 8,
                _ => 3,
            };
            let is_json = arguments.contains(&"--json");
            assert!(status == expected && stdout.is_empty() != is_json, "{arguments:?}: {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
            assert!(stderr.starts_with("cairn: ") && stderr.matches(": ").count() >= 2, "{stderr}");
        }
    }
}

/// Damage that the open finds, and damage of a named inode.
#[test]
fn damage_is_status_4_and_names_the_check() {
    let (_dir, image) = in_dir("disk.img");
    let path = std::path::Path::new(&image);
    judge::mke2fs(path, 8 << 20, &["-t", "ext4", "-b", "1024"]);
    works(&["mkdir", &image, "/d"]);
    works(&["mkdir", &image, "/d/gone"]);
    judge::run("debugfs", ["-w", "-R", "clri /d/gone", &image]);
    let (status, _, stderr) = cairn(&["stat", &image, "/d/gone"]);
    assert!(status == 4 && stderr.contains("run `cairn check` on"), "{status}: {stderr}");
    // The journal's superblock.
    let journal = judge::debugfs(path, "bmap <8> 0");
    let block: u64 = journal.lines().find_map(|line| line.trim().parse().ok()).expect(&journal);
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 64], block * 1024).unwrap();
    let (status, _, stderr) = cairn(&["mkdir", &image, "/x"]);
    let advice = "run `cairn check` on";
    assert!(status == 4 && stderr.contains(advice), "{status}: {stderr}");
}

/// The message names the type of a file that is no disk image, and how to convert it.
#[test]
fn other_formats_are_told_how_to_be_unpacked() {
    let (dir, image) = in_dir("disk.img");
    judge::mke2fs(std::path::Path::new(&image), 8 << 20, &["-t", "ext4"]);
    for format in ["vmdk", "vpc", "vdi", "vhdx"] {
        let converted = dir.path().join(format).to_str().unwrap().to_owned();
        judge::run("qemu-img", ["convert", "-f", "raw", "-O", format, &image, &converted]);
        let (status, _, stderr) = cairn(&["ls", &converted]);
        assert!(status == 4 && stderr.contains("qemu-img convert -O raw"), "{format}: {stderr}");
    }
    let tar = dir.path().join("tar").to_str().unwrap().to_owned();
    judge::run("tar", ["-cf", &tar, "/etc/passwd"]);
    assert!(cairn(&["ls", &tar]).2.contains("cairn build"), "tar");
}

#[test]
fn a_disk_is_listed_with_what_its_partitions_hold() {
    for table in ["gpt", "dos"] {
        let (_dir, image) = in_dir("disk.img");
        std::fs::write(&image, crate::mkfs_safety::disk(table)).unwrap();
        works(&["mkfs", "-L", "system", &format!("{image}#2")]);
        let json: serde_json::Value =
            serde_json::from_str(&works(&["info", "--json", &image])).unwrap();
        assert_eq!(
            (&json["type"], json["partitions"].as_array().unwrap().len()),
            (&"disk".into(), 2)
        );
        let second = &json["partitions"][1];
        assert_eq!((&second["filesystem"], &second["label"]), (&"ext4".into(), &"system".into()));
        let address = second["address"].as_str().unwrap();
        assert_eq!(works(&["ls", address]), "lost+found\n");
        let text = works(&["info", &image]);
        let line = text.lines().find(|line| line.contains("#2")).unwrap();
        assert!(
            line.contains("32.0 MiB") && line.contains("Linux") && line.contains("system"),
            "{text}"
        );
    }
}

/// An incomplete copy of an image, and volumes with an external journal.
#[test]
fn info_says_what_opening_would() {
    for format in ["ext4", "f2fs"] {
        let (_dir, image) = in_dir("disk.img");
        works(&["mkfs", "-t", format, "--size", "64M", &image]);
        assert!(works(&["info", &image]).contains(" clean"), "{format}");
        std::fs::File::options().write(true).open(&image).unwrap().set_len(60 << 20).unwrap();
        let stdout = works(&["info", &image]);
        let why = "is shorter than its filesystem: 4194304 of 67108864 bytes are missing: copy it \
            again, whole\n";
        let told = stdout.contains(" truncated\n") && stdout.contains(why);
        assert!(told && !stdout.contains(" clean"), "{format}: {stdout}");
        assert!(stdout.contains("size:                      64.0 MiB\n"), "{format}: {stdout}");
        let (status, _, said) = cairn(&["ls", &image]);
        assert!(
            status == 4 && said.contains(why.trim_end()) && !said.contains("fsck"),
            "{format}: {status}: {said}"
        );
    }
    // Nothing but the magic number of ext4.
    let (_dir, image) = in_dir("disk.img");
    let mut bytes = vec![0; 1 << 20];
    bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
    std::fs::write(&image, bytes).unwrap();
    assert!(works(&["info", &image]).contains("access:                    none: "));
    assert_eq!(cairn(&["ls", &image]).0, 4);

    let (dir, image) = in_dir("disk.img");
    let journal = dir.path().join("journal").to_str().unwrap().to_owned();
    judge::run("mke2fs", ["-Fq", "-O", "journal_dev", &journal, "16M"]);
    let device = judge::LoopDevice::attach(std::path::Path::new(&journal), false);
    judge::run(
        "mke2fs",
        ["-Fq", "-J", &format!("device={}", device.path().display()), &image, "32M"],
    );
    drop(device);
    for (subject, why) in [(&journal, "external journal"), (&image, "on another device")] {
        let (status, _, said) = cairn(&["ls", subject]);
        assert!(status == 5 && said.contains(why), "{status}: {said}");
        assert!(
            works(&["info", subject]).contains("access:                    none: "),
            "{subject}"
        );
    }
}

/// A volume whose root is a file is refused by every command, and info says why.
#[test]
fn info_tells_of_a_root_that_cannot_be_used() {
    let (_dir, image) = in_dir("disk.img");
    judge::run("mke2fs", ["-Fq", "-t", "ext4", &image, "32M"]);
    judge::run("debugfs", ["-w", "-R", "sif <2> mode 0100644", &image]);
    let (status, _, said) = cairn(&["ls", &image]);
    assert!(status == 4 && said.contains("i_mode"), "{status}: {said}");
    let text = works(&["info", &image]);
    let told = text.lines().find(|line| line.starts_with("access:")).unwrap();
    assert!(told.contains(" none: ") && told.contains("i_mode"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&works(&["info", "--json", &image])).unwrap();
    assert!(json["access"].as_str().unwrap().starts_with("none: "), "{json}");
}

/// Sizes with units for people and in bytes for programs; one word for the format.
#[test]
fn info_tells_sizes_and_one_type() {
    for format in ["ext2", "ext4", "f2fs"] {
        let (_dir, image) = in_dir("disk.img");
        match format {
            "ext2" => judge::mke2fs(std::path::Path::new(&image), 64 << 20, &["-t", "ext2"]),
            _ => drop(works(&["mkfs", "-t", format, "--size", "64M", &image])),
        }
        let text = works(&["info", &image]);
        let json: serde_json::Value =
            serde_json::from_str(&works(&["info", "--json", &image])).unwrap();
        assert_eq!((&json["type"], json.get("kind")), (&format.into(), None));
        let bytes = |key: &str| json[key].as_u64().unwrap();
        assert_eq!(bytes("size"), 64 << 20);
        assert_eq!(bytes("used") + bytes("free"), bytes("size"));
        let free: serde_json::Value =
            serde_json::from_str(&works(&["df", "--json", &image])).unwrap();
        assert_eq!(bytes("free"), free["free"].as_u64().unwrap(), "{format}");
        for key in ["size", "used", "free"] {
            let line = text.lines().find(|line| line.starts_with(&format!("{key}:"))).unwrap();
            assert!(line.ends_with(" MiB"), "{line}");
        }
        assert!(text.lines().all(|line| line.trim_end() == line && !line.starts_with("kind")));
    }
}

#[test]
fn df_takes_several_images() {
    let (dir, image) = in_dir("a.img");
    let other = dir.path().join("b.img").to_str().unwrap().to_owned();
    works(&["mkfs", "--size", "16M", &image]);
    works(&["mkfs", "-t", "f2fs", "--size", "64M", &other]);
    let (one, two) = (works(&["df", "-T", &image]), works(&["df", "-T", &other]));
    let both = works(&["df", "-T", &image, &other]);
    assert_eq!(both, format!("{one}{}", two.split_inclusive('\n').nth(1).unwrap()));
    let (status, stdout, said) = cairn(&["df", "-T", "/no/such.img", &other]);
    assert_eq!((status, stdout, said.lines().count()), (3, two, 1));
    let said = crate::support::fails(&["shell", "-r", "-c", "df /x", &image], 2);
    assert!(said.contains("one image is open here"), "{said}");
}

#[test]
fn messages_of_open_name_the_image_once() {
    let (dir, image) = in_dir("disk.img");
    let said = crate::support::fails(&["ls", &image], 3);
    assert_eq!(
        said,
        format!(
            "cairn: {image}: no such file or directory: check the name; `cairn mkfs` makes a new \
             image\n"
        )
    );
    let said = crate::support::fails(&["ls", dir.path().to_str().unwrap()], 3);
    assert_eq!(said.matches(dir.path().to_str().unwrap()).count(), 1, "{said}");
}

/// As Linux counts them: no more than there are blocks.
#[test]
fn a_small_f2fs_has_no_more_inodes_than_blocks() {
    let (_dir, image) = in_dir("disk.img");
    works(&["mkfs", "-t", "f2fs", "--size", "64M", &image]);
    let json: serde_json::Value = serde_json::from_str(&works(&["df", "--json", &image])).unwrap();
    let number = |key: &str| json[key].as_u64().unwrap();
    assert!(number("inodes") <= number("size") / 4096, "{json}");
    assert!(
        number("inodes_free") <= number("inodes") && number("inodes_used") < number("inodes") / 100,
        "{json}"
    );
}
