//! Outputs: all commands make and replace files by one rule.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;

use cairn_testkit::place::Place;

use crate::support::{cairn, works};

/// A directory with sources, images, and others' links in a directory that all may write.
struct Shared {
    place: Place,
}

impl Shared {
    fn new() -> Self {
        let shared = Self { place: Place::new() };
        fs::create_dir_all(shared.path("source")).unwrap();
        fs::write(shared.path("source/file"), "contents").unwrap();
        works(&["build", "--free", "8M", &shared.at("image"), &shared.at("source/")]);
        works(&["sparse", &shared.at("image"), &shared.at("sparse.img")]);
        fs::create_dir(shared.path("victims")).unwrap();
        fs::create_dir(shared.path("victims/directory")).unwrap();
        fs::write(shared.path("victims/file"), "precious").unwrap();
        fs::create_dir(shared.path("open")).unwrap();
        for (link, target) in [("out", "file"), ("out.d", "directory"), ("new", "none")] {
            let link = shared.path("open").join(link);
            symlink(shared.path("victims").join(target), &link).unwrap();
            lchown(&link, Some(2000), Some(2000)).unwrap();
        }
        fs::set_permissions(shared.path("open"), Permissions::from_mode(0o1777)).unwrap();
        shared
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.place.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Nothing was made, changed or removed behind the links.
    fn assert_untouched(&self, line: &[&str]) {
        assert_eq!(fs::read(self.path("victims/file")).unwrap(), b"precious", "{line:?}");
        let names = |at: &str| fs::read_dir(self.path(at)).unwrap().count();
        assert_eq!((names("victims"), names("victims/directory")), (2, 0), "{line:?}");
        assert_eq!(names("open"), 3, "{line:?}: something is left beside the links");
    }
}

/// In a directory as /tmp, links of others lead where others want. Linux does not follow them where
/// fs.protected_symlinks is on; Cairn does not anywhere.
#[test]
fn links_of_others_in_a_directory_for_all_are_refused_by_every_command() {
    let shared = Shared::new();
    let (image, source, sparse) =
        (shared.at("image"), shared.at("source/"), shared.at("sparse.img"));
    let (file, new, dir) = (shared.at("open/out"), shared.at("open/new"), shared.at("open/out.d"));
    let oci = format!("oci:{dir}");
    for line in [
        &["build", "-F", &file, &source][..],
        &["build", "-F", "--sparse", &file, &source],
        &["build", "-F", "--qcow2", &file, &source],
        &["build", &new, &source],
        &["mkfs", "-F", "--size=20M", &file],
        &["mkfs", "-F", &file],
        &["mkfs", "--size=20M", &new],
        &["export", "-F", "-o", &file, &image],
        &["export", "-o", &new, &image],
        &["export", "-o", &format!("{dir}/"), &image],
        &["export", "-o", &oci, "--platform", "linux/amd64", &image],
        &["export", "-o", &shared.at("d/"), "--manifest", &file, "-F", &image],
        &["sparse", "-F", &image, &file],
        &["sparse", &image, &new],
        &["unsparse", "-F", &sparse, &file],
        &["get", &image, "/file", &file],
        &["get", &image, "/file", &dir],
        &["get", &image, "/file", &format!("{dir}/")],
        &["rescue", "-o", &dir, &image],
        &["lab", "buffered-io", "--scale", "quick", "--no-mount", "--html", &file],
        &["lab", "crash", "--format", "ext4", "--rounds", "1", "--keep", &file],
    ] {
        let (status, _, said) = cairn(line);
        let why = "a symbolic link of another user in a directory that all may write";
        assert!(status != 0 && said.contains(why), "{line:?}: {status}: {said}");
        shared.assert_untouched(line);
    }
    // On the way to a file.
    let way = shared.at("open/out.d/made");
    let oci = format!("oci:{way}");
    for line in [
        &["build", &way, &source][..],
        &["mkfs", "--size=20M", &way],
        &["export", "-o", &way, &image],
        &["export", "-o", &format!("{way}/"), &image],
        &["export", "-o", &oci, "--platform", "linux/amd64", &image],
        &["sparse", &image, &way],
        &["unsparse", &sparse, &way],
        &["get", &image, "/file", &way],
        &["rescue", "-o", &way, &image],
    ] {
        let (status, _, said) = cairn(line);
        let why = "a symbolic link of another user in a directory that all may write";
        assert!(status != 0 && said.contains(why), "{line:?}: {status}: {said}");
        shared.assert_untouched(line);
    }
}

/// The user's own link keeps its place: the file that it leads to is made or replaced.
#[test]
fn what_a_link_leads_to_is_made_or_replaced() {
    let shared = Shared::new();
    let (image, source, sparse) =
        (shared.at("image"), shared.at("source/"), shared.at("sparse.img"));
    let link = shared.at("link");
    symlink("below/target", &link).unwrap();
    fs::create_dir(shared.path("below")).unwrap();
    for line in [
        &["build", "-F", "--free", "8M", &link, &source][..],
        &["mkfs", "-F", "--size=20M", &link],
        &["export", "-F", "-o", &link, "--compress", "none", &image],
        &["sparse", "-F", &image, &link],
        &["unsparse", "-F", &sparse, &link],
    ] {
        let target = shared.path("below/target");
        for what in ["made", "replaced"] {
            let (status, _, said) = cairn(line);
            assert_eq!(status, 0, "{line:?}: {what}: {said}");
            assert!(Path::new(&link).is_symlink(), "{line:?}: {what}: the link is gone");
            assert!(fs::metadata(&target).unwrap().len() > 0, "{line:?}: {what}");
            assert_eq!(fs::read_dir(shared.path("below")).unwrap().count(), 1, "{line:?}");
        }
        fs::remove_file(target).unwrap();
    }
}

/// An archive that a shell gives as standard input has no name.
#[test]
fn standard_input_is_not_replaced() {
    let shared = Shared::new();
    let archive = shared.at("archive.tar");
    works(&["export", "--compress", "none", "-o", &archive, &shared.at("image")]);
    let before = fs::read(&archive).unwrap();
    let mut build = std::process::Command::new(env!("CARGO_BIN_EXE_cairn"));
    build.args(["build", "-F", &archive, "-"]).stdin(fs::File::open(&archive).unwrap());
    let output = build.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("standard input: is a source"), "{said}");
    assert!(fs::read(&archive).unwrap() == before);
}
