//! The label of a live volume, by the ioctls that every filesystem of Linux has for it.

use std::path::Path;

use cairn_testkit::judge;

use crate::fixture::Volume;

/// `FS_IOC_GETFSLABEL`, after `FS_IOC_SETFSLABEL` if a label is given.
const IOCTLS: &str = r#"
import fcntl, os, sys
root = os.open(sys.argv[1], os.O_RDONLY)
if len(sys.argv) > 2:
    fcntl.ioctl(root, 0x41009432, os.fsencode(sys.argv[2]).ljust(256, b"\0"))
label = fcntl.ioctl(root, 0x81009431, bytes(256)).split(b"\0")[0]
sys.stdout.buffer.write(label)
"#;

fn ioctls(arguments: &[&str]) -> String {
    judge::run("python3", [&["-c", IOCTLS], arguments].concat())
}

fn change(mut volume: Volume, label: &str) {
    let root = volume.root();
    let root = root.to_str().unwrap();
    assert_eq!(ioctls(&[root]), "");
    assert_eq!(ioctls(&[root, label]), label);
    assert_eq!(ioctls(&[root]), label);
    let image = volume.image();
    let blkid = [
        Path::new("-p"),
        Path::new("-s"),
        Path::new("LABEL"),
        Path::new("-o"),
        Path::new("value"),
        &image,
    ];
    assert_eq!(judge::run("blkid", blkid).trim_end(), label, "it is on the image at once");
    volume.unmount();
    assert_eq!(judge::run("blkid", blkid).trim_end(), label);
    volume.mount("ro");
    assert_eq!(ioctls(&[root]), label);
    volume.unmount();
}

#[test]
fn the_label_of_ext4_is_set_while_it_is_mounted() {
    change(Volume::mounted(64 << 20, ""), "sixteen bytes ok");
}

/// In UTF-16 on the medium, of up to 511 units.
#[test]
fn the_label_of_f2fs_is_set_while_it_is_mounted() {
    change(Volume::f2fs(64 << 20, ""), "a label of F2FS that is longer than one of ext4 may be");
}
