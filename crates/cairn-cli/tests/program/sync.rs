//! `sync`: an image becomes what its sources are, and nothing else is written.

use std::fs;
use std::path::Path;

use cairn_testkit::judge;
use cairn_testkit::place::Place;
use cairn_testkit::tree::{PathTarget, TreeSpec, build, plan, with_extremes};

use crate::support::{cairn, fails, in_dir, works};

const FORMATS: [&str; 2] = ["ext4", "f2fs"];

/// Two trees that differ in every way, and an image of the first.
fn trees(format: &str) -> Place {
    let place = Place::new();
    let script = "
        mkdir -p a/d/deep a/only/below b/d/deep b/new/below b/was-file a/was-dir/x
        for s in a b; do
            for name in same mode owner time xattr bytes longer was-file f1 g1; do
                [ -d $s/$name ] || echo $name >$s/$name
            done
            ln -s t $s/link; mknod $s/device c 1 3; ln $s/f1 $s/f2; ln $s/g1 $s/d/g2
            truncate -s 1M $s/holes; mkfifo $s/fifo; echo deep >$s/d/deep/file
        done
        echo x >a/only/below/file; echo y >b/new/below/file; echo z >a/was-dir/x/y
        echo file >b/was-dir; echo below >b/was-file/below
        chmod 4711 b/mode; chown 7:8 b/owner; setfattr -n user.a -v b a/xattr
        setfattr -n user.b -v c b/xattr; echo bytes | tr b c >b/bytes; seq 5000 >b/longer
        rm b/link b/device b/f2; ln -s other b/link; mknod b/device c 1 5; echo f1 >b/f2
        ln b/same b/d/same; echo changed >b/g1; ln b/g1 b/new/g3
        find a b -exec touch -h -d @1000000000 {} +
        touch -d @5 b/time; chmod 700 b/d";
    judge::run("sh", ["-ec", &format!("cd {}; {script}", place.path().display())]);
    let at = |name: &str| format!("{}/{name}", place.path().display());
    works(&["build", "-t", format, "--free", "16M", &at("image"), &at("a/")]);
    place
}

fn check(format: &str, image: &str) {
    match format {
        "ext4" => judge::assert_clean(Path::new(image)),
        _ => judge::assert_f2fs_clean(Path::new(image)),
    }
}

#[test]
fn an_image_becomes_what_the_sources_are_and_then_stays() {
    for format in FORMATS {
        let place = trees(format);
        let at = |name: &str| format!("{}/{name}", place.path().display());
        let (image, source) = (at("image"), at("b/"));
        let before = fs::read(&image).unwrap();
        let said = works(&["sync", "--dry-run", &source, &image]);
        assert!(said.contains("would be made") && fs::read(&image).unwrap() == before, "{said}");
        let listed = works(&["sync", "-v", &source, &image]);
        for line in [
            "removed /only/below/file",
            "removed /only",
            "made /new/below/file",
            "made /was-file/below",
            "made /link",
            "contents /bytes",
            "attributes /time",
            "attributes /xattr",
        ] {
            assert!(listed.lines().any(|listed| listed == line), "{format}: {line}: {listed}");
        }
        assert!(!listed.contains("/same\n") || listed.contains("made /d/same"), "{listed}");
        assert_eq!(works(&["diff", &image, &source]), "", "{format}");
        check(format, &image);
        let after = fs::read(&image).unwrap();
        let again = works(&["sync", &source, &image]);
        assert!(again.starts_with("0 made, 0 changed, 0 removed, "), "{again}");
        assert!(fs::read(&image).unwrap() == after, "{format}: the second run has written");
        let counts = works(&["sync", "--json", &source, &image]);
        assert!(counts.contains("\"made\": 0") && counts.contains("\"removed\": 0"), "{counts}");
    }
}

