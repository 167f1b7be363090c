//! Images through pipes, and sparse images of Android.

use std::path::Path;

use cairn_testkit::judge;

use crate::support::{fails, in_dir, works};

const PROGRAM: &str = env!("CARGO_BIN_EXE_cairn");

#[test]
fn an_image_is_written_to_standard_output() {
    let (dir, image) = in_dir("image");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(at("rootfs")).unwrap();
    std::fs::write(at("rootfs/file"), vec![7; 3 << 20]).unwrap();
    for format in ["ext4", "f2fs"] {
        let options = format!("-t {format} --mtime @1700000000 --free 10M");
        let script = format!(
            "cd {}; {PROGRAM} build {options} -F image rootfs/
            {PROGRAM} build {options} - rootfs/ >stream; cmp image stream
            {PROGRAM} build {options} rootfs/ -o - | cmp image -
            {PROGRAM} build {options} --sparse - rootfs/ | {PROGRAM} unsparse - - | cmp image -
            {PROGRAM} build {options} --sparse --crc -F packed rootfs/
            rm -f theirs; simg2img packed theirs; cmp image theirs
            {PROGRAM} sparse image - | {PROGRAM} unsparse -F - ours; cmp image ours
            test $(stat -c %b ours) -le $(stat -c %b stream)
            mkdir -p tmp; TMPDIR=$PWD/tmp {PROGRAM} build {options} - rootfs/ 2>said |
            head -c 1 >/dev/null
            test ! -s said
            test -z \"$(ls -A tmp)\"",
            dir.path().display()
        );
        judge::run("bash", ["-ec", &script]);
        if format == "ext4" {
            judge::assert_clean(Path::new(&image));
        }
    }
}

#[test]
fn what_is_wrong_has_a_status_and_leaves_nothing() {
    let (dir, image) = in_dir("image");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(&image, vec![1; 8192]).unwrap();
    works(&["sparse", &image, &at("packed")]);
    assert!(fails(&["sparse", &image, &at("packed")], 1).contains("--force"));
    assert!(fails(&["sparse", &at("packed"), &at("out")], 4).contains("cairn unsparse"));
    assert!(fails(&["sparse", "-b", "5", &image, &at("out")], 2).contains("multiple of 4"));
    assert!(fails(&["sparse", &at("none"), &at("out")], 3).contains("no such file"));
    for more in ["file-store:///srv/pool@disk", &format!("{image}?io=direct")] {
        assert!(fails(&["sparse", more, &at("out")], 2).contains("copy the disk into a file"));
    }
    assert!(fails(&["unsparse", &image, &at("out")], 4).contains("no sparse image"));
    assert!(fails(&["unsparse", &at("packed"), &image], 1).contains("--force"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn a_manifest_that_cannot_be_read_names_file_and_line() {
    let (dir, image) = in_dir("image");
    let list = dir.path().join("list").to_str().unwrap().to_owned();
    std::fs::write(&list, "/dev d 755 0 0 - - - - -\n/dev/null c 666 0 0 1 x - - -\n").unwrap();
    let said = fails(&["build", "--manifest", &list, &image], 4);
    assert!(said.contains("/list: line 2: 'x' is not a decimal number"), "{said}");
    std::fs::write(&list, "/dev d 755 0 0 - - - - -\n/dev/null c 666 0 0 1 3 - - -\n").unwrap();
    works(&["build", "--owner", "5:5", "--manifest", &list, &image]);
    assert_eq!(works(&["stat", "-c", "%u %t,%T %a", &image, "/dev/null"]), "0 1,3 666\n");
    assert!(fails(&["build", "--mount-point", "/x", &image], 2).contains("--manifest"));
    let said = fails(&["build", "--manifest", &list, "--mount-point", "x", &image], 2);
    assert!(said.contains("absolute path"), "{said}");
    // What mksquashfs warns of is a warning here.
    std::fs::write(&list, "none m 755 0 0\n").unwrap();
    let (status, _, said) = crate::support::cairn(&["build", "-F", "--manifest", &list, &image]);
    assert!(status == 0 && said.contains("warning: ") && said.contains("line 1: /none"), "{said}");
}
