//! The file commands on volumes of both formats. fsck judges the results, and they are compared
//! with Linux's tools on the same tree.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use cairn_testkit::judge::{self, KernelMount, assert_f2fs_clean};
use serde_json::Value;

use crate::support::{cairn, fails, in_dir, works};

fn check(kind: &str, image: &str) {
    match kind {
        "ext4" => judge::assert_clean(Path::new(image)),
        _ => assert_f2fs_clean(Path::new(image)),
    }
}

/// A volume with a few files; each test changes its own.
fn volume(kind: &str) -> (cairn_testkit::place::Place, String) {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "-t", kind, "--size", "64M", &image]);
    let script = "mkdir -p /etc/conf.d /var/log\ntouch -d @1000 /etc/a.conf /etc/b.conf \
        /etc/.hidden.conf\n\
        truncate -s 3M /var/log/big\nln -s a.conf /etc/link\nmknod -m 666 /null c 1 3\nmknod /pipe \
        p\n\
        setfattr -n user.a -v 'one two' /etc/a.conf\nln /var/log/big /var/log/twin\n";
    assert_eq!(shell(&image, &[], script), (0, String::new(), String::new()));
    (dir, image)
}

/// Exit status and output of a script.
fn shell(image: &str, options: &[&str], script: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cairn"));
    command.arg("shell").args(options).arg(image).env_remove("CAIRN_LOG");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A shell that ends early reads no more.
    let _ = child.stdin.take().unwrap().write_all(script.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn patterns_stand_for_names_as_in_sh() {
    for kind in ["ext4", "f2fs"] {
        let (_dir, image) = volume(kind);
        assert_eq!(works(&["ls", &image, "/etc/*.conf"]), "/etc/a.conf\n/etc/b.conf\n");
        assert_eq!(works(&["ls", "-d", &image, "/e*/[b-c]*"]), "/etc/b.conf\n/etc/conf.d\n");
        assert_eq!(works(&["ls", &image, "/etc/.*conf"]), "/etc/.hidden.conf\n");
        assert!(fails(&["ls", &image, "/none*"], 1).contains("/none*: no such file"));
        // A backslash escapes a pattern's character, and a pattern without a match is a name.
        works(&["touch", &image, r"/etc/\*.conf"]);
        works(&["rm", &image, r"/etc/\*.conf"]);
        assert_eq!(works(&["ls", &image, "/etc/*.conf"]), "/etc/a.conf\n/etc/b.conf\n");
        works(&["rm", &image, "/etc/?.conf"]);
        assert_eq!(works(&["ls", &image, "/etc"]), "conf.d\nlink\n");
        check(kind, &image);
    }
}

#[test]
fn find_asks_what_gnu_find_asks() {
    let (_dir, image) = volume("ext4");
    works(&["chmod", &image, "4755", "/etc/b.conf"]);
    let mount = KernelMount::new(Path::new(&image), "ro");
    for words in [
        "-name *.conf",
        "-iname *.CONF -type f",
        "-type d,l",
        "-size +1M",
        "-size -1k -type f",
        "-newer /etc/a.conf -type f",
        "-newermt 2001-01-01 -type f",
        "-perm -4000 -o -links +1 -type f",
        "! ( -type d -o -name *.conf )",
        "-maxdepth 1 -mindepth 1 -not -name lost+found",
        "-empty -path */etc/*",
        "-perm /111 -type f",
        "-mtime +300 -type f",
        "-mmin -600",
        "-mtime 0 -o -mmin +100",
        "-user 0 -type l",
    ] {
        let ours =
            works(&[&["find", &image, "/"][..], &words.split(' ').collect::<Vec<_>>()].concat());
        let mut command = judge::command("find");
        let theirs =
            words.replace("/etc/a.conf", &format!("{}/etc/a.conf", mount.path().display()));
        let output =
            command.arg(mount.path()).args(theirs.split(' ')).env("TZ", "UTC").output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        let root = mount.path().to_str().unwrap();
        let below = |line: &str| match line.strip_prefix(root).unwrap() {
            "" => "/".to_owned(),
            path => path.to_owned(),
        };
        let theirs = String::from_utf8(output.stdout).unwrap();
        let mut theirs: Vec<String> = theirs.lines().map(below).collect();
        let mut ours: Vec<String> = ours.lines().map(String::from).collect();
        theirs.sort();
        ours.sort();
        assert_eq!(ours, theirs, "{words}");
    }
    mount.unmount();
    assert_eq!(
        works(&["find", &image, "/etc", "-name", "*.conf", "-type", "f", "-size", "0", "-print0"])
            .matches('\0')
            .count(),
        3
    );
    for wrong in [
        &["-nonsense"][..],
        &["-size", "x"],
        &["(", "-empty"],
        &["-name"],
        &["-type", "x"],
        &["-empty", ")"],
    ] {
        assert!(
            fails(&[&["find", &image, "/"], wrong].concat(), 2).contains("find: "),
            "{wrong:?}"
        );
    }
}

#[test]
fn du_and_df_count_as_the_kernels() {
    let (dir, image) = volume("ext4");
    let file = dir.path().join("file");
    std::fs::write(&file, vec![7; 3_000_000]).unwrap();
    works(&["put", &image, file.to_str().unwrap(), "/var"]);
    works(&["ln", &image, "/var/file", "/var/log/again"]);
    let ours = |words: &[&str]| works(&[words, &[&image]].concat());
    let (df, du) = (ours(&["df", "--json"]), works(&["du", &image, "/var"]));
    let apparent = works(&["du", "-sb", &image, "/var"]);
    let mount = KernelMount::new(Path::new(&image), "ro");
    let theirs = |name: &str, words: &[&str]| {
        let output =
            judge::command(name).args(words).arg(mount.path().join("var")).output().unwrap();
        String::from_utf8(output.stdout).unwrap().replace(mount.path().to_str().unwrap(), "")
    };
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(String::from).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&du), sorted(&theirs("du", &[])));
    assert_eq!(apparent, theirs("du", &["-sb"]));
    let df: Value = serde_json::from_str(&df).unwrap();
    let inodes = theirs("df", &["--output=itotal,iused"]);
    let numbers: Vec<u64> =
        inodes.lines().nth(1).unwrap().split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert_eq!(
        (df["inodes"].as_u64(), df["inodes_used"].as_u64()),
        (Some(numbers[0]), Some(numbers[1]))
    );
    mount.unmount();
    assert!(works(&["df", "-h", &image]).contains("Use%"));
}