#[test]
fn any_tree_becomes_any_other() {
    let few = if std::env::var_os("CAIRN_DEEP").is_some() { 60 } else { 3 };
    for seed in 0..few {
        for format in FORMATS {
            println!("seed {seed}, {format}");
            let place = Place::new();
            let at = |name: &str| format!("{}/{name}", place.path().display());
            for (name, seed) in [("a", seed), ("b", seed + 1000)] {
                fs::create_dir(at(name)).unwrap();
                let steps = with_extremes(plan(&TreeSpec::small(seed)), seed);
                build(&PathTarget::new(Path::new(&at(name))), &steps);
            }
            works(&["build", "-t", format, "--free", "16M", &at("image"), &at("a/")]);
            works(&["sync", &at("b/"), &at("image")]);
            assert_eq!(works(&["diff", &at("image"), &at("b/")]), "");
            check(format, &at("image"));
        }
    }
}

#[test]
fn what_is_kept_left_out_or_trusted_stays() {
    let place = trees("ext4");
    let at = |name: &str| format!("{}/{name}", place.path().display());
    let (image, source) = (at("image"), at("b/"));
    let left_out = ["--exclude", "longer", "--exclude", "new/", "--exclude", "was-dir"];
    works(&[&["sync", "--keep"][..], &left_out, &[&source, &image]].concat());
    let names = works(&["ls", &image]);
    assert!(names.contains("only\n") && !names.contains("new\n"), "{names}");
    assert_eq!(works(&["cat", &image, "/longer"]), "longer\n");
    // The same size and time: only a look at the bytes finds it.
    fs::write(at("b/bytes"), "other\n").unwrap();
    judge::run("touch", ["-d", "@1000000000", &at("b/bytes")]);
    works(&["sync", "--quick", &source, &image]);
    assert_eq!(works(&["cat", &image, "/bytes"]), "cytes\n");
    works(&["sync", &source, &image]);
    assert_eq!(works(&["cat", &image, "/bytes"]), "other\n");
    // An archive gives the same.
    let (tar, b) = (at("b.tar"), at("b"));
    judge::run(
        "tar",
        ["--format=pax", "--xattrs", "--xattrs-include=*", "-cf", &tar, "-C", &b, "."],
    );
    assert_eq!(works(&["sync", &tar, &image]).split(',').next(), Some("0 made"));
}

#[test]
fn what_cannot_be_done_is_said() {
    let place = trees("ext4");
    let at = |name: &str| format!("{}/{name}", place.path().display());
    let image = at("image");
    assert!(fails(&["sync", &at("b"), &image], 2).contains("give"));
    assert!(fails(&["sync", &at("none/"), &image], 1).contains("no such file"));
    assert!(fails(&["sync", &at("b/"), &at("b")], 3).contains("directory"));
    let (status, said, _) = cairn(&["sync", "--json", &at("none/"), &image]);
    assert!(status == 1 && said.contains("\"status\": 1"), "{said}");
    assert_eq!(works(&["diff", &image, &at("a/")]), "");
    // No room: the old contents stay, and the rest is done.
    fs::write(at("b/longer"), vec![7; 64 << 20]).unwrap();
    let (status, said, why) = cairn(&["sync", &at("b/"), &image]);
    assert!(status == 1 && why.contains("/longer: no space"), "{why}");
    assert_eq!(said, "11 made, 8 changed, 6 removed, 7 the same\n");
    assert_eq!(works(&["cat", &image, "/longer"]), "longer\n");
    assert_eq!(works(&["cat", &image, "/bytes"]), "cytes\n");
    judge::assert_clean(Path::new(&image));
}

