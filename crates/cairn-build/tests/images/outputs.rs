//! Outputs get their names when they are whole, and replace nothing but what was there.

use std::fs;
use std::path::Path;
use std::thread;

use cairn::Format;
use cairn::partition::TableKind;
use cairn_build::{Contents, Options, Shape, build};
use cairn_testkit::judge;
use cairn_testkit::place::Place;

use crate::disks::{disk, partition};
use crate::support::{built, options};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Files of a directory.
fn names(at: &Path) -> Vec<String> {
    let names = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// Builds, and does something to the place of the output when its sources are being read.
fn built_meanwhile(place: &Path, overwrite: bool, shape: Shape, meanwhile: &str) -> String {
    let at = |name: &str| place.join(name);
    let _ = fs::remove_file(at("pipe"));
    judge::run("mkfifo", [at("pipe")]);
    let (image, pipe) = (at("out/image"), at("pipe"));
    let options = Options { overwrite, shape, ..options(Format::Ext4, &image, &[text(&pipe)]) };
    let build = thread::spawn(move || build(options));
    // The build has opened the pipe, and waits for members.
    let script =
        format!("cd {}; exec 3>pipe; cd out; {meanwhile}; cd ..; cat a.tar >&3", text(place));
    judge::run("sh", ["-ec", &script]);
    match build.join().unwrap() {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_comes_meanwhile_is_not_replaced() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    judge::run("sh", ["-ec", &format!("cd {}; mkdir out; tar -cf a.tar out", text(place.path()))]);
    let image = at("out/image");
    for shape in [Shape::Raw, Shape::Qcow2] {
        // What is there before, what is done meanwhile, what is there afterwards, if not the image.
        for (before, overwrite, meanwhile, after) in [
            (None, false, ":", None),
            (None, false, "echo new >image", Some("new\n")),
            (None, true, "echo new >image", Some("new\n")),
            (None, false, "mkdir image", Some("")),
            (Some("old"), true, ":", None),
            (Some("old"), true, "rm image", None),
            (Some("old"), true, "echo new >image.new; mv image.new image", Some("new\n")),
            (Some("old"), true, "rm image; ln -s ../a.tar image", Some("")),
            (Some(""), false, ":", None),
            (Some(""), false, "echo new >image", Some("new\n")),
        ] {
            let case = format!("{shape:?} {before:?} {overwrite} {meanwhile}");
            judge::run("rm", ["-rf", text(&image)]);
            if let Some(before) = before {
                fs::write(&image, before).unwrap();
            }
            let said = built_meanwhile(place.path(), overwrite, shape, meanwhile);
            assert_eq!(said.contains("made or replaced it meanwhile"), after.is_some(), "{said}");
            match after {
                None => assert!(fs::metadata(&image).unwrap().len() > 100, "{case}"),
                Some("") => assert!(!image.is_file() || image.is_symlink(), "{case}"),
                Some(after) => assert_eq!(fs::read_to_string(&image).unwrap(), after, "{case}"),
            }
            assert_eq!(names(&at("out")), ["image"], "{case}");
        }
    }
}

/// A process that is killed cannot remove its file; the next build does.
#[test]
fn what_a_killed_build_has_left_is_removed_by_the_next() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("out")).unwrap();
    fs::write(at("out/.other.abcdef.unfinished"), "half").unwrap();
    fs::write(at("out/.other.abcdef.finished"), "whole").unwrap();
    built(Format::Ext4, &at("out/image"), &[]);
    assert_eq!(names(&at("out")), [".other.abcdef.finished", "image"]);
    // After an error, too.
    fs::write(at("out/.image.000000.unfinished"), "half").unwrap();
    fs::write(at("bad.tar"), [1; 600]).unwrap();
    let _ = build(options(Format::Ext4, &at("out/image"), &[text(&at("bad.tar"))])).unwrap_err();
    assert_eq!(names(&at("out")), [".other.abcdef.finished", "image"]);
}

#[test]
fn a_source_that_is_the_output_is_refused() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    built(Format::Ext4, &at("image"), &[]);
    judge::run("ln", ["-s", "image", text(&at("link"))]);
    let before = fs::read(at("image")).unwrap();
    for name in ["image", "link"] {
        for source in ["image", "link", "image?offset=0"] {
            let error = build(options(Format::Ext4, &at(name), &[text(&at(source))])).unwrap_err();
            let said = error.to_string();
            assert!(said.contains("is a source, and the image that is made"), "{source}: {said}");
            assert!(fs::read(at("image")).unwrap() == before, "{source}");
        }
    }
    // In the directory that is a source, it is left out.
    built(Format::Ext4, &at("image"), &[&format!("{}/", text(place.path()))]);
}

/// A file that fills a partition, and a list of attributes, are no sources by name, but are read.
#[test]
fn what_else_is_read_is_not_replaced() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    fs::write(at("list"), "#mtree\n. uid=0\n").unwrap();
    fs::write(at("esp"), [7; 4096]).unwrap();
    for (name, read) in [("list", "list"), ("esp", "esp")] {
        let before = fs::read(at(read)).unwrap();
        let mut options = options(Format::Ext4, &at(name), &[]);
        options.overwrite = true;
        match read {
            "list" => options.rules.manifests.push(at(read)),
            _ => {
                let esp = partition("esp", Contents::File(at(read)));
                options.disk = disk(TableKind::Gpt, vec![esp]);
            }
        }
        let said = build(options).unwrap_err().to_string();
        assert!(said.contains("is a source, and the image that is made"), "{read}: {said}");
        assert!(fs::read(at(read)).unwrap() == before, "{read}");
    }
}
