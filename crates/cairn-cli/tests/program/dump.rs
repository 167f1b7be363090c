//! `dump` and `journal`: their fields against those of debugfs and dump.f2fs, and that nothing is
//! written.

use std::path::Path;

use cairn_testkit::judge;
use serde_json::Value;

use crate::support::{fails, in_dir, works};

fn dump(image: &str, words: &[&str]) -> Value {
    let line = [&["dump", "--json", image], words].concat();
    serde_json::from_str(&works(&line)).unwrap()
}

/// The number behind a word of a judge's text.
fn behind(text: &str, word: &str) -> u64 {
    let (_, rest) = text.split_once(word).unwrap_or_else(|| panic!("{word} in {text}"));
    let digits: String =
        rest.trim_start().chars().take_while(|letter| letter.is_ascii_digit()).collect();
    digits.parse().unwrap_or_else(|_| panic!("a number behind {word} in {text}"))
}

/// The index of the directory `/many`, of 200 names.
fn check_htree(image: &str) {
    let tree = judge::debugfs(Path::new(image), "htree_dump /many");
    let htree = dump(image, &["htree", "/many"]);
    assert_eq!(htree["hash_version"], behind(&tree, "Hash Version:"));
    assert_eq!(htree["indirect_levels"], behind(&tree, "Indirect levels:"));
    let leaves = htree["leaves"].as_array().unwrap();
    let counted: u64 = leaves.iter().map(|leaf| leaf["names"].as_u64().unwrap()).sum();
    assert_eq!(counted, 200);
    for leaf in leaves {
        assert_eq!(leaf["checksum_right"], true);
        let hash = format!("{:#010x}", leaf["hash"].as_u64().unwrap());
        assert!(tree.contains(&hash), "{hash} in {tree}");
    }
}

#[test]
fn ext4_fields_are_those_of_debugfs() {
    let (dir, image) = in_dir("disk.img");
    let path = Path::new(&image);
    judge::mke2fs(path, 24 << 20, &["-t", "ext4", "-b", "1024"]);
    let file = dir.path().join("file");
    std::fs::write(&file, vec![7; 50_000]).unwrap();
    works(&["put", &image, file.to_str().unwrap(), "/file"]);
    works(&["setfattr", "-n", "user.colour", "-v", "blue", &image, "/file"]);
    works(&["mkdir", &image, "/many"]);
    let names: Vec<String> = (0..200).map(|n| format!("/many/a rather long name {n}")).collect();
    works(
        &[&["touch", &image][..], &names.iter().map(String::as_str).collect::<Vec<_>>()].concat(),
    );
    let before = std::fs::read(path).unwrap();

    let stat = judge::debugfs(path, "stat /file");
    let inode = dump(&image, &["inode", "/file"]);
    assert_eq!(inode["inode"], behind(&stat, "Inode:"));
    assert_eq!(inode["i_size"], behind(&stat, "Size:"));
    assert_eq!(inode["i_links_count"], behind(&stat, "Links:"));
    assert_eq!(inode["i_blocks"], behind(&stat, "Blockcount:"));
    assert_eq!(inode["i_generation"], behind(&stat, "Generation:"));
    assert_eq!(inode["checksum"]["right"], true);
    let sum = format!("{:#010x}", inode["checksum"]["stored"].as_u64().unwrap());
    assert!(stat.contains(&format!("Inode checksum: {sum}")), "{sum} in {stat}");
    let place = judge::debugfs(path, "imap /file");
    let at = format!(
        "located at block {}, offset 0x{:04x}",
        inode["block"],
        inode["offset"].as_u64().unwrap()
    );
    assert!(place.contains(&at), "{at} in {place}");

    let extents = dump(&image, &["extents", "/file"]);
    let first = &extents["extents"][0];
    let number = |key: &str| first[key].as_u64().unwrap();
    let text = judge::debugfs(path, "dump_extents /file");
    let words: Vec<&str> = text.split_whitespace().collect();
    let last = number("block") + number("len") - 1;
    let range = format!("{} - {last}", number("block"));
    assert!(words.join(" ").contains(&range), "{range} in {text}");
    assert_eq!(dump(&image, &["xattrs", "/file"])["xattrs"][0]["name"], "user.colour");

    check_htree(&image);
    let group = dump(&image, &["groups", "1"]);
    let super_stats = judge::debugfs(path, "show_super_stats");
    let table = group["groups"][0]["inode_table"].as_u64().unwrap();
    assert!(super_stats.contains(&format!("inode table at {table}")), "{table}: {super_stats}");
    assert_eq!(group["groups"][0]["checksum"]["right"], true);
    let block = dump(&image, &["block", &first["block"].to_string()]);
    assert_eq!((&block["inode"], &block["in_use"]), (&inode["inode"], &true.into()));
    assert!(block["bytes"].as_str().unwrap().starts_with("0707"));
    let superblock = dump(&image, &["superblock"]);
    assert_eq!(superblock["checksum"]["right"], true);
    assert_eq!(superblock["s_inodes_count"], behind(&super_stats, "Inode count:"));
    let backup = dump(&image, &["superblock", "--backup", "1"]);
    assert_eq!((&backup["s_block_group_nr"], &backup["offset"]), (&1.into(), &8_389_632.into()));
    let text = works(&["dump", &image, "inode", "/file"]);
    assert!(text.contains("i_size:                    50000\n"), "{text}");
    assert!(std::fs::read(path).unwrap() == before, "a dump has written");
}

