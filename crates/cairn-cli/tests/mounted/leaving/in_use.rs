//! Unmounting while programs or other namespaces use the mount.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cairn_testkit::judge;

use super::{SIZE, Shell, said, umount, until};
use crate::fixture::{CAIRN, Volume, is_mounted, transports};

#[test]
fn umount_names_the_users_of_a_mount() {
    let mut volume = Volume::mounted(SIZE, "");
    let shell = Shell::inside(&volume, "true");
    let output = umount(&[], &volume.root());
    let text = said(&output);
    assert_eq!(output.status.code(), Some(6), "{text}");
    assert!(
        text.contains(&shell.pid()) && text.contains("works in") && text.contains("--force"),
        "{text}"
    );
    shell.finish();
    // A mount below it is a use, too.
    let below = volume.path("below");
    fs::create_dir(&below).unwrap();
    judge::run("mount", ["-t", "tmpfs", "something", below.to_str().unwrap()]);
    let text = said(&umount(&[], &volume.root()));
    judge::run("umount", [&below]);
    assert!(text.contains("something (is mounted on"), "{text}");
    volume.unmount();
}

#[test]
fn a_daemon_that_is_asked_to_end_while_it_is_in_use_commits_says_so_and_ends_when_it_can() {
    let volumes = transports().into_iter().map(|transport| Volume::mounted(SIZE, transport));
    for mut volume in volumes.chain([Volume::f2fs(SIZE, "")]) {
        let shell = Shell::inside(&volume, "echo last >&3");
        fs::write(volume.path("unsynced"), "only in the kernel so far").unwrap();
        volume.ask_to_end();
        until("the daemon says who uses it", || volume.log().contains(&shell.pid()));
        assert!(volume.log().contains("works in"), "{}", volume.log());
        // Everything is on the disk, and the mount works.
        let copy = volume.outside("copy");
        let written = || {
            fs::copy(volume.image(), &copy).unwrap();
            Command::new(CAIRN).arg("cat").arg(&copy).arg("unsynced").output().unwrap().stdout
        };
        until("it is committed", || written() == b"only in the kernel so far");
        fs::write(volume.path("later"), "still writable").unwrap();
        shell.finish();
        let root = volume.root();
        volume.await_end();
        assert!(!is_mounted(&root));
        let held = Command::new(CAIRN)
            .arg("cat")
            .arg(volume.image())
            .args(["held", "later"])
            .output()
            .unwrap();
        assert_eq!(said(&held), "last\nstill writable");
    }
}

#[test]
fn a_mount_that_another_namespace_has_too_is_waited_for_with_a_word_and_a_bound() {
    let mut volume = Volume::mounted(SIZE, "");
    fs::write(volume.path("file"), "kept").unwrap();
    let shell = Shell::elsewhere(&volume);
    let output = umount(&["--timeout=3"], &volume.root());
    let text = said(&output);
    assert_eq!((output.status.code(), text.lines().count()), (Some(6), 2), "{text}");
    for line in text.lines() {
        assert!(line.contains("nsenter") && line.contains("daemon (process"), "{line}");
    }
    assert!(!is_mounted(&volume.root()));
    // What the message advises.
    let way = [
        "--target",
        &shell.0.id().to_string(),
        "--mount",
        "umount",
        volume.root().to_str().unwrap(),
    ]
    .map(str::to_owned);
    judge::run("nsenter", way);
    volume.await_end();
    shell.finish();
}

#[test]
fn a_bind_mount_is_unmounted_while_the_volume_stays_mounted() {
    let mut volume = Volume::mounted(SIZE, "");
    fs::write(volume.path("file"), "kept").unwrap();
    let bind = volume.outside("bind");
    fs::create_dir(&bind).unwrap();
    judge::run("mount", ["--bind", volume.root().to_str().unwrap(), bind.to_str().unwrap()]);
    let output = umount(&[], &bind);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("is still mounted on") && text.lines().count() == 1, "{text}");
    assert!(!is_mounted(&bind) && is_mounted(&volume.root()));
    assert_eq!(fs::read(volume.path("file")).unwrap(), b"kept");
    volume.unmount();
    judge::assert_clean(&volume.image());
}

