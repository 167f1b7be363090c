//! F2FS images: made with every option, filled, changed and judged; unclean images; refusals and
//! their messages.

use std::path::Path;

use cairn::{ImageSpec, OpenOptions};
use cairn_testkit::judge::{self, assert_f2fs_clean, dump_f2fs};
use cairn_vfs::{Caller, IoFlags, NewInode};
use serde_json::Value;

use crate::support::{cairn, fails, in_dir, works};

const EXTRA: &str =
    "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,lost_found,sb_checksum";

fn info(image: &str) -> Value {
    serde_json::from_str(&works(&["info", "--json", image])).unwrap()
}

#[test]
fn every_option_of_mkfs_reaches_the_disk() {
    let (_dir, image) = in_dir("disk.img");
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    works(&[
        "mkfs", "-F", "-t", "f2fs", "-l", "lábel", "-U", uuid, "-O", EXTRA, "-o", "7.5", "--size",
        "128M", &image,
    ]);
    assert_f2fs_clean(Path::new(&image));
    let found = info(&image);
    assert_eq!(
        (&found["type"], &found["label"], &found["uuid"]),
        (&"f2fs".into(), &"lábel".into(), &uuid.into())
    );
    let features: Vec<&str> =
        found["features"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(
        features.len() == 6 && EXTRA.split(',').all(|name| features.contains(&name)),
        "{features:?}"
    );
    assert_eq!((&found["access"], &found["state"]), (&"read-write".into(), &"clean".into()));
    let fields = dump_f2fs(Path::new(&image));
    assert_eq!(found["main_segments"], fields["segment_count_main"]);
    assert_eq!(found["checkpoint"]["overprovision_segments"], fields["overprov_segment_count"]);
    assert_eq!(found["checkpoint"]["user_blocks"], fields["user_block_count"]);
    let text = works(&["info", &image]);
    assert!(
        text.contains("type:                      f2fs") && text.contains("checkpoint:\n"),
        "{text}"
    );

    for percent in ["10", "30", "75.5"] {
        works(&["mkfs", "-F", "-t", "f2fs", "-o", percent, "--size", "128M", &image]);
        let ours = dump_f2fs(Path::new(&image));
        judge::mkfs_f2fs(Path::new(&image), 128 << 20, &["-o", percent]);
        let theirs = dump_f2fs(Path::new(&image));
        for field in ["overprov_segment_count", "rsvd_segment_count", "user_block_count"] {
            assert_eq!(ours[field], theirs[field], "{field} with {percent} per cent");
        }
    }
    works(&["mkfs", "-F", "-t", "f2fs", "-s", "2", "-z", "3", "-i", "--size", "512M", &image]);
    assert_f2fs_clean(Path::new(&image));
    let (found, fields) = (info(&image), dump_f2fs(Path::new(&image)));
    assert_eq!((fields["segs_per_sec"], fields["secs_per_zone"]), (2, 3));
    assert_eq!(
        (&found["segments_per_section"], &found["sections_per_zone"]),
        (&2.into(), &3.into())
    );
    let flags = found["checkpoint"]["flags"].as_str().unwrap().trim_start_matches("0x");
    const LARGE_NAT_BITMAP: u32 = 0x400;
    assert!(u32::from_str_radix(flags, 16).unwrap() & LARGE_NAT_BITMAP != 0, "{found}");
}

#[test]
fn mkfs_says_what_is_wrong_and_leaves_the_image_alone() {
    let (_dir, image) = in_dir("disk.img");
    works(&["mkfs", "-F", "-t", "f2fs", "--size", "64M", &image]);
    works(&["mkdir", &image, "/kept"]);
    let refusals: [(&[&str], &[&str]); 13] = [
        (
            &["-O", "has_journal"],
            &["feature `has_journal` is not known", "extra_attr", "inode_checksum", "lost_found"],
        ),
        (&["-g", "server"], &["server", "android"]),
        (&["-C", "ascii"], &["ascii", "utf8"]),
        (&["-O", "compression,extra_attr"], &["feature compression"]),
        (&["-O", "project_quota"], &["-O extra_attr,project_quota"]),
        (&["-O", "ro"], &["feature ro"]),
        (&["-O", "inode_crtime"], &["-O extra_attr,inode_crtime"]),
        (&["-o", "0"], &["from 0.01 to 99"]),
        (&["-o", "0.5"], &["too small", "at least"]),
        (&["-s", "0"], &["section"]),
        (&["-z", "0"], &["zone"]),
        (&["-s", "4000"], &["too small"]),
        (&["-b", "1024"], &["4096"]),
    ];
    for (given, named) in refusals {
        let line = fails(&[&["mkfs", "-F", "-t", "f2fs"], given, &[&image]].concat(), 2);
        assert!(named.iter().all(|word| line.contains(word)), "{given:?}: {named:?} in {line}");
        assert_eq!(works(&["ls", &image]), "kept\n", "{given:?}");
    }
    let long = "x".repeat(512);
    assert!(fails(&["mkfs", "-F", "-t", "f2fs", "-l", &long, &image], 2).contains("511"));
    assert!(fails(&["mkfs", "-F", "-t", "ext4", "-s", "2", &image], 2).contains("option of f2fs"));
    let (code, _, said) = cairn(&["mkfs", "-F", "-t", "f2ss", &image]);
    assert!(code == 2 && said.contains("ext4") && said.contains("f2fs"), "{said}");
    let (code, _, said) = cairn(&["mkfs", "-F", "-t", "f2fs", "-s", "many", &image]);
    assert!(code == 2 && said.contains("many"), "{said}");
    assert_f2fs_clean(Path::new(&image));
    let (_dir, small) = in_dir("small.img");
    let line = fails(&["mkfs", "-F", "-t", "f2fs", "--size", "20M", &small], 2);
    assert!(line.contains("too small") && line.contains("at least 52M"), "{line}");
}

#[test]
fn every_file_command_works_and_fsck_agrees() {
    for arguments in [&[][..], &["-O", EXTRA]] {
        let (dir, image) = in_dir("disk.img");
        works(&[&["mkfs", "-F", "-t", "f2fs", "--size", "96M"], arguments, &[&image]].concat());
        let source = dir.path().join("source");
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("small"), b"contents\n").unwrap();
        std::fs::write(source.join("large"), vec![7; 9_000_000]).unwrap();
        std::os::unix::fs::symlink("small", source.join("link")).unwrap();
        let source = source.to_str().unwrap();
        works(&["put", &image, source, "/tree"]);
        works(&["mkdir", "-p", &image, "/a/b/c"]);
        works(&["ln", &image, "/tree/small", "/a/hard"]);
        works(&["ln", "-s", &image, "../tree/large", "/a/soft"]);
        works(&["mv", &image, "/a/hard", "/a/b/moved"]);
        works(&["chown", &image, "70000:8", "/a/b/moved"]);
        works(&["chmod", &image, "4751", "/a/b/moved"]);
        assert_f2fs_clean(Path::new(&image));
        assert_eq!(works(&["cat", &image, "/a/b/moved"]), "contents\n");
        assert_eq!(works(&["ls", &image, "/tree"]), "large\nlink\nsmall\n");
        let json: Value =
            serde_json::from_str(&works(&["stat", "--json", &image, "/tree/small"])).unwrap();
        let stat = &json[0];
        assert_eq!(
            (&stat["uid"], &stat["gid"], &stat["links"]),
            (&70_000.into(), &8.into(), &2.into())
        );
        assert_eq!(stat["mode"], "4751");
        let out = dir.path().join("out");
        works(&["get", &image, "/tree", out.to_str().unwrap()]);
        assert_eq!(std::fs::read(out.join("large")).unwrap(), vec![7; 9_000_000]);
        assert_eq!(std::fs::read_link(out.join("link")).unwrap(), Path::new("small"));
        let failure = fails(&["rm", &image, "/tree"], 1);
        assert!(failure.contains("-r"), "{failure}");
        works(&["rm", "-r", &image, "/tree", "/a/soft"]);
        assert_eq!(works(&["ls", "-R", &image, "/a"]), "/a:\nb\n\n/a/b:\nc\nmoved\n\n/a/b/c:\n");
        assert!(fails(&["cat", &image, "/a/none"], 1).contains("/a/none"));
        assert!(fails(&["mkdir", &image, &format!("/{}", "n".repeat(256))], 1).contains("name"));
        assert_f2fs_clean(Path::new(&image));
    }
}

