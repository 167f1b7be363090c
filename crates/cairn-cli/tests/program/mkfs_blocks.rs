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
