//! `check --repair` beside what else may be there: an undo file that was left, another program, a
//! volume that is not repaired. And its advice: a shell can read it.

use std::path::Path;
use std::process::Command;

use cairn_block::file::{FileDevice, OpenOptions};
use cairn_testkit::judge;

use crate::support::{cairn, in_dir, works};

/// A volume with a wrong count, which a repair sets without losses.
fn miscounted(image: &str) {
    judge::mke2fs(Path::new(image), 8 << 20, &["-t", "ext4", "-b", "1024"]);
    works(&["touch", image, "/file"]);
    judge::run("debugfs", ["-w", "-R", "sif /file links_count 7", image]);
}

/// The undo file that an interrupted repair of an image leaves.
fn left_by(image: &str) -> String {
    let left = format!("{image}.cairn-undo");
    let before = std::fs::read(image).unwrap();
    assert_eq!(cairn(&["check", "--repair=all", "-y", "--undo", &left, image]).0, 1);
    std::fs::write(image, before).unwrap();
    left
}

/// The header of an undo file is written before the volume is changed.
#[test]
fn an_unfinished_undo_file_is_of_no_use() {
    let (_dir, image) = in_dir("disk.img");
    miscounted(&image);
    let left = left_by(&image);
    let whole = std::fs::read(&left).unwrap();
    let mut without = whole.clone();
    without[..4096].fill(0);
    for unfinished in [Vec::new(), whole[..100].to_vec(), without] {
        std::fs::write(&left, unfinished).unwrap();
        for arguments in [&["check", "--repair", &image][..], &["touch", &image, "/new"]] {
            let (status, _, said) = cairn(arguments);
            let advice = format!("before it changed anything: `rm {left}`");
            assert!(status != 0 && said.contains(&advice), "{arguments:?}: {said}");
        }
        let (status, _, said) = cairn(&["check", "--take-back", &left, &image]);
        assert!(status == 8 && said.contains("then nothing was changed"), "{said}");
    }
    std::fs::remove_file(left).unwrap();
    assert_eq!(cairn(&["check", "--repair", &image]).0, 1);
}

#[test]
fn a_shell_reads_the_advice() {
    let (dir, image) = in_dir("it's my \"disk\" $HOME.img");
    miscounted(&image);
    left_by(&image);
    let (status, _, said) = cairn(&["check", "--repair", &image]);
    assert_eq!(status, 8, "{said}");
    let commands: Vec<&str> = said.split('`').skip(1).step_by(2).collect();
    let [take_back, remove] = commands[..] else { panic!("{said}") };
    let program = env!("CARGO_BIN_EXE_cairn");
    let shell = |script: &str| {
        let script = script.replacen("cairn", program, 1);
        Command::new("sh").current_dir(dir.path()).arg("-c").arg(script).output().unwrap()
    };
    let taken = shell(take_back);
    assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
    assert!(Command::new("sh").arg("-c").arg(remove).status().unwrap().success(), "{remove}");
    assert_eq!(cairn(&["check", "--repair", &image]).0, 1);
}

/// While the image is locked its undo file may be that of a repair that goes on.
#[test]
fn a_repair_that_goes_on_is_not_called_interrupted() {
    let (_dir, image) = in_dir("disk.img");
    miscounted(&image);
    left_by(&image);
    let options = OpenOptions::write();
    let held = FileDevice::open(Path::new(&image), options).unwrap();
    for arguments in [&["check", &image][..], &["check", "--repair", &image]] {
        let (status, _, said) = cairn(arguments);
        assert!(status == 8 && said.contains("in use"), "{said}");
        assert!(!said.contains("interrupted"), "{said}");
    }
    drop(held);
    assert!(cairn(&["check", &image]).2.contains("interrupted"));
}

/// Beside another volume the file would stand for a repair of that one.
#[test]
fn no_volume_is_made_beside_the_undo_file_of_another() {
    let (dir, image) = in_dir("disk.img");
    miscounted(&image);
    let left = left_by(&image);
    let before = std::fs::read(&image).unwrap();
    let source = dir.path().join("tree");
    std::fs::create_dir(&source).unwrap();
    let source = source.to_str().unwrap();
    for arguments in [&["mkfs", "-F", &image][..], &["build", "--force", &image, source]] {
        let (status, _, said) = cairn(arguments);
        let advice = format!("or `rm {left}` if it is not wanted any more");
        assert!(status != 0 && said.contains(&advice), "{arguments:?}: {said}");
    }
    assert!(std::fs::read(&image).unwrap() == before);
    std::fs::remove_file(left).unwrap();
    works(&["build", "--force", &image, source]);
    works(&["mkfs", "-F", &image]);
}

