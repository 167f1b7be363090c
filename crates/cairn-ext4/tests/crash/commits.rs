//! The commits of fsync and fdatasync, compared with the kernel's ext4: never fewer than in Linux,
//! and more only where the table says so. fdatasync of Linux leaves out everything that is not
//! needed to read the data; Cairn's leaves out only times.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_ext4::Ext4;
use cairn_testkit::crash::write_image;
use cairn_testkit::judge::KernelMount;
use cairn_vfs::{
    AllocateMode, Caller, FileSystem, IoFlags, NewInode, SetAttributes, SetTime, XattrMode,
};
use rustix::fs::{FallocateFlags, XattrFlags, fallocate, setxattr};

use crate::K4;
use crate::run::{format, open, shm};

const LEN: usize = 8192;

/// A different time with each call, and never the current one, because the clock may not have
/// advanced since the last change.
fn then() -> SystemTime {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + CALLS.fetch_add(1, Ordering::Relaxed))
}

/// A change of a durable file of [`LEN`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    Overwrite,
    Times,
    Append,
    Truncate,
    Extend,
    Preallocate,
    PreallocateMore,
    Punch,
    Mode,
    Owner,
    SetXattr,
    RemoveXattr,
    Link,
    /// Another file, with an attribute.
    Create,
}

/// The file's name is `file`; that of a new one is `new`.
trait Side {
    fn prepare(&mut self);
    fn change(&mut self, change: Change);
    fn sync(&mut self, data_only: bool);
    /// Transactions so far.
    fn commits(&self) -> u64;
}

struct Linux {
    // It is dropped before the mount.
    file: Option<File>,
    mount: KernelMount,
    info: PathBuf,
}

impl Linux {
    fn path(&self, name: &str) -> PathBuf {
        self.mount.path().join(name)
    }

    fn open(&mut self, name: &str) -> &File {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path(name));
        self.file.insert(file.unwrap())
    }
}

impl Side for Linux {
    fn prepare(&mut self) {
        let file = self.open("file");
        file.write_all_at(&[1; LEN], 0).unwrap();
        setxattr(self.path("file"), "user.old", b"value", XattrFlags::empty()).unwrap();
        self.change(Change::Times);
        rustix::fs::syncfs(self.file.as_ref().unwrap()).unwrap();
    }

    fn change(&mut self, change: Change) {
        let path = self.path("file");
        let file = self.file.as_ref().unwrap();
        match change {
            Change::Nothing => {}
            Change::Overwrite => file.write_all_at(&[2; 4096], 0).unwrap(),
            Change::Times => file.set_modified(then()).unwrap(),
            Change::Append => file.write_all_at(&[2; 4096], LEN as u64).unwrap(),
            Change::Truncate => file.set_len(100).unwrap(),
            Change::Extend => file.set_len(100_000).unwrap(),
            Change::Preallocate => {
                fallocate(file, FallocateFlags::KEEP_SIZE, 1 << 16, 1 << 16).unwrap()
            }
            Change::PreallocateMore => {
                fallocate(file, FallocateFlags::empty(), 1 << 16, 1 << 16).unwrap()
            }
            Change::Punch => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, flags, 0, 4096).unwrap();
            }
            Change::Mode => file.set_permissions(Permissions::from_mode(0o600)).unwrap(),
            Change::Owner => std::os::unix::fs::chown(path, Some(1), None).unwrap(),
            Change::SetXattr => setxattr(path, "user.a", b"value", XattrFlags::empty()).unwrap(),
            Change::RemoveXattr => rustix::fs::removexattr(path, "user.old").unwrap(),
            Change::Link => std::fs::hard_link(path, self.path("link")).unwrap(),
            Change::Create => {
                self.open("new");
                setxattr(self.path("new"), "user.a", b"value", XattrFlags::empty()).unwrap();
            }
        }
    }

    fn sync(&mut self, data_only: bool) {
        let file = self.file.as_ref().unwrap();
        if data_only { file.sync_data() } else { file.sync_all() }.unwrap();
    }

    fn commits(&self) -> u64 {
        let info = std::fs::read_to_string(&self.info).unwrap();
        info.split(' ').next().unwrap().parse().unwrap()
    }
}

struct Cairn {
    fs: Arc<Ext4>,
    ino: Ino,
}

impl Side for Cairn {
    fn prepare(&mut self) {
        self.fs.write(self.ino, 0, &[1; LEN], IoFlags::empty()).unwrap();
        self.fs.setxattr(self.ino, b"user.old", b"value", XattrMode::Set).unwrap();
        self.change(Change::Times);
        self.fs.sync().unwrap();
    }

