//! `export` into directories, by a user who may not keep everything.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use cairn_testkit::judge;

use crate::support::works;

const USER: u32 = 65_534;

/// What a user who is not root does in a directory of its own.
struct User(tempfile::TempDir);

impl User {
    fn new() -> Self {
        // Readable for all, and with a program that all may run.
        let open = tempfile::Builder::new().prefix("export-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(open.path(), fs::Permissions::from_mode(0o777)).unwrap();
        judge::copy_program(Path::new(env!("CARGO_BIN_EXE_cairn")), &open.path().join("cairn"));
        Self(open)
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// What it says on standard error.
    #[track_caller]
    fn works(&self, args: &[&str]) -> String {
        let mut command = Command::new(self.at("cairn"));
        command.args(args).current_dir(self.0.path()).uid(USER).gid(USER);
        let output = command.env_remove("CAIRN_LOG").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{args:?}: {said}");
        said
    }
}

#[test]
fn a_list_brings_back_what_a_user_may_not_keep() {
    for format in ["ext4", "f2fs"] {
        let user = User::new();
        let script = "
            mkdir -p tree/bin tree/closed/below; echo x >tree/plain; echo y >tree/bin/su
            echo z >tree/unreadable; chmod 0 tree/unreadable; chown -R 5:6 tree/closed
            chmod 4755 tree/bin/su; setfattr -n user.a -v b tree/plain; chmod 555 tree/closed
            setfattr -n trusted.t -v v tree/plain; ln tree/plain tree/linked
            mknod tree/null c 1 3; mknod tree/disk b 8 1; ln tree/null tree/zero
            truncate -s 1M tree/holes; mkfifo tree/fifo; ln -s plain tree/link
            python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"tree/socket\")'
            find tree -exec touch -h -d @1000000000.5 {} +";
        judge::run("sh", ["-ec", &format!("cd {}; {script}", user.at(""))]);
        works(&["build", "-t", format, "--free", "8M", &user.at("image"), &user.at("tree/")]);
        fs::set_permissions(user.at("image"), fs::Permissions::from_mode(0o644)).unwrap();
        let said = user.works(&["export", "image", "-o", "out/"]);
        assert_eq!(said.lines().count(), 1, "{said}");
        for word in [" owners, ", " modes, 2 devices, 1 extended attribute: ", "--manifest"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        fs::remove_dir_all(user.at("out")).unwrap();
        let said = user.works(&["export", "image", "-o", "dir:out", "--manifest", "out.dump"]);
        assert!(said.contains("cairn build --manifest out.dump"), "{said}");
        // Nobody gets the rights of this user.
        let mode = |name: &str| fs::symlink_metadata(user.at(name)).unwrap().permissions().mode();
        assert_eq!((mode("out/bin/su"), mode("out/closed")), (0o100_755, 0o040_755));
        assert_eq!(fs::read(user.at("out/unreadable")).unwrap(), b"z\n");
        let words =
            ["build", "-t", format, "--free", "8M", "--manifest", "out.dump", "back", "out/"];
        assert_eq!(user.works(&words), "");
        assert_eq!(works(&["diff", &user.at("image"), &user.at("back")]), "", "{format}");
        assert_eq!(works(&["diff", &user.at("tree/"), &user.at("back")]), "", "{format}");
    }
}

#[test]
fn a_signal_ends_an_export_without_a_trace() {
    let user = User::new();
    judge::run("mkfifo", [user.at("pipe")]);
    for signal in ["INT", "TERM", "HUP"] {
        let mut export = Command::new("env")
            .args(["--default-signal", env!("CARGO_BIN_EXE_cairn"), "export", "-o", "dir:new"])
            .arg(user.at("pipe"))
            .current_dir(user.at(""))
            .spawn()
            .unwrap();
        let writer = fs::OpenOptions::new().write(true).open(user.at("pipe")).unwrap();
        judge::run("kill", ["-s", signal, &export.id().to_string()]);
        let status = export.wait().unwrap();
        assert!(matches!(status.code(), Some(129 | 130 | 143)), "{signal}: {status}");
        drop(writer);
        assert_eq!(fs::read_dir(user.at("")).unwrap().count(), 2, "{signal}");
    }
}
