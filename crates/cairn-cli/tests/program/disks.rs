//! Disks with partitions: `build --partition`, and how they become larger.

use cairn_testkit::judge;

use crate::build::tree;
use crate::support::{cairn, fails, in_dir, works};

/// Two partitions through a pipe, and the words for what is wrong.
#[test]
fn a_disk_goes_through_a_pipe_and_its_partitions_are_images() {
    let (dir, image) = in_dir("image");
    tree(dir.path());
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("esp"), vec![3; 70_000]).unwrap();
    let source = format!("{}/", at("rootfs"));
    let esp = format!("type=esp,file={},bootable", at("esp"));
    let number = ["--disk-uuid", "0xc0ffee00"];
    let parts = ["--partition", "mbr", "--part", &esp, "--part", "size=64M,type=root"];
    works(&[&["build"], &number[..], &parts, &[&image, &source]].concat());
    let program = env!("CARGO_BIN_EXE_cairn");
    let words = [&parts[..], &number].concat().join(" ");
    judge::run("sh", ["-ec", &format!("{program} build {words} - {source} >{}", at("stream"))]);
    assert!(std::fs::read(&image).unwrap() == std::fs::read(at("stream")).unwrap());
    assert!(judge::run("sfdisk", ["--dump", &image]).contains("label-id: 0xc0ffee00"));
    assert_eq!(works(&["diff", &format!("{image}#2"), &source]), "");
    let info = works(&["info", "--json", &image]);
    assert!(info.contains("EFI System") && info.contains("\"table\": \"MBR\""), "{info}");
    let gpt = ["build", "-F", "--partition", "gpt"];
    let uuid = "12345678-1234-4234-8234-123456789abc";
    let one = "empty,size=1M,uuid=12345678-1234-4234-8234-123456789abc";
    for (words, said) in [
        (&["--part", "type=sawp,file=x"][..], "give one of linux"),
        (&["--part", "empty"], "size="),
        (&["--disk-uuid", "0x1"], "whole UUID"),
        (&["--size", "min", "--part", "size=9M"], "leave one of them out"),
        (&["--size", "64K"], "or more, and has 65536"),
        (&["--size", "100000"], "multiple of 4096"),
        (
            &["--size", "99M", "--part", "type=root", "--part", "type=home,fs=f2fs,source=."],
            "give this one size=",
        ),
        (&["--part", one, "--part", one], "partition 2: it has the same UUID as partition 1"),
        (&["--disk-uuid", uuid, "--part", one], "the same UUID as the disk"),
    ] {
        let said_so = fails(&[&gpt, words, &[&image, &source]].concat(), 2);
        assert!(said_so.contains(said), "{said_so}");
    }
    assert!(fails(&["build", "--part", "empty", &image, &source], 2).contains("--partition"));
    assert!(fails(&["build", "--partition", "apm", &image, &source], 2).contains("gpt, mbr"));
}

/// The root gets what the other partitions leave, wherever it is.
#[test]
fn the_size_of_a_disk_is_that_of_its_file() {
    let (dir, image) = in_dir("image");
    tree(dir.path());
    let source = format!("{}/rootfs/", dir.path().display());
    let (root, swap, esp) = ("type=linux", "type=swap,size=5M", "empty,type=linux,size=3000K");
    let own = "type=linux,size=20M";
    for table in ["gpt", "mbr"] {
        // What a GPT's copy and its alignment take.
        let copy = if table == "gpt" { 1 } else { 0 };
        for (parts, number, size) in [
            (&[][..], 1, Some(99 - copy)),
            (&[esp, root, swap, esp], 2, Some(99 - 3 - 5 - 3 - copy)),
            (&[swap, esp, root], 3, Some(99 - 5 - 3 - copy)),
            (&[own, swap], 1, Some(20)),
        ] {
            let parts: Vec<&str> = parts.iter().flat_map(|part| ["--part", part]).collect();
            let words = ["build", "-F", "--partition", table, "--size", "100M"];
            works(&[&words, &parts[..], &[&image, &source]].concat());
            assert_eq!(std::fs::metadata(&image).unwrap().len(), 100 << 20);
            judge::run("sfdisk", ["--verify", &image]);
            let volume = format!("{image}#{number}");
            assert_eq!(works(&["diff", &volume, &source]), "");
            let info: serde_json::Value =
                serde_json::from_str(&works(&["info", "--json", &image])).unwrap();
            let bytes = info["partitions"][number - 1]["size"].as_u64();
            assert_eq!(bytes.map(|bytes| bytes >> 20), size, "{table}, {parts:?}");
        }
    }
    let words = ["build", "-F", "--partition", "gpt", "--size", "9M", "--part", "size=20M"];
    assert!(fails(&[&words[..], &[&image, &source]].concat(), 2).contains("and has 9437184"));
}

