//! Images become archives again, and trees are compared.

use std::path::Path;

use cairn::Format;
use cairn_build::{
    Change, CompareOptions, Compression, ExportOptions, Limits, Rules, Source, Target, assemble,
    compare, export,
};
use cairn_testkit::judge;
use cairn_testkit::place::Place;
use cairn_testkit::tree::{SnapshotOptions, TreeSpec, digest_path};

use crate::support::{FORMATS, built, check, comparable, digest, seeded, seeds};

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub fn source(name: &str) -> Source {
    Source { name: name.into(), platform: None }
}

pub fn exported(image: &Path, output: &Path) {
    let compression = Compression::of_name(output).unwrap();
    export(ExportOptions {
        target: Target::Archive { path: output.to_owned(), compression },
        sources: vec![source(text(image))],
        rules: Rules::default(),
        overwrite: true,
    })
    .unwrap();
}

/// The paths that differ, with the changes.
pub fn differences(first: &str, second: &str) -> Vec<(String, Vec<Change>)> {
    let place = Place::new();
    let tree = |name: &str| {
        let spool = place.path().to_owned();
        assemble(&[source(name)], Rules::default(), Limits::UNBOUNDED, spool).unwrap()
    };
    let mut found = Vec::new();
    let options = CompareOptions { times: true, quick: false };
    let count = compare(&tree(first), &tree(second), options, &mut |difference| {
        let path = String::from_utf8_lossy(&difference.path).into_owned();
        found.push((path, difference.what.clone()));
    });
    assert_eq!(count.unwrap(), found.len() as u64);
    found
}

#[test]
fn names_of_other_forms_are_refused() {
    for (name, advice) in [("a.tar.xz", ".tar.zst"), ("a.cpio", "a tar"), ("a.zip", "a tar")] {
        let said = Compression::of_name(Path::new(name)).unwrap_err().to_string();
        assert!(said.contains(name) && said.contains(advice), "{said}");
    }
    assert_eq!(Compression::of_name(Path::new("a.tgz")).unwrap(), Compression::Gzip);
}

#[test]
fn gnu_tar_unpacks_what_is_exported() {
    for seed in seeds(3) {
        let place = Place::new();
        let at = |name: &str| place.path().join(name);
        seeded(&at("source"), &TreeSpec::small(seed));
        std::fs::write(at("source/listed"), "x").unwrap();
        let list = ["-m", "u:123456:rw,g:70000:r"];
        judge::run("setfacl", [&list[..], &[text(&at("source/listed"))]].concat());
        let expected = comparable(digest_path(&at("source"), SnapshotOptions::default()).unwrap());
        for format in FORMATS {
            built(format, &at("image"), &[&format!("{}/", at("source").display())]);
            for name in ["out.tar", "out.tar.gz", "out.tar.zst"] {
                exported(&at("image"), &at(name));
                std::fs::create_dir(at("unpacked")).unwrap();
                let words = ["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner"];
                let from = at(name);
                let words = [&words[..], &["-xpf", text(&from), "-C"]].concat();
                judge::run("tar", [&words[..], &[text(&at("unpacked"))]].concat());
                let seen = digest_path(&at("unpacked"), SnapshotOptions::default()).unwrap();
                println!("seed {seed}, {format}, {name}");
                comparable(seen).assert_same(&expected);
                std::fs::remove_dir_all(at("unpacked")).unwrap();
                assert_eq!(differences(text(&at("image")), text(&at(name))), []);
            }
        }
        // Both formats give the same archive, and the archive the same image.
        built(Format::Ext4, &at("ext4"), &[&format!("{}/", at("source").display())]);
        exported(&at("ext4"), &at("first.tar"));
        let read = |name: &str| std::fs::read(at(name)).unwrap();
        assert!(read("first.tar") == read("out.tar"), "the archives differ");
        built(Format::Ext4, &at("again"), &[text(&at("first.tar"))]);
        assert!(read("ext4") == read("again"), "the images differ");
        comparable(digest(&at("again"))).assert_same(&expected);
    }
}

