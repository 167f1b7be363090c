//! Problems of the first hour: a variable without a value, a dangling link.

use std::path::Path;
use std::process::Command;

use cairn_testkit::judge;

use crate::support::{cairn, fails, in_dir, works};

/// `cairn chown -R disk.img 7:7 "$DIRECTORY"` with an empty variable, which coreutils refuse.
#[test]
fn an_empty_word_is_no_path_and_not_the_root() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    works(&["shell", "-c", "mkdir /d", "-c", "touch /a /d/file", &image]);
    let host = dir.path().join("host");
    std::fs::write(&host, "contents\n").unwrap();
    let (host, out) = (host.to_str().unwrap(), dir.path().to_str().unwrap());
    let before = works(&["find", &image, "/", "-ls"]);
    for words in [
        &["ls", ""][..],
        &["cat", ""],
        &["stat", ""],
        &["du", ""],
        &["find", "", "-delete"],
        &["getfattr", ""],
        &["get", "", out],
        &["put", host, ""],
        &["mkdir", "-p", ""],
        &["rm", "-r", "/a", ""],
        &["rmdir", ""],
        &["ln", "/a", ""],
        &["ln", "-s", "", "/link"],
        &["mv", "/a", ""],
        &["mv", "", "/d"],
        &["cp", "/a", ""],
        &["cp", "-r", "", "/d"],
        &["chmod", "-R", "700", ""],
        &["chown", "-R", "7:7", ""],
        &["touch", ""],
        &["touch", "-r", "", "/a"],
        &["truncate", "-s", "0", ""],
        &["mknod", "", "p"],
        &["setfattr", "-n", "user.x", ""],
    ] {
        // The image is the first operand, behind the options and their values.
        let options = match words {
            ["touch", "-r", ..] | ["truncate" | "setfattr", ..] => 3,
            ["mkdir" | "rm" | "chmod" | "chown", ..] | ["ln", "-s", ..] | ["cp", "-r", ..] => 2,
            _ => 1,
        };
        let line = [&words[..options], &[&image], &words[options..]].concat();
        let said = fails(&line, 2);
        assert_eq!(
            said,
            format!("cairn: {image}: a path is empty: give / for the root directory\n")
        );
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let (status, _, said) = cairn(&["shell", "-c", &quoted.join(" "), &image]);
        let wanted =
            format!("cairn: {image}: line 1: a path is empty: give / for the root directory\n");
        assert_eq!((status, said), (2, wanted), "{words:?}");
    }
    for line in [&["put", &image, "", "/"][..], &["get", &image, "/a", ""]] {
        assert!(fails(line, 2).contains("a path is empty: give . for this directory of the host"));
    }
    assert_eq!(works(&["find", &image, "/", "-ls"]), before);
    judge::assert_clean(Path::new(&image));
}

/// As in ls(1): a link exists even if its target does not.
#[test]
fn ls_lists_a_link_that_leads_to_nothing() {
    let (_dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    works(&["ln", "-s", &image, "/none", "/dangling"]);
    works(&["ln", "-s", &image, "loop", "/loop"]);
    assert_eq!(works(&["ls", &image, "/dangling", "/loop"]), "/dangling\n/loop\n");
    assert_eq!(works(&["ls", &image, "/dang*"]), "/dangling\n");
    assert!(works(&["ls", "-l", &image, "/dangling"]).ends_with(" /dangling -> /none\n"));
    assert!(fails(&["ls", &image, "/dangling/"], 1).contains("/dangling/: no such file"));
}

#[test]
fn chmod_of_a_link_that_leads_to_nothing_says_so() {
    let (_dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    works(&["ln", "-s", &image, "/none", "/dangling"]);
    let said = fails(&["chmod", &image, "o-w", "/dangling"], 1);
    let wanted = "/dangling: a dangling symbolic link: nothing to change\n";
    assert_eq!(said, format!("cairn: {image}: {wanted}"));
}

/// A file of the host is not in the image, so the message does not name the image.
#[test]
fn an_error_of_the_host_names_the_host_s_path_alone() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    works(&["touch", &image, "/a"]);
    let missing = dir.path().join("none").to_str().unwrap().to_owned();
    assert_eq!(
        fails(&["put", &image, &missing, "/"], 1),
        format!("cairn: {missing}: no such file on this host: check the name\n")
    );
    assert_eq!(
        fails(&["get", &image, "/a", &format!("{missing}/x")], 1),
        format!("cairn: {missing}: no such directory on this host: create it first\n")
    );
    assert_eq!(
        fails(&["put", &image, &format!("{missing}/./file"), "/"], 1),
        format!("cairn: {missing}/file: no such file on this host: check the name\n")
    );
}

#[test]
fn a_missing_directory_on_the_image_is_named_with_the_way_to_make_it() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    works(&["touch", &image, "/a"]);
    let host = dir.path().join("host");
    std::fs::write(&host, "contents\n").unwrap();
    for line in [
        &["put", &image, host.to_str().unwrap(), "/none/x/file"][..],
        &["cp", &image, "/a", "/none/x/file"],
        &["mv", &image, "/a", "/none/x/file"],
        &["touch", &image, "/none/x/file"],
        &["truncate", "-s", "1", &image, "/none/x/file"],
        &["mknod", &image, "/none/x/file", "p"],
    ] {
        let said = fails(line, 1);
        let wanted = ": /none/x does not exist: create it with cairn mkdir -p IMAGE /none/x\n";
        assert!(said.ends_with(wanted), "{line:?}: {said}");
    }
    works(&["mkdir", "-p", &image, "/none/x"]);
    works(&["touch", &image, "/none/x/file"]);
}

