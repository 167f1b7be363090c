//! Sound volumes of every kind: no findings.

use std::path::Path;

use cairn_testkit::judge::{EXT4_FORMATS, KernelMount, mke2fs, run};
use cairn_testkit::tree::{PathTarget, TreeSpec, build, plan};

use crate::checked::assert_clean;

/// Feature sets besides those that Cairn writes.
const MORE: &[(&str, &[&str])] = &[
    ("quota", &["-t", "ext4", "-O", "quota,project"]),
    ("bigalloc", &["-t", "ext4", "-O", "bigalloc", "-C", "16384"]),
    ("ea_inode", &["-t", "ext4", "-b", "1024", "-O", "ea_inode"]),
    ("casefold", &["-t", "ext4", "-O", "casefold"]),
    ("small groups", &["-t", "ext4", "-b", "1024", "-g", "1024", "-G", "4"]),
];

/// Files of many kinds, made by the kernel.
fn work(root: &Path, name: &str, seed: u64) {
    let xattrs = !name.starts_with("ext2");
    let spec = TreeSpec { xattrs, ..TreeSpec::small(seed) };
    build(&PathTarget::new(root), &plan(&spec));
    let many = root.join("many");
    std::fs::create_dir(&many).unwrap();
    for number in 0..400 {
        std::fs::write(many.join(format!("a name of some length, number {number}")), b"x").unwrap();
    }
    // A fragmented file, so that its tree has blocks.
    let file = std::fs::File::create(root.join("holes")).unwrap();
    for number in 0..700_u64 {
        std::os::unix::fs::FileExt::write_at(&file, b"data", number * 8192).unwrap();
    }
    let gone = many.join("gone");
    std::fs::create_dir(&gone).unwrap();
    std::fs::remove_dir(&gone).unwrap();
    std::os::unix::fs::symlink("x".repeat(200), root.join("slow")).unwrap();
    std::os::unix::fs::symlink("short", root.join("fast")).unwrap();
    if name == "ea_inode" {
        xattr_of(&root.join("holes"), 9000);
    } else if xattrs {
        xattr_of(&root.join("holes"), 300);
    }
}

fn xattr_of(path: &Path, len: usize) {
    let value = "v".repeat(len);
    run("setfattr", ["-n", "user.large", "-v", &value, path.to_str().unwrap()]);
}

#[test]
fn what_mke2fs_and_the_kernel_make_is_sound() {
    for (seed, (name, args)) in (1..).zip(EXT4_FORMATS.iter().chain(MORE)) {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        mke2fs(&image, 64 << 20, args);
        println!("{name}");
        assert_clean(&image);
        // A kernel may be without quotas and case-insensitive names.
        let mount = match KernelMount::try_new(&image, "") {
            Ok(mount) => mount,
            Err(why) => {
                assert!(matches!(*name, "quota" | "casefold"), "{name}: {why}");
                continue;
            }
        };
        work(mount.path(), name, seed);
        mount.unmount();
        assert_clean(&image);
    }
}
