//! Frequent mistakes of new users. Each error message gives the right command.

use cairn_base::options::OF_THE_MOUNT;
use cairn_testkit::judge;

use crate::support::{cairn, fails, in_dir, works};

/// chmod(1) and cp(1) have no image, so many put it where the path was.
#[test]
fn an_image_that_does_not_come_first_is_found() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    let file = dir.path().join("file");
    std::fs::write(&file, "text\n").unwrap();
    let file = file.to_str().unwrap();
    for words in [
        &["chmod", "600", &image, "/lost+found"][..],
        &["chown", "0:0", &image, "/lost+found"],
        &["put", file, &image, "/"],
        &["ls", "/lost+found", &image],
    ] {
        let (status, _, said) = cairn(words);
        let wanted = format!("the image comes first: cairn {} {image} ...", words[0]);
        assert!(status == 2 && said.contains(&wanted), "{words:?}: {status}: {said}");
    }
    // If no word is an image, or the first one is, the program does not guess.
    for words in [&["chmod", "600", file, "/x"][..], &["chmod", &image, "9", "/x"], &["ls", "none"]]
    {
        let said = cairn(words).2;
        assert!(!said.contains("comes first"), "{words:?}: {said}");
    }
}

/// As for docker(1), chroot(8) and unshare(1).
#[test]
fn a_run_is_told_where_its_command_begins() {
    let dashes = "before the command put --: `cairn run IMAGE -- ls`";
    for (words, wanted) in [
        (&["run", "x.img", "ls"][..], dashes),
        (&["run", "x.img", "ls", "-l"], dashes),
        (&["run", "x.img", "ls", "--", "-l"], dashes),
        (&["run", "-it", "x.img", "sh"], "has the terminal of its caller: leave it out"),
        (&["run", "--rm", "x.img", "sh"], "with --ephemeral nothing stays"),
        (&["run", "-v", "/a:/b", "x.img", "sh"], "--bind SRC:DST shows a file"),
        (&["run", "--volume=/a:/b", "x.img", "sh"], "--bind SRC:DST shows a file"),
        (&["run", "-l", "x.img", "ls"], "options of the command follow --: `cairn run"),
        (&["run", "x.img"], "cairn run <IMAGE> -- <COMMAND>..."),
    ] {
        let said = fails(words, 2);
        assert!(said.contains(wanted), "{words:?}: {said}");
    }
}

#[test]
fn an_option_of_the_other_format_is_named_with_what_does_the_same() {
    let (dir, image) = in_dir("disk.img");
    let point = dir.path().to_str().unwrap();
    works(&["mkfs", "-t", "f2fs", "--size", "64M", &image]);
    let said = fails(&["mount", "--fake", "-o", "commit=5", &image, point], 2);
    let wanted = "`commit=5` is an option of ext4, and this volume is f2fs: give \
                  `checkpoint_interval=SECONDS`, which does the same here";
    assert!(said.contains(wanted), "{said}");
    let said = fails(&["mount", "--fake", "-o", "no_opne", &image, point], 2);
    assert!(said.contains("did you mean `no_open`?"), "{said}");
}

/// All options with their meaning.
const DOCUMENTED: &str = include_str!("../../../../docs/options.md");

/// The list stands below the FUSE adapter, which the formats do not know.
#[test]
fn every_option_of_the_mount_is_named_where_an_unknown_one_is_refused() {
    const OF_THE_FORMATS_TOO: [&str; 6] =
        ["ro", "rw", "relatime", "noatime", "atime", "strictatime"];
    for setting in cairn_fuse::MountOptions::settings() {
        let name = setting.split('=').next().unwrap();
        assert!(OF_THE_MOUNT.contains(&name) || OF_THE_FORMATS_TOO.contains(&name), "{name}");
        assert!(DOCUMENTED.contains(&format!("`{name}")), "{name} is not in docs/options.md");
    }
}

#[test]
fn what_a_mount_refuses_is_said_of_the_image_and_with_what_to_give() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    let point = dir.path().to_str().unwrap();
    let said = fails(&["mount", "-o", "loop=/dev/loop7", &image, point], 2);
    assert!(said.contains(&format!("{image}: loop=/dev/loop7: a free loop device")), "{said}");
    let said = fails(&["mount", "-o", "offset=512", &image, point], 2);
    assert!(said.contains(&format!("write {image}?offset=512")), "{said}");
    for timeout in ["0", "abc", "86401"] {
        let said = fails(&["freeze", "--timeout", timeout, point], 2);
        assert!(said.contains("give seconds, 1 to 86400"), "{said}");
    }
    let said = fails(&["find", &image, "-user", "root"], 2);
    assert!(said.contains("names of users and groups are not known here: give a number"), "{said}");
}

/// mount(8) passes on what its helper returns.
#[test]
fn a_helper_of_mount_has_the_exit_statuses_of_mount() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    let helper = dir.path().join("mount.fuse.cairn");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cairn"), &helper).unwrap();
    let point = dir.path().to_str().unwrap();
    let missing = format!("{point}/missing.img");
    for (words, status) in [
        (&[&*missing, point, "-o", "rw,nofail"][..], 32),
        (&[&*image, point, "-o", "rw,bogus"], 1),
        (&[&*image, point, "-f"], 0),
    ] {
        let output = std::process::Command::new(&helper).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{words:?}: {output:?}");
    }
    fails(&["mount", &missing, point], 3);
}