/// `chattr +i` and `chattr +a`, set by debugfs.
#[test]
fn a_flag_that_forbids_a_change_is_named() {
    let (_dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    works(&["shell", "-c", "mkdir /kept", "-c", "touch /fixed /log /kept/file", &image]);
    for (path, flags) in [("/fixed", "0x80010"), ("/log", "0x80020"), ("/kept", "0x80010")] {
        let request = format!("set_inode_field {path} flags {flags}");
        let done = Command::new("debugfs").args(["-w", "-R", &request, &image]).output();
        assert!(done.unwrap().status.success(), "{path}");
    }
    for (line, wanted) in [
        (&["rm", &image, "/fixed"][..], "/fixed is immutable: mount the image, and `chattr -i`"),
        (&["chmod", &image, "600", "/fixed"], "/fixed is immutable"),
        (&["rm", &image, "/log"], "/log is append-only: mount the image, and `chattr -a`"),
        (&["rm", &image, "/kept/file"], "/kept is immutable"),
        (&["touch", &image, "/kept/new"], "/kept is immutable"),
    ] {
        let said = fails(line, 1);
        assert!(said.contains(wanted), "{line:?}: {said}");
    }
    let (_, _, said) = cairn(&["shell", "-c", "rm /fixed", &image]);
    assert!(said.contains("/fixed is immutable"), "{said}");
    for (path, letters) in [("/fixed", "ie"), ("/log", "ae"), ("/lost+found", "e")] {
        let said = works(&["stat", &image, path]);
        assert!(said.contains(&format!("   Flags: {letters}\n")), "{path}: {said}");
    }
}

#[test]
fn words_of_other_programs_are_answered_with_what_to_write_here() {
    let (_dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    for (line, wanted) in [
        (
            &["chmod", &image, "/a", "600"][..],
            "the mode comes before the paths: chmod IMAGE MODE /a",
        ),
        (&["chown", &image, "/a", "0:0"], "the owner comes before the paths: chown IMAGE OWNER /a"),
        (&["find", "-name", "x", &image], "the image comes first: cairn find "),
        (&["put", "-r", &image, "x", "/"], "whole trees are always copied: leave it out"),
        (&["get", "-a", &image, "/", "x"], "whole trees are always copied: leave it out"),
        (&["shell", &image, "script"], "cairn shell -f script IMAGE"),
        (&["mkfs", "-m", "0", &image], "`cairn tune -m PERCENT IMAGE`"),
        (&["mkfs", "-i", "16384", &image], "make the volume with mke2fs"),
        (&["mkfs", "-N", "5", &image], "make the volume with mke2fs"),
        (&["mkfs", "-I", "128", &image], "make the volume with mke2fs"),
        (&["mkfs", "-E", "x", &image], "make the volume with mke2fs"),
        (&["mkfs", "-d", "x", &image], "`cairn build IMAGE DIRECTORY/`"),
        (&["mkfs", "ext4", &image], "the type follows -t: cairn mkfs -t ext4 IMAGE"),
    ] {
        let said = fails(line, 2);
        assert!(said.contains(wanted), "{line:?}: {said}");
    }
}
