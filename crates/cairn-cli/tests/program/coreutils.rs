//! Behaviour as in coreutils: after a name that fails the other names are processed, flags have the
//! same meaning, and a failed copy leaves the old file.

use std::path::Path;

use cairn_testkit::judge;
use serde_json::Value;

use crate::support::{cairn, fails, in_dir, works};

/// A volume with two files and a directory.
pub(crate) fn volume() -> (cairn_testkit::place::Place, String) {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "16M", &image]);
    works(&[
        "shell",
        "-c",
        "mkdir -p /d/sub",
        "-c",
        "touch -t 202601020304.05 /a /b /d/.hidden /d/file",
        &image,
    ]);
    (dir, image)
}

#[test]
fn one_missing_name_keeps_no_other_from_its_turn() {
    let (dir, image) = volume();
    let host = dir.path().join("host");
    std::fs::write(&host, "contents\n").unwrap();
    let (host, out) = (host.to_str().unwrap(), dir.path().to_str().unwrap());
    works(&["put", &image, host, "/a"]);
    works(&["put", &image, host, "/b"]);
    for line in [
        &["cat", &image, "/none", "/a", "/nor this", "/b"][..],
        &["ls", &image, "/none", "/a", "/nor this", "/b"],
        &["stat", &image, "/none", "/a", "/nor this", "/b"],
        &["du", &image, "/none", "/a", "/nor this", "/b"],
        &["find", &image, "/none", "/a", "/nor this", "/b"],
        &["get", &image, "/none", "/a", "/nor this", "/b", out],
        &["cp", &image, "/none", "/a", "/nor this", "/b", "/d"],
        &["put", &image, "/none", host, "/nor this", "/d"],
        &["chmod", &image, "600", "/none", "/a", "/nor this", "/b"],
        &["chown", &image, "1", "/none", "/a", "/nor this", "/b"],
        &["touch", &image, "/none/x", "/a", "/nor this/x", "/b"],
        &["truncate", "-s", "0", &image, "/none/x", "/a", "/nor this/x", "/b"],
        &["setfattr", "-n", "user.x", &image, "/none", "/a", "/nor this", "/b"],
        &["getfattr", &image, "/none", "/a", "/nor this", "/b"],
        &["mkdir", &image, "/none/x", "/made", "/nor this/x", "/made too"],
        &["mv", &image, "/none", "/made", "/nor this", "/made too", "/d"],
        &["ln", &image, "/none", "/a", "/nor this", "/b", "/d/sub"],
        &["rm", &image, "/none", "/a", "/nor this", "/b"],
    ] {
        let (status, _, said) = cairn(line);
        assert_eq!((status, said.lines().count()), (1, 2), "{line:?}: {said}");
        assert!(said.contains("/none") && said.contains("/nor this"), "{line:?}: {said}");
        assert!(said.lines().all(|one| one.contains("no such file")), "{line:?}: {said}");
    }
    let names = "a\nb\nfile\nhost\nmade\nmade too\nsub\n";
    assert_eq!(
        (works(&["ls", &image]), works(&["ls", &image, "/d"])),
        ("d\nlost+found\n".into(), names.into())
    );
    assert_eq!(works(&["ls", &image, "/d/sub"]), "a\nb\n");
    assert_eq!(std::fs::read_to_string(dir.path().join("b")).unwrap(), "contents\n");
    judge::assert_clean(Path::new(&image));
}

/// Every command that prints JSON prints one complete value, also if one of its names fails.
#[test]
fn json_is_whole_whatever_fails() {
    let (_dir, image) = volume();
    for (command, words) in [
        ("ls", &[][..]),
        ("ls", &["-R"]),
        ("stat", &[]),
        ("du", &[]),
        ("find", &[]),
        ("getfattr", &[]),
    ] {
        for (paths, found) in
            [(&["/none"][..], 0), (&["/a", "/none", "/b"], 2), (&["/d/sub/none", "/a"], 1)]
        {
            let line = [&[command], words, &["--json", &image], paths].concat();
            let (status, stdout, said) = cairn(&line);
            let json: Value = serde_json::from_str(&stdout)
                .unwrap_or_else(|error| panic!("{line:?}: {error}: {stdout}"));
            assert_eq!((status, json.as_array().unwrap().len()), (1, found), "{line:?}: {said}");
        }
    }
    // An image that cannot be opened is an object, too.
    for (line, expected) in [
        (&["ls", "--json", "/no/such.img"][..], 3),
        (&["stat", "--json", "/no/such.img", "/"], 3),
        (&["du", "--json", "/no/such.img"], 3),
        (&["find", "--json", "/no/such.img", "/", "-delete"], 3),
        (&["getfattr", "--json", "/no/such.img", "/"], 3),
        (&["df", "--json", "/no/such.img"], 3),
        (&["info", "--json", "/no/such.img"], 3),
        (&["info", "--json", "/etc/passwd"], 4),
        (&["info", "--json", "/no/such.img?offset=x"], 2),
        (&["stats", "--json", "/"], 1),
    ] {
        let (status, stdout, said) = cairn(line);
        let json: Value = serde_json::from_str(&stdout).unwrap();
        let error = json["error"].as_str().unwrap();
        assert_eq!((status, json["status"].as_i64()), (expected, Some(expected.into())), "{said}");
        assert_eq!(said, format!("cairn: {error}\n"), "{line:?}");
    }
    let (status, stdout, said) = cairn(&["df", "--json", &image, "/no/such.img", &image]);
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((status, json.as_array().unwrap().len(), said.lines().count()), (3, 3, 1));
    // An image that cannot be opened keeps its place in the list.
    assert_eq!((&json[1]["image"], &json[1]["status"]), (&"/no/such.img".into(), &3.into()));
    assert_eq!(said, format!("cairn: {}\n", json[1]["error"].as_str().unwrap()));
}