/// The image has the format of the last mkfs, whichever was before.
#[test]
fn the_type_is_probed() {
    let (_dir, image) = in_dir("disk.img");
    for round in 0..2 {
        works(&["mkfs", "-F", "-t", "ext4", "--size", "64M", &image]);
        assert_eq!(info(&image)["type"], "ext4", "round {round}");
        judge::assert_clean(Path::new(&image));
        works(&["mkfs", "-F", "-t", "f2fs", &image]);
        assert_eq!(info(&image)["type"], "f2fs", "round {round}");
        assert_f2fs_clean(Path::new(&image));
    }
    judge::mkfs_f2fs(Path::new(&image), 64 << 20, &["-l", "theirs"]);
    assert_eq!((&info(&image)["type"], &info(&image)["label"]), (&"f2fs".into(), &"theirs".into()));
    // One copy of the superblock is enough.
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[..4096].fill(0);
    std::fs::write(&image, &bytes).unwrap();
    assert_eq!(info(&image)["label"], "theirs");
    bytes[4096..8192].fill(0);
    std::fs::write(&image, &bytes).unwrap();
    assert!(fails(&["info", &image], 4).contains("not a filesystem"));
}

#[test]
fn looking_writes_nothing() {
    let (_dir, image) = in_dir("disk.img");
    judge::mkfs_f2fs(Path::new(&image), 64 << 20, &[]);
    cut(&image);
    let before = std::fs::read(&image).unwrap();
    assert_eq!(info(&image)["state"], "needs roll-forward");
    works(&["ls", "-l", &image]);
    works(&["stat", &image, "/synced"]);
    assert_eq!(works(&["cat", &image, "/synced"]), "synced");
    assert!(std::fs::read(&image).unwrap() == before, "the image changed");
}

