//! Names with control characters: no name looks like a further line or moves the cursor, and
//! programs that read lists get the exact bytes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use cairn_testkit::judge;
use cairn_testkit::place::Place;

use crate::support::{cairn, works};

const NAME: &str = "a\n_fake: only in the first\u{1b}[2J";
const ESCAPED: &str = "a\\n_fake: only in the first\\033[2J";

#[test]
fn lines_for_people_have_escaped_names() {
    let place = Place::new();
    let at = |name: &str| format!("{}/{name}", place.path().display());
    let (name, escaped) = (NAME, ESCAPED);
    for directory in ["full", "empty"] {
        fs::create_dir(at(directory)).unwrap();
    }
    fs::write(format!("{}/{name}", at("full")), "").unwrap();
    let image = at("image");
    works(&["build", "--free", "8M", &image, &at("empty/")]);
    let synced = works(&["sync", "-v", &at("full/"), &image]);
    assert!(synced.contains(&format!("made /{escaped}\n")), "{synced}");
    let (_, differs, _) = cairn(&["diff", "--no-times", &image, &at("empty/")]);
    assert_eq!(differs, format!("/{escaped}: only in the first\n"));
    let path = format!("/{name}");
    let listed = works(&["find", &image, "/", "-name", "a*", "-ls"]);
    assert!(listed.ends_with(&format!(" /{escaped}\n")), "{listed}");
    assert_eq!(works(&["ls", "-b", &image]), format!("{escaped}\nlost+found\n"));
    works(&["setfattr", "-n", &format!("user.{name}"), "-v", "x", &image, &path]);
    let attributes = works(&["getfattr", "-d", &image, &path]);
    assert_eq!(attributes, format!("# file: {escaped}\nuser.{escaped}=\"x\"\n\n"));
    // As a shell reads it.
    let quoted = works(&["stat", "-c", "%N", &image, &path]);
    assert_eq!(quoted, format!("$'/{}'\n", escaped.replace("\\n", "\\012")));
    // Lists in a pipe are for programs.
    assert_eq!(works(&["ls", &image]), format!("{name}\nlost+found\n"));
    assert_eq!(works(&["find", &image, "/", "-name", "a*"]), format!("/{name}\n"));
    assert_eq!(works(&["find", &image, "/", "-name", "a*", "-print0"]), format!("/{name}\0"));
    let json: serde_json::Value =
        serde_json::from_str(&works(&["find", "--json", &image, "/", "-name", "a*"])).unwrap();
    assert_eq!(json[0]["path"], path);
    let removed = works(&["rm", "-v", &image, &path.replace('[', "\\[")]);
    assert!(removed.contains(&format!("'/{escaped}'\n")), "{removed}");
    // An error is one line.
    for words in [
        &["build", &at("new"), &at(name)][..],
        &["export", &at(name), "-o", &at("new")],
        &["build", "-F", &at(name), &at(name)],
        &["ls", &at(name)],
    ] {
        let (status, _, said) = cairn(words);
        assert!(status != 0 && said.contains("_fake: only in the first\\033[2J"), "{said}");
        let line = said.trim_end_matches('\n');
        assert!(!line.chars().any(char::is_control), "{words:?}: {line:?}");
    }
}

/// Names of images, of sources and of volumes, as those of files on an image.
#[test]
fn names_on_the_command_line_are_escaped_in_the_same_way() {
    let place = Place::new();
    let name = OsStr::from_bytes(b"a\n_b\xff\\\x1b");
    let shown = r"a\n_b\377\\\033";
    let new = OsStr::new("new");
    for words in [
        &["ls".as_ref(), name][..],
        &["info".as_ref(), name],
        &["resize".as_ref(), name, "1G".as_ref()],
        &["build".as_ref(), new, name],
        &["export".as_ref(), name, "-o".as_ref(), new],
    ] {
        let mut command = judge::command(env!("CARGO_BIN_EXE_cairn"));
        let output = command.args(words).current_dir(place.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{words:?}: {said}");
        assert!(said.contains(shown) && !said.contains('\u{fffd}'), "{words:?}: {said}");
    }
    let (status, _, said) = cairn(&["gc", "--remove", "a\nb\\", "file-store:///no/pool"]);
    assert!(status != 0 && said.contains(r": 'a\nb\\' is no name of a volume"), "{said}");
}