#[test]
fn cp_copies_everything_inside_the_image() {
    for kind in ["ext4", "f2fs"] {
        let (_dir, image) = volume(kind);
        works(&["chown", "-R", &image, "7:8", "/etc", "/var"]);
        works(&["mkdir", &image, "/copy"]);
        works(&["cp", "-a", &image, "/etc", "/var", "/null", "/copy"]);
        let listing = |path: &str| {
            let json: Value =
                serde_json::from_str(&works(&["ls", "--json", "-R", &image, path])).unwrap();
            let keep = |one: &Value| {
                let name = one["path"].as_str().unwrap().strip_prefix(path).unwrap().to_owned();
                format!(
                    "{name} {} {} {} {} {} {}",
                    one["kind"], one["mode"], one["uid"], one["size"], one["mtime"], one["links"]
                )
            };
            json.as_array().unwrap().iter().map(keep).collect::<Vec<_>>()
        };
        assert_eq!(listing("/etc"), listing("/copy/etc"));
        assert_eq!(listing("/var"), listing("/copy/var"));
        assert_eq!(
            works(&["getfattr", "-n", "user.a", "--only-values", &image, "/copy/etc/a.conf"]),
            "one two"
        );
        // Without -a the copy belongs to root, has new times, and keeps no hard links.
        works(&["cp", "-r", &image, "/etc", "/plain"]);
        let json: Value =
            serde_json::from_str(&works(&["stat", "--json", &image, "/plain/a.conf"])).unwrap();
        assert_eq!((&json[0]["uid"], &json[0]["mode"]), (&0.into(), &"0644".into()));
        assert!(fails(&["cp", &image, "/etc", "/x"], 1).contains("-r"));
        assert!(fails(&["cp", "-r", &image, "/etc", "/etc/conf.d"], 1).contains("into itself"));
        assert!(fails(&["cp", &image, "/etc/a.conf", "/etc/a.conf"], 1).contains("the same file"));
        check(kind, &image);
    }
}

