//! The judges, and devices in files.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_luks::{Error, Luks, Options, Passphrase};

pub(crate) const PASSPHRASE: &str = "correct horse";

/// Runs a program that must succeed.
pub(crate) fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {text}{errors}");
    text
}

/// A folder with a key file.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        std::fs::write(place.path("key"), PASSPHRASE).unwrap();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// `cryptsetup` on a file, with the key file.
    pub(crate) fn cryptsetup(&self, action: &str, file: &Path, more: &[&str]) {
        let key = self.text("key");
        let mut args = vec![action, "--batch-mode", "--key-file", &key];
        args.extend(more);
        args.push(file.to_str().unwrap());
        run("cryptsetup", &args);
    }

    /// A device with a header made by `cryptsetup luksFormat`, cheap to open.
    pub(crate) fn format(&self, size: u64, options: &[&str]) -> PathBuf {
        let path = self.path("device");
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        self.cryptsetup("luksFormat", &path, options);
        path
    }
}

pub(crate) const LUKS1: [&str; 4] = ["--type", "luks1", "--pbkdf-force-iterations", "1000"];
pub(crate) const LUKS2: [&str; 6] =
    ["--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];

pub(crate) fn file(path: &Path, write: bool) -> Arc<dyn BlockDevice> {
    let options = if write { OpenOptions::write() } else { OpenOptions::read() };
    Arc::new(FileDevice::open(path, options).unwrap())
}

pub(crate) fn open_with(path: &Path, passphrase: &str, write: bool) -> Result<Luks, Error> {
    let options = Options { write, ..Options::default() };
    Luks::open(file(path, write), &Passphrase::new(passphrase), &options)
}

pub(crate) fn open(path: &Path, write: bool) -> Luks {
    open_with(path, PASSPHRASE, write).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