#[test]
fn what_is_in_use_can_be_ended_by_force_without_loss() {
    for namespace in [false, true] {
        let volumes = transports().into_iter().map(|transport| Volume::mounted(SIZE, transport));
        for mut volume in volumes.chain([Volume::f2fs(SIZE, "")]) {
            let shell = if namespace {
                Shell::elsewhere(&volume)
            } else {
                Shell::inside(
                    &volume,
                    "if touch new 2>/dev/null; then echo written; else echo refused; fi",
                )
            };
            fs::write(volume.path("unsynced"), vec![7; 3 << 20]).unwrap();
            let output = umount(&["--force"], &volume.root());
            assert!(output.status.success(), "{}", said(&output));
            assert!(!is_mounted(&volume.root()));
            // The user asked for it, so there is no warning.
            assert!(!said(&output).contains("by force"), "{}", said(&output));
            volume.await_end();
            let kept = Command::new(CAIRN)
                .arg("cat")
                .arg(volume.image())
                .arg("unsynced")
                .output()
                .unwrap();
            assert!(kept.stdout == vec![7; 3 << 20], "{}", String::from_utf8_lossy(&kept.stderr));
            let heard = shell.finish();
            assert!(namespace || heard.contains("refused"), "{heard}");
        }
    }
}

/// After a wait for a copy in another namespace has timed out, `--force` still ends the daemon.
#[test]
fn what_was_unmounted_here_alone_can_be_ended_by_force() {
    let mut volume = Volume::mounted(SIZE, "");
    fs::write(volume.path("file"), "kept").unwrap();
    let shell = Shell::elsewhere(&volume);
    assert_eq!(umount(&["--timeout=0"], &volume.root()).status.code(), Some(6));
    let output = umount(&[], &volume.root());
    let text = said(&output);
    assert!(
        output.status.code() == Some(6) && text.contains("nsenter") && text.contains("--force"),
        "{text}"
    );
    let output = umount(&["--force"], &volume.root());
    assert!(output.status.success(), "{}", said(&output));
    volume.await_end();
    let output = umount(&["--force"], &volume.root());
    assert!(
        output.status.code() == Some(1) && said(&output).contains("nothing is mounted here"),
        "{}",
        said(&output)
    );
    shell.finish();
    let kept = Command::new(CAIRN).arg("cat").arg(volume.image()).arg("file").output().unwrap();
    assert_eq!(said(&kept), "kept");
}

/// Run in a mount namespace of its own, where all users can open `/dev/fuse` and `/tmp` is empty:
/// the program, the image, the mount point, a directory for the device.
const NAMESPACE: &str = r#"
set -e
mount -t tmpfs -o mode=755 device "$3"
mknod "$3/fuse" c 10 229
chmod 666 "$3/fuse"
mount --bind "$3/fuse" /dev/fuse
mount -t tmpfs -o mode=1777 temporary /tmp
as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
as_user unshare --user --map-root-user --mount sh -ec '
    "$0" mount "$1" "$2"
    "$0" stats "$2" | grep -q "mode  *rw"
    ls /tmp
    "$0" umount "$2"
' "$0" "$1" "$2"
# A user who takes root's name does not hinder root.
as_user mkdir /tmp/cairn-0
"$0" mount "$1" "$2"
"$0" stats "$2" | grep -o "mode  *rw"
"$0" umount "$2"
"#;

#[test]
fn the_root_of_a_user_namespace_is_not_the_systems() {
    let volume = Volume::make(SIZE, &["-E", "root_owner=65534:65534"]);
    let place = cairn_testkit::place::Place::from(
        tempfile::Builder::new().prefix("cairn-user-").tempdir_in("/dev/shm").unwrap(),
    );
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (program, device) = (place.path().join("cairn"), place.path().join("device"));
    judge::copy_program(Path::new(CAIRN), &program);
    fs::create_dir(&device).unwrap();
    for path in [volume.image(), volume.root()] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    let mut command = judge::command("unshare");
    let script = [judge::FORGET_MOUNTS, NAMESPACE].concat();
    command.args(["--mount", "sh", "-c", &script]).args([
        &program,
        &volume.image(),
        &volume.root(),
        &device,
    ]);
    let output = command.output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}: {}",
        output.status,
        said(&output)
    );
    let text = said(&output);
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words, ["cairn-65534", "mode", "rw"], "{text}");
    judge::assert_clean(&volume.image());
}