/// Where the directory cannot be made, its entries are counted, not named.
#[test]
fn a_full_image_is_said_once_for_a_directory() {
    for format in FORMATS {
        let place = Place::new();
        let at = |name: &str| format!("{}/{name}", place.path().display());
        fs::create_dir(at("a")).unwrap();
        works(&["build", "-t", format, "--size", "64M", &at("image"), &at("a/")]);
        // All of it, also what is left for small files and for directories.
        for (name, count, bytes) in
            [("l", 70, Some(1 << 20)), ("s", 400, Some(4096)), ("d", 900, None)]
        {
            fs::create_dir(at(name)).unwrap();
            for n in 0..count {
                let path = at(&format!("{name}/{name}{n}"));
                match bytes {
                    Some(bytes) => fs::write(path, vec![7; bytes]).unwrap(),
                    None => fs::create_dir(path).unwrap(),
                }
            }
            println!("{:?}", cairn(&["put", &at("image"), &format!("{}/.", at(name)), "/"]));
        }
        for n in 0..300 {
            fs::create_dir_all(at(&format!("a/new/{n}"))).unwrap();
            fs::write(at(&format!("a/new/{n}/file")), vec![1; 5000]).unwrap();
        }
        let (status, _, said) = cairn(&["sync", "--keep", &at("a/"), &at("image")]);
        assert_eq!(status, 1, "{format}: {said}");
        println!("{format}: {said}");
        assert!(said.lines().count() <= 14, "{format}: {said}");
        assert!(said.contains("no space left") && said.contains(" more files"), "{said}");
        check(format, &at("image"));
    }
}

/// A run that was killed when all was written leaves a journal to replay. The next run finds
/// nothing to change.
#[test]
fn an_image_that_needs_recovery_is_clean_afterwards() {
    let place = trees("ext4");
    let at = |name: &str| format!("{}/{name}", place.path().display());
    let (image, source) = (at("image"), at("b/"));
    works(&["sync", &source, &image]);
    judge::run("debugfs", ["-w", "-R", "feature needs_recovery", &image]);
    assert!(works(&["info", &image]).contains("needs recovery"));
    works(&["sync", &source, &image]);
    check("ext4", &image);
}

/// A file of the sources would cost the directory that --keep keeps.
#[test]
fn keep_keeps_a_directory_that_is_in_the_way() {
    let (dir, image) = in_dir("image");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir_all(at("old/p/sub")).unwrap();
    std::fs::write(at("old/p/sub/data"), "precious").unwrap();
    std::fs::create_dir(at("new")).unwrap();
    std::fs::write(at("new/p"), "").unwrap();
    works(&["build", "--free", "20M", &image, &at("old/")]);
    let (status, _, said) = cairn(&["sync", "--keep", &at("new/"), &image]);
    assert!(status == 2 && said.contains("/p: a directory with entries"), "{status}: {said}");
    let exclude = ["sync", "--exclude", "sub/"];
    let (status, _, said) = cairn(&[&exclude[..], &[&at("new/"), &image]].concat());
    assert!(status == 2 && said.contains("/p: a directory with entries"), "{status}: {said}");
    // Where nothing comes in its place, it stays for what is in it.
    std::fs::create_dir(at("empty")).unwrap();
    let said = works(&[&exclude[..], &[&at("empty/"), &image]].concat());
    assert!(said.contains(" 0 removed"), "{said}");
    assert_eq!(works(&["cat", &image, "/p/sub/data"]), "precious");
    works(&["sync", &at("new/"), &image]);
    assert_eq!(works(&["cat", &image, "/p"]), "");
}

/// The options of sources are the same: what was built with them differs in nothing.
#[test]
fn takes_the_options_of_sources_that_build_takes() {
    let place = trees("ext4");
    let at = |name: &str| format!("{}/{name}", place.path().display());
    std::fs::write(at("list"), "/new.dev c 600 0 0 5 1 0 0 -\n").unwrap();
    let list = at("list");
    let options = ["--uid-map", "7:70", "--gid-map", "0:100:9", "--mtime", "@900000000"];
    let options = [&options[..], &["--exclude", "deep/", "--manifest", &list]].concat();
    let (built, image, source) = (at("built"), at("image"), at("b/"));
    works(&[&["build"], &options[..], &["--free", "16M", &built, &source]].concat());
    let said = works(&[&["sync"], &options[..], &[&source, &built]].concat());
    assert!(said.starts_with("0 made, 0 changed, 0 removed"), "{said}");
    let said = works(&[&["sync"], &options[..], &[&source, &image]].concat());
    assert!(!said.starts_with("0 made"), "{said}");
    assert_eq!(works(&["diff", "--exclude", "deep/", &built, &image]), "");
    // What is excluded stays where it was.
    assert_eq!(works(&["ls", &image, "/d/deep"]), "file\n");
}

