//! Access control lists in an image that no call can set, compared with the kernel's answers.

use std::path::Path;
use std::sync::Arc;

use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{KernelMount, mke2fs};
use cairn_vfs::FileSystem;
use cairn_vfs::acl::{ACCESS, Acl, Entry, Tag};
use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::support::open;

const NAME: &str = "system.posix_acl_access";

fn list() -> Acl {
    let tags = [Tag::UserObj, Tag::User(0x1122_3344), Tag::GroupObj, Tag::Mask, Tag::Other];
    Acl::new(tags.map(|tag| Entry { tag, permissions: 4 }).to_vec()).unwrap()
}

/// The number of the error, or the value.
fn kernels(image: &Path) -> Result<Vec<u8>, i32> {
    let mount = KernelMount::new(image, "ro");
    let mut value = [0; 200];
    let found = getxattr(mount.path().join("f"), NAME, &mut value[..])
        .map_err(|error| error.raw_os_error());
    mount.unmount();
    found.map(|len| value[..len].to_vec())
}

fn ours(image: &Path) -> Result<Vec<u8>, i32> {
    let fs = open(&Arc::new(read_image(image).unwrap()), "ro");
    let ino = fs.lookup(fs.root(), b"f").unwrap().ino;
    let found = fs.getxattr(ino, ACCESS).map_err(|error| error.errno());
    fs.forget(ino, 1);
    fs.unmount().unwrap();
    found
}

#[test]
fn stored_lists_of_any_size_and_shape_get_the_kernel_s_answer() {
    let file = tempfile::NamedTempFile::new().unwrap();
    mke2fs(file.path(), 8 << 20, &["-t", "ext4", "-O", "^metadata_csum,^metadata_csum_seed"]);
    let mount = KernelMount::new(file.path(), "");
    std::fs::write(mount.path().join("f"), "").unwrap();
    setxattr(mount.path().join("f"), NAME, &list().to_xattr(), XattrFlags::empty()).unwrap();
    mount.unmount();
    let whole = std::fs::read(file.path()).unwrap();
    let stored = list().to_compact();
    let at = whole
        .windows(stored.len())
        .position(|bytes| bytes == stored)
        .expect("the list lies in the inode");
    // Behind the magic number of the inode's attributes: lengths of name, index, place, inode, and
    // the size of the value.
    let magic = [0, 0, 2, 0xea];
    let entry = (0..at)
        .rev()
        .find(|place| whole[*place..].starts_with(&magic))
        .expect("attributes begin with their magic")
        + 4;
    assert_eq!(whole[entry + 8..entry + 12], 28_u32.to_le_bytes());
    let mut cases: Vec<(String, Vec<u8>)> = Vec::new();
    let mut case = |what: String, place: usize, bytes: &[u8]| {
        let mut image = whole.clone();
        image[place..place + bytes.len()].copy_from_slice(bytes);
        cases.push((what, image));
    };
    for size in 0..=28_u32 {
        case(format!("{size} bytes"), entry + 8, &size.to_le_bytes());
    }
    case("version 2".into(), at, &[2]);
    case("no tag".into(), at + 4, &[0]);
    case("an unknown tag".into(), at + 8, &[3]);
    case("not in order".into(), at + 4, &[0x20]);
    for (what, image) in cases {
        std::fs::write(file.path(), image).unwrap();
        assert_eq!(ours(file.path()), kernels(file.path()), "{what}");
    }
}
