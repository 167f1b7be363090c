//! Archives as sources: what GNU tar, bsdtar and cpio write arrives as they unpack it.

use std::path::{Path, PathBuf};
use std::process::Command;

use cairn::Format;
use cairn_testkit::judge::{self, KernelMount};
use cairn_testkit::place::Place;
use cairn_testkit::tree::{SnapshotOptions, TreeSpec, digest_path};

use crate::support::{FORMATS, built, check, comparable, digest, seeded, seeds};

/// A tree with what archives treat in a way of their own.
fn tree(at: &Path, seed: u64) {
    seeded(at, &TreeSpec { directories: 12, files: 80, ..TreeSpec::small(seed) });
    let file = |name: &str| at.join(name);
    std::fs::write(file("capable"), b"program").unwrap();
    judge::run(
        "setfattr",
        [
            "-n",
            "security.capability",
            "-v",
            "0x0100000200200000000000000000000000000000",
            file("capable").to_str().unwrap(),
        ],
    );
    std::fs::create_dir(file("shared")).unwrap();
    judge::run(
        "setfacl",
        ["-m", "u:123456:rwx,g:70000:r-x,d:u:123457:rx", file("shared").to_str().unwrap()],
    );
    let deep = file(&["d".repeat(120).as_str(); 3].join("/"));
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("f".repeat(200)), b"deep").unwrap();
    std::os::unix::fs::symlink("t".repeat(300), file("long-target")).unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Archives of a tree in the forms that keep all of it.
fn archives(place: &Path, source: &Path) -> Vec<PathBuf> {
    let all = ["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "-C", text(source)];
    let tar = |name: &str, options: &[&str]| {
        let path = place.join(name);
        let words = [&["-cf", text(&path)][..], options, &all, &["."]].concat();
        judge::run("tar", words);
        path
    };
    let mut made = vec![
        tar("pax.tar", &["--format=pax"]),
        tar("sparse-1.0.tar.gz", &["--format=pax", "--sparse", "-z"]),
        tar("sparse-0.1.tar.xz", &["--format=pax", "--sparse", "--sparse-version=0.1", "-J"]),
        tar("sparse-0.0.tar.zst", &["--format=pax", "--sparse", "--sparse-version=0.0", "--zstd"]),
    ];
    let path = place.join("bsd.tar.zst");
    let words = ["-cf", text(&path), "--zstd", "--format=pax", "--xattrs", "--acls"];
    judge::run("bsdtar", [&words[..], &["--numeric-owner", "-C", text(source), "."]].concat());
    made.push(path);
    made
}

#[test]
fn what_tar_archives_arrives_as_tar_unpacks_it() {
    for seed in seeds(2) {
        let place = Place::new();
        let source = place.path().join("source");
        std::fs::create_dir(place.path().join("archives")).unwrap();
        tree(&source, seed);
        for archive in archives(&place.path().join("archives"), &source) {
            let unpacked = place.path().join("unpacked");
            std::fs::create_dir(&unpacked).unwrap();
            // GNU tar does not restore the times of directories that bsdtar wrote.
            let (program, words) = match archive.to_str().unwrap().contains("bsd") {
                true => ("bsdtar", &["--xattrs", "--acls", "--numeric-owner"][..]),
                false => {
                    ("tar", &["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner"][..])
                }
            };
            judge::run(program, [words, &["-xpf", text(&archive), "-C", text(&unpacked)]].concat());
            let expected = digest_path(&unpacked, SnapshotOptions::default()).unwrap();
            for format in FORMATS {
                println!("seed {seed}, {format}, {}", archive.display());
                let image = place.path().join("image");
                let built = built(format, &image, &[text(&archive)]);
                assert_eq!(built.passes, 1);
                check(format, &image);
                // bsdtar writes the fractions of times before 1970 in a way of its own, and leaves
                // the time of the directory that it unpacks into.
                let is_odd = |path: &[u8], facts: &str| {
                    program == "bsdtar" && (path.is_empty() || facts.contains("mtime=-"))
                };
                let comparable = |snapshot| comparable(snapshot).without_fact("mtime", is_odd);
                comparable(digest(&image)).assert_same(&comparable(expected.clone()));
                if format == Format::Ext4 {
                    let kernel = KernelMount::new(&image, "ro");
                    let seen = digest_path(kernel.path(), SnapshotOptions::default()).unwrap();
                    kernel.unmount();
                    comparable(seen).assert_same(&comparable(expected.clone()));
                }
            }
            std::fs::remove_dir_all(&unpacked).unwrap();
        }
    }
}

#[test]
fn gnu_s_own_format_has_long_names_and_sparse_members() {
    let place = Place::new();
    let source = place.path().join("source");
    seeded(&source, &TreeSpec { xattrs: false, ..TreeSpec::small(9) });
    let archive = place.path().join("gnu.tar");
    let words = ["-cSf", text(&archive), "--format=gnu", "--numeric-owner", "-C", text(&source)];
    judge::run("tar", [&words[..], &["."]].concat());
    let unpacked = place.path().join("unpacked");
    std::fs::create_dir(&unpacked).unwrap();
    judge::run("tar", ["--numeric-owner", "-xpf", text(&archive), "-C", text(&unpacked)]);
    let image = place.path().join("image");
    built(Format::Ext4, &image, &[text(&archive)]);
    check(Format::Ext4, &image);
    let expected = digest_path(&unpacked, SnapshotOptions::default()).unwrap();
    comparable(digest(&image)).assert_same(&comparable(expected));
}

#[test]
fn later_sources_go_over_earlier_ones() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    for (root, files) in
        [("base", ["a/kept", "a/replaced", "b"]), ("over", ["a/replaced", "a/new", "c"])]
    {
        std::fs::create_dir_all(at(root).join("a")).unwrap();
        for file in files {
            std::fs::write(at(root).join(file), root).unwrap();
        }
    }
    judge::run("tar", ["-cf", text(&at("over.tar")), "-C", text(&at("over")), "."]);
    let image = at("image");
    let base = format!("{}/", at("base").display());
    built(Format::Ext4, &image, &[&base, text(&at("over.tar")), text(&at("over"))]);
    check(Format::Ext4, &image);
    let kernel = KernelMount::new(&image, "ro");
    let read = |name: &str| std::fs::read_to_string(kernel.path().join(name)).unwrap();
    for (name, from) in [
        ("a/kept", "base"),
        ("a/replaced", "over"),
        ("a/new", "over"),
        ("b", "base"),
        ("c", "over"),
        ("over/c", "over"),
    ] {
        assert_eq!(read(name), from, "{name}");
    }
    kernel.unmount();
}