/// The smallest image has room for other contents in the blocks of the old, and for nothing else.
#[test]
fn contents_of_the_same_size_fit_into_the_smallest_image() {
    for format in FORMATS {
        let place = Place::new();
        let at = |name: &str| format!("{}/{name}", place.path().display());
        let image = at("image");
        let contents = |byte: u8, len: usize| {
            fs::create_dir_all(at("a")).unwrap();
            fs::write(at("a/file"), vec![byte; len]).unwrap();
        };
        contents(1, 500_000);
        works(&["build", "-t", format, "--size", "min", &image, &at("a/")]);
        contents(2, 500_000);
        works(&["sync", &at("a/"), &image]);
        assert_eq!(works(&["diff", &image, &at("a/")]), "", "{format}");
        contents(3, 500_000);
        works(&["put", &image, &at("a/file"), "/file"]);
        assert_eq!(works(&["diff", &image, &at("a/")]), "", "{format}");
        // With a hole, and larger within the last block.
        contents(4, 499_800);
        judge::run("fallocate", ["-p", "-o", "8192", "-l", "8192", &at("a/file")]);
        works(&["sync", &at("a/"), &image]);
        assert_eq!(works(&["diff", &image, &at("a/")]), "", "{format}");
        contents(5, 500_100);
        works(&["sync", &at("a/"), &image]);
        assert_eq!(works(&["diff", &image, &at("a/")]), "", "{format}");
        check(format, &image);
        if format == "ext4" {
            // More blocks than the file has: the old contents stay.
            works(&["export", &image, "-o", &at("old.tar")]);
            contents(6, 600_000);
            for words in [&["sync", &at("a/"), &image][..], &["put", &image, &at("a/file"), "/"]] {
                let (status, _, why) = cairn(words);
                assert!(status == 1 && why.contains("/file: no space"), "{words:?}: {why}");
            }
            assert_eq!(works(&["diff", &image, &at("old.tar")]), "");
        }
    }
}

/// A block that a removal has just freed is the share of maps', not room to cut a file for.
#[test]
fn a_removal_costs_no_file_its_contents() {
    for format in FORMATS {
        let place = Place::new();
        let at = |name: &str| format!("{}/{name}", place.path().display());
        // Large enough for a journal.
        let script = "mkdir a b; yes one | head -c 9000000 >a/big; echo x >a/small
            yes two | head -c 9000000 >b/big";
        judge::run("sh", ["-ec", &format!("cd {}; {script}", place.path().display())]);
        let (image, other) = (at("image"), at("other"));
        works(&["build", "-t", format, "--size", "min", &image, &at("a/")]);
        fs::copy(&image, &other).unwrap();
        works(&["sync", &at("b/"), &image]);
        assert_eq!(works(&["diff", &image, &at("b/")]), "", "{format}");
        let words = format!("rm /small\nput {} /big\n", at("b/big"));
        fs::write(at("script"), words).unwrap();
        let cairn = env!("CARGO_BIN_EXE_cairn");
        judge::run("sh", ["-ec", &format!("{cairn} shell {other} <{}", at("script"))]);
        assert_eq!(works(&["cat", &other, "/big"]), fs::read_to_string(at("b/big")).unwrap());
        check(format, &image);
        check(format, &other);
    }
}

