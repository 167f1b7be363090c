//! mkfs loses nothing without being told to, leaves nothing behind that failed, and makes what
//! belongs to its user.

use std::io::{Cursor, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use cairn_testkit::judge::{self, assert_f2fs_clean, debugfs};

use crate::support::{fails, in_dir, works};

/// What may be there, and in which words it is named.
fn precious(image: &str) -> Vec<(&'static str, Vec<u8>)> {
    let path = Path::new(image);
    judge::mke2fs(path, 64 << 20, &["-t", "ext4", "-L", "root"]);
    let ext4 = std::fs::read(path).unwrap();
    judge::mkfs_f2fs(path, 64 << 20, &["-l", "data"]);
    let f2fs = std::fs::read(path).unwrap();
    let mut last_byte = vec![0; 64 << 20];
    *last_byte.last_mut().unwrap() = 1;
    vec![
        ("an ext4 volume labelled root", ext4),
        ("an f2fs volume labelled data", f2fs),
        ("a disk with a GPT partition table and 2 partitions", disk("gpt")),
        ("a disk with a MBR partition table and 2 partitions", disk("dos")),
        ("a qcow2 image", [b"QFI\xfb".as_slice(), &[0; 1 << 20]].concat()),
        ("text", "Dear diary, naïve as I am…\n".repeat(5000).into_bytes()),
        ("text", b"short".to_vec()),
        ("data", last_byte),
    ]
}

/// A disk of 64 MiB with two partitions, of 16 and 32 MiB.
pub fn disk(table: &str) -> Vec<u8> {
    if table == "dos" {
        let mut disk = vec![0; 64 << 20];
        for (at, kind, start, sectors) in
            [(446, 0x0c, 2048_u32, 32_768_u32), (462, 0x83, 40_960, 65_536)]
        {
            disk[at + 4] = kind;
            disk[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
            disk[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
        }
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        return disk;
    }
    let mut disk = Cursor::new(vec![0; 64 << 20]);
    gpt::mbr::ProtectiveMBR::with_lb_size((64 << 11) - 1).overwrite_lba0(&mut disk).unwrap();
    let mut table = gpt::GptConfig::new().writable(true).create_from_device(disk, None).unwrap();
    table.add_partition("boot", 16 << 20, gpt::partition_types::EFI, 0, None).unwrap();
    table.add_partition("root", 32 << 20, gpt::partition_types::LINUX_FS, 0, None).unwrap();
    table.write().unwrap().into_inner()
}

#[test]
fn what_is_there_is_not_overwritten_without_force() {
    let (_dir, image) = in_dir("disk.img");
    for (words, bytes) in precious(&image) {
        for kind in ["ext4", "f2fs"] {
            std::fs::write(&image, &bytes).unwrap();
            let line = fails(&["mkfs", "-t", kind, "--size", "96M", &image], 1);
            assert!(
                line.contains(&format!("it holds {words}, which would be lost"))
                    && line.contains("--force"),
                "{line}"
            );
            assert!(std::fs::read(&image).unwrap() == bytes, "{words} was changed");
            let raw = format!("{image}?format=raw");
            let forced = if words == "a qcow2 image" { &raw } else { &image };
            works(&["mkfs", "-F", "-t", kind, "--size", "96M", forced]);
            assert!(works(&["info", &image]).contains(kind));
        }
    }
    // Zeros are nothing.
    std::fs::write(&image, vec![0; 64 << 20]).unwrap();
    works(&["mkfs", &image]);
    judge::assert_clean(Path::new(&image));
}

#[test]
fn a_partition_is_made_without_touching_the_rest() {
    let (_dir, image) = in_dir("disk.img");
    let before = disk("gpt");
    std::fs::write(&image, &before).unwrap();
    let second = format!("{image}#2");
    works(&["mkfs", "-L", "two", &second]);
    assert!(fails(&["mkfs", &second], 1).contains("an ext4 volume labelled two"));
    let after = std::fs::read(&image).unwrap();
    let json: serde_json::Value =
        serde_json::from_str(&works(&["info", "--json", &image])).unwrap();
    let number = |key: &str| usize::try_from(json["partitions"][1][key].as_u64().unwrap()).unwrap();
    let (start, end) = (number("offset"), number("offset") + number("size"));
    assert!(before[..start] == after[..start] && before[end..] == after[end..] && before != after);
}

#[test]
fn on_a_terminal_it_asks() {
    let (_dir, image) = in_dir("disk.img");
    judge::mke2fs(Path::new(&image), 64 << 20, &["-t", "ext4", "-L", "root"]);
    let before = std::fs::read(&image).unwrap();
    for (answer, made) in [("n\n", false), ("\n", false), ("y\n", true)] {
        let cairn = env!("CARGO_BIN_EXE_cairn");
        let mut command = judge::command("script");
        command.args(["-qec", &format!("{cairn} mkfs -t f2fs '{image}'"), "/dev/null"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("holds an ext4 volume labelled root. Overwrite it? [y/N]"), "{said}");
        assert_eq!(output.status.code(), Some(if made { 0 } else { 1 }), "{said}");
        assert_eq!(std::fs::read(&image).unwrap() == before, !made, "{answer:?}: {said}");
    }
    assert_f2fs_clean(Path::new(&image));
}

#[test]
fn a_failed_mkfs_leaves_no_file_and_no_larger_one() {
    let (dir, image) = in_dir("new.img");
    let refused: &[&[&str]] = &[
        &["-t", "ext4", "--size", "16K"],
        &["-t", "f2fs", "--size", "4M"],
        &["-t", "ext4", "--size", "64M", "-O", "nonsense"],
        &["-t", "f2fs", "--size", "64M", "-O", "nonsense"],
        &["-t", "ext4", "--size", "64M", "-L", "longer than sixteen"],
        &["-t", "ext4", "--size", "64M", "-m"],
        &["-t", "f2fs", "-m", "--size", "64M"],
        &["-t", "f2fs", "--size", "64M", "-c", "/no/such/device"],
    ];
    for words in refused {
        let line = [&["mkfs"][..], words, &[&image]].concat();
        let (status, _, said) = crate::support::cairn(&line);
        assert!(status != 0, "{words:?}");
        assert!(!Path::new(&image).exists(), "{words:?} left a file: {said}");
        // One that is there keeps its size and bytes, with --force, too.
        std::fs::write(&image, b"precious").unwrap();
        let forced = [&["mkfs", "-F"][..], words, &[&image]].concat();
        assert!(crate::support::cairn(&forced).0 != 0, "{words:?}");
        assert_eq!(std::fs::read(&image).unwrap(), b"precious", "{words:?}");
        std::fs::remove_file(&image).unwrap();
    }
    // A link that leads nowhere stays what it is.
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("target", &link).unwrap();
    fails(&["mkfs", "-t", "f2fs", "--size", "4M", link.to_str().unwrap()], 2);
    assert!(link.is_symlink() && !dir.path().join("target").exists());
}

#[test]
fn the_root_directory_belongs_to_the_caller_of_mkfs() {
    assert!(judge::is_root(), "run it as root: it makes a volume as another user");
    let owner = |image: &str| {
        let json: serde_json::Value =
            serde_json::from_str(&works(&["stat", "--json", image, "/"])).unwrap();
        (json[0]["uid"].as_u64().unwrap(), json[0]["gid"].as_u64().unwrap())
    };
    let (dir, _) = in_dir("");
    // A program that a user may reach and run, in a directory that is theirs.
    let program = dir.path().join("cairn");
    judge::copy_program(Path::new(env!("CARGO_BIN_EXE_cairn")), &program);
    std::os::unix::fs::chown(dir.path(), Some(12_345), Some(54_321)).unwrap();
    for (kind, words, expected) in [
        ("ext4", &[][..], (12_345, 54_321)),
        ("f2fs", &[], (12_345, 54_321)),
        ("ext4", &["--root-owner", "0:0"], (0, 0)),
        ("f2fs", &["--root-owner", ":7"], (12_345, 7)),
    ] {
        let image = dir.path().join("disk.img");
        let mut command = Command::new(&program);
        command
            .args(["mkfs", "-F", "-t", kind, "--size", "64M"])
            .args(words)
            .arg(&image)
            .uid(12_345)
            .gid(54_321);
        assert!(command.status().unwrap().success(), "{kind} {words:?}");
        assert_eq!(owner(image.to_str().unwrap()), expected, "{kind} {words:?}");
        match kind {
            "ext4" => {
                judge::assert_clean(&image);
                let stat = debugfs(&image, "stat /");
                assert!(stat.contains(&format!("User: {:5}", expected.0)), "{stat}");
            }
            _ => assert_f2fs_clean(&image),
        }
        std::fs::remove_file(&image).unwrap();
    }
    // Root's own volumes are root's.
    let (_dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "64M", &image]);
    assert_eq!(owner(&image), (0, 0));
}

#[test]
fn what_mkfs_lacks_is_said() {
    let (dir, image) = in_dir("disk.img");
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let said = fails(&["mkfs", "--size", "16M", &path("none/disk.img")], 3);
    assert!(
        said.contains("none does not exist: create it first")
            && said.matches("disk.img").count() == 1,
        "{said}"
    );
    std::fs::write(&image, b"").unwrap();
    assert!(
        fails(&["mkfs", &image], 2).contains("the image is empty: give its size, as in --size 1G")
    );
    // Nothing is cut off a file that is there.
    std::fs::File::options().write(true).open(&image).unwrap().set_len(32 << 20).unwrap();
    assert!(
        fails(&["mkfs", "-F", "--size", "16M", &image], 2)
            .contains("33554432 bytes, more than the size that is asked for")
    );
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 32 << 20);
    works(&["mkfs", "--size", "48M", &image]);
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 48 << 20);
    // Block sizes beyond a page, which the help names, too.
    works(&["mkfs", "-F", "-b", "65536", "--size", "640M", &path("large.img")]);
    judge::assert_clean(Path::new(&path("large.img")));
    assert!(works(&["mkfs", "--help"]).contains("1024 to 65536"));
}

/// A filesystem may begin anywhere, and its address has to say where.
#[test]
fn a_filesystem_in_the_midst_is_not_overwritten() {
    let (_dir, image) = in_dir("disk.img");
    std::fs::File::create(&image).unwrap().set_len(100 << 20).unwrap();
    for offset in ["5M", "10M", "50M"] {
        let inner = format!("{image}?offset={offset}");
        works(&["mkfs", "-t", "ext4", &inner]);
        works(&["touch", &inner, "/precious"]);
        let said = fails(&["ls", &image], 4);
        assert!(!said.contains("nothing but zeros"), "{offset}: {said}");
        fails(&["mkfs", "-t", "f2fs", &image], 1);
        assert!(works(&["ls", &inner]).contains("precious"), "{offset}");
        std::fs::File::create(&image).unwrap().set_len(100 << 20).unwrap();
    }
    works(&["mkfs", "-t", "ext4", &image]);
}
