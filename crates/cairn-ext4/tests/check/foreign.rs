//! The damaged images of e2fsprogs' tests: the check flags what e2fsck flags.
//!
//! They are not part of this repository. `scripts/e2fsprogs-images` fetches them;
//! `CAIRN_E2FSPROGS_TESTS` may name another directory that holds e2fsprogs' `tests`.

use std::path::{Path, PathBuf};

use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_testkit::crash::write_image;
use cairn_testkit::judge::command;

use crate::repaired::{complaint, repaired};
use crate::support::difference;

/// The images on which the two differ, each with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("f_jnl_32bit", "e2fsck -n does not replay the journal, which puts the volume right"),
    ("f_jnl_64bit", "e2fsck -n does not replay the journal, which puts the volume right"),
    ("f_zero_inode_size", "e2fsck -n reads a backup and calls the volume clean"),
];

/// Images for which e2fsck -n takes minutes.
const SLOW: &[&str] = &["f_illitable_flexbg", "f_misstable"];

fn directory() -> PathBuf {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/e2fsprogs-tests");
    let directory = std::env::var_os("CAIRN_E2FSPROGS_TESTS").map_or(fetched, PathBuf::from);
    assert!(
        directory.is_dir(),
        "{} is missing: run scripts/e2fsprogs-images, or let CAIRN_E2FSPROGS_TESTS name e2fsprogs' \
         directory `tests`",
        directory.display()
    );
    directory
}

/// The images of tests of e2fsck, by the names of the tests.
fn images() -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let image = ["image.gz", "image.bz2"].map(|file| path.join(file));
        if let Some(image) = image.into_iter().find(|image| image.is_file() && is_judged(&name)) {
            found.push((name, image));
        }
    }
    found.sort();
    found
}

/// Tests of e2fsck, without those in which it waits for another computer (multiple-mount
/// protection).
fn is_judged(name: &str) -> bool {
    name.starts_with("f_") && !name.starts_with("f_mmp") && !SLOW.contains(&name)
}

fn unpacked(image: &Path) -> Vec<u8> {
    let unpack = if image.extension().is_some_and(|part| part == "gz") { "gzip" } else { "bzip2" };
    command(unpack).arg("-dc").arg(image).output().expect("it starts").stdout
}

#[test]
#[ignore = "needs images that are not in the repository: scripts/e2fsprogs-images fetches them"]
fn e2fsck_agrees_on_its_own_images() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("image");
    let images = images();
    assert!(images.len() > 150, "only {} images", images.len());
    let (mut missed, mut extra, mut stale) = (Vec::new(), Vec::new(), Vec::new());
    for (name, image) in &images {
        println!("{name}");
        write_image(&MemoryDevice::from_image(&unpacked(image)), &plain).unwrap();
        let is_listed = EXCEPTIONS.iter().any(|(known, _)| known == name);
        match difference(&plain) {
            None if is_listed => stale.push(name.clone()),
            Some((verdict, lines)) if !is_listed => {
                let text = format!("{name}: exit {}\n{lines}{}", verdict.status, verdict.output);
                if verdict.is_clean() { extra.push(text) } else { missed.push(text) }
            }
            _ => {}
        }
    }
    println!("{} images, {} exceptions", images.len(), EXCEPTIONS.len());
    assert!(
        missed.is_empty() && extra.is_empty() && stale.is_empty(),
        "missed:\n{}\n\nmore:\n{}\n\nno exceptions: {stale:?}",
        missed.join("\n\n"),
        extra.join("\n\n")
    );
}

/// Images that are not repaired, or not to e2fsck's content, each with the reason.
const NOT_REPAIRED: &[(&str, &str)] = &[
    ("f_boundscheck", "an inode table is lost, and its group has no room for another"),
    ("f_crashdisk", "no superblock of it says how large its blocks are"),
    ("f_detect_junk", "it holds no filesystem"),
    ("f_detect_xfs", "it holds XFS"),
    ("f_ext_journal", "its journal is on another device"),
    ("f_inlinedata_repair", "e2fsck does not count one of two inodes with an attribute block"),
    ("f_nospc_create_lnf", "no inode is free for lost+found"),
    ("f_zero_super", "no superblock is left"),
];

/// At least 95 of 100 images are repaired to e2fsck's content. The others are refused, and not
/// touched.
#[test]
#[ignore = "needs images that are not in the repository: scripts/e2fsprogs-images fetches them"]
fn e2fsck_accepts_its_own_images_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("image");
    let images = images();
    let (mut refused, mut wrong) = (Vec::new(), Vec::new());
    for (name, image) in &images {
        let device = MemoryDevice::from_image(&unpacked(image));
        println!("{name}");
        match repaired(&device, Scope::All) {
            Some((_, after)) => {
                if let Some(said) = complaint(&after, &plain) {
                    wrong.push(format!("{name}: {said}"));
                }
            }
            None => refused.push(name.as_str()),
        }
    }
    let bad = refused.len() + wrong.len();
    println!("{} images, refused: {refused:?}, wrong:\n{}", images.len(), wrong.join("\n\n"));
    let known = |name: &str| NOT_REPAIRED.iter().any(|(known, _)| *known == name);
    let is_other = |text: &String| !known(text.split(':').next().unwrap_or_default());
    assert!(bad * 20 <= images.len(), "{bad} of {}", images.len());
    assert!(refused.iter().all(|name| known(name)) && !wrong.iter().any(is_other));
}