/// A time that the volume cannot store is no difference from the time that is stored.
#[test]
fn times_beyond_the_volume_are_said_and_are_no_difference() {
    let place = Place::new();
    let at = |name: &str| format!("{}/{name}", place.path().display());
    let list = "#mtree\n/set type=file uid=0 gid=0 mode=644\n. type=dir mode=755 time=1.0\n\
                far time=16725225600.5 contents=text\nnear time=5.5 contents=text\n\
                old time=-3000000000.0 contents=text\n";
    fs::write(at("text"), "text").unwrap();
    fs::write(at("list"), list.replace("contents=text", &format!("contents={}", at("text"))))
        .unwrap();
    let image = at("image");
    let build = |words: &[&str]| {
        let (list, words) = (at("list"), [words, &["--manifest"]].concat());
        let (status, _, said) = cairn(&[&words[..], &[&list, &image]].concat());
        assert_eq!(status, 0, "{said}");
        said
    };
    let said = build(&["build", "--free", "16M"]);
    let wanted = "/far: its time @16725225600 becomes @15032385535, the nearest that the volume \
                  stores, and so it is for one more file: --mtime sets another";
    assert!(said.contains(wanted) && said.lines().count() == 1, "{said}");
    check("ext4", &image);
    let before = fs::read(&image).unwrap();
    let words = ["sync", "--manifest", &at("list"), &at("empty/"), &image].map(str::to_owned);
    fs::create_dir(at("empty")).unwrap();
    judge::run("touch", ["-d", "@1", &at("empty")]);
    let (status, counts, said) = cairn(&words.each_ref().map(String::as_str));
    assert!(status == 0 && said.contains(wanted), "{said}");
    assert!(counts.starts_with("0 made, 0 changed, 0 removed"), "{counts}");
    assert!(fs::read(&image).unwrap() == before);
    assert_eq!(build(&["build", "-F", "-t", "f2fs"]), "");
    assert!(works(&["stat", "-c", "%Y", &image, "/far"]).starts_with("16725225600"));
}

/// On a volume without a free block, what is removed makes room for what comes. ext4's share for
/// maps took it. After a failure the counts say what was done.
#[test]
fn what_goes_makes_room_for_what_comes() {
    for format in FORMATS {
        let place = Place::new();
        let at = |name: &str| format!("{}/{name}", place.path().display());
        let script = "
            mkdir -p a/old b/new a/same b/same; seq 2000000 >a/same/large; cp -p a/same/large b/same
            for n in 1 2 3 4 5; do head -c ${n}0000 /dev/zero | tr '\\0' x >a/old/f$n
            tr x y <a/old/f$n >b/new/g$n; done";
        judge::run("sh", ["-ec", &format!("cd {}; {script}", place.path().display())]);
        let image = at("image");
        works(&["build", "-t", format, "--size", "min", &image, &at("a/")]);
        let said = works(&["sync", &at("b/"), &image]);
        assert!(said.starts_with("6 made"), "{format}: {said}");
        works(&["diff", &image, &at("b/")]);
        if format == "ext4" {
            fs::write(at("b/new/h"), vec![7; 60 << 20]).unwrap();
            fs::write(at("b/last"), "").unwrap();
            let (status, said, why) = cairn(&["sync", &at("b/"), &image]);
            assert!(status == 1 && why.contains("/new/h"), "{status}: {why}");
            assert!(said.starts_with("1 made, "), "{said}");
        }
        check(format, &image);
    }
}