#[test]
fn the_journal_is_that_of_logdump() {
    let (_dir, image) = in_dir("disk.img");
    let path = Path::new(&image);
    judge::mke2fs(path, 24 << 20, &["-t", "ext4", "-b", "1024"]);
    let kernel = judge::KernelMount::new(path, "");
    for number in 0..20 {
        std::fs::write(kernel.path().join(format!("file{number}")), "x").unwrap();
    }
    kernel.unmount();
    let journal: Value = serde_json::from_str(&works(&["journal", "--json", &image])).unwrap();
    let log = judge::debugfs(path, "logdump -aO");
    let blocks = journal["log"].as_array().unwrap();
    assert!(!blocks.is_empty(), "{journal}");
    for block in blocks {
        let (number, sequence) = (&block["log_block"], &block["sequence"]);
        let kind = block["type"].as_str().unwrap();
        if kind == "commit" {
            let line = format!(
                "Found expected sequence {sequence}, type 2 (commit block) at block {number}"
            );
            assert!(log.contains(&line), "{line} in {log}");
        }
        assert_ne!(block["checksum"]["right"], false, "{block}");
    }
    assert_eq!(journal["replay"]["needed"], false);
    let said = fails(&["journal", "--backup", "99", &image], 2);
    assert!(said.contains("no sound superblock is in group 99"), "{said}");
}

#[test]
fn f2fs_fields_are_those_of_dump_f2fs() {
    let (dir, image) = in_dir("disk.img");
    let path = Path::new(&image);
    judge::mkfs_f2fs(path, 64 << 20, &["-O", "extra_attr,inode_checksum"]);
    let file = dir.path().join("file");
    std::fs::write(&file, vec![7; 50_000]).unwrap();
    works(&["put", &image, file.to_str().unwrap(), "/file"]);
    let before = std::fs::read(path).unwrap();
    let judged = judge::dump_f2fs(path);
    let superblock = dump(&image, &["superblock"]);
    for key in ["block_count", "segment_count_main", "main_blkaddr", "nat_blkaddr", "ssa_blkaddr"] {
        assert_eq!(superblock[key], judged[key], "{key}");
    }
    let packs = dump(&image, &["checkpoint"]);
    let used = packs["packs"].as_array().unwrap().iter().find(|one| one["used"] == true).unwrap();
    for key in ["valid_block_count", "valid_node_count", "free_segment_count", "next_free_nid"] {
        assert_eq!(used[key], judged[key], "{key}");
    }
    let inode = dump(&image, &["inode", "/file"]);
    let ino = inode["inode"].as_u64().unwrap();
    // It asks whether the file is to be dumped, and fails without an answer.
    let asked = judge::command("dump.f2fs")
        .args(["-i", &format!("{ino:#x}"), &image])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&asked.stdout).into_owned();
    let number = |name: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(name)).expect(name);
        line.rsplit(':').next().unwrap().trim().trim_end_matches(']').trim().parse::<u64>().unwrap()
    };
    for key in ["i_size", "i_links", "i_blocks", "i_pino"] {
        assert_eq!(inode[key], number(key), "{key} in {text}");
    }
    assert_eq!((&inode["i_name"], &inode["checksum"]["right"]), (&"file".into(), &true.into()));
    let nat = dump(&image, &["nat", &ino.to_string()]);
    assert_eq!(nat["block_addr"], inode["block"]);
    let first = inode["extents"][0]["block"].as_u64().unwrap();
    let block = dump(&image, &["block", &first.to_string()]);
    assert_eq!((&block["summary"]["nid"], &block["valid"]), (&ino.into(), &true.into()));
    let sit = dump(&image, &["sit", &block["segno"].to_string()]);
    assert!(sit["valid_blocks"].as_u64().unwrap() >= 13, "{sit}");
    let summary = dump(&image, &["summary", &block["segno"].to_string()]);
    assert!(summary["entries"].as_array().unwrap().iter().any(|one| one["nid"] == ino));
    assert!(!dump(&image, &["segments"])["segments"].as_array().unwrap().is_empty());
    assert_eq!(dump(&image, &["superblock", "--superblock", "1"])["block"], 1);
    let journal: Value = serde_json::from_str(&works(&["journal", "--json", &image])).unwrap();
    assert_eq!(journal["chain_nodes"], 0);
    let said = fails(&["dump", &image, "htree", "/"], 2);
    assert!(said.contains("htree is a structure of ext4"), "{said}");
    assert!(std::fs::read(path).unwrap() == before, "a dump has written");
}

#[test]
fn a_word_that_is_missing_or_too_many_is_said() {
    let (_dir, image) = in_dir("disk.img");
    judge::mke2fs(Path::new(&image), 8 << 20, &["-t", "ext4"]);
    for (words, said) in [
        (&["inode"][..], "which one is missing: say it, as in dump IMAGE inode /etc/passwd"),
        (&["block", "x"], "'x' is not a number"),
        (&["superblock", "1"], "'1' is one argument too many"),
        (&["inode", "/none"], "no such name"),
        (&["block", "99999999"], "they count from 0 to 8191"),
    ] {
        let (_, _, stderr) = crate::support::cairn(&[&["dump", &image], words].concat());
        assert!(stderr.contains(said) && stderr.lines().count() == 1, "{words:?}: {stderr}");
    }
}