#[test]
fn an_unclean_image_is_replayed_by_the_first_command_that_writes() {
    let (_dir, image) = in_dir("disk.img");
    judge::mkfs_f2fs(Path::new(&image), 64 << 20, &["-O", EXTRA]);
    cut(&image);
    works(&["mkdir", &image, "/later"]);
    assert_eq!(info(&image)["state"], "clean");
    assert_eq!(works(&["cat", &image, "/synced"]), "synced");
    assert_eq!(works(&["ls", &image]), "later\nlost+found\nsynced\n");
    assert_f2fs_clean(Path::new(&image));
}

/// Writes a file with fsync and another without, and leaves the image as after a power cut.
fn cut(image: &str) {
    let volume = cairn::open(&ImageSpec::whole(image), &OpenOptions::default()).unwrap();
    let fs = volume.filesystem();
    for (name, sync) in [(&b"synced"[..], true), (b"lost", false)] {
        let made = fs.create(fs.root(), name, NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
        assert_eq!(fs.write(made.ino, 0, name, IoFlags::empty()).unwrap(), name.len());
        if sync {
            fs.fsync(made.ino, 0, false).unwrap();
        }
    }
    fs.shutdown(false).unwrap();
}

#[test]
fn volumes_that_cannot_be_written_name_the_feature() {
    // Linux knows no encoding 0 either.
    for (arguments, feature) in [(&["-O", "casefold"][..], "without case"), (&["-O", "ro"], "ro")] {
        let (_dir, image) = in_dir("disk.img");
        judge::mkfs_f2fs(Path::new(&image), 64 << 20, arguments);
        assert_eq!(works(&["ls", &image]), "");
        let access = info(&image)["access"].as_str().unwrap().to_owned();
        assert!(access.contains(feature), "{access}");
        let (code, _, said) = cairn(&["mkdir", &image, "/x"]);
        assert!(code != 0 && said.contains(feature) && said.lines().count() == 1, "{code}: {said}");
        assert_f2fs_clean(Path::new(&image));
    }
}

#[test]
fn a_full_volume_says_so() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "-F", "-t", "f2fs", "--size", "64M", &image]);
    let source = dir.path().join("source");
    std::fs::write(&source, vec![1; 80 << 20]).unwrap();
    let line = fails(&["put", &image, source.to_str().unwrap(), "/"], 1);
    assert!(line.contains("no space left") && line.contains("larger image"), "{line}");
    assert_f2fs_clean(Path::new(&image));
    // No incomplete file is left, and no complete one is lost.
    assert_eq!(works(&["ls", &image]), "");
    std::fs::write(dir.path().join("small"), b"small").unwrap();
    works(&["put", &image, dir.path().join("small").to_str().unwrap(), "/source"]);
    fails(&["cp", &image, "/source", "/none/x"], 1);
    works(&["mkdir", &image, "/room again"]);
    assert_f2fs_clean(Path::new(&image));
}

