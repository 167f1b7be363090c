//! What people meet in their first hour: a variable without a value, a link that leads to nothing.

use std::path::Path;

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
        assert_eq!(said, format!("cairn: {image}: a path is empty: for the root write /\n"));
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let (status, _, said) = cairn(&["shell", "-c", &quoted.join(" "), &image]);
        let wanted = format!("cairn: {image}: line 1: a path is empty: for the root write /\n");
        assert_eq!((status, said), (2, wanted), "{words:?}");
    }
    for line in [&["put", &image, "", "/"][..], &["get", &image, "/a", ""]] {
        assert!(fails(line, 2).contains("a path is empty: for this directory of the host write ."));
    }
    assert_eq!(works(&["find", &image, "/", "-ls"]), before);
    judge::assert_clean(Path::new(&image));
}

/// As ls(1): the link is there, whatever it leads to.
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
