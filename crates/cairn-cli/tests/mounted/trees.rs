//! A large tree copied in, compared with its source, after a remount and as the kernel sees it, and
//! removed again.

use std::path::{Path, PathBuf};

use cairn_testkit::deep;
use cairn_testkit::judge::{self, KernelMount};
use cairn_testkit::modes::MODES;
use cairn_testkit::tree::{
    PathTarget, Snapshot, SnapshotOptions, TreeSpec, build, digest_path, plan,
};

use crate::fixture::{CAIRN, Volume};

const FILES: usize = 20_000;

fn digest(path: &Path) -> Snapshot {
    digest_path(path, SnapshotOptions::default()).unwrap()
}

fn copy(from: &Path, to: &Path) {
    judge::run("cp", [Path::new("-a"), from, to]);
}

/// A tree beside the mount.
fn source(volume: &Volume, files: usize) -> PathBuf {
    let source = volume.outside("source");
    std::fs::create_dir(&source).unwrap();
    // Without attributes, which the filesystem of the source may refuse. Tests of the library cover
    // them.
    let spec = TreeSpec {
        directories: files * 3 / 40,
        files,
        size_max: 40_000,
        xattrs: false,
        ..TreeSpec::small(20)
    };
    build(&PathTarget::new(&source), &plan(&spec));
    source
}

#[test]
fn a_large_tree_is_copied_read_by_all_and_removed() {
    let mut volume = Volume::mounted(2 << 30, "");
    let source = source(&volume, FILES);
    let expected = digest(&source);
    assert!(expected.len() > FILES);

    let before = volume.free();
    copy(&source, &volume.path("tree"));
    digest(&volume.path("tree")).assert_same(&expected);
    volume.unmount();
    volume.mount("");
    digest(&volume.path("tree")).assert_same(&expected);
    volume.unmount();
    let kernel = KernelMount::new(&volume.image(), "ro");
    digest(&kernel.path().join("tree")).assert_same(&expected);
    kernel.unmount();

    volume.mount("");
    std::fs::remove_dir_all(volume.path("tree")).unwrap();
    crate::space::wait_for_free(&volume, before);
    volume.unmount();
}

/// Real files, as `cp -a` copies them.
#[test]
fn a_real_tree_is_copied_to_f2fs_and_back() {
    copied_and_back(&mut Volume::f2fs(1 << 30, ""), Path::new("/usr/include"));
}

#[test]
fn a_real_tree_is_copied_to_f2fs_and_back_in_every_mode() {
    let (room, files) = if deep() { (512, FILES) } else { (48, FILES / 12) };
    for mode in &MODES {
        let mut volume = Volume::worn(room, mode);
        let source = source(&volume, files);
        copied_and_back(&mut volume, &source);
        // One copy leaves free sections to the other modes.
        if mode.is_lfs() {
            volume.assert_reused();
        }
    }
}

fn copied_and_back(volume: &mut Volume, source: &Path) {
    let expected = digest(source);
    assert!(expected.len() > 500, "{} files below {}", expected.len(), source.display());
    copy(source, &volume.path("tree"));
    digest(&volume.path("tree")).assert_same(&expected);
    volume.remount();
    digest(&volume.path("tree")).assert_same(&expected);
    let back = volume.outside("back");
    copy(&volume.path("tree"), &back);
    digest(&back).assert_same(&expected);
    let before = volume.free();
    std::fs::remove_dir_all(volume.path("tree")).unwrap();
    volume.remount();
    assert!(
        volume.free().0 > before.0 + 500 && volume.free().1 > before.1 + 500,
        "{:?}, {before:?}",
        volume.free()
    );
    volume.unmount();
}

/// The daemon in the background, as users start it. Cairn reads the writes of the kernel's mount,
/// and the reverse.
#[test]
fn the_daemon_works_in_the_background_and_lets_go_of_the_image() {
    let volume = Volume::make(128 << 20, &[]);
    for round in 0..3 {
        judge::run(CAIRN, [Path::new("mount"), &volume.image(), &volume.root()]);
        let tree = volume.path(&format!("ours{round}"));
        std::fs::create_dir(&tree).unwrap();
        build(&PathTarget::new(&tree), &plan(&TreeSpec::small(round)));
        let seen = digest(&volume.root());
        volume.detach();
        judge::assert_clean(&volume.image());
        let kernel = KernelMount::new(&volume.image(), "");
        digest(kernel.path()).assert_same(&seen);
        build(
            &PathTarget::new(kernel.path().join("lost+found")),
            &plan(&TreeSpec::small(100 + round)),
        );
        std::fs::rename(
            kernel.path().join("lost+found"),
            kernel.path().join(format!("theirs{round}")),
        )
        .unwrap();
        std::fs::create_dir(kernel.path().join("lost+found")).unwrap();
        let seen = digest(kernel.path());
        kernel.unmount();
        judge::run(CAIRN, [Path::new("mount"), &volume.image(), &volume.root()]);
        digest(&volume.root()).assert_same(&seen);
        volume.detach();
        judge::assert_clean(&volume.image());
    }
}
