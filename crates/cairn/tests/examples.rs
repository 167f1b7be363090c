//! The examples run, and what they make is sound.

use std::path::{Path, PathBuf};
use std::process::Command;

use cairn::{Format, ImageSpec, MkfsOptions, OpenOptions};
use cairn_testkit::judge;

/// cargo builds the examples of a crate for its tests, beside them.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).expect("deps is in the target directory");
    let found = target.join("examples").join(name);
    assert!(found.exists(), "{} is not built: cargo build -p cairn --examples", found.display());
    found
}

#[track_caller]
fn run(name: &str, arguments: &[&Path]) -> String {
    let output = Command::new(example(name)).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_image_is_built_used_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    run("build_image", &[&image]);
    judge::assert_clean(&image);
    assert_eq!(run("read_file", &[&image, Path::new("/bin/hello")]), "#!/bin/sh\necho hello\n");
    let told = run("counters", &[&image]);
    assert!(told.starts_with("10 files were made durable by "), "{told}");
    assert!(run("many_threads", &[&image]).starts_with("200 files are durable, in "));
    judge::assert_clean(&image);
}

#[test]
fn a_device_of_its_own_holds_a_volume() {
    assert_eq!(run("own_device", &[]), "stored in a vector\n");
}

#[test]
fn many_threads_work_on_f2fs_too() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let options = MkfsOptions { size: Some(64 << 20), ..MkfsOptions::new(Format::F2fs) };
    cairn::mkfs(&ImageSpec::whole(&image), &options).unwrap();
    run("many_threads", &[&image]);
    judge::assert_f2fs_clean(&image);
}

/// What was deleted on a volume that is closed: of ext4 the journal still has the inode. F2FS
/// discards what was deleted, unless an option says that it stays.
#[test]
fn deleted_files_are_recovered() {
    for format in Format::ALL {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let options = MkfsOptions { size: Some(64 << 20), ..MkfsOptions::new(format) };
        cairn::mkfs(&ImageSpec::whole(&image), &options).unwrap();
        let options = OpenOptions { mount_options: "nodiscard".into(), ..OpenOptions::default() };
        let volume = cairn::open(&ImageSpec::whole(&image), &options).unwrap();
        volume.create_dir("/letters").unwrap();
        let contents = "of great value\n".repeat(1000);
        volume.write("/letters/mine", &contents).unwrap();
        volume.sync().unwrap();
        volume.remove_file("/letters/mine").unwrap();
        volume.close().unwrap();
        let to = dir.path().join("recovered");
        std::fs::create_dir(&to).unwrap();
        let told = run("recover_deleted", &[&image, &to]);
        let files: Vec<_> = std::fs::read_dir(&to).unwrap().map(|file| file.unwrap()).collect();
        let found = files
            .iter()
            .any(|file| std::fs::read_to_string(file.path()).is_ok_and(|text| text == contents));
        assert!(found, "{format}: {told}{files:?}");
    }
}