    fn change(&mut self, change: Change) {
        let (fs, ino) = (&self.fs, self.ino);
        let write = |byte, at| {
            assert_eq!(fs.write(ino, at, &[byte; 4096], IoFlags::empty()).unwrap(), 4096)
        };
        let set = |set: SetAttributes| {
            fs.setattr(ino, &set).unwrap();
        };
        let allocate = |mode, at, len| fs.allocate(ino, mode, at, len).unwrap();
        match change {
            Change::Nothing => {}
            Change::Overwrite => write(2, 0),
            Change::Times => {
                set(SetAttributes { mtime: Some(SetTime::To(then().into())), ..Default::default() })
            }
            Change::Append => write(2, LEN as u64),
            Change::Truncate => set(SetAttributes { size: Some(100), ..Default::default() }),
            Change::Extend => set(SetAttributes { size: Some(100_000), ..Default::default() }),
            Change::Preallocate => allocate(AllocateMode::KeepSize, 1 << 16, 1 << 16),
            Change::PreallocateMore => allocate(AllocateMode::Extend, 1 << 16, 1 << 16),
            Change::Punch => allocate(AllocateMode::PunchHole, 0, 4096),
            Change::Mode => set(SetAttributes { permissions: Some(0o600), ..Default::default() }),
            Change::Owner => set(SetAttributes { uid: Some(1), ..Default::default() }),
            Change::SetXattr => fs.setxattr(ino, b"user.a", b"value", XattrMode::Set).unwrap(),
            Change::RemoveXattr => fs.removexattr(ino, b"user.old").unwrap(),
            Change::Link => drop(fs.link(ino, fs.root(), b"link").unwrap()),
            Change::Create => {
                self.ino = create(fs, b"new");
                self.fs.setxattr(self.ino, b"user.a", b"value", XattrMode::Set).unwrap();
            }
        }
    }

    fn sync(&mut self, data_only: bool) {
        self.fs.fsync(self.ino, 0, data_only).unwrap();
    }

    fn commits(&self) -> u64 {
        self.fs.report().u64("journal.transactions").unwrap()
    }
}

fn create(fs: &Ext4, name: &[u8]) -> Ino {
    fs.create(fs.root(), name, NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino
}

/// Counts the commits of fdatasync, of fsync after another change of the same kind, and of a second
/// call of each, which must be 0.
fn commits(make: &dyn Fn() -> Box<dyn Side>, change: Change) -> [u64; 2] {
    [true, false].map(|data_only| {
        let mut side = make();
        side.prepare();
        side.change(change);
        let before = side.commits();
        side.sync(data_only);
        let spent = side.commits() - before;
        side.sync(data_only);
        assert_eq!(
            side.commits() - before,
            spent,
            "{change:?}, data_only {data_only}: a second one commits again"
        );
        spent
    })
}

fn on_linux() -> Box<dyn Side> {
    let dir = shm();
    let image = dir.path().join("image");
    write_image(&format(dir.path(), K4, 16), &image).unwrap();
    // There are only requested commits.
    let mount = KernelMount::new(&image, "commit=300,noinit_itable");
    let device = mount.device().file_name().unwrap().to_str().unwrap().to_owned();
    let info = PathBuf::from(format!("/proc/fs/jbd2/{device}-8/info"));
    // The loop device holds the file.
    Box::new(Linux { file: None, mount, info })
}

fn on_cairn() -> Box<dyn Side> {
    let device: Arc<dyn BlockDevice> = Arc::new(format(shm().path(), K4, 16));
    let fs = open(device, Simulated::new(1), "").unwrap();
    let ino = create(&fs, b"file");
    Box::new(Cairn { fs, ino })
}

/// Commits of fdatasync and fsync: Linux's, Cairn's.
const TABLE: &[(Change, [u64; 2], [u64; 2])] = &[
    (Change::Nothing, [0, 0], [0, 0]),
    (Change::Overwrite, [0, 1], [0, 1]),
    (Change::Times, [0, 1], [0, 1]),
    (Change::Append, [1, 1], [1, 1]),
    (Change::Truncate, [1, 1], [1, 1]),
    (Change::Extend, [1, 1], [1, 1]),
    (Change::Preallocate, [1, 1], [1, 1]),
    (Change::PreallocateMore, [1, 1], [1, 1]),
    (Change::Punch, [1, 1], [1, 1]),
    (Change::Create, [1, 1], [1, 1]),
    // Linux keeps these back until fsync.
    (Change::Mode, [0, 1], [1, 1]),
    (Change::Owner, [0, 1], [1, 1]),
    (Change::SetXattr, [0, 1], [1, 1]),
    (Change::RemoveXattr, [0, 1], [1, 1]),
    (Change::Link, [0, 1], [1, 1]),
];

#[test]
fn fsync_and_fdatasync_commit_what_the_table_says_and_never_less_than_linux() {
    let mut wrong = Vec::new();
    for (change, linux, cairn) in TABLE {
        let measured = (commits(&on_linux, *change), commits(&on_cairn, *change));
        if measured != (*linux, *cairn) {
            wrong.push(format!("{change:?}: Linux {:?}, Cairn {:?}", measured.0, measured.1));
        }
        assert!(cairn.iter().zip(linux).all(|(cairn, linux)| cairn >= linux), "{change:?}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
