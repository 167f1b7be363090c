//! `sync` and `dirsync` under power cuts: each call goes through the kernel, and the power fails
//! when it has returned. With both options names are durable. With `sync`, contents, permissions
//! and attributes are durable, too.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::simulated::Simulated;
use cairn_block::memory::MemoryDevice;
use cairn_fuse::MountOptions;
use cairn_testkit::crash::{Cut, Volatile, read_image, write_image};
use cairn_testkit::judge;
use cairn_testkit::tree::{Snapshot, SnapshotOptions, digest_path, digest_volume};
use rustix::fs::{XattrFlags, setxattr};

use crate::fixture::require_mounting;
use crate::recorded::{Recorded, open};

/// Reading also changes times.
const FACTS: SnapshotOptions =
    SnapshotOptions { times: false, sectors: false, directory_links: true };

/// A call below the root of the mount.
type Call = (&'static str, fn(&Path));

const CALLS: &[Call] = &[
    ("mkdir", |root| fs::create_dir(root.join("d")).unwrap()),
    ("create", |root| drop(File::create(root.join("d/f")).unwrap())),
    ("write", |root| write(root, &[1; 9000])),
    ("write more", |root| write(root, &[2; 5000])),
    ("chmod", |root| fs::set_permissions(root.join("d/f"), Permissions::from_mode(0o600)).unwrap()),
    ("chown", |root| std::os::unix::fs::chown(root.join("d/f"), Some(1), Some(2)).unwrap()),
    ("setxattr", |root| setxattr(root.join("d/f"), "user.a", b"b", XattrFlags::empty()).unwrap()),
    ("link", |root| fs::hard_link(root.join("d/f"), root.join("d/g")).unwrap()),
    ("rename", |root| fs::rename(root.join("d/g"), root.join("h")).unwrap()),
    ("symlink", |root| symlink("d/f", root.join("s")).unwrap()),
    ("truncate", |root| {
        File::options().write(true).open(root.join("h")).unwrap().set_len(100).unwrap()
    }),
    ("unlink", |root| fs::remove_file(root.join("d/f")).unwrap()),
    ("rmdir", |root| fs::remove_dir(root.join("d")).unwrap()),
];

fn write(root: &Path, bytes: &[u8]) {
    File::options().append(true).open(root.join("d/f")).unwrap().write_all(bytes).unwrap();
}

/// The type of each name's inode, which `dirsync` makes durable.
fn kinds(tree: &Snapshot) -> Vec<(String, String)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned())
    };
    tree.to_text().lines().map(line).collect()
}

/// The error is the first call after which a power cut loses a durable change of `dirsync` or
/// `sync`.
fn search(
    dirsync_only: bool,
    options: &MountOptions,
    fresh: &MemoryDevice,
    clean: fn(&Path),
) -> Result<(), String> {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let volume = Recorded::mount(dir.path(), fresh.fork(), options);
    let mut promised = Vec::new();
    for (name, call) in CALLS {
        call(&volume.point);
        let moment = volume.moment();
        promised.push((name, moment, digest_path(&volume.point, FACTS).unwrap()));
    }
    let log = volume.finish();
    for (name, moment, tree) in promised {
        let device = Arc::new(log.device(Cut { moment, volatile: Volatile::Lost }));
        let fs = open(device.clone(), Simulated::new(1))?;
        let found = digest_volume(&*fs, FACTS).map_err(|error| error.to_string())?;
        fs.unmount().map_err(|error| error.to_string())?;
        drop(fs);
        let kept = if dirsync_only { kinds(&found) == kinds(&tree) } else { found == tree };
        if !kept {
            return Err(format!("power fails after {name}:\n{}", found.diff(&tree)));
        }
        let image = dir.path().join("image");
        write_image(&device, &image).unwrap();
        clean(&image);
    }
    Ok(())
}

fn search_both(fresh: &MemoryDevice, clean: fn(&Path)) {
    require_mounting();
    let none = MountOptions::new("synchronous");
    let sync = MountOptions { sync: true, ..none.clone() };
    let dirsync = MountOptions { dirsync: true, ..none.clone() };
    for (dirsync_only, options) in [(false, &sync), (true, &dirsync)] {
        search(dirsync_only, options, fresh, clean)
            .unwrap_or_else(|error| panic!("{options:?}: {error}"));
    }
    for (dirsync_only, options) in [(false, &dirsync), (false, &none), (true, &none)] {
        search(dirsync_only, options, fresh, clean)
            .expect_err("the options are not what makes calls durable");
    }
}

#[test]
fn every_call_on_a_synchronous_mount_of_ext4_survives_a_power_cut() {
    let file = tempfile::NamedTempFile::new().unwrap();
    judge::mke2fs(file.path(), 16 << 20, &["-t", "ext4", "-b", "4096", "-J", "size=4"]);
    search_both(&read_image(file.path()).unwrap(), judge::assert_clean);
}

#[test]
fn every_call_on_a_synchronous_mount_of_f2fs_survives_a_power_cut() {
    search_both(&judge::f2fs_in_memory(64 << 20, &[]), judge::assert_f2fs_clean);
}