#[test]
fn what_they_make_is_what_linux_sees() {
    let (_dir, image) = volume("ext4");
    works(&["touch", "-d", "2001-02-03 04:05:06.5", &image, "/etc/b.conf"]);
    works(&["touch", "-r", "/etc/b.conf", &image, "/stamp"]);
    works(&["truncate", "-s", "-1M", &image, "/var/log/big"]);
    works(&["setfattr", "-n", "user.bytes", "-v", "0x00ff", &image, "/stamp"]);
    works(&["mknod", &image, "/disk", "b", "259", "70000"]);
    assert!(fails(&["mknod", &image, "/x", "b"], 2).contains("MAJOR MINOR"));
    assert_eq!(
        works(&["getfattr", "-d", &image, "/stamp"]),
        "# file: stamp\nuser.bytes=0x00ff\n\n"
    );
    let json: Value =
        serde_json::from_str(&works(&["getfattr", "--json", &image, "/stamp"])).unwrap();
    assert_eq!(json[0]["attributes"][0]["value"], "00ff");
    judge::assert_clean(Path::new(&image));
    let mount = KernelMount::new(Path::new(&image), "ro");
    let stat = |format: &str, name: &str| {
        let output = judge::command("stat")
            .args(["-c", format])
            .arg(mount.path().join(name))
            .env("TZ", "UTC")
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
    };
    assert_eq!(stat("%.9Y %X", "stamp"), "981173106.500000000 981173106");
    assert_eq!(stat("%s %h", "var/log/twin"), format!("{} 2", 2 << 20));
    assert_eq!(stat("%F %t:%T %a", "null"), "character special file 1:3 666");
    assert_eq!(stat("%F %t:%T", "disk"), "block special file 103:11170");
    assert_eq!(stat("%F", "pipe"), "fifo");
    let mut attribute = [0; 8];
    assert_eq!(
        rustix::fs::getxattr(mount.path().join("stamp"), "user.bytes", &mut attribute).unwrap(),
        2
    );
    assert_eq!(&attribute[..2], b"\0\xff");
    mount.unmount();
    works(&["setfattr", "-x", "user.bytes", &image, "/stamp"]);
    assert!(
        fails(&["getfattr", "-n", "user.bytes", &image, "/stamp"], 1)
            .contains("no such extended attribute")
    );
}

#[test]
fn standard_input_and_output_are_files() {
    for kind in ["ext4", "f2fs"] {
        let (_dir, image) = volume(kind);
        let mut put = Command::new(env!("CARGO_BIN_EXE_cairn"));
        let mut put =
            put.args(["put", &image, "-", "/etc/from"]).stdin(Stdio::piped()).spawn().unwrap();
        let bytes = vec![b'x'; 3_000_000];
        put.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert!(put.wait().unwrap().success());
        assert!(works(&["get", &image, "/etc/from", "-"]).into_bytes() == bytes);
        assert!(fails(&["put", &image, "-", "/etc"], 2).contains("standard input has no name"));
        check(kind, &image);
    }
}

/// A pipe changes a file: `put` waits for the program that reads the image, and writes nothing if
/// that program failed.
#[test]
fn a_pipe_from_an_image_into_itself_loses_nothing() {
    let (_dir, image) = volume("ext4");
    for round in 0..5 {
        let change = format!(
            "set -o pipefail; printf 'round {round}\\n' | cat - /etc/services | {0} put {1} - \
/etc/s &&
             {0} cat {1} /etc/s | sed 's/round/changed/' | {0} put {1} - /etc/s",
            env!("CARGO_BIN_EXE_cairn"),
            image
        );
        let changed = Command::new("bash").args(["-c", &change]).status().unwrap();
        assert!(changed.success(), "{change}");
        let found = works(&["cat", &image, "/etc/s"]);
        assert!(found.starts_with(&format!("changed {round}\n")) && found.lines().count() > 10);
    }
}

/// Files that do not know their length, and a directory's contents with its own attributes.
#[test]
fn put_takes_files_of_proc_and_the_contents_of_directories() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, image) = volume("ext4");
    let (status, _, said) = cairn(&["put", &image, "/proc/version", "/version"]);
    assert!(
        status == 0 && said.contains("warning: /proc/version: its attributes say 0 bytes"),
        "{said}"
    );
    assert_eq!(
        works(&["cat", &image, "/version"]),
        std::fs::read_to_string("/proc/version").unwrap()
    );
    let source = dir.path().join("rootfs");
    std::fs::create_dir_all(source.join("opt/app")).unwrap();
    std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o711)).unwrap();
    works(&["put", "--owner", "5:6", &image, &format!("{}/.", source.display()), "/"]);
    let json: Value = serde_json::from_str(&works(&["stat", "--json", &image, "/"])).unwrap();
    assert_eq!(
        (&json[0]["mode"], &json[0]["uid"], &json[0]["gid"]),
        (&"0711".into(), &5.into(), &6.into())
    );
    assert_eq!(works(&["ls", &image, "/opt"]), "app\n");
    judge::assert_clean(Path::new(&image));
}

