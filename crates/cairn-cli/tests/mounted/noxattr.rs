//! `noxattr`: no program sees extended attributes, and those that are there survive, but for the
//! capabilities of programs that are changed.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::Path;

use cairn_testkit::judge;
use rustix::fs::{FallocateFlags, XattrFlags, fallocate, getxattr, listxattr, setxattr};
use rustix::io::Errno;

use crate::fixture::Volume;

/// A way to change a program, and its name.
type Change = (&'static str, fn(&Path));

const CHANGES: [Change; 5] = [
    ("written", |path| {
        File::options().write(true).open(path).unwrap().write_all_at(b"x", 0).unwrap();
    }),
    ("truncated", |path| File::options().write(true).open(path).unwrap().set_len(1).unwrap()),
    ("given away", |path| chown(path, Some(7), None).unwrap()),
    ("extended", |path| {
        let file = File::options().write(true).open(path).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, 1 << 16).unwrap();
    }),
    ("read", |path| drop(fs::read(path).unwrap())),
];

fn names(path: &Path) -> String {
    let mut list = vec![0_u8; 1000];
    let len = listxattr(path, &mut list).unwrap();
    String::from_utf8_lossy(&list[..len]).replace('\0', " ")
}

#[test]
fn attributes_are_neither_seen_nor_lost_and_changed_programs_lose_their_capabilities() {
    for mut volume in [Volume::mounted(64 << 20, ""), Volume::f2fs(64 << 20, "")] {
        for (name, _) in CHANGES {
            let path = volume.path(name);
            fs::write(&path, "program").unwrap();
            setxattr(&path, "user.a", b"value", XattrFlags::empty()).unwrap();
            judge::run("setcap", [Path::new("cap_net_raw+ep"), &path]);
        }
        let path = volume.path("read");
        judge::run("setfacl", [Path::new("-m"), Path::new("u:12345:rw"), &path]);
        volume.unmount();
        volume.mount("noxattr");
        let refused = Err(Errno::OPNOTSUPP);
        assert_eq!(getxattr(&path, "user.a", &mut [0_u8; 10]), refused);
        assert_eq!(listxattr(&path, &mut [0_u8; 10]), refused);
        let set = setxattr(&path, "user.b", b"x", XattrFlags::empty());
        assert_eq!(set, Err(Errno::OPNOTSUPP));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o664, "the mask");
        CHANGES.iter().for_each(|(name, change)| change(&volume.path(name)));
        volume.unmount();
        volume.mount("");
        for (name, _) in CHANGES {
            let found = names(&volume.path(name));
            assert!(found.contains("user.a"), "{name}: {found}");
            assert_eq!(found.contains("security.capability"), name == "read", "{name}: {found}");
            assert_eq!(found.contains("posix_acl_access"), name == "read", "{name}: {found}");
        }
        volume.unmount();
    }
}