#[test]
fn advice_fits_the_command() {
    let (dir, image) = volume();
    for line in [
        &["cat", &image, "/d"][..],
        &["get", &image, "/d", "-"],
        &["truncate", "-s", "1", &image, "/d"],
    ] {
        let said = fails(line, 1);
        assert!(said.contains("/d: is a directory: name a file") && !said.contains("-r"), "{said}");
    }
    for command in [&["rm", &image, "/d"][..], &["cp", &image, "/d", "/e"]] {
        assert!(fails(command, 1).contains("/d: is a directory: add -r"), "{command:?}");
    }
    for path in ["/", "//", "/d/.", "/d/.."] {
        assert!(
            fails(&["rm", "-rf", &image, path], 1)
                .contains("cannot be removed: name what is in it"),
            "{path}"
        );
    }
    assert!(
        fails(&["ln", &image, "/none", "/a"], 1).contains("/none: no such file"),
        "the name that is missing"
    );
    assert!(fails(&["ln", &image, "/a", "/b"], 1).contains("/b: file exists: add -f"));
    assert!(fails(&["ln", "-f", &image, "/a", "/a"], 1).contains("the same file"));
    assert!(
        fails(&["ln", &image, "/d", "/e"], 1).contains("/d: a directory has one name only: add -s")
    );
    assert!(fails(&["mv", &image, "/", "/y"], 1).contains("cannot be moved: name a directory"));
    assert!(
        fails(&["mv", &image, "/d", "/d/sub/x"], 1)
            .contains("into itself: give another destination")
    );
    assert!(
        fails(&["setfattr", "-n", "mine", "-v", "x", &image, "/a"], 1).contains("user., trusted.")
    );
    // The message names the existing file, not the source.
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let said = fails(&["put", &image, tree.to_str().unwrap(), "/a"], 1);
    assert!(
        said.contains(": /a: exists and is not a directory") && !said.contains("tree"),
        "{said}"
    );
    let (file, nodir) = (dir.path().join("file"), dir.path().join("nodir/"));
    std::fs::write(&file, "x").unwrap();
    assert!(
        fails(&["get", &image, "/a", nodir.to_str().unwrap()], 1)
            .contains("nodir/: a name with a slash at its end")
    );
    for line in
        [&["put", &image, file.to_str().unwrap(), "/new/"][..], &["cp", &image, "/a", "/new/"]]
    {
        assert!(fails(line, 1).contains("/new/: a name with a slash at its end"), "{line:?}");
    }
}

#[test]
fn flags_are_those_of_coreutils() {
    let (_dir, image) = volume();
    assert_eq!(works(&["ls", "-a", &image, "/d"]), ".\n..\n.hidden\nfile\nsub\n");
    assert_eq!(works(&["ls", "-1A", &image, "/d"]), ".hidden\nfile\nsub\n");
    let listed = works(&["ls", "-i", &image, "/d"]);
    let json: Value = serde_json::from_str(&works(&["stat", "--json", &image, "/d/file"])).unwrap();
    assert!(
        listed.lines().any(|line| line.trim() == format!("{} file", json[0]["inode"])),
        "{listed}"
    );
    works(&["truncate", "-s", "1536K", &image, "/a"]);
    assert!(works(&["ls", "-lh", &image, "/a"]).contains(" 1.5M 20"));
    assert!(
        works(&["ls", "--help"]).contains("Usage") && works(&["df", "-h", &image]).contains("Size")
    );
    assert_eq!(
        works(&["mkdir", "-pvm", "u=rwx,go=", &image, "/x/y"]),
        "created directory '/x'\ncreated directory '/x/y'\n"
    );
    let mode = |path: &str| {
        let json: Value = serde_json::from_str(&works(&["stat", "--json", &image, path])).unwrap();
        json[0]["mode"].as_str().unwrap().to_owned()
    };
    assert_eq!((mode("/x"), mode("/x/y")), ("0755".into(), "0700".into()));
    works(&["mv", "-f", &image, "/b", "/d/fi*", "/x"]);
    works(&["cp", "-f", &image, "/a", "/x/b"]);
    assert_eq!(works(&["ls", &image, "/x"]), "b\nfile\ny\n");
    // With -n a link to a directory is replaced.
    works(&["ln", "-s", &image, "d", "/link"]);
    works(&["ln", "-sfn", &image, "x", "/link"]);
    assert_eq!(works(&["ls", &image, "/link"]), "b\nfile\ny\n");
    works(&["touch", &image, "/x/one", "/x/two"]);
    works(&["truncate", "-s", "5", &image, "/x/[ot]*"]);
    assert_eq!(works(&["find", &image, "/x", "-size", "5c"]).lines().count(), 2);
    judge::assert_clean(Path::new(&image));
}

#[test]
fn the_shell_has_its_own_help() {
    let (_dir, image) = volume();
    for script in ["ls --help", "help ls"] {
        let help = works(&["shell", "-r", "-c", script, &image]);
        assert!(
            help.contains("Usage: ls [OPTIONS] [PATHS]...") && help.contains("\n  ls -l /etc\n"),
            "{help}"
        );
        assert!(!help.contains("<IMAGE>") && !help.contains("cairn ls -l"), "{help}");
    }
}
