//! Who may use the control channel, and what it says of a mount that is gone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use cairn_testkit::judge;
use serde_json::Value;

use super::{SIZE, cairn, refused, remount, socket};
use crate::fixture::{CAIRN, Volume, stats};

#[test]
fn others_are_turned_away() {
    let mut volume = Volume::mounted(SIZE, "");
    let place = cairn_testkit::place::Place::from(
        tempfile::Builder::new().prefix("cairn-user-").tempdir().unwrap(),
    );
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("cairn");
    judge::copy_program(Path::new(CAIRN), &program);
    stats(&volume.root());
    let as_user = |arguments: &[&str]| {
        let mut command = judge::command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&program);
        command.args(arguments).arg(volume.root()).output().unwrap()
    };
    refused(&as_user(&["stats"]), &["mounted by user 0", "as root"]);
    refused(&as_user(&["remount", "-o", "noatime"]), &["mounted by user 0"]);
    refused(&as_user(&["umount"]), &["mounted by user 0: run as that user or as root"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(Path::new("/run/cairn")), mode(&socket(&volume.root()))), (0o700, 0o600));
    volume.unmount();
}

/// As with umount(8), the source of a mount stands for it; and a mount point is no image.
#[test]
fn the_image_stands_for_its_mount() {
    let mut volume = Volume::mounted(SIZE, "");
    let (image, root) = (volume.image(), volume.root());
    for words in [&["stats"][..], &["remount", "-o", "noatime"], &["freeze"], &["thaw"]] {
        let output = cairn(words, &image);
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
    let mounted = format!("{}: {} is mounted there", root.display(), image.display());
    for command in ["ls", "df"] {
        refused(&cairn(&[command], &root), &[&*mounted]);
    }
    let held = format!("in use: mounted on {} (process ", root.display());
    refused(&cairn(&["ls"], &image), &[&*held]);
    // A second name of the image is in use by the same mount.
    let link = image.with_file_name("link");
    std::fs::hard_link(&image, &link).unwrap();
    refused(&cairn(&["ls"], &link), &[&*held]);
    let output = cairn(&["umount"], &image);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(volume.await_end(), "");
}

/// The name of a key file has slashes: it is no mount point in a directory that is not there.
#[test]
fn an_encrypted_image_stands_for_its_mount() {
    let place = cairn_testkit::place::Place::new();
    let [disk, key, root, none] = ["disk", "key", "mnt", "none"]
        .map(|name| place.path().join(name).to_str().unwrap().to_owned());
    fs::File::create(&disk).unwrap().set_len(32 << 20).unwrap();
    fs::write(&key, "a passphrase").unwrap();
    fs::create_dir(&root).unwrap();
    let cheap = ["--type", "luks1", "--pbkdf-force-iterations", "1000"];
    let format = [&["luksFormat", "-q"], &cheap[..], &[&disk, &key]].concat();
    judge::run("cryptsetup", format);
    let image = format!("{disk}?key-file={key}");
    judge::run(CAIRN, ["mkfs", "-F", &image]);
    judge::run(CAIRN, ["mount", &image, &root]);
    for words in [&["stats", &*image][..], &["remount", "-o", "noatime", &image]] {
        judge::run(CAIRN, words);
    }
    judge::run(CAIRN, ["umount", &image]);
    let missing = format!("{none}?key-file={key}");
    refused(&cairn(&["stats"], Path::new(&missing)), &["no such file"]);
}

#[test]
fn paths_that_are_no_mounts_of_ours_are_told_apart() {
    let mut volume = Volume::mounted(SIZE, "");
    refused(&cairn(&["stats"], Path::new("/proc")), &["/proc", "not by cairn"]);
    refused(&cairn(&["stats"], Path::new("/usr")), &["/usr", "nothing is mounted here"]);
    refused(&cairn(&["stats"], Path::new("/no/such")), &["/no/such"]);
    fs::create_dir(volume.path("sub")).unwrap();
    refused(&cairn(&["stats"], &volume.path("sub")), &["nothing is mounted here"]);
    // A symbolic link to the mount point stands for it, too.
    let link = volume.outside("link");
    std::os::unix::fs::symlink(volume.root(), &link).unwrap();
    assert_eq!(stats(&link)["state"]["mode"], "rw");
    volume.unmount();
}

#[test]
fn a_killed_daemon_leaves_a_clear_message_and_a_socket_that_is_replaced() {
    let mut volume = Volume::mounted(SIZE, "");
    stats(&volume.root());
    volume.kill();
    refused(&cairn(&["stats"], &volume.root()), &["is gone", "cairn umount -l"]);
    refused(&remount("noatime", &volume.root()), &["is gone"]);
    volume.clear();
    volume.mount("");
    assert_eq!(stats(&volume.root())["state"]["mode"], "rw");
    volume.unmount();
}

#[test]
fn a_second_daemon_on_the_same_mount_point_is_refused() {
    let mut volume = Volume::mounted(SIZE, "");
    let other = Volume::make(SIZE, &[]);
    let output =
        Command::new(CAIRN).arg("mount").arg(other.image()).arg(volume.root()).output().unwrap();
    refused(&output, &["in use"]);
    assert_eq!(stats(&volume.root())["mount"]["image"].as_str(), volume.image().to_str());
    volume.unmount();
}

#[test]
fn clients_that_say_nothing_do_not_delay_the_unmount() {
    let mut volume = Volume::mounted(SIZE, "");
    // The daemon listens.
    stats(&volume.root());
    let path = socket(&volume.root());
    let silent: Vec<UnixStream> = (0..10).map(|_| UnixStream::connect(&path).unwrap()).collect();
    assert!(cairn(&["stats"], &volume.root()).status.success());
    volume.unmount();
    drop(silent);
}

/// More callers than there are threads for requests that wait for the disk.
const WRITERS: u64 = 60;

#[test]
fn a_frozen_mount_is_copied_and_read_while_writers_wait() {
    frozen(Volume::mounted(SIZE, ""), judge::assert_clean);
    frozen(Volume::f2fs(SIZE, ""), judge::assert_f2fs_clean);
}

fn frozen(mut volume: Volume, assert_clean: fn(&Path)) {
    let point = volume.root();
    let said = |arguments: &[&str]| {
        let output = cairn(arguments, &point);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    refused(&cairn(&["thaw"], &point), &["not frozen"]);
    let bytes: Vec<u8> = (0..3_u32 << 20).map(|at| (at / 4096) as u8).collect();
    fs::write(volume.path("kept"), &bytes).unwrap();
    let path = |writer: u64| volume.path(&format!("file {writer}"));
    for writer in 0..WRITERS {
        fs::write(path(writer), "").unwrap();
    }
    said(&["freeze"]);
    assert_eq!(stats(&point).pointer("/state/frozen"), Some(&Value::Bool(true)));
    let copy = volume.outside("copy");
    fs::copy(volume.image(), &copy).unwrap();
    assert_clean(&copy);
    let got = Command::new(CAIRN).args(["cat"]).arg(&copy).arg("kept").output().unwrap();
    assert!(
        got.stdout == bytes,
        "what was written before is in the copy: {}",
        String::from_utf8_lossy(&got.stderr)
    );
    refused(&cairn(&["freeze"], &point), &["frozen", "thaw it first"]);
    refused(&remount("noatime", &point), &["frozen", "thaw it first"]);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let path = path(writer);
                scope.spawn(move || fs::set_permissions(path, fs::Permissions::from_mode(0o751)))
            })
            .collect();
        // Until all of them wait in the daemon.
        while stats(&point).pointer("/fuse/queue_now").and_then(Value::as_u64).unwrap() < WRITERS {
            std::thread::yield_now();
        }
        for look in 0..100 {
            assert!(fs::metadata(volume.path(&format!("none{look}"))).is_err());
        }
        assert!(fs::read(volume.path("kept")).unwrap() == bytes);
        assert!(
            fs::read(volume.image()).unwrap() == fs::read(&copy).unwrap(),
            "written while frozen"
        );
        said(&["thaw"]);
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
    });
    for writer in 0..WRITERS {
        assert_eq!(fs::metadata(path(writer)).unwrap().permissions().mode() & 0o777, 0o751);
    }
    said(&["freeze"]);
    volume.unmount();
    volume.mount_again();
    said(&["freeze"]);
    volume.terminate();
}
