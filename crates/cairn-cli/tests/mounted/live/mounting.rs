//! What `cairn mount` and mount(8) say of a mount that they make or refuse.

use std::fs;
use std::path::Path;
use std::process::Command;

use cairn_testkit::judge;

use super::{SIZE, refused, remount, remounted};
use crate::fixture::{CAIRN, Volume};

/// Run in a mount namespace of its own, where an empty `/sbin` gets the helper: the installed
/// program, the image, the mount point, a place for a copy of the image.
const MOUNT8: &str = r#"
set -e
mount -t tmpfs none "$(readlink -f /sbin)"
ln -s "$0" /sbin/mount.fuse.cairn
mount -t fuse.cairn "$1" "$2" -o noatime,commit=11
echo hello > "$2/file"
grep -q " $2 .*noatime.* fuse.cairn" /proc/self/mountinfo
"$0" stats "$2" | grep -q "commit  *11 s"
mount -o remount,ro "$2"
if echo late > "$2/late"; then echo "still writable"; fi 2>/dev/null
"$0" stats "$2" | grep -q "mode  *ro"
mount -o remount,rw "$2"
cat "$2/file"
echo more >> "$2/file"
"$0" umount "$2"
ln -s "$0" /sbin/mount.cairn
mount -t cairn "$1" "$2"
grep -q " $2 .* fuse.cairn" /proc/self/mountinfo
"$0" umount "$2"
# mount(8) passes on the whole type.
mount -t cairn.ext4 "$1" "$2"
"$0" umount "$2"
if mount -t cairn.f2fs "$1" "$2" 2>/dev/null; then echo "ext4 was mounted as f2fs"; fi
# umount(8) calls its helper, and returns when the image is clean.
ln -s "$0" /sbin/umount.fuse.cairn
cd "${2%/*}"
at=${2##*/}
mount -t cairn "$1" "$2"
head -c 60000000 /dev/urandom > "$2/large"
umount "$at"
cp --sparse=always "$1" "$3"
mount -t cairn "$1" "$2"
exec 3< "$2/large"
for path in "$at" "$2"; do
    if umount "$path" 2>/dev/null; then echo "unmounted while in use"; else [ $? = 32 ] || echo "status $?"; fi
done
exec 3<&-
mkdir /sbin/copy
mount --bind "$2" /sbin/copy
umount "$at" 2>/dev/null
cd /sbin
umount copy
"#;

/// As [`MOUNT8`], by the whole path, as root: the installed program, the image, the mount point, a
/// directory for copies of the image. mount(8) adds an entry of its own for the options `x-`.
const UMOUNT8: &str = r#"
set -e
mount -t tmpfs none "$(readlink -f /sbin)"
mount -t tmpfs none /run
ln -s "$0" /sbin/mount.fuse.cairn
ln -s "$0" /sbin/umount.fuse.cairn
mkdir "$3"
for round in $(seq 24); do
    options=noatime
    [ $((round % 3)) != 0 ] || options=x-systemd.automount,_netdev
    if [ $((round % 4)) = 0 ]; then
        "$0" mount "$1" "$2"
    else
        mount -t fuse.cairn "$1" "$2" -o $options
    fi
    head -c 5000000 /dev/urandom > "$2/file$((round % 2))"
    mkdir -p "$2/round$round"
    [ $((round % 5)) != 0 ] || mount -o remount,commit=7 "$2"
    umount "$2"
    cp --sparse=always "$1" "$3/$round"
    if grep " $2 " /proc/self/mountinfo; then echo "still mounted"; fi
    if [ -s /run/mount/utab ]; then cat /run/mount/utab; fi
done
# No unmount leaves an entry: by a signal, by cairn umount, and of a killed daemon.
mount -t fuse.cairn "$1" "$2"
grep -q "TARGET=$2 .*uhelper=fuse.cairn" /run/mount/utab
"$0" umount "$2"
if [ -s /run/mount/utab ]; then cat /run/mount/utab; fi
"$0" mount -f "$1" "$2" &
until grep -q "TARGET=$2 .*uhelper=fuse.cairn" /run/mount/utab; do sleep 0.01; done
kill $!
wait $!
if [ -s /run/mount/utab ]; then cat /run/mount/utab; fi
"$0" mount -f "$1" "$2" &
until grep -q "TARGET=$2 .*uhelper=fuse.cairn" /run/mount/utab; do sleep 0.01; done
kill -9 $!
{ wait $! || true; } 2>/dev/null
if umount "$2" 2>/dev/null; then echo "a killed daemon was not told"; fi
if grep " $2 " /proc/self/mountinfo; then echo "still mounted"; fi
if [ -s /run/mount/utab ]; then cat /run/mount/utab; fi
"#;

#[test]
fn an_installed_cairn_serves_mount8() {
    let volume = Volume::make(SIZE, &[]);
    let root = volume.outside("root");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install");
    let output = Command::new(script)
        .arg(CAIRN)
        .env("DESTDIR", &root)
        .env("PREFIX", "/usr")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for file in [
        "usr/bin/cairn",
        "usr/share/man/man1/cairn.1",
        "usr/share/man/man1/cairn-stats.1",
        "usr/share/bash-completion/completions/cairn",
        "usr/share/zsh/site-functions/_cairn",
        "usr/share/fish/vendor_completions.d/cairn.fish",
    ] {
        assert!(fs::metadata(root.join(file)).unwrap().len() > 100, "{file}");
    }
    for helper in ["sbin/mount.fuse.cairn", "sbin/mount.cairn", "sbin/umount.fuse.cairn"] {
        assert_eq!(fs::read_link(root.join(helper)).unwrap(), Path::new("/usr/bin/cairn"));
    }
    let mut command = judge::command("unshare");
    command.args(["--mount", "sh", "-c", &[judge::FORGET_MOUNTS, MOUNT8].concat()]).args([
        root.join("usr/bin/cairn"),
        volume.image(),
        volume.root(),
        volume.outside("copy"),
    ]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said == "hello\n", "{}: {said}", output.status);
    judge::assert_clean(&volume.image());
    judge::assert_clean(&volume.outside("copy"));
    let large = judge::debugfs(&volume.outside("copy"), "stat /large");
    assert!(large.contains("Size: 60000000"), "{large}");
}

/// A copy of the image that begins when umount(8) has returned has everything, and needs no replay.
#[test]
fn umount8_by_a_whole_path_returns_when_the_image_is_clean() {
    let volume = Volume::make(SIZE, &[]);
    let copies = volume.outside("copies");
    let mut command = judge::command("unshare");
    command.args(["--mount", "sh", "-c", &[judge::FORGET_MOUNTS, UMOUNT8].concat(), CAIRN]).args([
        volume.image(),
        volume.root(),
        copies.clone(),
    ]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
    for round in 1..=24 {
        let copy = copies.join(round.to_string());
        judge::assert_clean(&copy);
        let root = judge::debugfs(&copy, "ls -p /");
        assert!(root.contains(&format!("/round{round}/")), "round {round}: {root}");
        let features = judge::debugfs(&copy, "stats");
        assert!(!features.contains("needs_recovery"), "round {round}: {features}");
        let file = judge::debugfs(&copy, &format!("stat /file{}", round % 2));
        assert!(file.contains("Size: 5000000"), "round {round}: {file}");
    }
}

/// An option that no mount takes is a usage error, at mount and at remount. One that this mount
/// cannot change now is a failure.
#[test]
fn a_wrong_option_has_one_status() {
    for mut volume in [Volume::mounted(SIZE, ""), Volume::f2fs(SIZE, "")] {
        let other = volume.outside("other.img");
        fs::copy(volume.image(), &other).unwrap();
        let point = volume.outside("other");
        fs::create_dir(&point).unwrap();
        for (option, why) in [
            ("threads=0", "give a number from 1 to 64"),
            ("spin=x", "0 to 10000"),
            ("transport=x", "give auto, ring or dev"),
            ("noexec=1", "takes no value"),
            ("cache=1", "cache=1"),
            ("frob", "unknown option `frob`"),
        ] {
            let output = remount(option, &volume.root());
            refused(&output, &[why]);
            assert_eq!(output.status.code(), Some(2), "{option}");
            let output = Command::new(CAIRN)
                .args(["mount", "-o", option])
                .args([&other, &point])
                .output()
                .unwrap();
            refused(&output, &[why]);
            assert_eq!(output.status.code(), Some(2), "{option}");
        }
        assert_eq!(remount("threads=3", &volume.root()).status.code(), Some(1));
        volume.unmount();
    }
}

/// An image on a read-only filesystem is mounted read-only, as mount(8) does.
#[test]
fn an_image_on_a_read_only_filesystem_is_mounted_read_only_and_says_why() {
    for mut volume in [Volume::mounted(SIZE, ""), Volume::f2fs(SIZE, "")] {
        fs::write(volume.path("file"), "to be read").unwrap();
        volume.unmount();
        let host = volume.outside("host");
        fs::create_dir(&host).unwrap();
        judge::run("mount", ["-t", "tmpfs", "host", host.to_str().unwrap()]);
        let image = host.join("image");
        judge::run(
            "cp",
            ["--sparse=always".as_ref(), volume.image().as_os_str(), image.as_os_str()],
        );
        judge::run("mount", ["-o", "remount,ro", host.to_str().unwrap()]);
        let mount = || {
            let mut command = Command::new(CAIRN);
            command.args(["mount", "-o", "rw"]).args([&image, &volume.root()]).output().unwrap()
        };
        let output = mount();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.lines().count() == 1, "{said}");
        assert!(
            said.contains("mounted read-only: the filesystem that the image lies on"),
            "{said}"
        );
        assert_eq!(fs::read(volume.path("file")).unwrap(), b"to be read");
        assert_eq!(fs::write(volume.path("new"), "x").unwrap_err().raw_os_error(), Some(30));
        refused(&remount("rw", &volume.root()), &["rw is not possible", "read-only"]);
        volume.detach();
        // When the filesystem is writable again, the mount can be remounted read-write.
        assert!(mount().status.success());
        judge::run("mount", ["-o", "remount,rw", host.to_str().unwrap()]);
        remounted("rw", &volume.root());
        fs::write(volume.path("new"), "written").unwrap();
        volume.detach();
        judge::run("umount", [&host]);
    }
}

/// `-t` names the format of the image, as for mount(8): another format is refused.
#[test]
fn a_type_is_checked_against_what_the_image_holds() {
    let mut volume = Volume::f2fs(SIZE, "");
    volume.unmount();
    let mount = |kind: &str| {
        let mut command = Command::new(CAIRN);
        command.args(["mount", "-t", kind]).args([volume.image(), volume.root()]).output().unwrap()
    };
    for (kind, why) in [("ext4", "it contains f2fs, not ext4"), ("xfs", "ext4, ext3, ext2, f2fs")] {
        let output = mount(kind);
        refused(&output, &[why]);
        assert_eq!(output.status.code(), Some(2));
    }
    for kind in ["f2fs", "auto", "fuse.cairn"] {
        let output = mount(kind);
        assert!(output.status.success(), "{kind}: {output:?}");
        volume.detach();
    }
}

/// The log names the format, the mount point and the options, not the names of types.
#[test]
fn the_log_names_the_format_and_the_options_of_a_mount() {
    let volume = Volume::make(SIZE, &[]);
    let mut command = Command::new(CAIRN);
    command.env("CAIRN_LOG", "info").args(["mount", "-o", "noexec,commit=9"]);
    let output = command.args([volume.image(), volume.root()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for words in ["ext4, to be mounted on", "exec no,", "the volume: commit=9"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("MountOptions"), "{said}");
    volume.detach();
    let mut command = Command::new(CAIRN);
    command.env("CAIRN_LOG", "bogus").arg("mount").args([volume.image(), volume.root()]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.lines().count() == 1, "{said}");
    assert!(said.contains("CAIRN_LOG=bogus") && said.contains("debug or trace"), "{said}");
    volume.detach();
}

/// A volume that cannot be written is reported at the mount, not at the first write.
#[test]
fn what_can_only_be_read_is_mounted_read_only_and_says_why() {
    let mut volume = Volume::f2fs(SIZE, "");
    volume.unmount();
    // Without an encoding, which Linux refuses.
    judge::mkfs_f2fs(&volume.image(), SIZE, &["-O", "casefold"]);
    let (image, point) = (volume.image(), volume.root());
    let output = Command::new(CAIRN).arg("mount").args([&image, &point]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.lines().count() == 1, "{said}");
    assert!(said.contains("mounted read-only") && said.contains("encoding"), "{said}");
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(point.to_str().unwrap())).unwrap();
    assert!(line.contains(" ro,"), "{line}");
    assert_eq!(fs::write(volume.path("x"), "").unwrap_err().raw_os_error(), Some(30));
    assert!(Command::new(CAIRN).arg("umount").arg(&point).output().unwrap().status.success());
    // A mount with ro needs no warning.
    let output =
        Command::new(CAIRN).args(["mount", "-o", "ro"]).args([&image, &point]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(Command::new(CAIRN).arg("umount").arg(&point).output().unwrap().status.success());
    let output =
        Command::new(CAIRN).arg("mkdir").args([image.as_os_str(), "/x".as_ref()]).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
}
