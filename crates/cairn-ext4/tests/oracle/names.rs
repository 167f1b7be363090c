//! Invalid names, and renames without effect, compared with the system calls of the running kernel.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cairn_base::Ino;
use cairn_testkit::model::Model;
use cairn_vfs::{
    Caller, Error, FileSystem, InodeFlags, NewInode, RenameMode, Result, SetAttributes,
};
use rustix::fs::{CWD, Mode, RenameFlags};

use crate::support::{judge, open, volume};

const ODD: &[&str] = &[".", "..", "a name that is fine"];

/// Two directories `a` and `b` with a file `f` in each, and how to reach them.
trait Place {
    fn calls(&self, name: &str) -> Vec<(String, i32)>;
}

struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join("f"), b"").unwrap();
        }
        Self(dir)
    }

    /// `Path::join` would drop a dot.
    fn at(&self, dir: &str, name: &str) -> PathBuf {
        let mut path = self.0.path().as_os_str().as_bytes().to_vec();
        path.extend(format!("/{dir}/{name}").bytes());
        PathBuf::from(std::ffi::OsStr::from_bytes(&path))
    }
}

fn number(done: rustix::io::Result<()>) -> i32 {
    done.err().map_or(0, rustix::io::Errno::raw_os_error)
}

impl Place for Host {
    fn calls(&self, name: &str) -> Vec<(String, i32)> {
        let path = self.at("a", name);
        let below_file = self.at("a/f", name);
        let file = self.at("b", "f");
        let rename = |from: &Path, to: &Path, flags| {
            number(rustix::fs::renameat_with(CWD, from, CWD, to, flags))
        };
        let none = RenameFlags::empty();
        let mode = Mode::from_raw_mode(0o755);
        let told = [
            ("mkdir", number(rustix::fs::mkdir(&path, mode))),
            ("rmdir", number(rustix::fs::rmdir(&path))),
            ("symlink", number(rustix::fs::symlink("target", &path))),
            ("link", number(rustix::fs::link(&file, &path))),
            ("rename from", rename(&path, &self.at("b", "new"), none)),
            ("rename to", rename(&self.at("b", "new"), &path, none)),
            ("rename to, no replace", rename(&file, &path, RenameFlags::NOREPLACE)),
            ("unlink", number(rustix::fs::unlink(&path))),
            ("mkdir below a file", number(rustix::fs::mkdir(&below_file, mode))),
            ("rmdir below a file", number(rustix::fs::rmdir(&below_file))),
            ("unlink below a file", number(rustix::fs::unlink(&below_file))),
            ("rename to below a file", rename(&file, &below_file, none)),
        ];
        told.map(|(what, errno)| (what.to_owned(), errno)).to_vec()
    }
}

/// A volume, or the oracle, with the same directories.
struct Volume<'a> {
    fs: &'a dyn FileSystem,
    a: Ino,
    b: Ino,
    file_a: Ino,
    file_b: Ino,
}

impl<'a> Volume<'a> {
    fn new(fs: &'a dyn FileSystem) -> Self {
        let make = |parent, name: &str, new| {
            fs.create(parent, name.as_bytes(), new, 0o755, &Caller::ROOT).unwrap().ino
        };
        let [a, b] = ["a", "b"].map(|name| make(fs.root(), name, NewInode::Directory));
        let [file_a, file_b] = [a, b].map(|dir| make(dir, "f", NewInode::Regular));
        Self { fs, a, b, file_a, file_b }
    }

    fn create(&self, parent: Ino, name: &str, new: NewInode<'_>) -> Result<()> {
        let made = self.fs.create(parent, name.as_bytes(), new, 0o755, &Caller::ROOT)?;
        self.fs.forget(made.ino, 1);
        Ok(())
    }
}