#[test]
fn a_size_that_does_not_do_is_answered_with_one_that_does() {
    let (_dir, image) = in_dir("disk.img");
    let said = fails(&["mkfs", "--size", "1", &image], 2);
    assert!(said.ends_with("too small for ext4: give a size of at least 64K\n"), "{said}");
    works(&["mkfs", "-b", "1024", "--size", "64K", &image]);
    let said = fails(&["mkfs", "-F", "-t", "f2fs", "--size", "1M", &image], 2);
    let least = said.split("give a size of at least ").nth(1).unwrap().trim_end().to_owned();
    works(&["mkfs", "-F", "-t", "f2fs", "--size", &least, &image]);
    let (_dir, image) = in_dir("huge.img");
    let (status, _, said) = cairn(&["mkfs", "--size", "8000000T", &image]);
    assert!(status != 0 && said.contains(": raise `ulimit -f`"), "{status}: {said}");
    assert!(!std::path::Path::new(&image).exists());
}

/// A unit that was forgotten, operands the other way round, a directory for temporary files that is
/// not there.
#[test]
fn the_first_tries_at_building_are_answered() {
    let (dir, image) = in_dir("disk.img");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(at("tree")).unwrap();
    std::fs::write(at("tree/file"), "text").unwrap();
    let (tree, new) = (format!("{}/", at("tree")), at("new.img"));
    works(&["build", "--free", "16M", &image, &tree]);
    let tar = at("tree.tar");
    works(&["export", &image, "-o", &tar]);
    for (words, wanted) in [
        (
            &["build", "--size", "100", &new, &tree][..],
            "100 bytes are too few: add a unit, as in 100M",
        ),
        (&["build", "--free", "20", &new, &tree], "add a unit, as in 20M or 20%"),
        (&["resize", &image, "100"], "add a unit, as in 100M"),
        (&["resize", &image, "0"], "give min for the smallest"),
        (&["resize", &image, "-100"], "add a unit, as in -100M"),
        (&["resize", &image, "--mni"], "-SIZE, min, or max"),
        (&["resize", &image, "+100"], "add a unit, as in +100M"),
        (&["tune", "-J", "64", &image], "add a unit, as in 64M"),
        (&["resize", "1G", &image], &format!("the image comes first: cairn resize {image} ...")),
        (&["build", &tree, &new], &format!("the image comes first: cairn build {new} {tree}")),
        (&["build", &tree, &tar], "is a directory: the image comes first, then its sources"),
        (&["build", &tar, &new], &format!("the image comes first: cairn build {new} {tar}")),
        (&["sync", &image, &tree], &format!("the image comes last: cairn sync {tree} {image}")),
        (&["sync", &image, &tar], &format!("the image comes last: cairn sync {tar} {image}")),
        (&["run", "sh", &image], &format!("comes before the command: cairn run {image} -- ...")),
        (&["run", "sh", "--", &image], &format!("comes before the command: cairn run {image} --")),
    ] {
        let said = fails(words, 2);
        assert!(said.contains(wanted), "{words:?}: {said}");
    }
    assert!(!std::path::Path::new(&new).exists());
    // An image that is to be replaced is no source in the wrong place.
    let missing = at("tree/missing");
    let said = fails(&["build", "-F", &image, &missing], 1);
    assert!(
        said.contains(&format!("{missing}: no such file")) && !said.contains("first"),
        "{said}"
    );
    judge::run("gzip", ["-k", &tar]);
    let packed = format!("{tar}.gz");
    for words in
        [&["build", "-", &tree][..], &["sync", &packed, &image], &["diff", &packed, &image]]
    {
        let mut command = assert_cmd::Command::cargo_bin("cairn").unwrap();
        let output = command.args(words).env("TMPDIR", at("none")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let wanted = "/none: temporary files cannot be kept there: no such file or directory: name \
                      another directory, with room, in TMPDIR\n";
        assert!(said.ends_with(wanted) && said.lines().count() == 1, "{words:?}: {said}");
        assert_eq!(output.status.code(), Some(if words[0] == "diff" { 2 } else { 1 }));
    }
}

/// What those type who know e2fsck and fsck.f2fs.
#[test]
fn options_of_other_checkers_are_answered_with_those_of_check() {
    let (_dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    for (words, wanted) in [
        (&["--repair", "all", &image][..], "cairn check --repair=all IMAGE"),
        (&[&image, "--repair", "all"], "cairn check --repair=all IMAGE"),
        (&["-f", &image], "`-f`: everything is read in any case: leave it out"),
        (&["-fy", &image], "`-f`: everything is read in any case: leave it out"),
        (&["-p", &image], "`cairn check --repair IMAGE` mends what loses nothing"),
        (&["-n", &image], "nothing is written: leave -n out"),
        (&["-y", &image], "`cairn check --repair=all -y IMAGE`"),
        (&["--undo", "file", &image], "`cairn check --repair --undo FILE IMAGE`"),
        (&["-b", "8193", &image], "is found where it is: leave it out"),
        (&["--dry-run", &image], "nothing is written: leave it out"),
    ] {
        let said = fails(&[&["check"], words].concat(), 16);
        assert!(said.contains(wanted), "{words:?}: {said}");
    }
}

#[test]
fn what_other_programs_do_is_answered_with_their_names() {
    let (_dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    let said = fails(&["fsck", &image], 2);
    assert!(said.contains("cairn check --repair IMAGE"), "{said}");
    for (line, wanted) in [
        ("cd /lost+found", "paths start at the image's root"),
        ("cat /x > file", "copy with get and put"),
    ] {
        let (status, _, said) = cairn(&["shell", "-c", line, &image]);
        assert!(status == 2 && said.contains(wanted), "{line}: {status}: {said}");
    }
    assert_eq!(works(&["lab"]), works(&["lab", "list"]));
}