/// Data that the kernel collected while the volume was frozen does not block the unmount.
#[test]
fn a_frozen_mount_is_unmounted_unless_it_is_in_use() {
    let mut volume = Volume::mounted(SIZE, "");
    fs::write(volume.path("held"), "").unwrap();
    judge::run(CAIRN, [Path::new("freeze"), &volume.root()]);
    let shell = {
        let mut command = judge::command("sh");
        command.args(["-c", "exec 3<held; echo ready; read -r line"]).current_dir(volume.root());
        Shell::start(command)
    };
    let output = umount(&["--timeout=5"], &volume.root());
    assert!(
        output.status.code() == Some(6) && said(&output).contains(&shell.pid()),
        "{}",
        said(&output)
    );
    assert_eq!(
        volume.stats().pointer("/state/frozen"),
        Some(&true.into()),
        "it stays frozen for the program that copies it"
    );
    shell.finish();
    // No user is left. Not even the expiry mark of another process's question delays the unmount.
    let _ = rustix::mount::unmount(volume.root(), rustix::mount::UnmountFlags::EXPIRE);
    let output = umount(&["--timeout=20"], &volume.root());
    assert!(output.status.success(), "{}", said(&output));
    volume.await_end();
}

/// A program that waits in a call has no file open, and a signal does not end it. A refused unmount
/// must not let that program write to an image that is being copied.
#[test]
fn a_refused_unmount_leaves_the_volume_frozen() {
    for mut volume in [Volume::mounted(SIZE, ""), Volume::f2fs(SIZE, "")] {
        judge::run(CAIRN, [Path::new("freeze"), &volume.root()]);
        let mut waiting = judge::command("touch").arg(volume.path("new")).spawn().unwrap();
        let in_a_call = || volume.stats().pointer("/fuse/queue_now").unwrap().as_u64() > Some(0);
        until("the call reaches the daemon", in_a_call);
        let before = fs::read(volume.image()).unwrap();
        // The first try leaves no mark in the kernel that would let the second succeed.
        for _ in 0..2 {
            let output = umount(&["--timeout=5"], &volume.root());
            let told = said(&output);
            assert!(output.status.code() == Some(6) && told.contains("cairn thaw"), "{told}");
        }
        assert_eq!(volume.stats().pointer("/state/frozen"), Some(&true.into()));
        assert!(fs::read(volume.image()).unwrap() == before, "written while frozen");
        judge::run(CAIRN, [Path::new("thaw"), &volume.root()]);
        assert!(waiting.wait().unwrap().success());
        judge::run(CAIRN, [Path::new("freeze"), &volume.root()]);
        until("the last call has been answered", || !in_a_call());
        let output = umount(&["--timeout=20"], &volume.root());
        assert!(output.status.success(), "{}", said(&output));
        volume.await_end();
    }
}

/// A script that froze a volume and was killed does not block all users for ever.
#[test]
fn a_freeze_with_a_limit_ends_by_itself_and_only_itself() {
    let mut volume = Volume::mounted(SIZE, "");
    let cairn = |words: &[&str]| {
        judge::run(CAIRN, words.iter().map(Path::new).chain([&*volume.root()]));
    };
    let frozen = || volume.stats().pointer("/state/frozen") == Some(&true.into());
    cairn(&["freeze", "--timeout=1"]);
    assert!(frozen());
    fs::write(volume.path("file"), "waited").unwrap();
    assert!(!frozen());
    cairn(&["freeze", "--timeout=1"]);
    cairn(&["thaw"]);
    cairn(&["freeze"]);
    // Longer than the one before would have lasted: it has been thawed, and this one has no limit.
    std::thread::sleep(Duration::from_millis(1200));
    assert!(frozen());
    cairn(&["thaw"]);
    let told = volume.stats()["log"]["messages"].to_string();
    assert_eq!(told.matches("thawed by itself").count(), 1, "{told}");
    let (status, said, daemon) = volume.end_with_status();
    assert_eq!((status, daemon), (Some(0), Some(0)), "{said}");
    assert!(!said.contains("thawed"), "it was asked to, so that is no news: {said}");
    volume.judge();
}
