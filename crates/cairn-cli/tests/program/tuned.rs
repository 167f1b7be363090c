//! `tune` and `resize` on files, partitions and volumes of both formats: others see the change, and
//! what is not possible says what is.

use std::path::Path;

use cairn_testkit::judge;

use crate::support::{cairn, fails, in_dir, works};

#[test]
fn a_volume_changes_and_others_see_it() {
    let (dir, image) = in_dir("image");
    works(&["mkfs", "--size", "64M", "-O", "^metadata_csum_seed", &image]);
    works(&["touch", &image, "/file"]);
    let uuid = "12345678-1234-4234-8234-123456789abc";
    let said = fails(&["tune", "-U", uuid, &image], 2);
    assert!(said.contains("-O metadata_csum_seed"), "{said}");
    let settings = ["-e", "remount-ro", "-c", "-1", "-i", "2w", "-m", "1", "-o", "^acl,discard"];
    let words = ["-L", "new", "-U", uuid, "-O", "metadata_csum_seed", "-J", "size=8"];
    works(&[&["tune"], &words[..], &settings, &[&image]].concat());
    let text = judge::dumpe2fs(Path::new(&image));
    for line in [
        "volume name:   new",
        uuid,
        "Remount read-only",
        "1209600 (2 weeks)",
        "user_xattr discard",
        "Total journal size:       8M",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    judge::assert_clean(Path::new(&image));
    works(&["tune", "-U", "random", &image]);
    assert!(!judge::dumpe2fs(Path::new(&image)).contains(uuid));
    assert!(fails(&["tune", &image], 2).contains("nothing is to be changed"));
    assert!(fails(&["tune", "--hot", "db", &image], 2).contains("f2fs"));
    assert!(fails(&["tune", "-O", "^has_jornal", &image], 2).contains("`has_journal`"));
    assert_eq!(works(&["ls", &image]), "file\nlost+found\n");
    drop(dir);
}

#[test]
fn a_volume_of_f2fs_changes_and_its_fsck_agrees() {
    let (dir, image) = in_dir("image");
    works(&["mkfs", "-t", "f2fs", "--size", "64M", &image]);
    works(&["touch", &image, "/file"]);
    let uuid = "12345678-1234-4234-8234-123456789abc";
    let lists = ["--hot", "sqlite,^vdi", "--cold", "bak"];
    works(&[&["tune", "-L", "κάιρν", "-U", uuid], &lists[..], &[&image]].concat());
    judge::assert_f2fs_clean(Path::new(&image));
    let info = works(&["info", &image]);
    assert!(info.contains("κάιρν") && info.contains(uuid), "{info}");
    assert!(judge::run("blkid", ["-p", &image]).contains(uuid));
    let said = fails(&["tune", "--hot", "^vdi", &image], 2);
    assert!(said.contains("not in the list"), "{said}");
    assert!(fails(&["tune", "-m", "1", &image], 2).contains("ext4"));
    assert!(works(&["resize", &image, "100M"]).contains("100.0 MiB, before 64.0 MiB"));
    judge::assert_f2fs_clean(Path::new(&image));
    assert!(fails(&["resize", &image, "30M"], 1).contains("or min"));
    assert!(works(&["resize", "--json", &image, "min"]).contains("\"before\": 104857600"));
    assert!(std::fs::metadata(&image).unwrap().len() < 64 << 20);
    judge::assert_f2fs_clean(Path::new(&image));
    assert_eq!(works(&["ls", &image]), "file\n");
    works(&["mkfs", "-F", "-t", "f2fs", "-O", "extra_attr,inode_checksum", &image]);
    assert!(fails(&["tune", "-U", "random", &image], 2).contains("checksums of inodes"));
    drop(dir);
}

/// All structures are in the first group, so that those of the groups that go are in the way.
#[test]
fn a_volume_becomes_as_small_as_the_message_says() {
    let (dir, image) = in_dir("image");
    let files = dir.path().join("files");
    std::fs::create_dir(&files).unwrap();
    for number in 0..75 {
        std::fs::write(files.join(number.to_string()), [7; 1_000_000]).unwrap();
    }
    let shape = ["-t", "ext4", "-b", "4096", "-g", "8192", "-d", files.to_str().unwrap()];
    judge::mke2fs(Path::new(&image), 250 << 20, &shape);
    let said = fails(&["resize", &image, "96M"], 1);
    let named = said.split("give ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 250 << 20, "{said}");
    for size in [named, "min", "min"] {
        works(&["resize", &image, size]);
        assert!(std::fs::metadata(&image).unwrap().len() < 100 << 20, "{size}");
        judge::assert_clean(Path::new(&image));
    }
}

#[test]
fn a_volume_grows_with_its_file_or_in_its_partition() {
    let (dir, image) = in_dir("image");
    works(&["mkfs", "--size", "32M", "-b", "4096", &image]);
    let said = works(&["resize", &image, "100M"]);
    assert!(said.contains("100.0 MiB, before 32.0 MiB"), "{said}");
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 100 << 20);
    assert!(works(&["resize", "--json", &image, "+28M"]).contains("\"size\": 134217728"));
    assert!(works(&["resize", &image, "max"]).contains("as before"));
    judge::assert_clean(Path::new(&image));
    let large = dir.path().join("large");
    std::fs::write(&large, [7; 4096].repeat(40 << 8)).unwrap();
    works(&["put", &image, large.to_str().unwrap(), "/program"]);
    assert!(works(&["resize", &image, "90M"]).contains("90.0 MiB, before 128.0 MiB"));
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 90 << 20);
    let said = fails(&["resize", &image, "8M"], 1);
    assert!(said.contains("give ") && said.contains("or min"), "{said}");
    works(&["resize", &image, "min"]);
    let least = std::fs::metadata(&image).unwrap().len();
    assert!(least < 88 << 20, "{least}");
    judge::assert_clean(Path::new(&image));
    works(&["get", &image, "/program", dir.path().join("back").to_str().unwrap()]);
    let read = |path: &Path| std::fs::read(path).unwrap();
    assert!(read(&dir.path().join("back")) == read(&large));
    assert!(works(&["resize", "--json", &image, "90M"]).contains("\"size\": 94371840"));
    assert!(works(&["resize", "--json", &image, "-2M"]).contains("\"size\": 92274688"));
    judge::assert_clean(Path::new(&image));
    assert!(fails(&["resize", &image, "lots"], 2).contains("max"));
    judge::run("debugfs", ["-w", "-R", "set_super_value state 3", &image]);
    assert!(
        fails(&["resize", &image, "+8M"], 4).contains("it has errors: run `cairn check` on it")
    );
    // A partition keeps its size, and the volume fills it.
    let disk = dir.path().join("disk").to_str().unwrap().to_owned();
    let small = dir.path().join("small").to_str().unwrap().to_owned();
    works(&["mkfs", "--size", "16M", "-b", "4096", &small]);
    let part = format!("file={small},size=80M");
    works(&["build", "--partition", "gpt", "--part", &part, &disk]);
    let partition = format!("{disk}#1");
    assert!(fails(&["resize", &partition, "1G"], 1).contains("smaller than that"));
    assert!(works(&["resize", &partition, "max"]).contains("80.0 MiB, before 16.0 MiB"));
    works(&["touch", &partition, "/file"]);
}

