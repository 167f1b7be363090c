//! Single wrong bits of file types and of the flags that say of which form contents are: a repair
//! that may lose nothing loses nothing.

use std::path::Path;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_testkit::crash::read_image;
use cairn_testkit::deep;
use cairn_testkit::judge::mke2fs;

use crate::repaired::{complaint, injected, place_of, plan, repaired, snapshot};

pub const PATHS: &[&str] =
    &["/dir", "/dir/file", "/dir/small", "/dir/empty", "/dir/fast", "/dir/slow"];
/// Bytes of a record and their bits: file types, `EXTENTS`, `INLINE_DATA`.
pub const BITS: &[(u64, u8)] = &[(1, 0x10), (1, 0x20), (1, 0x40), (1, 0x80), (34, 8), (35, 0x10)];
pub const PLAIN: &str = "^metadata_csum,^metadata_csum_seed,^has_journal,^resize_inode";

/// A volume with a file of each form, made without a mount.
pub fn sound(dir: &Path, args: &[&str]) -> std::path::PathBuf {
    let (tree, image) = (dir.join("tree"), dir.join("sound"));
    std::fs::create_dir_all(tree.join("dir")).unwrap();
    let at = tree.join("dir");
    let bytes: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(at.join("file"), &bytes).unwrap();
    std::fs::write(at.join("small"), &bytes[1..101]).unwrap();
    std::fs::write(at.join("empty"), "").unwrap();
    let link = |target: &str, name| std::os::unix::fs::symlink(target, at.join(name));
    link("some/target", "fast").unwrap();
    link(&"long/".repeat(30), "slow").unwrap();
    let args: Vec<&str> =
        args.iter().copied().chain(["-N", "64", "-d", tree.to_str().unwrap()]).collect();
    mke2fs(&image, 2 << 20, &args);
    image
}

/// The repair of a device: nothing is lost, and then all is as before, or nothing was written.
/// Returns whether it is repaired, or what is wrong.
fn nothing_is_lost(sound: &MemoryDevice, hurt: &MemoryDevice, at: &Path) -> Result<bool, String> {
    let safe = plan(hurt.fork(), Scope::Accounting).map_err(|why| why.to_string())?;
    let steps = || safe.steps.kept().iter().map(|step| format!("{step}\n")).collect::<String>();
    if safe.steps.losing().count() > 0 {
        return Err(steps());
    }
    if safe.after.count() > 0 || safe.is_refused {
        return if safe.changes.is_empty() { Ok(false) } else { Err(steps()) };
    }
    let (_, after) = repaired(hurt, Scope::Accounting).ok_or("refused")?;
    if let Some(said) = complaint(&after, at) {
        return Err(said);
    }
    let (before, after) = (snapshot(sound.fork()), snapshot(after));
    if before == after { Ok(true) } else { Err(before.diff(&after)) }
}