#[test]
fn every_kind_of_difference_is_found() {
    let place = Place::new();
    let script = "
        mkdir -p a/d a/only b/d b/new; touch a/only/below
        for s in a b; do
            echo same >$s/same; echo x >$s/mode; echo x >$s/owner; echo x >$s/time; echo x >$s/xattr
            echo 12345 >$s/bytes; echo x >$s/kind; ln -s t $s/link; echo x >$s/l1; ln $s/l1 $s/l2
            truncate -s 1M $s/holes; mkfifo $s/fifo
        done
        chmod 600 b/mode; chown 7 b/owner; setfattr -n user.a -v b b/xattr; echo 12346 >b/bytes
        rm b/kind b/link b/l2; mkdir b/kind; ln -s u b/link; echo x >b/l2
        head -c 1M /dev/zero >b/holes
        find a b -exec touch -h -d @1000000000 {} +
        touch -d @5 b/time";
    judge::run("sh", ["-ec", &format!("cd {}; {script}", text(place.path()))]);
    let at = |name: &str| format!("{}/", place.path().join(name).display());
    let image = place.path().join("b.img");
    built(Format::F2fs, &image, &[&at("b")]);
    for second in [&at("b"), text(&image)] {
        let found = differences(&at("a"), second);
        let wanted = [
            ("bytes", Change::Contents),
            ("kind", Change::Kind),
            ("l2", Change::Links),
            ("link", Change::Contents),
            ("mode", Change::Mode),
            ("new", Change::OnlyInSecond),
            ("only", Change::OnlyInFirst),
            ("owner", Change::Owner),
            ("time", Change::Time),
            ("xattr", Change::Xattrs),
        ];
        let wanted: Vec<_> =
            wanted.into_iter().map(|(path, change)| (path.to_owned(), vec![change])).collect();
        assert_eq!(found, wanted, "{second}");
    }
    assert_eq!(differences(&at("a"), &at("a")), []);
}

/// Holes that an inode or a block has no place for, a list that only repeats the mode, and a time
/// beyond the format: what no volume stores makes no difference.
#[test]
fn what_a_volume_cannot_store_does_not_count() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    let source = format!("{}/", at("source").display());
    let script = "
        mkdir source; cd source; truncate -s 1500 hole; truncate -s 100000 long; : >empty
        printf text >end; truncate -s 3000 end; printf text >blocks; truncate -s 9000 blocks
        dd if=/dev/zero of=middle bs=1 count=1 seek=2000 2>&1; truncate -s 5000 middle
        find . -exec touch -d @1000000000 {} +";
    judge::run("sh", ["-ec", &format!("cd {}; {script}", text(place.path()))]);
    let mut archives = Vec::new();
    for format in FORMATS {
        built(format, &at("first"), &[&source]);
        exported(&at("first"), &at("out.tar"));
        built(format, &at("again"), &[text(&at("out.tar"))]);
        built(format, &at("third"), &[text(&at("first"))]);
        let read = |name: &str| std::fs::read(at(name)).unwrap();
        assert!(read("first") == read("again"), "{format}: image -> archive -> image differs");
        assert!(read("first") == read("third"), "{format}: image -> image differs");
        check(format, &at("first"));
        archives.push(read("out.tar"));
    }
    assert!(archives[0] == archives[1], "the formats give other archives");
    // A member with a sparse map of single bytes, and one with a time beyond ext4.
    let script = "
        cd source; truncate -s 3000 odd; printf x | dd of=odd bs=1 seek=700 conv=notrunc 2>&1
        touch -d @1000000000 .
        tar --format=pax --sparse --mtime=@16725225600 -cf ../odd.tar odd
        touch -d @1000000000 odd; tar --format=pax -rf ../odd.tar middle";
    judge::run("sh", ["-ec", &format!("cd {}; {script}", text(place.path()))]);
    for format in FORMATS {
        built(format, &at("first"), &[text(&at("odd.tar"))]);
        exported(&at("first"), &at("out.tar"));
        built(format, &at("again"), &[text(&at("out.tar"))]);
        let read = |name: &str| std::fs::read(at(name)).unwrap();
        assert!(read("first") == read("again"), "{format}: image -> archive -> image differs");
    }
}
