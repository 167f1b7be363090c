//! With SOURCE_DATE_EPOCH the same input makes the same bytes, at any time and with any order of
//! the host's directories.

use std::path::Path;
use std::process::Command;

use cairn_testkit::judge::{self, assert_f2fs_clean};
use cairn_testkit::tree::{PathTarget, TreeSpec, build, plan};

use crate::support::in_dir;

const EPOCH: &str = "1700000000";

fn cairn(words: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_cairn"))
        .args(words)
        .env_remove("CAIRN_LOG")
        .env("SOURCE_DATE_EPOCH", EPOCH)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{words:?}: {said}");
}

/// A tree with all properties that a copy keeps, and with enough files and bytes that daemons work.
fn tree(at: &Path) {
    std::fs::create_dir(at).unwrap();
    build(
        &PathTarget::new(at),
        &plan(&TreeSpec {
            privileged: judge::is_root(),
            xattrs: judge::is_root(),
            ..TreeSpec::small(11)
        }),
    );
    let many = at.join("many");
    std::fs::create_dir(&many).unwrap();
    for n in 0..800 {
        std::fs::write(many.join(format!("file {n}")), vec![7; n * 37]).unwrap();
    }
    std::fs::write(at.join("large"), vec![1; 300 << 20]).unwrap();
}

#[test]
fn two_runs_make_the_same_image() {
    let (dir, first) = in_dir("first.img");
    let second = dir.path().join("second.img").to_str().unwrap().to_owned();
    let source = dir.path().join("source");
    tree(&source);
    let contents = format!("{}/.", source.display());
    for kind in ["ext4", "f2fs"] {
        for image in [&first, &second] {
            cairn(&["mkfs", "-F", "-t", kind, "-L", "same", "--size", "700M", image]);
            cairn(&["put", image, &contents, "/"]);
            cairn(&["rm", "-r", image, "/many"]);
            cairn(&["put", image, source.join("many").to_str().unwrap(), "/again"]);
        }
        let same = Command::new("cmp").args([&first, &second]).output().unwrap();
        assert!(same.status.success(), "{kind}: {}", String::from_utf8_lossy(&same.stdout));
        match kind {
            "ext4" => judge::assert_clean(Path::new(&first)),
            _ => assert_f2fs_clean(Path::new(&first)),
        }
        for image in [&first, &second] {
            std::fs::remove_file(image).unwrap();
        }
    }
}

/// Two volumes with different options, made at the same time, have different UUIDs.
#[test]
fn labels_and_sizes_make_different_uuids() {
    let (_dir, image) = in_dir("disk.img");
    let mut seen = std::collections::BTreeSet::new();
    for words in [
        &["-L", "a", "--size", "64M"][..],
        &["-L", "b", "--size", "64M"],
        &["-L", "b", "--size", "96M"],
    ] {
        cairn(&[&["mkfs", "-F"], words, &[&image]].concat());
        let info: serde_json::Value =
            serde_json::from_str(&crate::support::works(&["info", "--json", &image])).unwrap();
        assert!(seen.insert(info["uuid"].as_str().unwrap().to_owned()), "{words:?}");
        assert_eq!(info["created"].to_string(), EPOCH);
    }
}

#[test]
fn an_epoch_that_is_no_number_is_wrong_usage() {
    let (_dir, image) = in_dir("disk.img");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cairn"));
    command.args(["mkfs", "--size", "64M", &image]).env("SOURCE_DATE_EPOCH", "yesterday");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!Path::new(&image).exists());
}