/// Changes each bit of each inode. `excused` are those of which nothing proves what they were.
fn sweep(args: &[&str], excused: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let image = sound(dir.path(), args);
    let (device, copy) = (read_image(&image).unwrap(), dir.path().join("copy"));
    let (mut left, mut wrong) = (Vec::new(), Vec::new());
    for path in PATHS {
        let place = place_of(&image, path);
        for (at, bit) in BITS {
            let what = format!("{path} {at} {bit:#x}");
            let hurt = device.fork();
            let byte = hurt.read_at(place + at, 1).unwrap()[0];
            hurt.write_at(place + at, vec![byte ^ bit]).unwrap();
            match nothing_is_lost(&device, &hurt, &copy) {
                Ok(true) => {}
                Ok(false) => left.push(what),
                Err(why) => wrong.push(format!("{what}: {why}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(left, excused);
}

#[test]
fn a_wrong_bit_of_a_type_or_form_loses_nothing_with_extents() {
    sweep(&["-t", "ext4", "-b", "1024", "-O", PLAIN], &[]);
}

#[test]
fn a_wrong_bit_of_a_type_or_form_loses_nothing_with_block_maps() {
    sweep(&["-t", "ext2", "-b", "1024"], &[]);
}

#[test]
fn a_wrong_bit_of_a_type_or_form_loses_nothing_with_inline_data() {
    sweep(&["-t", "ext4", "-b", "1024", "-I", "256", "-O", &format!("inline_data,{PLAIN}")], &[]);
}

/// With checksums, the inode is one that was written on purpose: what it has is kept as well.
#[test]
fn a_wrong_type_with_a_right_checksum_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let image = sound(dir.path(), &["-t", "ext4", "-b", "1024"]);
    let (device, copy) = (read_image(&image).unwrap(), dir.path().join("copy"));
    let types: &[&str] = &["0140755", "0160755", "040755", "0100755", "0120755", "0"];
    for path in PATHS {
        for (number, mode) in types.iter().enumerate() {
            if !deep() && number % 3 != path.len() % 3 {
                continue;
            }
            let what = format!("sif {path} mode {mode}");
            let hurt = injected(&image, &copy, &what);
            let safe = plan(hurt.fork(), Scope::Accounting).unwrap();
            assert_eq!(safe.steps.losing().count(), 0, "{what}");
            let Some((_, after)) = repaired(&hurt, Scope::Accounting) else { continue };
            if safe.after.count() == 0 {
                assert_eq!(complaint(&after, &copy), None, "{what}");
                // The permissions are those of the request.
                let contents = |device: &MemoryDevice| snapshot(device.fork()).len();
                assert_eq!(contents(&device), contents(&after), "{what}");
            }
        }
    }
}

/// The flag of an inode that holds a value was believed, and set the volume's feature: no attribute
/// had the value, so the file went.
#[test]
fn a_file_with_the_flag_of_a_value_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let image = sound(dir.path(), &["-t", "ext4", "-b", "1024"]);
    let (device, copy) = (read_image(&image).unwrap(), dir.path().join("copy"));
    for path in ["/dir/file", "/dir/small", "/dir"] {
        let what = format!("sif {path} flags 0x280000");
        let hurt = injected(&image, &copy, &what);
        for scope in [Scope::Accounting, Scope::All] {
            let (plan, after) = repaired(&hurt, scope).expect(&what);
            assert_eq!(plan.steps.losing().count(), 0, "{what}: {:?}", plan.steps.kept());
            assert_eq!(complaint(&after, &copy), None, "{what}");
            assert_eq!(snapshot(device.fork()).len(), snapshot(after).len(), "{what}");
        }
    }
}

/// All losses allowed, an inode with contents of a known form is not cleared.
#[test]
fn an_unknown_type_clears_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let image = sound(dir.path(), &["-t", "ext4", "-b", "1024"]);
    let (device, copy) = (read_image(&image).unwrap(), dir.path().join("copy"));
    for path in PATHS {
        let what = format!("sif {path} mode 0160755");
        let hurt = injected(&image, &copy, &what);
        let (plan, after) = repaired(&hurt, Scope::All).expect(&what);
        assert_eq!(plan.steps.losing().count(), 0, "{what}: {:?}", plan.steps.kept());
        assert_eq!(complaint(&after, &copy), None, "{what}");
        assert_eq!(snapshot(device.fork()).len(), snapshot(after).len(), "{what}");
    }
}

/// A symbolic link in an inode is as long as the room for it, or has no flag: a small file with
/// contents in its inode is none.
#[test]
fn a_small_file_in_its_inode_is_no_symbolic_link() {
    let dir = tempfile::tempdir().unwrap();
    let hurt = dir.path().join("hurt");
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("dir")).unwrap();
    std::fs::write(tree.join("dir/tiny"), "81").unwrap();
    let path = sound(dir.path(), &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "inline_data"]);
    let before = read_image(&path).unwrap();
    let device = injected(&path, &hurt, "sif /dir/tiny mode 0120644");
    assert!(complaint(&device, &hurt).is_some());
    assert_eq!(nothing_is_lost(&before, &device, &hurt), Ok(true));
}
