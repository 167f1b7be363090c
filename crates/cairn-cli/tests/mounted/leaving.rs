//! Unmounting a mount in use, here or in another mount namespace: the message names its users,
//! nothing is lost, and the mount can be ended.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cairn_testkit::judge;

use crate::fixture::{CAIRN, Volume, is_mounted, stats, transports};

const SIZE: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

fn umount(arguments: &[&str], point: &Path) -> Output {
    Command::new(CAIRN)
        .arg("umount")
        .args(arguments)
        .arg(point)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A shell that has started and waits for a line of input.
struct Shell(Child);

impl Shell {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        Self(child)
    }

    /// In the mount's root, with a file open.
    fn inside(volume: &Volume, then: &str) -> Self {
        let mut command = judge::command("sh");
        command
            .args(["-c", &format!("exec 3>>held; echo ready; read -r line; {then}")])
            .current_dir(volume.root());
        Self::start(command)
    }

    /// In a mount namespace of its own, with a copy of every mount.
    fn elsewhere() -> Self {
        let mut command = judge::command("unshare");
        command.args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            "echo ready; read -r line",
        ]);
        Self::start(command)
    }

    fn pid(&self) -> String {
        format!("process {}", self.0.id())
    }

    /// Sends it a line, and returns its output.
    fn finish(mut self) -> String {
        self.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        let mut said = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        self.0.wait().unwrap();
        said
    }
}

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

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
    let shell = Shell::elsewhere();
    let output = umount(&["--timeout=3"], &volume.root());
    let text = said(&output);
    assert_eq!((output.status.code(), text.lines().count()), (Some(6), 2), "{text}");
    for line in text.lines() {
        assert!(line.contains("nsenter") && line.contains("daemon (process"), "{line}");
    }
    assert!(!is_mounted(&volume.root()));
    // What the message advises. Other tests may have namespaces with a copy at the moment, which
    // end by themselves.
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
    judge::assert_clean(volume.image());
}

#[test]
fn what_is_in_use_can_be_ended_by_force_without_loss() {
    for namespace in [false, true] {
        let volumes = transports().into_iter().map(|transport| Volume::mounted(SIZE, transport));
        for mut volume in volumes.chain([Volume::f2fs(SIZE, "")]) {
            let shell = if namespace {
                Shell::elsewhere()
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

#[test]
fn a_dead_mount_goes_by_force_too() {
    let mut volume = Volume::mounted(SIZE, "");
    stats(&volume.root());
    volume.kill();
    let output = umount(&["--force"], &volume.root());
    assert!(!is_mounted(&volume.root()), "{}", said(&output));
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
    command.args(["--mount", "sh", "-c", NAMESPACE]).args([
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

/// After a wait for a copy in another namespace has timed out, `--force` still ends the daemon.
#[test]
fn what_was_unmounted_here_alone_can_be_ended_by_force() {
    let mut volume = Volume::mounted(SIZE, "");
    fs::write(volume.path("file"), "kept").unwrap();
    let shell = Shell::elsewhere();
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

/// Run in a mount namespace of its own, into which the mount `$4` is copied: the program, an image,
/// a mount point and another.
const ALL: &str = r#"
set -e
"$0" mount "$1" "$2"
mount --bind "$2" "$3"
# Dead mounts of other tests may have been copied, too, and their owner is unknown.
"$0" umount -a || true
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
    command.args(["--mount", "--propagation", "private", "sh", "-c", ALL, CAIRN]).args([
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
            let known = ["not mounted any more", "nothing is mounted here"];
            assert!(known.iter().any(|words| told.contains(words)), "{told}");
        }
        volume.await_end();
        volume.mount_again();
    }
    volume.unmount();
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

/// Its arguments are the images and their mount points. It runs in a mount namespace of its own and
/// first unmounts the mounts of other tests there.
const SEVERAL: &str = r#"
umount -a -t fuse.cairn
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
    command.args(["--mount", "--propagation", "private", "sh", "-c", SEVERAL, CAIRN]);
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