#[test]
fn mount_options_that_do_not_exist_are_answered_with_where_they_are_listed() {
    let (dir, image) = in_dir("disk.img");
    judge::mkfs_f2fs(Path::new(&image), 64 << 20, &[]);
    let point = dir.path().to_str().unwrap();
    let line = fails(&["mount", "-o", "frobnicate", &image, point], 2);
    for known in ["`frobnicate`", "cairn mount --help", "docs/options.md", "f2fs"] {
        assert!(line.contains(known), "{known}: {line}");
    }
    assert!(line.len() < 200 && works(&["mount", "--help"]).contains("checkpoint_interval="));
    assert!(fails(&["mount", "-o", "mode=fragment", &image, point], 2).contains("adaptive"));
    assert!(fails(&["mount", "-o", "norecovery", &image, point], 2).contains("add ro"));
}

#[test]
fn help_has_an_example_for_f2fs() {
    assert!(works(&["mkfs", "--help"]).contains("cairn mkfs -t f2fs "));
    assert!(works(&["--help"]).contains("F2FS"));
}

#[test]
fn images_with_zones_are_made_filled_and_changed() {
    let (_dir, image) = in_dir("zones.img");
    let zones = ["--zone-size", "8M", "--zone-capacity", "5100K", "--conventional-zones", "4"];
    let limits = ["--max-open-zones", "8", "--max-active-zones", "14"];
    let make = |size| {
        [
            &["mkfs", "-F", "-t", "f2fs", "-m", "-Z", "8", "--size", size][..],
            &zones,
            &limits,
            &[&image],
        ]
        .concat()
    };
    works(&make("320M"));
    let contents = "twelve bytes".repeat(1 << 20);
    let (_other, host) = in_dir("host");
    std::fs::write(&host, &contents).unwrap();
    for name in ["/one", "/two", "/one"] {
        works(&["put", &image, &host, name]);
    }
    assert_eq!(works(&["cat", &image, "/one"]), contents);
    works(&["rm", &image, "/one"]);
    assert_eq!(works(&["cat", &image, "/two"]), contents);
    assert_eq!(info(&image)["access"], "read-write");
    let larger = [
        "mkfs",
        "-F",
        "-t",
        "f2fs",
        "-m",
        "--size",
        "320M",
        "--zone-size",
        "8M",
        "--zone-capacity",
        "9M",
    ];
    let refused = fails(&[&larger[..], &[&image]].concat(), 2);
    assert!(refused.contains("the capacity must be at most the zone size"), "{refused}");
    assert_eq!(works(&["cat", &image, "/two"]), contents, "it was not touched");
}

/// The second device is in the superblock of the first, by its path.
#[test]
fn a_volume_has_a_second_device_with_or_without_zones() {
    let (_dir, image) = in_dir("first.img");
    let second = image.replace("first.img", "second.img");
    let (_third, host) = in_dir("host");
    // More than fits on the first.
    let contents = "sixteen bytes...".repeat(4 << 20);
    std::fs::write(&host, &contents).unwrap();
    for zoned in [false, true] {
        if zoned {
            let zones = ["--size", "128M", "--zone-size", "2M", "--conventional-zones", "10"];
            works(&[&["mkfs", "-F", "-t", "f2fs", "-m"][..], &zones, &[&second]].concat());
            works(&[
                "mkfs", "-F", "-t", "f2fs", "-m", "-Z", "8", "-c", &second, "--size", "64M", &image,
            ]);
        } else {
            std::fs::File::create(&second).unwrap().set_len(128 << 20).unwrap();
            works(&["mkfs", "-F", "-t", "f2fs", "-c", &second, "--size", "64M", &image]);
            assert_f2fs_clean(Path::new(&image));
        }
        for _ in 0..2 {
            works(&["put", "--device", &second, &image, &host, "/file"]);
        }
        assert_eq!(works(&["cat", "--device", &second, &image, "/file"]), contents);
        if !zoned {
            assert_f2fs_clean(Path::new(&image));
        }
        let away = second.clone() + ".away";
        std::fs::rename(&second, &away).unwrap();
        let refused = fails(&["ls", &image, "/"], 3);
        assert!(refused.contains(&second), "{refused}");
        std::fs::rename(&away, &second).unwrap();
        assert_eq!(works(&["cat", "--device", &second, &image, "/file"]), contents);
    }
}