/// An image with holes on a host that fills up: the blocks that the change needs are holes, too.
#[test]
fn a_host_without_room_for_a_journal_keeps_the_old_one() {
    let (dir, image) = in_dir("image");
    works(&["mkfs", "--size", "48M", "-b", "4096", &image]);
    works(&["put", &image, "/etc/passwd", "/file"]);
    let script = r#"
        mkdir host; mount -t tmpfs -o size=60M host host; failed=0
        for pages in $(seq 0 40); do
            rm -f host/image; mount -o remount,size=60M host
            cp --sparse=always "$2" host/image
            used=$(df --output=used -k host | tail -n 1)
            mount -o remount,size=$((used + 4 * pages))k host
            if "$1" tune -J 6M host/image 2>said; then echo "after $failed failures"; break; fi
            failed=$((failed + 1))
            grep -q 'the journal is as it was, and the volume clean' said || cat said
            e2fsck -fn host/image >checked 2>&1 || cat checked
            dumpe2fs -h host/image 2>&1 | grep -q 'Total journal size: *6144k' && echo changed || :
        done
        mount -o remount,size=60M host; e2fsck -fn host/image >checked 2>&1 || cat checked
        dumpe2fs -h host/image 2>/dev/null | grep -o 'Total journal size.*'"#;
    let script = format!("{}cd {}; {script}", judge::FORGET_MOUNTS, dir.path().display());
    let words = ["--mount", "sh", "-ec", &script, "sh", env!("CARGO_BIN_EXE_cairn"), &image];
    let said = judge::run("unshare", words);
    let mut lines = said.lines();
    let failures = lines.next().and_then(|line| line.strip_prefix("after ")).unwrap_or_else(|| {
        panic!("{said}");
    });
    assert!(!failures.starts_with("0 "), "{said}");
    assert!(lines.next().is_some_and(|line| line.ends_with("6144k")), "{said}");
}

/// Each command says of quota what is true for it: settings change, files do not.
#[test]
fn a_volume_with_quota_can_be_tuned_but_not_written() {
    let (_dir, image) = in_dir("image");
    judge::mke2fs(Path::new(&image), 16 << 20, &["-t", "ext4", "-O", "quota,project"]);
    works(&["tune", "-L", "label", &image]);
    assert!(works(&["info", &image]).contains("label"));
    for words in [&["mkdir", &image, "/d"][..], &["resize", &image, "+8M"]] {
        let (status, _, said) = cairn(words);
        assert!(status != 0 && said.contains("quota would not count"), "{status}: {said}");
        assert!(said.contains("the settings of `cairn tune`"), "{said}");
    }
    works(&["check", "--repair", &image]);
    judge::assert_clean(Path::new(&image));
}

/// Descriptors that no longer fit lie in later groups, and the volume can shrink again.
#[test]
fn a_volume_that_gets_meta_bg_shrinks_again() {
    let (_dir, image) = in_dir("image");
    let features = ["-t", "ext4", "-b", "1024", "-O", "^resize_inode"];
    judge::mke2fs(Path::new(&image), 20 << 20, &features);
    works(&["resize", &image, "30M"]);
    works(&["resize", &image, "300M"]);
    assert!(works(&["info", &image]).contains("meta_bg"));
    judge::assert_clean(Path::new(&image));
    works(&["resize", &image, "30M"]);
    judge::assert_clean(Path::new(&image));
    works(&["resize", &image, "310M"]);
    judge::assert_clean(Path::new(&image));
}
