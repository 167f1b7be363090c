//! Linux mounts what the core wrote.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::checkpoint::Reason;
use crate::mkfs::{self, MkfsOptions};
use crate::segment::Mode;
use crate::{F2fs, MountOptions};
use cairn_base::runtime::threads::Threads;
use cairn_testkit::vm::Vm;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use super::memory::stir;
use super::volume::{device, image, open_with};

/// The names and contents of all regular files, in one sum; busybox's and coreutils' commands agree
/// on it.
const SUM: &str = "find . -type f | sort | xargs md5sum | md5sum";

fn sum(dir: &Path) -> String {
    let output = Command::new("sh")
        .arg("-c")
        .arg(SUM)
        .current_dir(dir)
        .env("LC_ALL", "C")
        .output()
        .expect("sh starts");
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().expect("a sum").to_owned()
}

/// A volume, unmounted after a file was written and removed.
fn with_a_removed_file(image: &Path, option: &str) {
    std::fs::File::options().write(true).open(image).unwrap().set_len(64 << 20).unwrap();
    mkfs::make(device(image), &MkfsOptions::default(), &*Threads::new()).unwrap();
    let fs =
        F2fs::open(device(image), Threads::new(), &MountOptions::parse(option).unwrap()).unwrap();
    let ino = fs.create(fs.root(), b"gone", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    fs.write(ino, 0, &[1; 2 << 20], IoFlags::empty()).unwrap();
    fs.sync().unwrap();
    fs.unlink(fs.root(), b"gone").unwrap();
    fs.forget(ino, 1);
    fs.unmount().unwrap();
}

/// Size, arguments of mkfs, large files in blocks, mode, the last checkpoint's reason.
type Kind = (u64, &'static [&'static str], &'static [usize], Mode, Reason);

/// One boot for all images: closed ones, and ones that end with a runtime checkpoint.
#[test]
fn linux_mounts_checkpoints_of_every_kind() {
    let kinds: [Kind; 4] = [
        (64 << 20, &[], &[], Mode::Adaptive, Reason::Umount),
        (512 << 20, &[], &[3000], Mode::Adaptive, Reason::Sync),
        (512 << 20, &["-s", "2"], &[2000], Mode::Lfs, Reason::Sync),
        (512 << 20, &["-i"], &[1000], Mode::Adaptive, Reason::Umount),
    ];
    let dirs: Vec<tempfile::TempDir> = kinds.iter().map(|_| tempfile::tempdir().unwrap()).collect();
    let (mut vm, mut script, mut expected) = (Vm::new(), String::new(), Vec::new());
    for (index, ((size, args, large, mode, reason), dir)) in
        kinds.into_iter().zip(&dirs).enumerate()
    {
        let path = image(dir.path(), size, args, large);
        let store = open_with(device(&path), mode, false).expect("the core opens");
        for seed in [3, 5, 9] {
            stir(&store, seed);
            store.checkpoints.write(Reason::Sync).unwrap();
        }
        stir(&store, 4);
        store.checkpoints.write(reason).unwrap();
        let disk = char::from(b'a' + index as u8);
        let lines = format!(
            "mount -t f2fs /dev/vd{disk} /mnt\ncd /mnt\n{SUM}\necho more > more\ncd /\numount \
             /mnt\n"
        );
        script.write_str(&lines).unwrap();
        vm = vm.disk(&path);
        expected.push(sum(&dir.path().join("tree")));
    }
    // Linux believes what an unmount said of the free space.
    let trimmed =
        ["discard", "nodiscard"].map(|option| (option, tempfile::NamedTempFile::new().unwrap()));
    for (disk, (option, path)) in ('e'..).zip(&trimmed) {
        with_a_removed_file(path.path(), option);
        vm = vm.disk(path.path());
        let mounted = format!("mount -t f2fs -o nodiscard /dev/vd{disk} /mnt\n");
        script
            .write_str(&format!("{mounted}echo {option}; fstrim -v /mnt\numount /mnt\n"))
            .unwrap();
    }
    let text = vm.check(&script);
    let fstrim = |option| {
        let line = text
            .lines()
            .skip_while(|line| *line != option)
            .nth(1)
            .unwrap_or_else(|| panic!("{option}: {text}"));
        line.split(|c: char| !c.is_ascii_digit())
            .filter_map(|word| word.parse::<u64>().ok())
            .max()
            .unwrap_or_default()
    };
    assert_eq!(fstrim("discard"), 0, "{text}");
    assert!(fstrim("nodiscard") > 1 << 20, "{text}");
    let found: Vec<&str> = text.lines().filter_map(|line| line.strip_suffix("  -")).collect();
    assert_eq!(found, expected, "{text}");
    // What Linux made of it is right in its own tool's eyes, and in ours.
    for dir in &dirs {
        let path = dir.path().join("image");
        cairn_testkit::judge::assert_f2fs_clean(&path);
        let store = open_with(device(&path), Mode::Adaptive, false).expect("the core opens");
        stir(&store, 7);
        store.checkpoints.write(Reason::Umount).unwrap();
        cairn_testkit::judge::assert_f2fs_clean(&path);
    }
}
