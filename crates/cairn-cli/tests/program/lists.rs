//! Default access lists: what is made in a directory with one inherits it, and a copy does not.

use std::path::Path;

use cairn_testkit::judge;
use cairn_testkit::place::Place;

use crate::support::works;

const FORMATS: [&str; 2] = ["ext4", "f2fs"];

/// A tree whose directory `d` has a default list that nothing in it has inherited, and a file and a
/// directory with lists of their own.
fn tree() -> Place {
    let place = Place::new();
    let script = "
        mkdir -p s/d/below s/plain/d/below; echo hi >s/d/a; echo own >s/d/own; ln s/d/a s/d/link
        mkfifo s/d/fifo; mknod s/d/device c 1 3; ln -s a s/d/symlink; chmod 2751 s/d/below
        echo plain >s/plain/file; echo below >s/plain/d/below/file
        setfacl -m u:7:r,m::rwx s/d/own; setfacl -d -m u:8:r s/d/below
        setfacl -d -m u:5:rwx,m::rwx s/d";
    sh(&place, script);
    place
}

fn sh(place: &Place, script: &str) -> String {
    judge::run("sh", ["-ec", &format!("cd {}; {script}", place.path().display())])
}

fn check(format: &str, image: &str) {
    match format {
        "ext4" => judge::assert_clean(Path::new(image)),
        _ => judge::assert_f2fs_clean(Path::new(image)),
    }
}

/// The paths of an image, of these, that have an access list.
fn listed(image: &str, paths: &[&str]) -> String {
    let said = works(&[&["getfattr", "-m", "-", image], paths].concat());
    let (mut at, mut found) = ("", Vec::new());
    for line in said.lines() {
        if let Some(path) = line.strip_prefix("# file: ") {
            at = path;
        } else if line.starts_with("system.posix_acl") && found.last() != Some(&at) {
            found.push(at);
        }
    }
    found.join(" ")
}

#[test]
fn what_sync_makes_has_the_lists_of_its_source() {
    for format in FORMATS {
        let place = tree();
        let at = |name: &str| format!("{}/{name}", place.path().display());
        let (image, source) = (at("image"), at("s/"));
        works(&["build", "-t", format, "--free", "16M", &image, &source]);
        // A host that inherits, too: only the new directory and what is in it keep that.
        let script = "
            echo new >s/d/a; mkdir s/d/inherits; echo i >s/d/inherits/file; mkdir s/d/new
            setfacl -bk s/d/new; echo n >s/d/new/n; ln s/d/own s/d/new/link; mkfifo s/d/new/fifo
            echo x >s/d/x; setfacl -b s/d/x; mknod s/d/y c 1 5; setfacl -b s/d/y
            setfacl -k s/d/below";
        sh(&place, script);
        works(&["sync", &source, &image]);
        assert_eq!(works(&["diff", &image, &source]), "", "{format}");
        check(format, &image);
    }
}

#[test]
fn what_put_and_cp_copy_has_the_lists_of_its_source() {
    for format in FORMATS {
        let place = tree();
        let at = |name: &str| format!("{}/{name}", place.path().display());
        let (image, source) = (at("image"), at("s/"));
        works(&["build", "-t", format, "--free", "16M", &image, &source]);
        works(&["put", &image, &at("s/plain"), &at("s/plain/file"), "/d"]);
        works(&["cp", "-a", &image, "/plain", "/d/cp"]);
        works(&["cp", "-p", &image, "/d/own", "/plain/file", "/d/below"]);
        let inside = ["/d/plain", "/d/plain/file", "/d/plain/d/below/file", "/d/file"];
        assert_eq!(listed(&image, &inside), "", "{format}");
        let inside = ["/d/cp", "/d/cp/file", "/d/cp/d/below", "/d/below/file", "/d/below/own"];
        assert_eq!(listed(&image, &inside), "d/below/own", "{format}");
        // A directory that is there already gets the lists of the source, too: here none.
        works(&["put", &image, &at("s/plain/d/."), "/d"]);
        works(&["put", &image, &at("s/plain/file"), "/d/own"]);
        assert_eq!(listed(&image, &["/d", "/d/own"]), "", "{format}");
        check(format, &image);
    }
}

/// As with cp(1): what is no copy of a file's attributes is made like any other file.
#[test]
fn a_new_file_inherits() {
    for format in FORMATS {
        let place = tree();
        let at = |name: &str| format!("{}/{name}", place.path().display());
        let image = at("image");
        works(&["build", "-t", format, "--free", "16M", &image, &at("s/")]);
        sh(&place, &format!("{} put image - /d/stdin <s/d/a", env!("CARGO_BIN_EXE_cairn")));
        works(&["cp", "-r", &image, "/plain", "/d/cp"]);
        works(&["touch", &image, "/d/touched"]);
        let inside = ["/d/stdin", "/d/cp", "/d/cp/file", "/d/touched", "/plain/file"];
        assert_eq!(listed(&image, &inside), "d/stdin d/cp d/cp/file d/touched", "{format}");
        // The kernel makes the same of the same requests.
        sh(&place, "umask 022; cat s/d/a >s/d/stdin; cp -r s/plain s/d/cp; touch s/d/touched");
        works(&["export", &image, "-o", &at("out/")]);
        let of = |top: &str| {
            let names = "stdin cp cp/file cp/d/below/file touched";
            sh(&place, &format!("cd {top}/d; getfacl {names}"))
        };
        assert_eq!(of("out"), of("s"), "{format}");
        check(format, &image);
    }
}

#[test]
fn what_is_copied_to_the_host_has_the_lists_of_its_source() {
    for format in FORMATS {
        let place = tree();
        let at = |name: &str| format!("{}/{name}", place.path().display());
        let (image, source) = (at("image"), at("s/"));
        works(&["build", "-t", format, &image, &source]);
        sh(&place, "mkdir def def/s; setfacl -d -m u:5:rwx,g:9:rwx def def/s");
        works(&["export", &image, "-o", &at("def/out/")]);
        works(&["get", &image, "/d", "/plain", &at("def/s")]);
        works(&["get", &image, "/plain/file", &at("def/file")]);
        let of = |top: &str| sh(&place, &format!("cd {top}; getfacl -R d plain"));
        for top in ["def/out", "def/s"] {
            assert_eq!(of(top), of("s"), "{format}: {top}");
        }
        assert_eq!(sh(&place, "getfacl -cs def/file"), "", "{format}");
        assert_eq!(works(&["diff", &at("def/out/"), &source]), "", "{format}");
        // A directory that is there already gets the lists of the image's.
        sh(&place, "setfacl -d -m u:6:rwx def/s/plain; setfacl -m u:6:rwx def/s/plain def/s/d");
        works(&["get", &image, "/d", "/plain", &at("def/s")]);
        assert_eq!(of("def/s"), of("s"), "{format}");
    }
}
