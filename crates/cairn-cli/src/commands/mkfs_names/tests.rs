//! Command lines as scripts have them.

use super::*;

fn asked(line: &str) -> Asked {
    match answer(line) {
        Ok(Answer::Make(asked)) => *asked,
        Ok(Answer::Text(text)) => panic!("{line}: {text}"),
        Err(failure) => panic!("{line}: {failure}"),
    }
}

fn answer(line: &str) -> Outcome<Answer> {
    let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    let name = words[0].to_str().unwrap();
    match maker(&words[0]).unwrap() {
        Maker::Ext(kind) => mke2fs::parse(name, kind, &words[1..]),
        Maker::F2fs => f2fs::parse(name, &words[1..]),
    }
}

/// The lines of buildroot, Yocto, Raspberry Pi's image scripts, Android and Firecracker's guides.
#[test]
fn lines_of_the_wild() {
    let of = asked("mkfs.ext4 -d target -r 1 -N 0 -m 5 -L rootfs -O ^64bit rootfs.ext4 60M");
    assert_eq!((of.options.size, of.options.inodes), (Some(60 << 20), None));
    assert_eq!(of.options.features, ["^64bit"]);
    assert_eq!(of.tree.as_deref(), Some(OsStr::new("target")));
    let of = asked("mkfs.ext4 -F -i 4096 core.ext4 -d rootfs");
    assert!(of.options.overwrite && of.options.tuning.inode_ratio == Some(4096));
    assert_eq!(of.device, "core.ext4");
    let of = asked("mke2fs -t ext4 -qF -E lazy_itable_init=0,root_owner=0:5,nodiscard -J size=4 x");
    assert_eq!(of.options.root_owner, Some((0, 5)));
    assert_eq!(of.options.tuning.journal_size, Some(4 << 20));
    let of = asked("mkfs.ext4 -b 4096 -I128 -Tlargefile -U clear x 1000");
    assert_eq!((of.options.size, of.options.tuning.inode_size), (Some(4_096_000), Some(128)));
    assert_eq!(of.options.tuning.inode_ratio, Some(1 << 20));
    assert!(of.options.uuid.unwrap().is_nil());
    let of = asked("mke2fs x 1000");
    assert!(of.options.features.contains(&"^has_journal".into()));
    assert_eq!(of.options.size, Some(1_024_000));
    assert!(!asked("mke2fs -j x").options.features.contains(&"^has_journal".into()));
    assert!(asked("mkfs.ext3 -- -x").device == "-x");
    let of = asked("mkfs.f2fs -f -l data -a 1 -o 5 -O extra_attr,inode_checksum -T 77 x 2048000");
    assert_eq!((of.options.size, of.options.time), (Some(2_048_000 * 512), Some(77)));
    assert_eq!(of.options.features, ["extra_attr", "inode_checksum"]);
    let of = asked("mkfs.f2fs -R 7:7 -O lost_found -g android -C utf8:strict x");
    let android = ["encrypt", "verity", "quota", "extra_attr", "project_quota", "lost_found"];
    assert_eq!(of.options.features, android);
    assert_eq!(of.options.root_owner, Some((0, 0)), "as with mkfs.f2fs");
    assert_eq!(of.options.casefold.as_deref(), Some("utf8:strict"));
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    for (line, word) in [
        ("mkfs.ext4 -c x", "-c"),
        ("mkfs.ext4 -E stride=16 x", "stride=16"),
        ("mkfs.ext4 -E lazy_itable_init=5 x", "lazy_itable_init=5"),
        ("mkfs.ext4 -J device=/dev/sdb x", "device=/dev/sdb"),
        ("mkfs.ext4 -r 0 x", "-r"),
        ("mkfs.ext4 -t xfs x", "xfs"),
        ("mkfs.ext4 -T tiny x", "tiny"),
        ("mkfs.ext4 -y x", "-y"),
        ("mkfs.ext4 -b", "-b"),
        ("mkfs.ext4 -m 5", "no device"),
        ("mkfs.ext4 x 12q", "12q"),
        ("mkfs.ext4 x 1m y", "'y'"),
        ("mkfs.f2fs -g server x", "server"),
        ("mkfs.f2fs -e mp4 x", "-e"),
        ("mkfs.f2fs -a 2 x", "-a"),
        ("mkfs.f2fs x 1G", "1G"),
    ] {
        let Err(failure) = answer(line) else { panic!("{line}") };
        assert!(failure.to_string().contains(word), "{line}: {failure}");
    }
}

#[test]
fn other_command_lines_are_left_alone() {
    for line in ["cairn mkfs x", "cairn /sbin/mkfs.ext4 x", "cairn"] {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        assert!(run(&words).is_none(), "{line}");
    }
    let help = |line: &str| match answer(line) {
        Ok(Answer::Text(text)) => text,
        _ => panic!("{line}"),
    };
    assert!(help("mkfs.ext4 --help").starts_with("Usage: mkfs.ext4 ["));
    assert!(help("mkfs.f2fs -V").contains("cairn"));
}
