//! Linux mounts what the core wrote.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use cairn_f2fs::checkpoint::Reason;
use cairn_f2fs::segment::Mode;
use cairn_testkit::vm::Vm;

use crate::memory::stir;
use crate::volume::{device, image, open_with};

/// The names and contents of all regular files, in one sum; busybox's and coreutils' commands agree on it.
const SUM: &str = "find . -type f | sort | xargs md5sum | md5sum";

fn sum(dir: &Path) -> String {
    let output = Command::new("sh").arg("-c").arg(SUM).current_dir(dir).env("LC_ALL", "C").output().expect("sh starts");
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().expect("a sum").to_owned()
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
    for (index, ((size, args, large, mode, reason), dir)) in kinds.into_iter().zip(&dirs).enumerate() {
        let path = image(dir.path(), size, args, large);
        let store = open_with(device(&path), mode, false).expect("the core opens");
        for seed in [3, 5, 9] {
            stir(&store, seed);
            store.checkpoints.write(Reason::Sync).unwrap();
        }
        stir(&store, 4);
        store.checkpoints.write(reason).unwrap();
        let disk = char::from(b'a' + index as u8);
        let lines = format!("mount -t f2fs /dev/vd{disk} /mnt\ncd /mnt\n{SUM}\necho more > more\ncd /\numount /mnt\n");
        script.write_str(&lines).unwrap();
        vm = vm.disk(&path);
        expected.push(sum(&dir.path().join("tree")));
    }
    let text = vm.check(&script);
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