#[test]
fn a_shell_runs_many_commands_and_says_which_failed() {
    for kind in ["ext4", "f2fs"] {
        let (dir, image) = volume(kind);
        let script = "ls /etc # all\nmkdir '/a b'\nput - \"/a b/here\"\nthe rest is the file\n";
        let (status, stdout, stderr) = shell(&image, &[], script);
        assert_eq!(
            (status, stdout.as_str(), stderr.as_str()),
            (0, "a.conf\nb.conf\nconf.d\nlink\n", "")
        );
        assert_eq!(works(&["cat", &image, "/a b/here"]), "the rest is the file\n");
        // The first failure ends it; what was done before stays.
        let failing = "mkdir /before\nrm /none\nmkdir /after\n";
        let (status, _, stderr) = shell(&image, &[], failing);
        assert_eq!(
            (status, stderr),
            (
                1,
                format!(
                    "cairn: {image}: line 2: /none: no such file or directory: check the name; \
                     `cairn ls` lists a directory\n"
                )
            )
        );
        assert_eq!(works(&["ls", "-d", &image, "/before"]), "/before\n");
        fails(&["ls", "-d", &image, "/after"], 1);
        // With -k it continues, and the status is that of the first failure.
        let (status, _, stderr) =
            shell(&image, &["-k"], "rm /none\nnonsense\nls --nonsense\nmkdir /after\n");
        assert_eq!((status, stderr.lines().count()), (1, 3), "{stderr}");
        assert_eq!(works(&["ls", "-d", &image, "/after"]), "/after\n");
        let (status, _, stderr) = shell(&image, &[], "mkdir '/open\n");
        assert!(status == 2 && stderr.contains("quotation"), "{stderr}");
        // Scripts from elsewhere; nothing is written with -r.
        let file = dir.path().join("script");
        std::fs::write(&file, "mkdir \\\n /long\nsync\nexit\nrm -r /long\n").unwrap();
        works(&["shell", "-f", file.to_str().unwrap(), &image]);
        assert_eq!(
            works(&["shell", "-r", "-c", "ls -d /long", "-c", "help", &image]).lines().next(),
            Some("/long")
        );
        assert!(fails(&["shell", "-r", "-c", "mkdir /x", &image], 2).contains("leave out -r"));
        assert!(works(&["shell", "-r", "-c", "help find", &image]).contains("-newermt"));
        check(kind, &image);
    }
}

/// Names with control characters, on a terminal (of script), in a pipe, and in messages.
#[test]
fn names_harm_no_terminal() {
    let (_dir, image) = volume("ext4");
    let name = "/evil\u{1b}[2Jname\n";
    works(&["touch", &image, name]);
    let cairn_path = env!("CARGO_BIN_EXE_cairn");
    for command in ["ls", "find"] {
        let mut script = judge::command("script");
        script.args(["-qec", &format!("{cairn_path} {command} '{image}'"), "/dev/null"]);
        let shown = String::from_utf8(script.output().unwrap().stdout).unwrap();
        assert!(shown.contains(r"evil\033[2Jname\n") && !shown.contains('\u{1b}'), "{shown:?}");
    }
    assert!(works(&["ls", &image]).contains("evil\u{1b}[2Jname\n"));
    assert!(fails(&["cat", &image, "/none\u{1b}"], 1).contains(r"/none\033"));
}

/// A signal ends a shell that waits for its next command. The results of earlier commands are in
/// the image.
#[test]
fn a_signal_ends_a_shell_and_loses_no_command() {
    for signal in [1, 2, 3, 10, 12, 15] {
        let (_dir, image) = in_dir("disk.img");
        works(&["mkfs", "-t", "ext4", "--size", "16M", &image]);
        // A run in the background, or under nohup, passes ignored signals on.
        let mut shell = Command::new("env")
            .args(["--default-signal", env!("CARGO_BIN_EXE_cairn"), "shell", &image])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = shell.stdin.take().unwrap();
        input.write_all(b"mkdir /done\nls -d /done\n").unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(shell.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        assert_eq!(line, "/done\n");
        judge::run("kill", [format!("-{signal}"), shell.id().to_string()]);
        let ended = shell.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), said.lines().count()), (Some(128 + signal), 1), "{said}");
        assert!(said.contains("are in the image"), "{said}");
        judge::assert_clean(Path::new(&image));
        assert_eq!(works(&["ls", "-d", &image, "/done"]), "/done\n");
    }
}
