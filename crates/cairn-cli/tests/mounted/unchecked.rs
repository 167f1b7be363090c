//! Volumes that another program may be using, or that e2fsck should check first. fuse2fs takes no
//! lock: only the mount table and the superblock show its use.

use std::path::Path;
use std::process::{Command, Output};

use cairn_testkit::judge;

use crate::fixture::{CAIRN, Volume};

fn cairn(arguments: &[&str]) -> Output {
    Command::new(CAIRN).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// fuse2fs on an image, in the foreground; unmounted when dropped.
struct Fuse2fs<'a>(&'a Path);

impl<'a> Fuse2fs<'a> {
    /// The image may be named from its own directory, as the mount table then shows it.
    fn mount(image: &Path, name: &str, point: &'a Path) -> Self {
        let status = judge::command("fuse2fs")
            .current_dir(image.parent().unwrap())
            .arg(name)
            .arg(point)
            .output()
            .unwrap();
        assert!(status.status.success(), "fuse2fs: {}", said(&status));
        Self(point)
    }
}

impl Drop for Fuse2fs<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn an_image_that_fuse2fs_has_mounted_is_not_written() {
    for journal in ["has_journal", "^has_journal"] {
        let volume = Volume::make(32 << 20, &["-O", journal]);
        let (image, point) = (volume.image(), volume.root());
        let name = image.to_str().unwrap();
        for given in [name, "image"] {
            let mounted = Fuse2fs::mount(&image, given, &point);
            std::fs::write(point.join("file"), "fuse2fs wrote this").unwrap();
            let output = cairn(&["mkdir", name, "/made"]);
            let wanted = format!("in use: mounted on {}", point.display());
            let text = said(&output);
            assert!(output.status.code() == Some(6) && text.contains(&wanted), "{given}: {text}");
            assert!(text.contains("(fuse2fs)"), "{given}: {text}");
            // A read-only use cannot damage the volume, but its data may be stale.
            assert!(said(&cairn(&["info", name])).contains("fuse2fs takes no lock"));
            drop(mounted);
            // Its process still writes when umount(8) returns.
            let free = || Command::new("fuser").arg(&image).output().unwrap().stdout.is_empty();
            while !free() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            judge::assert_clean(&image);
        }
        let output = cairn(&["mkdir", name, "/made"]);
        assert!(output.status.success() && output.stderr.is_empty(), "{}", said(&output));
        judge::assert_clean(&image);
    }
}

#[test]
fn before_an_unchecked_volume_is_written_the_warning_of_linux_is_given() {
    for (journal, request, wanted) in [
        ("^has_journal", "ssv state 0", "not unmounted cleanly"),
        ("has_journal", "ssv state 0", "not unmounted cleanly"),
        ("has_journal", "ssv state 3", "errors were found"),
        ("has_journal", "ssv max_mnt_count 1", "as often as it may be"),
        ("has_journal", "ssv lastcheck 20200101", "time between two checks"),
    ] {
        let mut volume = Volume::make(32 << 20, &["-O", journal]);
        let image = volume.image();
        let name = image.to_str().unwrap();
        volume.mount("");
        volume.unmount();
        judge::run("tune2fs", ["-i", "30d", name]);
        judge::run("debugfs", ["-w", "-R", request, name]);
        let warning = |text: &str| {
            let line = format!("cairn: warning: {name}: ");
            text.lines().any(|said| said.starts_with(&line) && said.contains(wanted))
        };
        // The first use does not make the volume clean: only e2fsck does.
        for arguments in [&["info", name][..], &["mkdir", name, "/a"], &["mkdir", name, "/b"]] {
            let output = cairn(arguments);
            let text = said(&output);
            assert!(output.status.success() && warning(&text), "{request}: {arguments:?}: {text}");
        }
        assert!(cairn(&["ls", name]).stderr.is_empty(), "{request}: reading says nothing");
        volume.mount("");
        assert!(warning(&volume.log()), "{request}: {}", volume.log());
        volume.unmount_talking();
        let checked = judge::command("e2fsck").args(["-fy", name]).output().unwrap();
        assert!(checked.status.code().is_some_and(|code| code <= 1), "{checked:?}");
        let output = cairn(&["mkdir", name, "/c"]);
        assert!(output.status.success() && output.stderr.is_empty(), "{}", said(&output));
    }
}
