//! What a killed `cairn run` has left on an image: no copy of the image has it, and a list cannot
//! make copies lose anything else.

use std::fmt::Write as _;
use std::path::Path;

use cairn_testkit::judge;
use cairn_testkit::place::Place;

use crate::support::{cairn, works};

/// What the run has made, a directory before what is in it. The command has put something into the
/// last two.
const MADE: [&str; 8] =
    ["/proc", "/dev", "/etc/resolv.conf", "/opt", "/opt/a", "/opt/a/b", "/tmp", "/sys"];

/// The value of the attribute as a word of a command line.
fn word(list: &[u8]) -> String {
    let digits = list.iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    });
    format!("0x{digits}")
}

/// A directory in which something was made between these times.
fn touched(path: &str, from: u64, to: u64) -> Vec<u8> {
    format!("times {from}.000000000 0.000000000 {to}.000000000 755 {path}\0").into_bytes()
}

/// What all copies say.
const SAID: &str = "left out what a killed run has made there for its mounts: /proc, /dev, \
                    /etc/resolv.conf, /opt and 2 more\n";

/// Standard output of a command that says so.
#[track_caller]
fn warns(args: &[&str]) -> String {
    let (status, stdout, said) = cairn(args);
    assert!(status == 0 && said.ends_with(SAID), "{args:?}: {status}: {said}");
    stdout
}

/// Does to the image what such a run does.
fn leave(image: &str) {
    let mut list = touched("/etc", 0, 1 << 40);
    for path in MADE {
        match path {
            "/etc/resolv.conf" => works(&["touch", image, path]),
            _ => works(&["mkdir", image, path]),
        };
        list.extend([path.as_bytes(), b"\0"].concat());
    }
    works(&["touch", image, "/tmp/of-the-command"]);
    works(&["mkdir", image, "/sys/of-the-command"]);
    works(&["setfattr", "-n", "user.cairn.run", "-v", &word(&list), image, "/"]);
}

const EXPECTED: [&str; 8] = [
    "/",
    "/etc",
    "/etc/empty",
    "/opt-of-the-image",
    "/sys",
    "/sys/of-the-command",
    "/tmp",
    "/tmp/of-the-command",
];

fn paths(image: &str) -> Vec<String> {
    let found = works(&["find", image, "/"]);
    let mut found: Vec<_> =
        found.lines().filter(|path| *path != "/lost+found").map(str::to_owned).collect();
    found.sort();
    found
}

#[test]
fn copies_of_an_image_lack_what_a_killed_run_has_left() {
    for format in ["ext4", "f2fs"] {
        let place = Place::new();
        let at = |name: &str| format!("{}/{name}", place.path().display());
        let script = "mkdir -p tree/etc tree/opt-of-the-image; : >tree/etc/empty";
        judge::run("sh", ["-ec", &format!("cd {}; {script}", place.path().display())]);
        let (image, copy) = (at("image"), at("copy"));
        works(&["build", "-t", format, "--free", "16M", &image, &at("tree/")]);
        leave(&image);
        assert_eq!(paths(&image).len(), EXPECTED.len() + 6);
        // Copies of each kind, put into an image to look at them.
        warns(&["export", &image, "-o", &at("tar")]);
        warns(&["export", &image, "-o", &at("exported/")]);
        warns(&[
            "export",
            "--platform",
            "linux/amd64",
            &image,
            "-o",
            &format!("oci:{}", at("oci")),
        ]);
        warns(&["get", &image, "/", &at("got")]);
        warns(&["build", "--free", "16M", &at("first"), &image]);
        for source in [at("first"), at("tar"), at("exported/"), at("oci"), at("got/")] {
            works(&["build", "-F", "--free", "16M", &copy, &source]);
            assert_eq!(paths(&copy), EXPECTED, "{format}: {source}");
            let attributes = works(&["getfattr", "-m", "-", &copy, "/"]);
            assert!(!attributes.contains("user.cairn.run"), "{source}: {attributes}");
            // Nor does it count as a difference.
            assert_eq!(warns(&["diff", "--no-times", &image, &source]), "", "{format}: {source}");
        }
    }
}

#[test]
fn sync_removes_it() {
    for keep in [&[][..], &["--keep"]] {
        let place = Place::new();
        let at = |name: &str| format!("{}/{name}", place.path().display());
        let script = "mkdir -p tree/etc tree/dev; : >tree/dev/file; mkdir tree/tmp tree/sys";
        judge::run("sh", ["-ec", &format!("cd {}; {script}", place.path().display())]);
        let image = at("image");
        works(&["mkfs", "-t", "ext4", "--size", "16M", &image]);
        works(&["mkdir", &image, "/etc"]);
        leave(&image);
        warns(&[&["sync"][..], keep, &[&at("tree/"), &image]].concat());
        let mut expected = vec!["/", "/dev", "/dev/file", "/etc", "/sys", "/tmp"];
        if !keep.is_empty() {
            expected.extend(["/sys/of-the-command", "/tmp/of-the-command"]);
            expected.sort_unstable();
        }
        assert_eq!(paths(&image), expected);
        assert_eq!(works(&["getfattr", "-m", "-", &image, "/"]), "");
        judge::assert_clean(Path::new(&image));
        // Where nothing else differs, too.
        works(&["setfattr", "-n", "user.cairn.run", "-v", "0x2f61", &image, "/"]);
        works(&[&["sync"][..], keep, &[&at("tree/"), &image]].concat());
        assert_eq!(works(&["getfattr", "-m", "-", &image, "/"]), "");
    }
}

/// Files that are empty, but that no run can have made.
#[test]
fn a_forged_list_makes_no_copy_lose_a_file() {
    let place = Place::new();
    let at = |name: &str| format!("{}/{name}", place.path().display());
    let script = "mkdir -p tree/etc tree/empty; cd tree
        touch -d @1000000000 older; touch -d @2000000000 newer; : >etc/none
        for name in users program linked attribute directory; do touch -d @1500000000 $name; done
        chmod 755 program; ln linked other; echo x >full; touch -d @1500000000 full
        chmod 775 empty";
    judge::run("sh", ["-ec", &format!("cd {}; {script}", place.path().display())]);
    let image = at("image");
    works(&["build", "--owner", "0:0", "--free", "16M", &image, &at("tree/")]);
    works(&["chown", &image, "7", "/users"]);
    works(&["setfattr", "-n", "user.a", "-v", "b", &image, "/attribute"]);
    let mut list = touched("/", 1_200_000_000, 1_800_000_000);
    for name in [
        "older",
        "newer",
        "users",
        "program",
        "linked",
        "other",
        "attribute",
        "full",
        "empty",
        "etc",
        "etc/none",
        "missing",
        "",
    ] {
        list.extend([b"/", name.as_bytes(), b"\0"].concat());
    }
    works(&["setfattr", "-n", "user.cairn.run", "-v", &word(&list), &image, "/"]);
    let before = paths(&image);
    works(&["build", "--free", "16M", &at("copy"), &image]);
    assert_eq!(paths(&at("copy")), before);
    assert_eq!(before.len(), 13);
    // One that a run can have made is named.
    list.extend(b"/directory\0");
    works(&["setfattr", "-n", "user.cairn.run", "-v", &word(&list), &image, "/"]);
    let (status, _, said) = cairn(&["export", &image, "-o", &at("tar")]);
    assert!(status == 0 && said.contains("for its mounts: /directory\n"), "{said}");
}
