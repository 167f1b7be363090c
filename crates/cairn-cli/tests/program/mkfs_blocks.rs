//! New volumes of every block size and of the older types have what mke2fs gives theirs.

use std::path::Path;

use cairn_testkit::judge;

use crate::support::{in_dir, works};

/// One block of descriptors, if it is large, describes a volume of any size: then no block is
/// reserved for more of them. e2fsck asks for the inode that would hold the reserved ones all the
/// same.
#[test]
fn the_inode_of_reserved_descriptors_is_there_whatever_the_block_size() {
    for (block_size, mib) in [(1024, 20), (4096, 20), (8192, 20), (8192, 100), (16384, 100)]
        .into_iter()
        .chain([(32768, 20), (65536, 20), (65536, 100)])
    {
        let (dir, image) = in_dir("disk.img");
        let theirs = dir.path().join("theirs.img");
        let bytes = block_size.to_string();
        judge::mke2fs(&theirs, mib << 20, &["-t", "ext4", "-b", &bytes]);
        works(&["mkfs", "-b", &bytes, "--size", &format!("{mib}M"), &image]);
        let ours = Path::new(&image);
        judge::assert_clean(ours);
        let of = |image: &Path| {
            let inode = judge::debugfs(image, "stat <7>");
            let size = |line: &&str| line.contains("Size: ") && line.contains("User:");
            let blocks = |line: &&str| line.contains("Blockcount");
            let (size, blocks) = (inode.lines().find(size), inode.lines().find(blocks));
            let of = |line: Option<&str>| line.unwrap().replace("Project:     0   ", "");
            (of(size), of(blocks))
        };
        assert_eq!(of(ours), of(&theirs), "blocks of {block_size}, {mib} MiB");
        // Numbers per group are rounded another way.
        let inodes = |image: &Path| {
            let text = judge::dumpe2fs(image);
            let line = text.lines().find(|line| line.starts_with("Inode count")).unwrap();
            line.split_whitespace().next_back().unwrap().parse::<u64>().unwrap()
        };
        let (ours, theirs) = (inodes(ours), inodes(&theirs));
        assert!(
            ours.abs_diff(theirs) <= theirs / 100,
            "blocks of {block_size}, {mib} MiB: {ours} inodes, {theirs} of mke2fs"
        );
    }
}

/// The features of mke2fs's own volumes of these types.
#[test]
fn the_older_types_have_mke2fs_s_features() {
    for kind in ["ext2", "ext3"] {
        let (dir, image) = in_dir("disk.img");
        let theirs = dir.path().join("theirs.img");
        judge::mke2fs(&theirs, 32 << 20, &["-t", kind]);
        works(&["mkfs", "-t", kind, "--size", "32M", &image]);
        let features = |image: &Path| {
            let text = judge::dumpe2fs(image);
            text.lines().find(|line| line.starts_with("Filesystem features")).unwrap().to_owned()
        };
        assert_eq!(features(Path::new(&image)), features(&theirs), "{kind}");
        judge::assert_clean(Path::new(&image));
        assert!(works(&["info", &image]).contains(&format!("type:                      {kind}\n")));
        // Features can be given beside the type.
        works(&["mkfs", "-F", "-t", kind, "-O", "^resize_inode", &image]);
        assert!(!features(Path::new(&image)).contains("resize_inode"));
        judge::assert_clean(Path::new(&image));
    }
}

/// The kernel mounts and fills volumes of these types, and e2fsck and Cairn find what it wrote.
#[test]
fn the_kernel_writes_the_older_types() {
    for kind in ["ext2", "ext3"] {
        let (_dir, image) = in_dir("disk.img");
        works(&["mkfs", "-t", kind, "--size", "32M", &image]);
        let mount = judge::KernelMount::new(Path::new(&image), "");
        let contents = vec![7; 3 << 20];
        for number in 0..4 {
            let directory = mount.path().join(format!("d{number}"));
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(directory.join("large"), &contents).unwrap();
            for small in 0..100 {
                std::fs::write(directory.join(format!("f{small}")), format!("{small}")).unwrap();
            }
        }
        std::fs::remove_dir_all(mount.path().join("d0")).unwrap();
        mount.unmount();
        judge::assert_clean(Path::new(&image));
        assert_eq!(works(&["cat", &image, "/d1/f42"]), "42", "{kind}");
        works(&["rm", "-r", &image, "/d1"]);
        judge::assert_clean(Path::new(&image));
        let mount = judge::KernelMount::new(Path::new(&image), "ro");
        assert!(std::fs::read(mount.path().join("d3/large")).unwrap() == contents, "{kind}");
        mount.unmount();
    }
}
