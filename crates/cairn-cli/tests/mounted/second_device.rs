//! A volume on two devices, mounted with the second one named.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use cairn_testkit::judge::{assert_f2fs_clean, run};
use cairn_testkit::place::Place;

use crate::fixture::{CAIRN, is_mounted, require_mounting};

/// More than fits on the first device.
const LEN: usize = 64 << 20;

#[test]
fn a_volume_is_mounted_with_its_second_device_named() {
    require_mounting();
    let dir = Place::inside(Path::new("/dev/shm"));
    let [image, second, away, point] =
        ["first", "second", "elsewhere", "mnt"].map(|name| dir.path().join(name));
    fs::create_dir(&point).unwrap();
    File::create(&second).unwrap().set_len(128 << 20).unwrap();
    let arguments = ["mkfs", "-F", "-t", "f2fs", "--size", "64M", "-c"].map(Path::new);
    run(CAIRN, arguments.into_iter().chain([&*second, &*image]));
    // The device is not at the path in the superblock. Only the caller of mount knows its path.
    fs::rename(&second, &away).unwrap();
    let refused = Command::new(CAIRN).arg("mount").args([&image, &point]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(3) && said.contains("second"), "{said}");
    let option = format!("device={}", away.display());
    for (round, named) in
        [["--device", away.to_str().unwrap()], ["-o", &option]].into_iter().enumerate()
    {
        run(CAIRN, ["mount"].into_iter().chain(named).map(Path::new).chain([&*image, &*point]));
        assert!(is_mounted(&point));
        let file = point.join("file");
        if round == 0 {
            fs::write(&file, vec![7; LEN]).unwrap();
        }
        let read = fs::read(&file);
        run(CAIRN, [Path::new("umount"), &*point]);
        assert!(read.unwrap() == vec![7; LEN], "{named:?}");
    }
    fs::rename(&away, &second).unwrap();
    assert_f2fs_clean(&image);
}
