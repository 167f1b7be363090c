//! How many requests the kernel sends for what programs do with small files, by the options of the
//! mount. Every request costs two context switches, so these numbers bound the speed of a mount.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::fixture::Volume;

/// Bytes of a volume: so many that it is not nearly full, where the kernel asks before each write.
const SIZE: u64 = 1 << 30;
/// Files of a workload.
const FILES: usize = 12;

/// Options, and the requests for each file that is made, made and synchronised, listed, renamed,
/// and removed.
///
/// With the writeback cache the kernel sends a SETATTR for a new file if its clock ticked between
/// the creation and the write. That is not counted there.
const COSTS: &[(&str, [&str; 5])] = &[
    (
        "",
        [
            "create getattr getxattr lookup release write",
            "create fsync getattr getxattr lookup release write",
            "getxattr",
            "getattr lookup rename",
            "getattr unlink",
        ],
    ),
    (
        "no_open",
        [
            "getattr getxattr lookup mknod write",
            "fsync getattr getxattr lookup mknod write",
            "getxattr",
            "getattr lookup rename",
            "getattr unlink",
        ],
    ),
    (
        "noxattr",
        [
            "create getattr lookup release write",
            "create fsync getattr lookup release write",
            "",
            "getattr lookup rename",
            "getattr unlink",
        ],
    ),
    (
        "private",
        [
            "create getxattr lookup release write",
            "create fsync getxattr lookup release write",
            "getxattr",
            "lookup rename",
            "unlink",
        ],
    ),
    (
        "build",
        [
            "getxattr lookup mknod write",
            "fsync getxattr lookup mknod write",
            "getxattr",
            "lookup rename",
            "unlink",
        ],
    ),
    (
        "build,noxattr",
        ["lookup mknod write", "fsync lookup mknod write", "", "lookup rename", "unlink"],
    ),
];

fn counters(volume: &Volume) -> BTreeMap<String, u64> {
    let stats = volume.stats();
    let requests = stats["fuse"]["requests"].as_object().unwrap();
    requests.iter().map(|(kind, count)| (kind.clone(), count.as_u64().unwrap())).collect()
}

/// The requests of `work` for each file, those that come for all files together left out.
fn each(volume: &Volume, options: &str, work: impl FnOnce()) -> String {
    let before = counters(volume);
    work();
    let after = counters(volume);
    let keeps_times = !options.contains("build");
    let counts = |kind: &str| kind != "forget" && !(kind == "setattr" && keeps_times);
    let requests = after.iter().filter(|(kind, _)| counts(kind)).map(|(kind, count)| {
        let count = (count - before.get(kind).unwrap_or(&0)) as usize;
        // A directory costs some requests, too.
        (kind.as_str(), (count + FILES / 3) / FILES)
    });
    let words = requests.flat_map(|(kind, count)| std::iter::repeat_n(kind, count));
    words.collect::<Vec<_>>().join(" ")
}

fn make(volume: &Volume, number: usize) -> File {
    // As fs_mark does.
    let path = volume.path(&format!("dir/file {number}"));
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create(true).mode(0o600).open(path).unwrap();
    file.write_all(&[1; 4096]).unwrap();
    file
}

/// The standard library would ask for the time of creation, too, which the kernel does not keep.
fn size(path: &Path) -> i64 {
    rustix::fs::lstat(path).unwrap().st_size
}

fn costs(volume: &Volume, options: &str) -> [String; 5] {
    let path = |name: &str, number: usize| volume.path(&format!("dir/{name} {number}"));
    fs::create_dir(volume.path("dir")).unwrap();
    // With the first file the kernel learns what it need not ask.
    make(volume, 9999);
    let made = each(volume, options, || (0..FILES).for_each(|number| drop(make(volume, number))));
    let synced = each(volume, options, || {
        (FILES..2 * FILES).for_each(|number| make(volume, number).sync_all().unwrap());
    });
    // One attribute of each file, as `ls -l` asks for it.
    let listed = each(volume, options, || {
        for entry in fs::read_dir(volume.path("dir")).unwrap().take(FILES) {
            let entry = entry.unwrap();
            assert_eq!(size(&entry.path()), 4096);
            let found = rustix::fs::getxattr(entry.path(), "user.none", &mut [0_u8; 10]);
            assert!(found.is_err());
        }
    });
    let renamed = each(volume, options, || {
        (0..FILES)
            .for_each(|number| fs::rename(path("file", number), path("new", number)).unwrap());
    });
    let removed = each(volume, options, || {
        (0..FILES).for_each(|number| fs::remove_file(path("new", number)).unwrap());
    });
    [made, synced, listed, renamed, removed]
}

#[test]
fn options_save_the_requests_that_they_are_for() {
    let mut wrong = Vec::new();
    for (options, expected) in COSTS {
        for mut volume in [Volume::mounted(SIZE, options), Volume::f2fs(SIZE, options)] {
            let found = costs(&volume, options);
            println!("{options}: {found:?}");
            if found != *expected {
                wrong.push(format!("{options}: {found:#?} instead of {expected:#?}"));
            }
            volume.unmount();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What was listed is not looked up again, and what is not there is not, either.
#[test]
fn names_are_asked_for_once() {
    for mut volume in [Volume::mounted(SIZE, ""), Volume::f2fs(SIZE, "")] {
        fs::create_dir(volume.path("dir")).unwrap();
        (0..FILES).for_each(|number| drop(make(&volume, number)));
        volume.remount();
        let listed = each(&volume, "", || {
            for entry in fs::read_dir(volume.path("dir")).unwrap() {
                assert_eq!(size(&entry.unwrap().path()), 4096);
            }
        });
        assert_eq!(listed, "", "one READDIRPLUS for all files");
        let missing = || {
            (0..FILES).for_each(|number| {
                assert!(!volume.path(&format!("dir/none {number}")).exists());
            });
        };
        assert_eq!(each(&volume, "", missing), "lookup");
        assert_eq!(each(&volume, "", missing), "");
        let mut text = Vec::new();
        File::open(volume.path("dir/file 3")).unwrap().read_to_end(&mut text).unwrap();
        assert_eq!(text, [1; 4096]);
        volume.unmount();
    }
}
