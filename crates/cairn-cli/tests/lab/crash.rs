//! `cairn lab crash`.

use std::process::Stdio;
use std::time::Duration;

use assert_cmd::Command;
use serde_json::Value;

use crate::lab;

/// A search finds nothing, and says how much it has looked at.
#[test]
fn a_crash_search_counts_what_it_has_seen() {
    let args = ["crash", "--modes", "default", "--operations", "30", "--states", "20", "--json"];
    let (code, stdout, stderr) = lab(&args);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&report["schema"], &report["search"]), (&1.into(), &"seeded".into()));
    assert!(report["failure"].is_null(), "{report}");
    let searched = report["searched"].as_array().unwrap();
    let formats: Vec<&str> = searched.iter().map(|one| one["format"].as_str().unwrap()).collect();
    assert_eq!(formats, ["ext4", "f2fs"]);
    for one in searched {
        assert_eq!((&one["operations"], &one["states"]), (&30.into(), &20.into()));
        let judges = one["judges"].as_array().unwrap();
        let of = |name: &str| judges.iter().find(|judge| judge["name"] == name).unwrap();
        assert_eq!(of("cairn")["states"], 20);
        assert!(of("cairn")["promises"].as_u64() > Some(20), "{one}");
        let checker = if one["format"] == "ext4" { "e2fsck" } else { "fsck.f2fs" };
        assert!(of(checker)["states"].as_u64() > Some(5), "{one}");
    }
}

#[test]
fn a_crash_search_replays_a_text_and_refuses_what_it_cannot_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("found.txt");
    let path = file.to_str().unwrap();
    let text = "# it was wrong\nformat f2fs\nmode lfs\nseed 3\n\
                create 1 a\nwrite 1 0 4096\nfsync 1\nrename a b\nfsync 1\n";
    std::fs::write(&file, text).unwrap();
    let (code, stdout, stderr) = lab(&["crash", "--replay", path, "--states", "20"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains("f2fs lfs: 5 operations in 1 runs, 20 crash states"), "{stdout}");
    assert!(stdout.ends_with("nothing found\n"), "{stdout}");
    std::fs::write(&file, "format f2fs\nhistory Create Rename, Nothing, File\n").unwrap();
    let (code, stdout, stderr) = lab(&["crash", "--replay", path]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    std::fs::write(&file, "fsink 1\n").unwrap();
    let (code, _, stderr) = lab(&["crash", "--replay", path]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("line 1: 'fsink 1': no operation 'fsink'"), "{stderr}");
    std::fs::write(&file, [0x53, 0xef, 0xff]).unwrap();
    let (code, _, stderr) = lab(&["crash", "--replay", path]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("an image cannot be replayed: look at it with"), "{stderr}");
    let (code, _, stderr) = lab(&["crash", "--format", "f2fs", "--modes", "small-log"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("f2fs has no mode 'small-log': give one of default"), "{stderr}");
}

/// What a program writes to a mount of a copy is cut; the image stays as it is.
#[test]
fn a_crash_search_of_a_program_leaves_its_image_alone() {
    let dir = tempfile::tempdir().unwrap();
    let script = "set -e; mkdir d; for i in 1 2 3 4; do echo text $i >d/$i; sync d/$i; done; \
                  mv d/1 d/5; sync d; rm d/2; echo more >>d/3; sync d/3";
    for format in ["ext4", "f2fs"] {
        let image = dir.path().join(format);
        let path = image.to_str().unwrap();
        let made = Command::cargo_bin("cairn")
            .unwrap()
            .args(["mkfs", "-t", format, "--size", "64M", path])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        // F2FS lies behind something else.
        let offset = if format == "f2fs" { 1 << 20 } else { 0 };
        let before = [vec![0; offset], std::fs::read(&image).unwrap()].concat();
        std::fs::write(&image, &before).unwrap();
        let spec = format!("{path}?offset={offset}");
        let search = ["crash", "--image", &spec, "--states", "40", "--json", "--"];
        let (code, stdout, stderr) = lab(&[&search[..], &["sh", "-c", script]].concat());
        assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
        let report: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(
            (&report["search"], &report["searched"][0]["seed"]),
            (&"record".into(), &1.into())
        );
        let cairn = &report["searched"][0]["judges"][0];
        assert!(cairn["promises"].as_u64() > Some(40), "{report}");
        let notes = report["notes"].to_string();
        assert!(notes.contains(" 6 calls of fsync that returned"), "{notes}");
        assert!(std::fs::read(&image).unwrap() == before, "the image was written");
        let keep = dir.path().join("found");
        let search = [&["crash", "--keep", keep.to_str().unwrap()], &search[1..]].concat();
        let (code, _, stderr) = lab(&[&search[..], &["false"]].concat());
        assert_eq!(code, 1, "{stderr}");
        assert!(stderr.contains("false ends with exit status: 1"), "{stderr}");
        assert!(!keep.exists(), "an empty file is left");
    }
}

/// The disk in a container, or in a store, is searched like any other.
#[test]
fn a_crash_search_reads_what_is_no_plain_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("{}/{name}", dir.path().display());
    let script = "echo 1 >new && sync new && mv new old && sync .";
    for image in [at("disk.qcow2"), format!("file-store://{}", at("pool"))] {
        let mkfs = ["mkfs", "--size", "16M", &image];
        let made = Command::cargo_bin("cairn").unwrap().args(mkfs).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let search = ["crash", "--image", &image, "--states", "20", "--", "sh", "-c", script];
        let (code, stdout, stderr) = lab(&search);
        assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
        assert!(stdout.contains("2 calls of fsync that returned"), "{stdout}");
        let check = Command::cargo_bin("cairn").unwrap().args(["ls", &image]).output().unwrap();
        let names = String::from_utf8(check.stdout).unwrap();
        assert!(!names.contains("old"), "the image was written: {names}");
    }
}

/// A volume without a journal promises nothing, so a search of it would find what is no defect.
#[test]
fn a_volume_without_a_journal_is_not_searched() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("small");
    let path = image.to_str().unwrap();
    let cairn = |words: &[&str]| {
        let done = Command::cargo_bin("cairn").unwrap().args(words).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    cairn(&["mkfs", "-O", "^has_journal", "--size", "16M", path]);
    let search = ["crash", "--image", path, "--states", "20", "--", "sh", "-c", "echo 1 >a; sync"];
    let (code, stdout, stderr) = lab(&search);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.contains("it has no journal") && stderr.contains("tune -O"), "{stderr}");
    cairn(&["tune", "-O", "has_journal", path]);
    let (code, stdout, stderr) = lab(&search);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
}

/// A search that a signal ends says what it has looked at, and does not say that all is well.
#[test]
fn a_search_that_is_ended_reports_what_it_has_seen() {
    let program = assert_cmd::cargo::cargo_bin("cairn");
    let mut command = std::process::Command::new(program);
    let words = "lab crash --format ext4 --modes default --operations 3 --states 3";
    command.args(words.split(' ')).args(["--rounds", "1000000"]);
    let search = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = search.id();
    let catches_it = || {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() >> 14 & 1 == 1
    };
    while !catches_it() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let ended = Command::new("kill").args(["-TERM", &id.to_string()]).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let output = search.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (code, stdout, stderr) = (output.status.code(), text(output.stdout), text(output.stderr));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stdout.contains("ext4 default: ") && stderr.contains("ended by a signal"), "{stderr}");
}
