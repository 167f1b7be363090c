//! A frozen mount: requests to freeze it that come at the wrong moment, and unmounts that do not
//! wait for its users.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use cairn_testkit::judge;

use crate::fixture::{CAIRN, Volume, transports};

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

/// A shell that has a file of the volume open and appends each line of its input to it.
///
/// Not this process: whatever it starts closes its files at `exec`, and the kernel writes a file
/// back when a descriptor of it is closed, which waits for the thaw.
fn appending(volume: &Volume, name: &str) -> Child {
    let path = volume.path(name);
    let child = judge::command("sh")
        .args(["-c", r#"exec 3>>"$0"; while read -r line; do echo "$line" >&3; done"#])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    while !path.exists() {
        std::thread::yield_now();
    }
    child
}

/// The kernel takes a write to an open file while the volume is frozen, and cannot send it. A
/// second freeze that first asked for such pages would wait for the thaw, and freeze after it.
#[test]
fn a_second_freeze_is_refused_and_never_outlives_the_thaw() {
    let volumes = transports().into_iter().map(|transport| Volume::mounted(SIZE, transport));
    for mut volume in volumes.chain([Volume::f2fs(SIZE, "")]) {
        let mut writer = appending(&volume, "held");
        succeeds(&volume, &["freeze"]);
        let mut input = writer.stdin.take().unwrap();
        input.write_all(b"written while frozen\n").unwrap();
        for arguments in [&["freeze"][..], &["freeze", "--timeout=9"]] {
            let output = cairn(&volume, arguments);
            let told = said(&output);
            assert!(
                output.status.code() == Some(1) && told.contains("thaw it first"),
                "{}: {told}",
                output.status
            );
        }
        // The message names the writer, and not the daemon, which uses the mount, too.
        let told = said(&cairn(&volume, &["umount", "--timeout=5"]));
        let daemon = volume.stats().pointer("/mount/pid").unwrap().to_string();
        assert!(told.contains(&format!("process {}", writer.id())), "{told}");
        assert!(told.contains("cairn thaw") && !told.contains(&daemon), "{told}");
        succeeds(&volume, &["thaw"]);
        input.write_all(b"and after\n").unwrap();
        drop(input);
        assert!(writer.wait().unwrap().success());
        assert!(!is_frozen(&volume));
        let written = fs::read_to_string(volume.path("held")).unwrap();
        assert_eq!(written, "written while frozen\nand after\n");
        volume.unmount();
    }
}

#[test]
fn one_of_several_concurrent_freezes_succeeds() {
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
fn lazy_and_forced_unmounts_end_a_freeze() {
    let ways = transports().into_iter().flat_map(|it| [("--lazy", it), ("--force", it)]);
    for (how, transport) in ways {
        let mut volume = Volume::mounted(SIZE, transport);
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