impl Place for Volume<'_> {
    fn calls(&self, name: &str) -> Vec<(String, i32)> {
        let (fs, bytes) = (self.fs, name.as_bytes());
        let number = |done: Result<()>| done.as_ref().err().map_or(0, Error::errno);
        let rename = |from: (Ino, &[u8]), to: (Ino, &[u8]), mode| {
            number(fs.rename(from.0, from.1, to.0, to.1, mode))
        };
        let link = || fs.link(self.file_b, self.a, bytes).map(|_| fs.forget(self.file_b, 1));
        let told = [
            ("mkdir", number(self.create(self.a, name, NewInode::Directory))),
            ("rmdir", number(fs.rmdir(self.a, bytes))),
            ("symlink", number(self.create(self.a, name, NewInode::Symlink(b"target")))),
            ("link", number(link())),
            ("rename from", rename((self.a, bytes), (self.b, b"new"), RenameMode::Replace)),
            ("rename to", rename((self.b, b"new"), (self.a, bytes), RenameMode::Replace)),
            (
                "rename to, no replace",
                rename((self.b, b"f"), (self.a, bytes), RenameMode::NoReplace),
            ),
            ("unlink", number(fs.unlink(self.a, bytes))),
            ("mkdir below a file", number(self.create(self.file_a, name, NewInode::Directory))),
            ("rmdir below a file", number(fs.rmdir(self.file_a, bytes))),
            ("unlink below a file", number(fs.unlink(self.file_a, bytes))),
            (
                "rename to below a file",
                rename((self.b, b"f"), (self.file_a, bytes), RenameMode::Replace),
            ),
        ];
        told.map(|(what, errno)| (what.to_owned(), errno)).to_vec()
    }
}

#[test]
fn dots_get_the_answers_of_the_system_calls() {
    let device = volume(8 << 20, &["-t", "ext4"]);
    let fs = open(&device, "");
    let model = Model::new();
    let (ours, oracle, host) = (Volume::new(&*fs), Volume::new(&model), Host::new());
    for name in ODD {
        let expected = host.calls(name);
        assert_eq!(oracle.calls(name), expected, "the oracle, `{name}`");
        assert_eq!(ours.calls(name), expected, "ext4, `{name}`");
    }
    fs.unmount().unwrap();
    judge(&device);
}

#[test]
fn an_empty_name_is_not_found() {
    let device = volume(8 << 20, &["-t", "ext4"]);
    let fs = open(&device, "ro");
    let model = Model::new();
    assert!(matches!(
        model.create(model.root(), b"", NewInode::Regular, 0o644, &Caller::ROOT),
        Err(Error::NotFound)
    ));
    assert!(matches!(fs.lookup(fs.root(), b""), Err(Error::NotFound)));
    drop(fs);
    let fs = open(&device, "");
    assert!(matches!(
        fs.create(fs.root(), b"", NewInode::Regular, 0o644, &Caller::ROOT),
        Err(Error::NotFound)
    ));
    assert!(matches!(fs.unlink(fs.root(), b""), Err(Error::NotFound)));
}

/// Linux compares the inodes before it checks the directories.
#[test]
fn two_names_of_one_file_may_be_renamed_in_directories_that_allow_nothing() {
    let device = volume(8 << 20, &["-t", "ext2"]);
    let fs = open(&device, "");
    let model = Model::new();
    for fs in [&*fs as &dyn FileSystem, &model] {
        let places = Volume::new(fs);
        fs.link(places.file_a, places.b, b"same").unwrap();
        for (dir, flags) in [(places.a, InodeFlags::IMMUTABLE), (places.b, InodeFlags::APPEND)] {
            fs.setattr(dir, &SetAttributes { flags: Some(flags), ..SetAttributes::default() })
                .unwrap();
        }
        let rename = |name: &[u8], mode| fs.rename(places.a, b"f", places.b, name, mode);
        rename(b"same", RenameMode::Replace).unwrap();
        rename(b"same", RenameMode::Exchange).unwrap();
        assert!(matches!(rename(b"same", RenameMode::NoReplace), Err(Error::Exists)));
        assert!(matches!(rename(b"none", RenameMode::Exchange), Err(Error::NotFound)));
        assert!(matches!(rename(b"f", RenameMode::Replace), Err(Error::NotPermitted)));
        assert_eq!(fs.getattr(places.file_a).unwrap().links, 2);
    }
    fs.unmount().unwrap();
    judge(&device);
}