/// The recipe of docs/build.md.
#[test]
fn a_disk_becomes_larger_as_the_page_says() {
    let page = include_str!("../../../../docs/build.md");
    let recipe = page.split("### A larger disk").nth(1).unwrap();
    let recipe = recipe.split("```").nth(1).unwrap().trim_start_matches("sh").replace("8G", "80M");
    assert_eq!(recipe.trim().lines().count(), 4, "{recipe}");
    let (dir, image) = in_dir("system.img");
    tree(dir.path());
    let source = format!("{}/rootfs/", dir.path().display());
    let esp = "empty,type=esp,size=2M";
    for table in ["gpt", "mbr"] {
        works(&["build", "-F", "--partition", table, "--part", esp, &image, &source]);
        let cairn = env!("CARGO_BIN_EXE_cairn");
        let lines = recipe.lines().filter(|line| table == "gpt" || !line.contains("relocate"));
        let script = lines.collect::<Vec<_>>().join("\n").replace("cairn resize", "$CAIRN resize");
        let enter = format!("cd {}; CAIRN={cairn}\n{script}", dir.path().display());
        let said = judge::run("sh", ["-ec", &enter]);
        assert!(said.contains(" MiB, before "), "{said}");
        judge::run("sfdisk", ["--verify", &image]);
        let volume = format!("{image}#2");
        assert_eq!(works(&["diff", &volume, &source]), "");
        assert!(works(&["resize", &volume, "max"]).contains("as before"));
    }
}

/// A copy of a disk that was interrupted.
#[test]
fn a_disk_that_is_cut_off_is_copied_again() {
    for table in ["gpt", "mbr"] {
        let (dir, image) = in_dir("image");
        tree(dir.path());
        let source = format!("{}/rootfs/", dir.path().display());
        let parts = ["--part", "empty,type=linux,size=3M", "--part", "type=linux,size=64M"];
        works(&[&["build", "--partition", table], &parts[..], &[&image, &source]].concat());
        let file = std::fs::File::options().write(true).open(&image).unwrap();
        file.set_len(48 << 20).unwrap();
        let second = format!("{image}#2");
        let again = "copy it again, whole";
        let (status, listed, warned) = cairn(&["info", &image]);
        assert!(status == 0 && listed.contains("ext4"), "{listed}");
        assert!(warned.contains("partition 2 ends at byte") && warned.contains(again), "{warned}");
        assert!(warned.contains("the image has 50331648 bytes"), "{warned}");
        for (words, status) in
            [(&["ls", &second][..], 4), (&["touch", &second, "/x"], 4), (&["check", &second], 8)]
        {
            let said = fails(words, status);
            assert!(said.contains("the image is shorter than its"), "{said}");
            assert!(said.contains(again) && !said.contains("damaged"), "{said}");
        }
        let to = format!("{}/rescued", dir.path().display());
        let (status, _, said) = cairn(&["rescue", &second, "-o", &to]);
        assert!(std::path::Path::new(&to).join("bin/ping").exists(), "{status}: {said}");
    }
}
