//! What a killed `cairn run` has left on an image: no copy of the image has it.

use std::fmt::Write as _;
use std::path::Path;

use cairn_testkit::judge;
use cairn_testkit::place::Place;

use crate::support::works;

/// What the run has made, a directory before what is in it. The command has put something into the
/// last two.
const MADE: [&str; 8] =
    ["/proc", "/dev", "/etc/resolv.conf", "/opt", "/opt/a", "/opt/a/b", "/tmp", "/sys"];

/// Does to the image what such a run does.
fn leave(image: &str) {
    let mut list = String::from("0x");
    for path in MADE {
        match path {
            "/etc/resolv.conf" => works(&["touch", image, path]),
            _ => works(&["mkdir", image, path]),
        };
        for byte in path.bytes().chain([0]) {
            let _ = write!(list, "{byte:02x}");
        }
    }
    works(&["touch", image, "/tmp/of-the-command"]);
    works(&["mkdir", image, "/sys/of-the-command"]);
    works(&["setfattr", "-n", "user.cairn.run", "-v", &list, image, "/"]);
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
        works(&["export", &image, "-o", &at("tar")]);
        works(&["export", &image, "-o", &at("exported/")]);
        works(&[
            "export",
            "--platform",
            "linux/amd64",
            &image,
            "-o",
            &format!("oci:{}", at("oci")),
        ]);
        works(&["get", &image, "/", &at("got")]);
        works(&["build", "--free", "16M", &at("first"), &image]);
        for source in [at("first"), at("tar"), at("exported/"), at("oci"), at("got/")] {
            works(&["build", "-F", "--free", "16M", &copy, &source]);
            assert_eq!(paths(&copy), EXPECTED, "{format}: {source}");
            let attributes = works(&["getfattr", "-m", "-", &copy, "/"]);
            assert!(!attributes.contains("user.cairn.run"), "{source}: {attributes}");
            // Nor does it count as a difference.
            assert_eq!(works(&["diff", "--no-times", &image, &source]), "", "{format}: {source}");
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
        works(&[&["sync"][..], keep, &[&at("tree/"), &image]].concat());
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
