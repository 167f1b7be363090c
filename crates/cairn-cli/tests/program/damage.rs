//! One damaged inode in a directory: the other files are listed and copied, and the exit status
//! reports the damage.

use std::path::Path;

use cairn_testkit::judge;

use crate::support::{cairn, in_dir, works};

const BAD: &str = "a-file-that-is-damaged";

/// Damage by debugfs to the inode of an ext4 file: an impossible field, a cleared inode, an inode
/// without links.
const SPOIL: [&str; 3] = [
    "set_inode_field /d/NAME extra_isize 60000",
    "clri /d/NAME",
    "set_inode_field /d/NAME links_count 0",
];

/// A volume with three files in a directory, one of which has an impossible inode.
fn damaged(image: &str, format: &str, spoil: &str) {
    works(&["mkfs", "-t", format, "--size", "64M", image]);
    let host = cairn_testkit::place::Place::new();
    let source = host.path().join("d");
    std::fs::create_dir(&source).unwrap();
    for name in ["before", BAD, "zebra"] {
        std::fs::write(source.join(name), name).unwrap();
    }
    works(&["put", image, source.to_str().unwrap(), "/"]);
    if format == "ext4" {
        judge::run("debugfs", ["-w", "-R", &spoil.replace("NAME", BAD), image]);
        return;
    }
    // The inode has its name at byte 92; its mode comes first.
    let mut bytes = std::fs::read(image).unwrap();
    let places = bytes
        .windows(BAD.len())
        .enumerate()
        .filter(|(at, found)| at % 4096 == 92 && *found == BAD.as_bytes());
    let places: Vec<usize> = places.map(|(at, _)| at - 92).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| bytes[*at..at + 2].fill(0));
    std::fs::write(image, bytes).unwrap();
}

#[test]
fn one_damaged_inode_does_not_hide_its_directory() {
    for (format, spoil) in
        [("ext4", SPOIL[0]), ("ext4", SPOIL[1]), ("ext4", SPOIL[2]), ("f2fs", "")]
    {
        let (dir, image) = in_dir("disk.img");
        damaged(&image, format, spoil);
        let (status, listed, said) = cairn(&["ls", "-lR", &image]);
        assert_eq!(status, 4, "{format}: {said}");
        assert!(
            ["before", BAD, "zebra"].iter().all(|name| listed.contains(name)),
            "{format}: {listed}"
        );
        assert!(said.contains(BAD) && said.contains("1 damaged"), "{format}: {said}");
        let out = dir.path().join("out");
        let (status, _, said) = cairn(&["get", &image, "/d", out.to_str().unwrap()]);
        assert!(
            status == 4 && said.contains(BAD) && said.contains("1 damaged"),
            "{format}: {status}: {said}"
        );
        let names = |at: &Path| {
            let mut names: Vec<_> =
                std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&out), ["before", "zebra"], "{format}");
        assert_eq!(std::fs::read(out.join("zebra")).unwrap(), b"zebra");

        let point = dir.path().join("mnt");
        std::fs::create_dir(&point).unwrap();
        works(&["mount", "-o", "ro", &image, point.to_str().unwrap()]);
        let (listed, bad) = (names(&point.join("d")), std::fs::metadata(point.join("d").join(BAD)));
        let kept = std::fs::read(point.join("d/before"));
        // It repeats the daemon's message.
        assert_eq!(cairn(&["umount", point.to_str().unwrap()]).0, 0);
        assert_eq!(listed, [BAD, "before", "zebra"], "{format}");
        assert_eq!(bad.unwrap_err().raw_os_error(), Some(117), "{format}");
        assert_eq!(kept.unwrap(), b"before", "{format}");
    }
}

/// Names of a directory with several blocks.
fn many() -> Vec<String> {
    (0..300).map(|n| format!("name-{n:03}-{}", "x".repeat(40))).collect()
}

/// A volume with such a directory. `spoil` damages each copy of one name's entry; it gets the image
/// and the place of the name.
fn spoilt(image: &str, make: impl Fn(&str), spoil: impl Fn(&mut [u8], usize)) {
    make(image);
    let host = cairn_testkit::place::Place::new();
    let source = host.path().join("d");
    std::fs::create_dir(&source).unwrap();
    many().iter().for_each(|name| std::fs::write(source.join(name), name).unwrap());
    works(&["put", image, source.to_str().unwrap(), "/"]);
    let mut bytes = std::fs::read(image).unwrap();
    let victim = many()[123].clone().into_bytes();
    let places = bytes.windows(victim.len()).enumerate();
    // At byte 92 of an inode of F2FS is its own name.
    let places = places.filter(|(at, found)| *found == victim && at % 4096 != 92).map(|(at, _)| at);
    let places: Vec<usize> = places.collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| spoil(&mut bytes, *at));
    std::fs::write(image, bytes).unwrap();
}