/// The host has no room for the image any more. A file whose contents it refuses later, with those
/// of others, was not made.
#[test]
fn what_a_full_host_has_refused_is_not_counted() {
    for (format, json) in [("ext4", false), ("f2fs", true)] {
        let place = Place::new();
        let at = |name: &str| format!("{}/{name}", place.path().display());
        fs::create_dir_all(at("a/old")).unwrap();
        fs::create_dir(at("host")).unwrap();
        judge::run("mount", ["-t", "tmpfs", "-o", "size=24M", "tmpfs", &at("host")]);
        for n in 0..5 {
            fs::write(at(&format!("a/old/{n}")), "old").unwrap();
        }
        let image = at("host/image");
        works(&["build", "-t", format, "--free", "200M", &image, &at("a/")]);
        fs::remove_dir_all(at("a/old")).unwrap();
        fs::create_dir(at("a/new")).unwrap();
        for n in 0..400 {
            fs::write(at(&format!("a/new/{n:03}")), vec![n as u8; 200_000]).unwrap();
        }
        let source = at("a/");
        let line = ["sync", "--json", &source, &image];
        let (status, counts, said) = match json {
            true => cairn(&line),
            false => cairn(&[&line[..1], &line[2..]].concat()),
        };
        assert!(status != 0 && said.contains("/new/"), "{format}: {status}: {said}");
        let count = |what: &str| -> usize {
            let number = match json {
                true => counts.split(&format!("\"{what}\": ")).nth(1),
                false => counts.split(", ").find(|part| part.ends_with(what)),
            };
            let number = number.unwrap_or_else(|| panic!("{what}: {counts}: {said}"));
            number.split([' ', ',', '\n']).next().unwrap().parse().unwrap()
        };
        // What the image holds is judged by a list of what still differs.
        let (_, left, _) = cairn(&["sync", "-n", "-v", &source, &image]);
        let left = |word: &str| left.lines().filter(|line| line.starts_with(word)).count();
        println!("{format}: {counts}{said}");
        let there = 401 - left("made /new");
        assert!(there < 401, "{format}: the host has room for all of it");
        // A file with contents and without attributes is not done.
        let half = left("attributes /new") + left("contents /new");
        assert_eq!(count("made"), there - half, "{format}: {counts}");
        assert_eq!(count("removed"), 6 - left("removed"), "{format}: {counts}");
        judge::run("mount", ["-o", "remount,size=300M", &at("host")]);
        // The host's refusal is on record, which a repair clears.
        let (status, _, said) = cairn(&["sync", &source, &image]);
        assert_eq!(status, 0, "{format}: {said}");
        assert_eq!(cairn(&["diff", &image, &source]).1, "", "{format}");
        let (status, _, said) = cairn(&["check", "--repair", "-y", &image]);
        assert!(status <= 1, "{format}: {status}: {said}");
        check(format, &image);
    }
}

/// An archive without an end mark may have been cut off behind a member. What it lacks stays.
#[test]
fn an_archive_that_may_be_cut_off_removes_nothing() {
    let place = Place::new();
    let at = |name: &str| format!("{}/{name}", place.path().display());
    let script = "mkdir t; echo one >t/a; echo two >t/b; tar -C t -cf whole.tar a b
        echo three >t/a; tar -C t -cf changed.tar a b; head -c 1024 changed.tar >cut.tar";
    judge::run("sh", ["-ec", &format!("cd {}; {script}", place.path().display())]);
    let image = at("image");
    works(&["build", "--free", "1M", &image, &at("whole.tar")]);
    let (status, counts, said) = cairn(&["sync", &at("cut.tar"), &image]);
    assert_eq!(status, 0, "{said}");
    assert!(counts.contains("0 removed") && !counts.contains("0 changed"), "{counts}");
    let warned = format!("{}: warning: nothing is removed from the image", at("cut.tar"));
    assert!(said.contains(&warned), "{said}");
    assert_eq!(works(&["cat", &image, "/a", "/b"]), "three\ntwo\n");
    check("ext4", &image);
    // A whole one removes what it lacks.
    judge::run("tar", ["-C", &at("t"), "-cf", &at("one.tar"), "a"]);
    let counts = works(&["sync", &at("one.tar"), &image]);
    assert!(counts.contains("1 removed"), "{counts}");
}
