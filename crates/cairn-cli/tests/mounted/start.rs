//! Starts that the system refuses, for want of this or that: each says what to do.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use cairn_testkit::judge;

use crate::fixture::{CAIRN, Volume, is_mounted};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Mounts under limits from far too low on until it succeeds; every refusal is one line that names
/// what to raise.
fn until_it_mounts(
    volume: &Volume,
    limits: impl Iterator<Item = u64>,
    option: &str,
    raise: &[&str],
) {
    let mut refusals = 0;
    for limit in limits {
        let mut command = Command::new("prlimit");
        command
            .arg(format!("--{option}={limit}"))
            .args([CAIRN, "mount"])
            .arg(volume.image())
            .arg(volume.root());
        let output = command.output().unwrap();
        let said = said(&output);
        if output.status.success() {
            assert!(refusals > 0, "{option}: the first limit is no limit");
            return volume.detach();
        }
        assert!(!is_mounted(&volume.root()), "{option}={limit}: a mount is left: {said}");
        // What the loader of programs cannot have, and an allocator that has nothing at all, have
        // words of their own.
        if said.starts_with("cairn: ") {
            refusals += 1;
            assert!(raise.iter().any(|raise| said.contains(raise)), "{option}={limit}: {said}");
        }
    }
    panic!("{option}: it never mounts");
}

#[test]
fn a_start_without_enough_of_something_says_what_to_raise() {
    for mut volume in [Volume::make(32 << 20, &[]), Volume::f2fs(64 << 20, "")] {
        if is_mounted(&volume.root()) {
            volume.unmount();
        }
        until_it_mounts(&volume, 3..64, "nofile", &["raise `ulimit -n`"]);
        let limits = (40..300).step_by(3).map(|megabytes| megabytes * 1_000_000);
        until_it_mounts(&volume, limits, "as", &["raise `ulimit -v`"]);
        volume.judge();
    }
}

/// The image, the mount point, a directory; what is missing is missing in a mount namespace of its
/// own.
const MISSING: &str = r#"
try() { "$0" mount "$1" "$2" && echo "mounted $3"; }
mount --bind /dev/shm "$3"
mount -t tmpfs none /dev
mkdir /dev/shm
mount --move "$3" /dev/shm
try "$1" "$2" "without /dev"
mknod -m 666 /dev/null c 1 3
try "$1" "$2" "without /dev/fuse"
mknod /dev/fuse c 10 229
chmod 600 /dev/fuse
setpriv --reuid=65534 --regid=65534 --clear-groups -- "$0" mount "$1" "$2" && echo mounted
chmod 666 /dev/fuse
setpriv --reuid=65534 --regid=65534 --clear-groups -- "$0" mount "$1" "$3" && echo mounted
setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin -- "$0" mount "$1" /proc/self && echo mounted
"$0" mount "$1" "$1" && echo mounted
mount -t tmpfs none /proc
try "$1" "$2" "without /proc"
true
"#;

#[test]
fn a_start_without_what_fuse_needs_says_what_to_do() {
    let volume = Volume::make(32 << 20, &["-E", "root_owner=65534:65534"]);
    let place = tempfile::Builder::new().prefix("cairn-start-").tempdir().unwrap();
    for path in [place.path(), &volume.image(), &volume.root()] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    // The user may not be able to reach where cargo builds.
    let (program, foreign) = (place.path().join("cairn"), place.path().join("foreign"));
    judge::copy_program(Path::new(CAIRN), &program);
    fs::create_dir(&foreign).unwrap();
    let mut command = judge::command("unshare");
    command.args(["--mount", "sh", "-c", &[judge::FORGET_MOUNTS, MISSING].concat()]).args([
        &program,
        &volume.image(),
        &volume.root(),
        &foreign,
    ]);
    let output = command.output().unwrap();
    assert!(
        output.stdout.is_empty(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        said(&output)
    );
    let said = said(&output);
    let lines: Vec<&str> = said.lines().collect();
    let advice = [
        "/dev/null and this program",
        "modprobe fuse",
        "run as root",
        "belongs to you",
        "SYS_ADMIN",
        "give one",
        "mount /proc",
    ];
    assert_eq!(lines.len(), advice.len(), "{said}");
    for (line, advice) in lines.iter().zip(advice) {
        assert!(
            line.starts_with("cairn: ") && line.matches(": ").count() >= 2 && line.contains(advice),
            "{line}: {advice}"
        );
    }
    assert!(Path::new(&volume.image()).exists());
}
