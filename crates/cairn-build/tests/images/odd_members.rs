//! Members that are rare, on the way into an image and back: files of very many holes, links to
//! sockets, a `lost+found` that is not mkfs's, checksums of cpio, and the host's labels of SELinux.

use std::fs::File;
use std::os::unix::fs::FileExt;

use cairn::Format;
use cairn_build::Change;
use cairn_testkit::judge;
use cairn_testkit::place::Place;

use crate::back::{differences, exported, text};
use crate::support::{FORMATS, built, check, refused};

/// Ranges of the file; each has a line for its start and one for its length.
const RANGES: u64 = 30_000;

#[test]
fn a_file_of_very_many_holes_comes_back() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    std::fs::create_dir(at("source")).unwrap();
    let file = File::create(at("source/holes")).unwrap();
    for number in 0..RANGES {
        file.write_all_at(&number.to_le_bytes(), number * 8192).unwrap();
    }
    file.set_len(RANGES * 8192 + 5000).unwrap();
    let source = format!("{}/", at("source").display());
    exported(&at("source/"), &at("out.tar"));
    let gnu = at("gnu.tar");
    judge::run("tar", ["--format=pax", "-S", "-cf", text(&gnu), "-C", &source, "."]);
    for archive in ["out.tar", "gnu.tar"] {
        assert_eq!(differences(&source, text(&at(archive))), [], "{archive}");
    }
    for program in ["tar", "bsdtar"] {
        std::fs::create_dir(at(program)).unwrap();
        judge::run(program, ["-xf", text(&at("out.tar")), "-C", text(&at(program))]);
        judge::run("cmp", [at("source/holes"), at(program).join("holes")]);
    }
    built(Format::Ext4, &at("image"), &[text(&at("out.tar"))]);
    check(Format::Ext4, &at("image"));
    assert_eq!(differences(&source, text(&at("image"))), []);
}

#[test]
fn links_to_a_socket_are_left_out_with_it() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    let script = r#"mkdir s
        perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "s/a", Listen => 1) or die'
        ln s/a s/b; echo x >s/file; ln s/file s/link"#;
    judge::run("sh", ["-ec", &format!("cd {}; {script}", text(place.path()))]);
    for format in FORMATS {
        built(format, &at("image"), &[&format!("{}/", at("s").display())]);
        exported(&at("image"), &at("out.tar"));
        let sockets = [("a", Change::OnlyInFirst), ("b", Change::OnlyInFirst)];
        let sockets = sockets.map(|(name, change)| (name.to_owned(), vec![change]));
        assert_eq!(differences(text(&at("image")), text(&at("out.tar"))), sockets);
    }
}

#[test]
fn only_lost_and_found_of_mkfs_is_left_out() {
    for (make, is_kept) in [
        ("mkdir -m 700 s/lost+found", false),
        ("mkdir -m 755 s/lost+found", true),
        ("mkdir -m 700 s/lost+found; chown 7 s/lost+found", true),
        ("mkdir -m 700 s/lost+found; setfattr -n user.a -v b s/lost+found", true),
        ("mkdir -m 700 s/lost+found; echo x >s/lost+found/file", true),
        ("echo x >s/lost+found", true),
        ("ln -s target s/lost+found", true),
    ] {
        let place = Place::new();
        let at = |name: &str| place.path().join(name);
        judge::run("sh", ["-ec", &format!("cd {}; mkdir s; {make}", text(place.path()))]);
        let source = format!("{}/", at("s").display());
        for format in FORMATS {
            if format == Format::Ext4 && !at("s/lost+found").symlink_metadata().unwrap().is_dir() {
                assert!(refused(format, &at("no"), &[&source]).contains("must be a directory"));
                continue;
            }
            println!("{make}, {format}");
            built(format, &at("image"), &[&source]);
            exported(&at("image"), &at("out.tar"));
            let listed = judge::run("tar", ["-tf", text(&at("out.tar"))]);
            assert_eq!(listed.contains("lost+found"), is_kept, "{make}, {format}: {listed}");
            built(Format::F2fs, &at("again"), &[text(&at("image"))]);
            for other in [text(&at("again")), text(&at("out.tar")), &source] {
                assert_eq!(differences(text(&at("image")), other), [], "{make}, {format}");
            }
            std::fs::create_dir(at("none")).unwrap();
            let none = differences(text(&at("image")), &format!("{}/", at("none").display()));
            let named = none.iter().any(|(path, _)| path == "lost+found");
            assert_eq!(named, is_kept, "{make}, {format}: {none:?}");
            std::fs::remove_dir(at("none")).unwrap();
        }
    }
}

#[test]
fn checksums_of_cpio_are_compared() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    let script = "mkdir s; cd s; echo something >file; ln file again; ln -s file link; : >empty
        find . | cpio -o --quiet -H crc >../a.cpio";
    judge::run("sh", ["-ec", &format!("cd {}; {script}", text(place.path()))]);
    let source = format!("{}/", at("s").display());
    let names: Vec<_> = differences(&source, text(&at("a.cpio")))
        .into_iter()
        .filter(|(_, what)| what.as_slice() != [Change::Time])
        .collect();
    assert_eq!(names, []);
    let mut bytes = std::fs::read(at("a.cpio")).unwrap();
    let place = bytes.windows(9).position(|window| window == b"something").unwrap();
    bytes[place] ^= 1;
    std::fs::write(at("a.cpio"), bytes).unwrap();
    let said = refused(Format::Ext4, &at("image"), &[text(&at("a.cpio"))]);
    assert!(said.contains("checksum"), "{said}");
}

#[test]
fn labels_of_the_host_do_not_count() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    let script = "mkdir s; echo x >s/file; echo '/.* u:object_r:image:s0' >contexts
        setfattr -n security.selinux -v host s/file; setfattr -n user.a -v b s/file";
    judge::run("sh", ["-ec", &format!("cd {}; {script}", text(place.path()))]);
    let source = format!("{}/", at("s").display());
    built(Format::Ext4, &at("image"), &[&source]);
    assert_eq!(differences(&source, text(&at("image"))), []);
    // What the image has by another way is no difference from files that say nothing of it.
    let mut labelled = crate::support::options(Format::Ext4, &at("labelled"), &[&source]);
    labelled.rules.manifests = vec![at("contexts")];
    cairn_build::build(labelled).unwrap();
    assert_eq!(differences(&source, text(&at("labelled"))), []);
    let images = differences(text(&at("image")), text(&at("labelled")));
    assert!(images.iter().any(|(path, what)| path == "file" && *what == [Change::Xattrs]));
    std::fs::write(at("s/file"), "y").unwrap();
    judge::run("setfattr", ["-n", "user.a", "-v", "c", text(&at("s/file"))]);
    let found = differences(&source, text(&at("labelled")));
    let changes = &found.iter().find(|(path, _)| path == "file").unwrap().1;
    assert!(changes.contains(&Change::Xattrs), "{found:?}");
}