/// In a directory that only grows the undo file cannot be removed: the repair is made and says so.
#[test]
fn an_undo_file_that_stays_is_named() {
    let (dir, image) = in_dir("disk.img");
    miscounted(&image);
    let chattr = |flag: &str| judge::run("chattr", [flag, dir.path().to_str().unwrap()]);
    chattr("+a");
    let (status, _, said) = cairn(&["check", "--repair", &image]);
    chattr("-a");
    assert!(status == 9 && said.contains(": repaired; but its undo file"), "{status}: {said}");
    assert!(said.contains(&format!("`rm {image}.cairn-undo`")), "{said}");
    judge::assert_clean(Path::new(&image));
    assert_eq!(cairn(&["check", "--take-back", &format!("{image}.cairn-undo"), &image]).0, 0);
    assert_eq!(cairn(&["check", &image]).0, 4);
}

#[test]
fn no_repair_is_advised_that_is_refused() {
    let (_dir, image) = in_dir("disk.img");
    judge::mkfs_f2fs(Path::new(&image), 64 << 20, &["-O", "ro"]);
    let file = std::fs::OpenOptions::new().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4], 4096 + 1024).unwrap();
    let (status, said, _) = cairn(&["check", &image]);
    assert!(status == 4 && said.contains("1 finding: --repair does not mend this"), "{said}");
    assert!(said.contains("use fsck.f2fs"), "{said}");
    let (_, said, _) = cairn(&["check", "--json", &image]);
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(document["no_repair"].as_str().unwrap().contains("fsck.f2fs"), "{said}");
    assert_eq!(cairn(&["check", "--repair", &image]).0, 8);
}

/// `-n` shows a plan, so there must be one.
#[test]
fn no_change_needs_a_repair() {
    let (_dir, image) = in_dir("disk.img");
    miscounted(&image);
    let (status, _, said) = cairn(&["check", "-n", &image]);
    assert!(status == 16 && said.contains("--repair"), "{status}: {said}");
    let (status, said, _) = cairn(&["check", "--repair", "-n", &image]);
    assert!(status == 4 && said.ends_with("planned: 1 step\n"), "{status}: {said}");
}

/// A program that asks for JSON sees what it would have to agree to.
#[test]
fn a_refused_document_has_the_steps() {
    let (_dir, image) = in_dir("disk.img");
    miscounted(&image);
    judge::run("debugfs", ["-w", "-R", "clri /file", &image]);
    let (status, said, _) = cairn(&["check", "--repair=all", "--json", &image]);
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((status, &document["status"], &document["repaired"]), (4, &4.into(), &false.into()));
    assert!(document["error"].as_str().unwrap().contains("add -y"), "{said}");
    let steps = document["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["loss"]["path"] == "/file"), "{said}");
}

/// A host that has no room for the undo file, or for blocks of the image that are holes: the image
/// is as it was, and with more room it is repaired.
#[test]
fn a_full_host_changes_nothing() {
    let (dir, image) = in_dir("disk.img");
    judge::mke2fs(Path::new(&image), 8 << 20, &["-t", "ext4", "-b", "4096"]);
    works(&["mkdir", &image, "/tree"]);
    works(&["touch", &image, "/tree/file"]);
    judge::run("debugfs", ["-w", "-R", "clri /tree", &image]);
    let script = r#"
        mkdir host; mount -t tmpfs -o size=60M host host; failed=0
        for pages in $(seq 0 40); do
            rm -f host/*; mount -o remount,size=60M host
            cp --sparse=always "$2" host/image
            used=$(df --output=used -k host | tail -n 1)
            mount -o remount,size=$((used + 4 * pages))k host
            if "$1" check --repair=all -y host/image >said 2>&1; then exit 1; fi
            if grep -q ': repaired (' said; then echo "after $failed failures"; break; fi
            failed=$((failed + 1))
            grep -q 'nothing was changed' said || cat said
            cmp host/image "$2" || cat said
            test ! -e host/image.cairn-undo || echo left
        done
        mount -o remount,size=60M host; e2fsck -fn host/image >checked 2>&1 || cat checked"#;
    let script = format!("{}cd '{}'; {script}", judge::FORGET_MOUNTS, dir.path().display());
    let words = ["--mount", "sh", "-ec", &script, "sh", env!("CARGO_BIN_EXE_cairn"), &image];
    let said = judge::run("unshare", words);
    let failures = said.strip_prefix("after ").and_then(|rest| rest.strip_suffix(" failures\n"));
    assert!(failures.is_some_and(|count| count.parse::<u32>().unwrap() > 3), "{said}");
}