/// At least one name and at most `hidden` names are missing. All others are listed, copied, found
/// and visible on a mount. The commands end with 4.
fn the_rest_is_there(image: &str, dir: &Path, hidden: usize) {
    let least = many().len() - hidden;
    let is_rest = |names: &[String]| {
        names.len() >= least
            && names.len() < many().len()
            && names.iter().all(|name| many().contains(name))
    };
    let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    let (status, listed, said) = cairn(&["ls", image, "/d"]);
    assert!(status == 4 && is_rest(&lines(&listed)), "{status}: {said}");
    assert!(said.contains("warning: /d: ") && said.contains("1 damaged"), "{said}");
    let (status, found, _) = cairn(&["find", image, "/d", "-type", "f"]);
    assert_eq!((status, found.lines().count()), (4, listed.lines().count()));
    let (status, counted, _) = cairn(&["du", "-a", image, "/d"]);
    assert_eq!((status, counted.lines().count()), (4, listed.lines().count() + 1));
    let out = dir.join("out");
    let (status, _, said) = cairn(&["get", image, "/d", out.to_str().unwrap()]);
    assert_eq!(status, 4, "{said}");
    for name in listed.lines() {
        assert_eq!(std::fs::read_to_string(out.join(name)).unwrap(), name);
    }
    let point = dir.join("mnt");
    std::fs::create_dir(&point).unwrap();
    works(&["mount", "-o", "ro", image, point.to_str().unwrap()]);
    let mut names = Vec::new();
    let mut errors = Vec::new();
    for entry in std::fs::read_dir(point.join("d")).unwrap() {
        match entry {
            Ok(entry) => names.push(entry.file_name().into_string().unwrap()),
            Err(error) => errors.push(error.raw_os_error()),
        }
    }
    let unmounted = cairn(&["umount", point.to_str().unwrap()]).0;
    names.sort();
    assert_eq!((unmounted, names), (0, lines(&listed)));
    assert_eq!(errors, [Some(117)], "the end of the listing says that it is not all");
}

/// The inode number of an ext4 entry is far beyond the last.
fn no_such_inode(bytes: &mut [u8], name: usize) {
    bytes[name - 8..name - 4].fill(0xff);
}

#[test]
fn one_bad_entry_hides_no_other_name() {
    let without_checksums = |image: &str| {
        judge::run("mke2fs", ["-Fq", "-t", "ext4", "-O", "^metadata_csum", image, "64M"]);
    };
    let (dir, image) = in_dir("ext4.img");
    spoilt(&image, without_checksums, no_such_inode);
    the_rest_is_there(&image, dir.path(), 1);
    let (dir, image) = in_dir("f2fs.img");
    let make = |image: &str| works(&["mkfs", "-t", "f2fs", "--size", "64M", image]);
    spoilt(&image, |image| drop(make(image)), |bytes, name| bytes[name] = b'/');
    the_rest_is_there(&image, dir.path(), 1);
}

/// An entry says another type than its inode: the name is listed, and nothing is told of the inode.
#[test]
fn an_entry_of_another_type_is_listed_without_its_inode() {
    const SYMLINK: u8 = 7;
    let (_dir, image) = in_dir("ext4.img");
    let make = |image: &str| {
        judge::run("mke2fs", ["-Fq", "-t", "ext4", "-O", "^metadata_csum", image, "64M"]);
    };
    spoilt(&image, make, |bytes, name| bytes[name - 1] = SYMLINK);
    let victim = &many()[123];
    let (status, listed, said) = cairn(&["ls", "-l", &image, "/d"]);
    assert!(status == 4 && said.contains(victim) && said.contains("1 damaged"), "{said}");
    assert_eq!(listed.lines().count(), many().len());
    let unknown: Vec<_> = listed.lines().filter(|line| line.starts_with("??????????")).collect();
    assert!(unknown.len() == 1 && unknown[0].ends_with(victim), "{unknown:?}");
}

#[test]
fn one_bad_block_of_a_directory_hides_only_what_is_in_it() {
    let (dir, image) = in_dir("ext4.img");
    let make = |image: &str| works(&["mkfs", "-t", "ext4", "--size", "64M", image]);
    // Its checksum is wrong by then.
    spoilt(&image, |image| drop(make(image)), no_such_inode);
    the_rest_is_there(&image, dir.path(), 4096 / 60);
}