/// The same members through a pipe, in place and compressed give the same bytes.
#[test]
fn bytes_do_not_depend_on_the_way_of_an_archive() {
    let place = Place::new();
    let source = place.path().join("source");
    tree(&source, 4);
    let archive = place.path().join("source.tar");
    judge::run("tar", ["-cf", text(&archive), "--format=pax", "-C", text(&source), "."]);
    judge::run("gzip", ["-k", text(&archive)]);
    let fifo = place.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let image = place.path().join("image");
    let mut seen = Vec::new();
    for way in [&archive, &place.path().join("source.tar.gz"), &fifo] {
        let mut writer = (way == &fifo).then(|| {
            let script = format!("cat {} >{}", archive.display(), fifo.display());
            Command::new("sh").args(["-c", &script]).spawn().unwrap()
        });
        built(Format::Ext4, &image, &[text(way)]);
        if let Some(writer) = &mut writer {
            assert!(writer.wait().unwrap().success());
        }
        seen.push(std::fs::read(&image).unwrap());
    }
    assert!(seen[0] == seen[1] && seen[0] == seen[2]);
}

/// Tapes and devices fill what is behind a stream with zeros, which gzip(1) takes. It may be cut
/// into members. Other data behind its end is refused.
#[test]
fn zeros_behind_a_gzip_stream_are_taken() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    let script = format!(
        "cd {}; seq 20000 >file; tar -cf a.tar file; head -c 30000 a.tar | gzip >a.tar.gz
        tail -c +30001 a.tar | gzip >>a.tar.gz; head -c 70000 /dev/zero >zeros
        cat a.tar.gz zeros >padded.gz; (cat padded.gz; echo x) >other.gz
        (cat a.tar.gz; echo other) >garbage.gz; gzip -t padded.gz",
        text(place.path())
    );
    judge::run("sh", ["-ec", &script]);
    let image = at("image");
    built(Format::Ext4, &image, &[text(&at("a.tar.gz"))]);
    let expected = std::fs::read(&image).unwrap();
    built(Format::Ext4, &image, &[text(&at("padded.gz"))]);
    assert!(std::fs::read(&image).unwrap() == expected, "the bytes differ");
    std::fs::remove_file(&image).unwrap();
    for name in ["other.gz", "garbage.gz"] {
        let said = crate::support::refused(Format::Ext4, &image, &[text(&at(name))]);
        assert!(said.contains(name) && said.contains("behind the end of the gzip"), "{said}");
    }
}

/// GNU tar writes names into access lists. The image's own files say whose they are.
#[test]
fn names_in_access_lists_are_those_of_the_image() {
    let place = Place::new();
    let source = place.path().join("source");
    let script = format!(
        "mkdir -p {0}/etc; cd {0}; echo x >a; setfacl -m u:daemon:r,g:daemon:rw a
        tar --acls -cf ../with.tar --format=pax .
        echo 'daemon:x:4711:1::/:' >etc/passwd; echo 'daemon:x:4712:' >etc/group
        tar --acls -cf ../known.tar --format=pax .",
        source.display()
    );
    judge::run("sh", ["-ec", &script]);
    let image = place.path().join("image");
    built(Format::Ext4, &image, &[text(&place.path().join("known.tar"))]);
    let kernel = KernelMount::new(&image, "ro");
    let list = judge::run("getfacl", ["-n", text(&kernel.path().join("a"))]);
    kernel.unmount();
    assert!(list.contains("user:4711:r--") && list.contains("group:4712:rw-"), "{list}");
    std::fs::remove_file(&image).unwrap();
    let said =
        crate::support::refused(Format::Ext4, &image, &[text(&place.path().join("with.tar"))]);
    assert!(said.contains("./a") && said.contains("daemon"), "{said}");
}
