//! Which mounts are unmounted, and what is said of dead ones.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use cairn_testkit::judge;

use super::{SIZE, said, umount};
use crate::fixture::{CAIRN, Volume, is_mounted, stats};

#[test]
fn a_dead_mount_goes_by_force_too() {
    let mut volume = Volume::mounted(SIZE, "");
    stats(&volume.root());
    volume.kill();
    let output = umount(&["--force"], &volume.root());
    assert!(!is_mounted(&volume.root()), "{}", said(&output));
}

/// After a lazy unmount the daemon serves what was open. Its image is still in use.
#[test]
fn a_detached_mount_is_said_to_be_one() {
    let mut volume = Volume::mounted(SIZE, "");
    let open = fs::File::create(volume.path("open")).unwrap();
    let output = umount(&["--lazy"], &volume.root());
    assert!(output.status.success(), "{}", said(&output));
    let output = Command::new(CAIRN).arg("ls").arg(volume.image()).output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(6), "{text}");
    assert!(text.contains("detached") && !text.contains("nsenter"), "{text}");
    drop(open);
    assert_eq!(volume.await_end(), "");
    judge::assert_clean(&volume.image());
}

#[test]
fn any_file_name_is_told_whole_by_the_mount_table() {
    let volume = Volume::make(SIZE, &[]);
    let image = volume.outside("my, disk\\040 #2,ro\\.img");
    fs::rename(volume.image(), &image).unwrap();
    let root = volume.root();
    let mounted = Command::new(CAIRN).arg("mount").args([&image, &root]).output().unwrap();
    assert!(mounted.status.success(), "{}", said(&mounted));
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line =
        table.lines().find(|line| line.split(' ').nth(4) == root.to_str()).unwrap().to_owned();
    let told = stats(&root)["mount"]["image"].as_str().map(str::to_owned);
    fs::write(volume.path("file"), "written").unwrap();
    let output = umount(&[], &root);
    assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    assert!(line.contains("/my,\\040disk\\134040\\040\\0432,ro\\134.img "), "{line}");
    assert_eq!(told.as_deref(), image.to_str());
    judge::assert_clean(&image);
    assert!(judge::debugfs(&image, "cat /file").starts_with("written"));
}

/// Run in a mount namespace of its own, into which the mount `$4` is copied: the program, an image,
/// a mount point and another.
const ALL: &str = r#"
set -e
"$0" mount "$1" "$2"
mount --bind "$2" "$3"
"$0" umount -a
if grep -e " $2 " -e " $3 " /proc/self/mountinfo; then echo "still mounted"; fi
grep -q " $4 " /proc/self/mountinfo || echo "the copy is gone"
"#;

/// `-a` names what it unmounts, knows that two mounts may have one daemon, and does not touch what
/// another mount namespace has: neither the mounts of this test nor those of others.
#[test]
fn everything_is_unmounted_that_was_mounted_in_this_namespace() {
    let mut outside = Volume::mounted(SIZE, "");
    let volume = Volume::make(SIZE, &[]);
    let second = volume.outside("second");
    fs::create_dir(&second).unwrap();
    let mut command = judge::command("unshare");
    let script = [judge::FORGET_MOUNTS, ALL].concat();
    command.env("KEEP", outside.root());
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, CAIRN]).args([
        &volume.image(),
        &volume.root(),
        &second,
        &outside.root(),
    ]);
    let output = command.output().unwrap();
    let heard = String::from_utf8_lossy(&output.stdout);
    let (image, text) = (volume.image(), said(&output));
    let left: Vec<&str> =
        heard.lines().filter(|line| line.contains(image.to_str().unwrap())).collect();
    let line =
        |point: &Path| format!("cairn: {} unmounted from {}", image.display(), point.display());
    assert!(output.status.success() && left == [line(&second), line(&volume.root())], "{text}");
    assert!(!heard.contains("still mounted") && !heard.contains("the copy is gone"), "{text}");
    let skipped = format!("cairn: {}: left alone: ", outside.root().display());
    assert!(text.contains(&skipped), "{text}");
    judge::assert_clean(&image);
    fs::write(outside.path("file"), "it goes on").unwrap();
    outside.unmount();
}

/// The program that froze a volume may be copying its image: the end of a copy of the mount in
/// another namespace does not thaw it.
#[test]
fn a_copy_that_is_unmounted_leaves_the_volume_frozen() {
    let mut volume = Volume::mounted(SIZE, "");
    let point = volume.root();
    assert!(Command::new(CAIRN).arg("freeze").arg(&point).status().unwrap().success());
    for (how, status, left) in [("-a", 0, true), ("-l", 0, false), ("--timeout=0", 6, false)] {
        let script = format!(
            r#"{}
            [ "$1" = -a ] && point= || point=$KEEP
            "$0" umount $1 $point; status=$?
            grep -q " $KEEP " /proc/self/mountinfo && echo $status true || echo $status false"#,
            judge::FORGET_MOUNTS
        );
        let mut command = judge::command("unshare");
        command.env("KEEP", &point).args(["--mount", "--propagation", "private", "sh", "-c"]);
        let output = command.args([&script, CAIRN, how]).output().unwrap();
        let heard = String::from_utf8_lossy(&output.stdout);
        assert_eq!(heard, format!("{status} {left}\n"), "{how}: {}", said(&output));
        assert_eq!(volume.stats()["state"]["frozen"], true, "{how}: {}", said(&output));
    }
    volume.unmount();
}

