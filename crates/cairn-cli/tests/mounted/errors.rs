//! Devices that fail under a mount: here, an image in a small filesystem that is full when the image's holes are written.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use cairn_testkit::judge;
use serde_json::Value;

use crate::fixture::{CAIRN, Volume};

/// Holds what the image has, and a few files more.
const ROOM: &str = "size=40m";
const EIO: i32 = 5;
const EROFS: i32 = 30;

/// A filesystem in memory, in which the image of a volume is moved.
struct Tight(PathBuf);

impl Tight {
    fn around(volume: &Volume) -> Self {
        let (point, image) = (volume.outside("tight"), volume.image());
        fs::create_dir(&point).unwrap();
        judge::run(
            "mount",
            [Path::new("-t"), Path::new("tmpfs"), Path::new("-o"), Path::new(ROOM), Path::new("tight"), &point],
        );
        let tight = Self(point);
        let moved = tight.0.join("image");
        judge::run("cp", [Path::new("--sparse=always"), &image, &moved]);
        fs::remove_file(&image).unwrap();
        symlink(&moved, &image).unwrap();
        tight
    }

    /// From now on nothing can be written that was not there before.
    fn fill(&self) {
        let mut filler = File::create(self.0.join("filler")).unwrap();
        while filler.write_all(&[1; 4096]).is_ok() {}
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Tight {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn write_synced(path: &Path) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&[6; 9000])?;
    file.sync_all()
}

fn state(volume: &Volume) -> Value {
    let output = Command::new(CAIRN).args(["stats", "--json"]).arg(volume.root()).output().unwrap();
    let stats: Value = serde_json::from_slice(&output.stdout).unwrap();
    stats["state"].clone()
}

#[test]
fn a_failed_journal_stays_read_only_and_says_why() {
    let mut volume = Volume::make(64 << 20, &[]);
    let tight = Tight::around(&volume);
    fails_and_recovers(&mut volume, &tight, "journal_aborted");
}

#[test]
fn a_failed_checkpoint_stays_read_only_and_says_why() {
    let mut volume = Volume::f2fs(64 << 20, "");
    volume.unmount();
    let tight = Tight::around(&volume);
    fails_and_recovers(&mut volume, &tight, "read_only_reason");
}

/// Writes until the device fails; from then on the volume is read-only, and says so. `cause` is where its counters tell which
/// write it was.
fn fails_and_recovers(volume: &mut Volume, tight: &Tight, cause: &str) {
    volume.mount("");
    fs::write(volume.path("kept"), vec![5; 200_000]).unwrap();
    File::open(volume.path("kept")).unwrap().sync_all().unwrap();
    File::open(volume.root()).unwrap().sync_all().unwrap();
    assert_eq!(state(volume)["mode"], "rw");
    tight.fill();
    let error = (0..5000).find_map(|number| write_synced(&volume.path(&format!("file {number}"))).err());
    let error = error.expect("the device cannot be written").raw_os_error();
    assert!(matches!(error, Some(EIO | EROFS)), "{error:?}");
    // The device works again; the volume cannot know what was lost, and stays as it is.
    tight.empty();
    for attempt in 0..3 {
        let refused = fs::create_dir(volume.path(&format!("dir {attempt}"))).unwrap_err();
        assert!(matches!(refused.raw_os_error(), Some(EIO | EROFS)), "{refused}");
    }
    assert_eq!(fs::read(volume.path("kept")).unwrap(), vec![5; 200_000]);
    let found = state(volume);
    assert_eq!(found["mode"], "ro", "{found}");
    let reason = found["read_only_reason"].as_str().unwrap_or_else(|| panic!("no reason: {found}")).to_owned();
    assert!(found[cause].as_str().is_some_and(|text| text.contains("No space left on device")), "{found}");
    let again = Command::new(CAIRN).args(["remount", "-o", "rw"]).arg(volume.root()).output().unwrap();
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success() && said.contains(&reason), "{said} without {reason}");
    let said = volume.end();
    assert!(!said.is_empty(), "the daemon said nothing");
    volume.mount("");
    assert_eq!(fs::read(volume.path("kept")).unwrap(), vec![5; 200_000]);
    fs::create_dir(volume.path("works again")).unwrap();
    // ext4 says that there was an error.
    volume.end();
    volume.judge();
}
