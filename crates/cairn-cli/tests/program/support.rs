//! The program run to its end.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use assert_cmd::Command;
use cairn_testkit::judge;
use cairn_testkit::place::Place;

/// Exit status, standard output, standard error.
pub fn cairn(args: &[&str]) -> (i32, String, String) {
    let output =
        Command::cargo_bin("cairn").unwrap().args(args).env_remove("CAIRN_LOG").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The one line on standard error.
#[track_caller]
pub fn fails(args: &[&str], status: i32) -> String {
    let (code, stdout, stderr) = cairn(args);
    assert_eq!((code, stdout.as_str()), (status, ""), "{args:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    assert!(stderr.starts_with("cairn: "), "{stderr}");
    stderr
}

/// Standard output of a run that succeeds.
#[track_caller]
pub fn works(args: &[&str]) -> String {
    let (code, stdout, stderr) = cairn(args);
    assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
    stdout
}

/// A directory and the path of a file in it.
pub fn in_dir(name: &str) -> (Place, String) {
    let dir = Place::new();
    let path = dir.path().join(name).to_str().unwrap().to_owned();
    (dir, path)
}

/// The program, run by a user whom file modes restrict.
pub fn cairn_as_user(dir: &Path, image: &str, words: &[&str]) -> (i32, String) {
    let mut command = if judge::is_root() {
        // The user may not be able to reach where cargo builds.
        let program = dir.join("cairn");
        judge::copy_program(Path::new(env!("CARGO_BIN_EXE_cairn")), &program);
        std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::set_permissions(image, PermissionsExt::from_mode(0o666)).unwrap();
        let mut command = std::process::Command::new(program);
        command.uid(65534).gid(65534);
        command
    } else {
        std::process::Command::new(env!("CARGO_BIN_EXE_cairn"))
    };
    let output = command.args(words).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}
