//! A frozen mount: requests to freeze it that come at the wrong moment, and unmounts that do not
//! wait for its users.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use cairn_testkit::judge;

use crate::fixture::{CAIRN, Volume};

const SIZE: u64 = 64 << 20;

/// `cairn ARGUMENTS MOUNTPOINT`, killed after 20 seconds.
fn command(volume: &Volume, arguments: &[&str]) -> Command {
    let mut command = judge::command("timeout");
    command.args(["20", CAIRN]).args(arguments).arg(volume.root()).stderr(Stdio::piped());
    command
}

fn cairn(volume: &Volume, arguments: &[&str]) -> Output {
    command(volume, arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn succeeds(volume: &Volume, arguments: &[&str]) -> String {
    let output = cairn(volume, arguments);
    assert!(output.status.success(), "{arguments:?}: {}: {}", output.status, said(&output));
    said(&output)
}

fn is_frozen(volume: &Volume) -> bool {
    volume.stats().pointer("/state/frozen") == Some(&true.into())
}

/// A program that waits for the thaw in a call.
fn waiting(volume: &Volume) -> Child {
    let child = judge::command("touch").arg(volume.path("new")).spawn().unwrap();
    while volume.stats().pointer("/fuse/queue_now").unwrap().as_u64() == Some(0) {
        std::thread::yield_now();
    }
    child
}

/// The kernel takes a write to an open file while the volume is frozen, and cannot send it. A
/// second freeze that first asked for such pages would wait for the thaw, and freeze after it.
#[test]
fn a_second_freeze_is_refused_and_never_outlives_the_thaw() {
    for mut volume in [Volume::mounted(SIZE, ""), Volume::f2fs(SIZE, "")] {
        let mut held = File::create(volume.path("held")).unwrap();
        succeeds(&volume, &["freeze"]);
        held.write_all(b"written while frozen").unwrap();
        for arguments in [&["freeze"][..], &["freeze", "--timeout=9"]] {
            let output = cairn(&volume, arguments);
            let told = said(&output);
            assert!(
                output.status.code() == Some(1) && told.contains("thaw it first"),
                "{}: {told}",
                output.status
            );
        }
        // The daemon asks for nobody's pages: it is no user of the mount, the file's writer is.
        let told = said(&cairn(&volume, &["umount", "--timeout=5"]));
        let daemon = volume.stats().pointer("/mount/pid").unwrap().to_string();
        assert!(told.contains(&format!("process {}", std::process::id())), "{told}");
        assert!(told.contains("cairn thaw") && !told.contains(&daemon), "{told}");
        succeeds(&volume, &["thaw"]);
        held.write_all(b", and after").unwrap();
        held.sync_all().unwrap();
        assert!(!is_frozen(&volume));
        drop(held);
        assert_eq!(
            fs::read_to_string(volume.path("held")).unwrap(),
            "written while frozen, and after"
        );
        volume.unmount();
    }
}

#[test]
fn of_freezes_at_the_same_moment_one_freezes() {
    let mut volume = Volume::mounted(SIZE, "");
    for _ in 0..5 {
        fs::write(volume.path("file"), "dirty").unwrap();
        let all: Vec<Child> =
            (0..6).map(|_| command(&volume, &["freeze"]).spawn().unwrap()).collect();
        let ended: Vec<Output> =
            all.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        let frozen = ended.iter().filter(|output| output.status.success()).count();
        let told: Vec<String> = ended.iter().map(said).collect();
        assert!(frozen == 1 && is_frozen(&volume), "{told:?}");
        succeeds(&volume, &["thaw"]);
        assert!(!is_frozen(&volume));
    }
    volume.unmount();
}

/// After these unmounts nothing can thaw the volume, so they do.
#[test]
fn an_unmount_that_waits_for_nobody_ends_the_freeze() {
    for how in ["--lazy", "--force"] {
        let mut volume = Volume::mounted(SIZE, "");
        succeeds(&volume, &["freeze"]);
        let mut writer = waiting(&volume);
        let told = succeeds(&volume, &["umount", how]);
        assert!(told.contains("is thawed now"), "{how}: {told}");
        // `--force` may end the connection before the call is answered.
        let written = writer.wait().unwrap();
        assert!(written.success() || how == "--force", "{written}");
        volume.await_end();
        judge::assert_clean(&volume.image());
    }
}