#[test]
fn the_second_of_two_concurrent_unmounts_finds_nothing_mounted() {
    let mut volume = Volume::mounted(SIZE, "");
    for _ in 0..5 {
        let both = std::thread::scope(|scope| {
            let second = scope.spawn(|| umount(&[], &volume.root()));
            [umount(&[], &volume.root()), second.join().unwrap()]
        });
        assert!(both.iter().any(|output| output.status.success()), "{both:?}");
        for output in both.iter().filter(|output| !output.status.success()) {
            let told = said(output);
            // The last: a test whose mount namespace has just begun has a copy for a moment.
            let known = [
                "not mounted any more",
                "nothing is mounted here",
                "its mount namespace has a copy",
            ];
            assert!(known.iter().any(|words| told.contains(words)), "{told}");
        }
        volume.await_end();
        volume.mount_again();
    }
    volume.unmount();
}

#[test]
fn the_root_of_the_system_is_nothing_of_ours() {
    let output = umount(&[], Path::new("/"));
    assert!(
        output.status.code() == Some(1) && said(&output).contains("not by cairn"),
        "{}",
        said(&output)
    );
}

/// After a daemon was killed, every command on its mount says what to do.
#[test]
fn a_dead_mount_is_said_to_be_one() {
    let mut volume = Volume::mounted(SIZE, "");
    volume.kill();
    let image = volume.path("inside.img");
    let other = volume.image();
    let way = |output: &Output| {
        let text = said(output);
        assert!(
            !output.status.success() && text.lines().count() == 1 && text.contains("cairn umount"),
            "{text}"
        );
    };
    way(&Command::new(CAIRN).arg("ls").arg(&image).output().unwrap());
    way(&Command::new(CAIRN).args(["mkfs", "--size", "16M"]).arg(&image).output().unwrap());
    way(&Command::new(CAIRN).arg("stats").arg(volume.root()).output().unwrap());
    way(&Command::new(CAIRN).arg("mount").arg(&other).arg(volume.root()).output().unwrap());
    way(&Command::new(CAIRN)
        .args(["remount", "-o", "noatime"])
        .arg(volume.root())
        .output()
        .unwrap());
    judge::run("umount", ["-l".as_ref(), volume.root().as_os_str()]);
}

#[test]
fn a_mount_whose_daemon_was_killed_is_unmounted_with_what_that_means() {
    for mut volume in [Volume::mounted(SIZE, ""), Volume::f2fs(SIZE, "")] {
        let file = volume.path("file");
        fs::write(&file, "synced").unwrap();
        fs::File::open(&file).unwrap().sync_all().unwrap();
        volume.kill();
        let output = umount(&[], &volume.root());
        let told = said(&output);
        assert_eq!(output.status.code(), Some(7), "{told}");
        assert!(
            told.contains("daemon had died") && told.contains("mount the volume again"),
            "{told}"
        );
        assert!(!is_mounted(&volume.root()));
        volume.mount_again();
        assert_eq!(fs::read(&file).unwrap(), b"synced");
        volume.unmount_talking();

        // A read-only mount: no data can be missing.
        volume.mount("ro");
        volume.kill();
        let output = umount(&[], &volume.root());
        assert!(output.status.success() && said(&output).contains("had died"), "{}", said(&output));
    }
}

/// Its arguments are the images and their mount points. It runs in a mount namespace of its own.
const SEVERAL: &str = r#"
set -e
mount_both() { "$0" mount "$1" "$2"; "$0" mount "$3" "$4"; }
left() { grep -c -e " $1 " -e " $2 " /proc/self/mountinfo || true; }
mount_both "$@"
"$0" umount "$2" "$4"
left "$2" "$4"
mount_both "$@"
"$0" umount "$2" /usr "$4" || echo "status $?"
left "$2" "$4"
mount_both "$@"
mkdir "$4/sub"
"$0" umount "$2"
"$0" mount "$1" "$4/sub"
"$0" umount -a -t cairn
left "$4/sub" "$4"
"$0" umount -a
"$0" umount -a -t ext4 2>/dev/null || echo "status $?"
"#;

#[test]
fn several_mounts_are_unmounted_by_name_or_all() {
    let (first, second) = (Volume::make(SIZE, &[]), Volume::make(SIZE, &[]));
    let mut command = judge::command("unshare");
    let script = [judge::FORGET_MOUNTS, SEVERAL].concat();
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, CAIRN]);
    command.args([&first.image(), &first.root(), &second.image(), &second.root()]);
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let named = format!(
        "cairn: {} unmounted from {}\ncairn: {} unmounted from {}\n",
        first.image().display(),
        second.path("sub").display(),
        second.image().display(),
        second.root().display()
    );
    assert_eq!(stdout, format!("0\nstatus 1\n0\n{named}0\nstatus 2\n"), "{}", said(&output));
    assert!(said(&output).contains("/usr: nothing is mounted here"), "{}", said(&output));
    first.judge();
    second.judge();
}
