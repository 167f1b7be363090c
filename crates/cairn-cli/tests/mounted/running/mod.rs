//! `cairn run` by an ordinary user: programs on an image, without root.

mod commands;
mod endings;
mod hostile;
mod packages;
mod terminal;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use cairn::Format;
use cairn_testkit::judge;
use cairn_testkit::place::Place;

use crate::fixture::CAIRN;

/// `nobody`, everywhere.
const USER: u32 = 65534;

const FORMATS: [Format; 2] = [Format::Ext4, Format::F2fs];

/// What each script begins with. It runs in its own mount namespace, in which all users can open
/// `/dev/fuse`, as on most machines. `ids` lets the user have more ids than its own.
const BEGINNING: &str = r#"
set -eu
cd "$1"
mkdir device; mount -t tmpfs -o mode=755 device device
mknod device/fuse c 10 229; chmod 666 device/fuse; mount --bind device/fuse /dev/fuse
ids() {
    echo "nobody:$1" >device/ids
    mount --bind device/ids /etc/subuid; mount --bind device/ids /etc/subgid
}
as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
run() { as_user ./cairn run "$@" 2>device/said; }
"#;

/// An image with busybox, and what a script needs to run programs on it.
struct Root {
    place: Place,
    format: Format,
}

/// Programs of busybox.
const NAMES: [&str; 18] = [
    "sh", "ls", "cat", "id", "sleep", "touch", "ps", "echo", "kill", "chown", "chmod", "stat",
    "head", "wc", "mount", "rm", "test", "umount",
];

impl Root {
    /// A root directory whose owner is 0:0, in an image of this format.
    fn new(format: Format) -> Self {
        let root = Self::empty(format);
        let tree = root.path("tree");
        for directory in ["bin", "etc", "home/ann"] {
            fs::create_dir_all(tree.join(directory)).unwrap();
        }
        fs::copy(judge::tool("busybox"), tree.join("bin/busybox")).unwrap();
        for name in NAMES {
            symlink("busybox", tree.join("bin").join(name)).unwrap();
        }
        fs::write(tree.join("home/ann/file"), "ann's\n").unwrap();
        fs::write(tree.join("etc/hosts"), "").unwrap();
        for path in ["home/ann", "home/ann/file"] {
            chown(tree.join(path), Some(1000), Some(1001)).unwrap();
        }
        root.build();
        root
    }

    /// A place with the program in it.
    fn empty(format: Format) -> Self {
        // The user may not be able to reach where cargo builds.
        let place: Place =
            tempfile::Builder::new().prefix("cairn-run-").tempdir_in("/tmp").unwrap().into();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let root = Self { place, format };
        judge::copy_program(Path::new(CAIRN), &root.path("cairn"));
        root
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn image(&self) -> PathBuf {
        self.path("image")
    }

    /// Makes the image of the directory `tree`.
    fn build(&self) {
        let (image, tree) = (self.image(), format!("{}/", self.path("tree").display()));
        let (image, format) = (image.to_str().unwrap(), self.format.to_string());
        let words = ["build", "-F", "-t", &format, "--free", "24M", image, &tree];
        judge::run(CAIRN, words);
        chown(self.image(), Some(USER), Some(USER)).unwrap();
    }

    /// Runs a script. Returns what it prints.
    #[track_caller]
    fn script(&self, script: &str) -> String {
        let mut command = judge::command("unshare");
        let script = format!("{}{BEGINNING}{script}", judge::FORGET_MOUNTS);
        command.args(["--mount", "sh", "-c", &script, "sh"]).arg(self.place.path());
        let output = command.env_remove("TMPDIR").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The format's checker finds nothing.
    #[track_caller]
    fn assert_clean(&self) {
        match self.format {
            Format::Ext4 => judge::assert_clean(&self.image()),
            _ => judge::assert_f2fs_clean(&self.image()),
        }
    }

    /// What `cairn` says of the image.
    fn ask(&self, words: &[&str]) -> String {
        let image = self.image();
        let (command, rest) = words.split_first().unwrap();
        judge::run(CAIRN, [&[command, image.to_str().unwrap()], rest].concat())
    }
}

/// Lines without spaces at their beginnings.
fn lines(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}
