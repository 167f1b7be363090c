//! `cairn check` of live mounts: frozen for the time of the check, and no longer.

use std::io::Write;
use std::process::{Output, Stdio};

use cairn_testkit::judge;

use crate::fixture::{CAIRN, Volume, transports};

const SIZE: u64 = 64 << 20;

/// `cairn check MOUNTPOINT`, killed after 60 seconds.
fn check(volume: &Volume, arguments: &[&str]) -> Output {
    let mut command = judge::command("timeout");
    command.args(["60", CAIRN, "check"]).args(arguments).arg(volume.root());
    command.output().unwrap()
}

fn is_frozen(volume: &Volume) -> bool {
    volume.stats().pointer("/state/frozen") == Some(&true.into())
}

/// Writes and removes files until it reads a line.
fn busy(volume: &Volume) -> std::process::Child {
    let script = r#"i=0; while ! read -t 0.01 -r line; do i=$((i+1)); echo "$i" >"$0/file $((i%50))"
        mkdir -p "$0/d$((i%7))"; rm -f "$0/file $(((i+25)%50))"; done"#;
    let root = volume.root();
    judge::command("bash").args(["-c", script]).arg(root).stdin(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_busy_mount_is_sound_and_goes_on() {
    let volumes = transports().into_iter().map(|transport| Volume::mounted(SIZE, transport));
    for mut volume in volumes.chain([Volume::f2fs(SIZE, "")]) {
        let mut writer = busy(&volume);
        for arguments in [&[][..], &["--json"]] {
            let output = check(&volume, arguments);
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{told}{complaint}");
            assert!(told.contains("clean"), "{told}");
            assert!(!is_frozen(&volume));
        }
        writer.stdin.take().unwrap().write_all(b"enough\n").unwrap();
        writer.wait().unwrap();
        volume.unmount();
        volume.judge();
    }
}

/// However the checker ends, no mount stays frozen.
#[test]
fn a_killed_check_leaves_no_frozen_mount() {
    for mut volume in [Volume::mounted(SIZE, ""), Volume::f2fs(SIZE, "")] {
        let mut killed = 0;
        for _ in 0..20 {
            let mut command = judge::command(CAIRN);
            command.arg("check").arg(volume.root()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut checker = command.spawn().unwrap();
            while checker.try_wait().unwrap().is_none() {
                if is_frozen(&volume) {
                    killed += 1;
                    checker.kill().unwrap();
                    checker.wait().unwrap();
                }
            }
            while is_frozen(&volume) {
                std::thread::yield_now();
            }
            std::fs::write(volume.path("written"), [7; 5000]).unwrap();
        }
        println!("{killed} of 20 were killed while the mount was frozen");
        volume.unmount();
        volume.judge();
    }
}

#[test]
fn a_check_of_a_frozen_mount_says_what_to_do() {
    let mut volume = Volume::mounted(SIZE, "");
    let cairn = |command: &str| {
        let mut freeze = judge::command("timeout");
        freeze.args(["20", CAIRN, command]).arg(volume.root());
        assert!(freeze.status().unwrap().success());
    };
    cairn("freeze");
    let output = check(&volume, &[]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(8) && told.contains("thaw it first"), "{told}");
    assert!(is_frozen(&volume), "the freeze of another program stays");
    cairn("thaw");
    volume.unmount();
}

/// On a read-only mount nothing waits; it is frozen nevertheless, and thawed.
#[test]
fn a_read_only_mount_is_checked_as_often_as_one_likes() {
    for mut volume in [Volume::mounted(SIZE, "ro"), Volume::f2fs(SIZE, "ro")] {
        for round in 0..3 {
            let output = check(&volume, &[]);
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{round}: {told}");
            assert!(!is_frozen(&volume), "{round}");
            if round == 1 {
                judge::run(CAIRN, ["remount", "-o", "rw", volume.root().to_str().unwrap()]);
                std::fs::write(volume.path("written"), "x").unwrap();
                judge::run(CAIRN, ["remount", "-o", "ro", volume.root().to_str().unwrap()]);
            }
        }
        volume.unmount();
    }
}

/// A repair needs a volume that nobody has mounted.
#[test]
fn a_repair_of_a_mount_says_what_to_do() {
    let mut volume = Volume::mounted(SIZE, "");
    let output = check(&volume, &["--repair"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(8) && told.contains("cairn umount /"), "{told}");
    assert!(told.contains("cairn check --repair /"), "{told}");
    assert!(!is_frozen(&volume));
    volume.unmount();
}

/// Another user may not freeze a mount.
#[test]
fn another_user_may_not_check_a_mount() {
    let mut volume = Volume::mounted(SIZE, "");
    let mut command = judge::command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "timeout", "20", CAIRN]);
    let output = command.arg("check").arg(volume.root()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(8), "{told}");
    assert!(!is_frozen(&volume) && !told.is_empty(), "{told}");
    volume.unmount();
}

/// What Linux has mounted is checked as it is, with a warning.
#[test]
fn an_image_that_linux_has_mounted_is_checked_with_a_warning() {
    let place = cairn_testkit::place::Place::new();
    let (image, point) = (place.path().join("disk.img"), place.path().join("mnt"));
    judge::mke2fs(&image, 16 << 20, &[]);
    std::fs::create_dir(&point).unwrap();
    let mut mount = judge::command("mount");
    assert!(mount.args(["-o", "loop"]).arg(&image).arg(&point).status().unwrap().success());
    let output = judge::command(CAIRN).arg("check").arg(&image).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(judge::command("umount").arg(&point).status().unwrap().success());
    let point = point.canonicalize().unwrap();
    assert!(told.contains("Linux has mounted it on") && told.contains(point.to_str().unwrap()));
    let quiet = judge::command(CAIRN).arg("check").arg(&image).output().unwrap();
    assert_eq!(quiet.status.code(), Some(0));
    assert!(quiet.stderr.is_empty(), "{}", String::from_utf8_lossy(&quiet.stderr));
}
