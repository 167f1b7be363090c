//! The judges, and images in a temporary folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use cairn_block::file::{FileDevice, OpenOptions};
use cairn_block::{BlockDevice, Error, ErrorKind};
use cairn_images::qcow2::{self, BackingName, Options, Qcow2};

/// Runs a program of QEMU, which must succeed, and gives what it prints.
pub(crate) fn qemu(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {text}{errors}");
    text
}

/// What `qemu-img check` says: neither errors nor leaks, or only leaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    Clean,
    Leaks,
}

pub(crate) fn check(path: &Path) -> Checked {
    let output = Command::new("qemu-img").args(["check", "-f", "qcow2"]).arg(path).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Checked::Clean,
        Some(3) => Checked::Leaks,
        other => panic!("qemu-img check {}: {other:?}\n{text}{errors}", path.display()),
    }
}

/// A folder with images.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// An image made by `qemu-img create` with these options.
    pub(crate) fn create(&self, name: &str, options: &str, size: &str) -> PathBuf {
        let path = self.path(name);
        let options = if options.is_empty() { "compat=1.1" } else { options };
        let text = path.to_str().unwrap();
        qemu("qemu-img", &["create", "-q", "-f", "qcow2", "-o", options, text, size]);
        path
    }

    /// The bytes of the disk, by `qemu-img convert`.
    pub(crate) fn contents(&self, path: &Path) -> Vec<u8> {
        let raw = self.path("converted.raw");
        let args = ["convert", "-O", "raw", path.to_str().unwrap(), raw.to_str().unwrap()];
        qemu("qemu-img", &args);
        std::fs::read(&raw).unwrap()
    }
}

/// Commands of `qemu-io`.
pub(crate) fn io(path: &Path, commands: &[&str]) {
    let mut args = vec!["-f", "qcow2"];
    commands.iter().for_each(|command| args.extend(["-c", command]));
    args.push(path.to_str().unwrap());
    let text = qemu("qemu-io", &args);
    assert!(!text.contains("failed"), "{commands:?}: {text}");
}

pub(crate) fn file(path: &Path, write: bool) -> Arc<dyn BlockDevice> {
    let options = if write { OpenOptions::write() } else { OpenOptions::read() };
    Arc::new(FileDevice::open(path, options).unwrap())
}

/// Opens a file and what backs it.
pub(crate) fn try_open(path: &Path, write: bool) -> qcow2::Result<Qcow2> {
    open_at(path, write, 0)
}

fn open_at(path: &Path, write: bool, depth: u32) -> qcow2::Result<Qcow2> {
    let folder = path.parent().unwrap().to_owned();
    let backing = |wanted: &BackingName| -> cairn_block::Result<Arc<dyn BlockDevice>> {
        let path = folder.join(&wanted.name);
        match wanted.format.as_deref() {
            Some("raw") => {
                Ok(Arc::new(FileDevice::open(&path, OpenOptions::read())?) as Arc<dyn BlockDevice>)
            }
            Some("qcow2") => Ok(Arc::new(open_at(&path, false, wanted.depth)?)),
            other => Err(Error::new(ErrorKind::Unsupported, "open", format!("{other:?}"))),
        }
    };
    qcow2::open(file(path, write), &Options { write, backing: &backing, depth })
}

pub(crate) fn open(path: &Path, write: bool) -> Qcow2 {
    try_open(path, write).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// No image here has a backing file.
pub(crate) fn alone(_: &BackingName) -> cairn_block::Result<Arc<dyn BlockDevice>> {
    Err(Error::new(ErrorKind::NotFound, "open", "no backing file is expected"))
}