#[test]
fn a_directory_with_a_damaged_index_is_listed_block_by_block() {
    let (dir, image) = in_dir("ext4.img");
    let make = |image: &str| works(&["mkfs", "-t", "ext4", "--size", "64M", image]);
    spoilt(&image, |image| drop(make(image)), |_, _| {});
    let map = judge::run("debugfs", ["-R", "bmap /d 0", &image]);
    let root: usize = map.lines().next().unwrap().trim().parse().unwrap();
    let mut bytes = std::fs::read(&image).unwrap();
    // The checksum at the end of the root of the index.
    let block = 1024 << bytes[1024 + 24];
    bytes[(root + 1) * block - 4] ^= 0xff;
    std::fs::write(&image, bytes).unwrap();
    let (status, listed, said) = cairn(&["ls", &image, "/d"]);
    assert!(status == 4 && listed.lines().eq(many().iter()), "{status}: {said}");
    let out = dir.path().join("out");
    let (status, _, said) = cairn(&["get", &image, "/d", out.to_str().unwrap()]);
    assert_eq!((status, std::fs::read_dir(&out).unwrap().count()), (4, 300), "{said}");
}

#[test]
fn what_lies_beside_damage_is_put_and_copied() {
    for (format, spoil) in
        [("ext4", SPOIL[0]), ("ext4", SPOIL[1]), ("ext4", SPOIL[2]), ("f2fs", "")]
    {
        let (dir, image) = in_dir("disk.img");
        damaged(&image, format, spoil);
        let (status, _, said) = cairn(&["cp", "-a", &image, "/d", "/copy"]);
        assert!(status == 4 && said.contains(BAD), "{format}: {status}: {said}");
        assert_eq!(works(&["ls", &image, "/copy"]), "before\nzebra\n", "{format}");
        // A new version of all three: the damaged one cannot be replaced.
        let source = dir.path().join("d");
        std::fs::create_dir(&source).unwrap();
        for name in ["before", BAD, "zebra"] {
            std::fs::write(source.join(name), "new").unwrap();
        }
        let (status, _, said) = cairn(&["put", &image, source.to_str().unwrap(), "/"]);
        assert!(
            status == 4 && said.contains(BAD) && said.contains("1 damaged"),
            "{format}: {status}: {said}"
        );
        for name in ["before", "zebra"] {
            assert_eq!(works(&["cat", &image, &format!("/d/{name}")]), "new", "{format}");
        }
    }
}

#[test]
fn trees_are_changed_and_removed_beside_damage() {
    for (format, spoil) in [("ext4", SPOIL[0]), ("ext4", SPOIL[1]), ("f2fs", "")] {
        let (_dir, image) = in_dir("disk.img");
        damaged(&image, format, spoil);
        for line in
            [&["chmod", "-R", &image, "700", "/d"][..], &["chown", "-R", &image, "5:6", "/d"]]
        {
            let (status, _, said) = cairn(line);
            assert!(
                status == 4 && said.contains(BAD) && said.contains("1 damaged entry was"),
                "{format}: {status}: {said}"
            );
        }
        for name in ["before", "zebra"] {
            let json = works(&["stat", "--json", &image, &format!("/d/{name}")]);
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(
                (&json[0]["mode"], &json[0]["uid"]),
                (&"0700".into(), &5.into()),
                "{format}: {name}"
            );
        }
        let (status, _, said) = cairn(&["rm", "-r", &image, "/d"]);
        assert!(
            status == 4 && said.contains(BAD) && said.contains("1 damaged entry was"),
            "{format}: {status}: {said}"
        );
        assert_eq!(cairn(&["ls", &image, "/d"]).1, format!("{BAD}\n"), "{format}");
    }
}

/// What was asked for is done, and the damage elsewhere is told, recorded, and in the status.
#[test]
fn a_change_beside_damage_ends_as_on_a_damaged_volume() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "64M", &image]);
    let file = dir.path().join("file");
    std::fs::write(&file, vec![1; 100_000]).unwrap();
    let file = file.to_str().unwrap();
    works(&["put", &image, file, "/old"]);
    let said = judge::run("debugfs", ["-R", "bmap /old 3", &image]);
    let block: u64 = said.lines().find_map(|line| line.trim().parse().ok()).unwrap();
    judge::run("debugfs", ["-w", "-R", &format!("freeb {block}"), &image]);
    let (status, _, said) = cairn(&["put", &image, file, "/new"]);
    assert_eq!(status, 4, "{said}");
    let told = said.matches("bg_free_blocks_count").count();
    assert!(told == 1 && said.contains("it is done, but the volume is damaged"), "{said}");
    assert_eq!(cairn(&["cat", &image, "/new"]).1.len(), 100_000);
    let state = judge::run("dumpe2fs", ["-h", &image]);
    assert!(state.contains("clean with errors"), "{state}");
}
