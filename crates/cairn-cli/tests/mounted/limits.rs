//! Signals that end programs, and limits that are enforced by signals: none of them takes from a
//! mount what it has accepted.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use cairn_testkit::judge;
use rustix::process::Signal;

use crate::fixture::{CAIRN, Volume, is_mounted};

const SIZE: u64 = 64 << 20;

/// A signal that is not meant for a daemon (QUIT from a keyboard, USR1 that was meant for dd, XCPU
/// from `ulimit -t`) ends it as an unmount does, not as a power cut.
#[test]
fn whatever_signal_ends_a_daemon_nothing_is_lost() {
    use Signal as S;
    for signal in [S::QUIT, S::USR1, S::USR2, S::ALARM, S::VTALARM, S::PROF, S::XCPU, S::HUP] {
        let mut volume = Volume::mounted(SIZE, "");
        fs::write(volume.path("file"), "only in memory so far").unwrap();
        volume.signal(signal);
        let said = volume.await_end();
        assert!(!is_mounted(&volume.root()) && said.is_empty(), "{signal:?}: {said}");
        let kept = judge::debugfs(&volume.image(), "cat /file");
        assert!(kept.contains("only in memory so far"), "{signal:?}: {kept}");
    }
    // What is no reason to end is none: a reader of a pipe that has gone, a large file.
    let mut volume = Volume::mounted(SIZE, "");
    for signal in [S::PIPE, S::XFSZ, S::CHILD, S::CONT, S::URG, S::WINCH] {
        volume.signal(signal);
    }
    fs::write(volume.path("file"), "goes on").unwrap();
    volume.unmount();
}

/// The image may not grow beyond `ulimit -f`: the write fails, and the daemon survives.
#[test]
fn a_limit_of_the_size_of_files_is_an_error_and_not_the_end_of_the_daemon() {
    for mut volume in [Volume::mounted(SIZE, ""), Volume::f2fs(SIZE, "")] {
        let mut kept = File::create(volume.path("kept")).unwrap();
        kept.write_all(b"synced").unwrap();
        kept.sync_all().unwrap();
        drop(kept);
        volume.limit("--fsize=4096:unlimited");
        let more = fs::write(volume.path("more"), vec![7; 4 << 20]);
        let told = more.and_then(|()| File::open(volume.path("more"))?.sync_all());
        assert!(told.is_err(), "nothing of it can be in the image");
        assert!(volume.stats().pointer("/mount/pid").is_some(), "the daemon answers");
        let (status, said, daemon) = volume.end_with_status();
        assert_eq!((status, daemon), (Some(7), Some(7)), "{said}");
        assert!(said.contains("file too large") && said.contains("ulimit -f"), "{said}");
        volume.mount_again();
        assert_eq!(fs::read(volume.path("kept")).unwrap(), b"synced");
        // ext4 recorded the error, and says so before it writes again.
        volume.unmount_talking();
    }
}

/// Commands under limits that a user may have set: each works, or says in a line what to raise.
#[test]
fn commands_under_small_limits_work_or_say_what_to_raise() {
    let volume = Volume::make(SIZE, &[]);
    let image = volume.image();
    let place = cairn_testkit::place::Place::new();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("cairn");
    judge::run("cp", [Path::new(CAIRN), &program]);
    fs::set_permissions(&image, fs::Permissions::from_mode(0o666)).unwrap();
    let source = place.path().join("source");
    fs::write(&source, vec![1; 1 << 20]).unwrap();
    let under = |limit: &str, words: &[&Path]| {
        let mut command = judge::command("setpriv");
        // Root may have more processes than the limit says.
        if limit.starts_with("--nproc") {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        let output = command.arg("prlimit").arg(limit).arg(&program).args(words).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let ls = [Path::new("ls"), &*image];
    let put = [Path::new("put"), &*image, &source, Path::new("/copy")];
    let new = place.path().join("new.img");
    let mkfs = [Path::new("mkfs"), Path::new("--size"), Path::new("64M"), &*new];
    for (limit, words, status, raise) in [
        ("--fsize=100000", &put[..], 1, "ulimit -f"),
        ("--fsize=100000", &mkfs[..], 1, "ulimit -f"),
        ("--nofile=4", &ls[..], 3, "ulimit -n"),
        ("--nproc=1", &ls[..], 1, "ulimit -u"),
    ] {
        let (ended, said) = under(limit, words);
        assert_eq!((ended, said.lines().count()), (Some(status), 1), "{limit} {words:?}: {said}");
        assert!(said.starts_with("cairn: ") && said.contains(raise), "{limit}: {said}");
    }
    assert!(!new.exists(), "a failed mkfs leaves nothing");
    for words in [&ls[..], &put[..]] {
        assert_eq!(under("--stack=65536", words), (Some(0), String::new()), "{words:?}");
    }
    judge::assert_clean(&image);
    let listed = Command::new(CAIRN).arg("ls").arg(&image).output().unwrap();
    assert!(String::from_utf8(listed.stdout).unwrap().contains("copy"));
}
