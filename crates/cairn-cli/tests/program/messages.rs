//! What messages name: what is missing, empty, damaged or full, and never an order that is none.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use cairn_testkit::judge;

use crate::support::{cairn, cairn_as_user, fails, in_dir, works};

/// Images with nothing in them, of which every command says the same.
#[test]
fn an_image_with_nothing_in_it_is_told_so_by_every_command() {
    let (dir, zeros) = in_dir("zeros.img");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (empty, qcow2) = (at("empty.img"), at("new.qcow2"));
    fs::write(&empty, b"").unwrap();
    fs::File::create(&zeros).unwrap().set_len(24 << 20).unwrap();
    judge::run("qemu-img", ["create", "-q", "-f", "qcow2", &qcow2, "24M"]);
    let to = at("saved");
    for (image, what) in
        [(&empty, "an empty file"), (&zeros, "nothing but zeros"), (&qcow2, "nothing but zeros")]
    {
        for (words, status) in [
            (&["ls", image][..], 4),
            (&["info", image], 4),
            (&["check", image], 8),
            (&["check", "--repair", image], 8),
            (&["rescue", image, "-o", &to], 8),
        ] {
            let said = fails(words, status);
            assert!(said.contains(&format!("(it looks like {what})")), "{words:?}: {said}");
            assert!(said.contains("`cairn mkfs"), "{words:?}: {said}");
        }
    }
}

/// A search that has read all of an image names its size.
#[test]
fn a_search_names_what_it_has_read() {
    let (dir, image) = in_dir("disk.img");
    let noise = (0_u32..6 << 20).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes());
    fs::write(&image, noise.collect::<Vec<u8>>()).unwrap();
    let to = dir.path().join("saved").to_str().unwrap().to_owned();
    let said = fails(&["rescue", &image, "-o", &to], 8);
    assert!(said.contains("is left in all of its 24.0 MiB"), "{said}");
    assert!(!said.contains("4 GiB"), "{said}");
}

/// What has failed is named, and no order is given that nobody can follow.
#[test]
fn a_damaged_disk_of_another_format_is_no_order() {
    let (dir, image) = in_dir("disk.qcow2");
    judge::run("qemu-img", ["create", "-q", "-f", "qcow2", &image, "64M"]);
    works(&["mkfs", &image]);
    // The place of the table of clusters.
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0x7f; 8], 40).unwrap();
    let said = fails(&["ls", &image], 3);
    assert!(said.contains("damaged") && !said.contains("use the"), "{said}");
    let packed = dir.path().join("disk.zst").to_str().unwrap().to_owned();
    fs::write(&packed, [&b"\x28\xb5\x2f\xfd"[..], &[0xff; 5000]].concat()).unwrap();
    let (_, _, said) = cairn(&["ls", &packed]);
    assert!(said.contains("compressed disk: ") && !said.contains("use the"), "{said}");
}

/// The host has no room for many files: the image is not what is full.
#[test]
fn a_full_host_is_named_and_not_the_image() {
    let (dir, image) = in_dir("disk.img");
    works(&["mkfs", "--size", "32M", &image]);
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(at("tree")).unwrap();
    for number in 0..40 {
        fs::write(at(&format!("tree/{number}")), vec![number; 100_000]).unwrap();
    }
    works(&["put", &image, &at("tree"), "/"]);
    fs::create_dir(at("host")).unwrap();
    judge::run("mount", ["-t", "tmpfs", "-o", "size=1M", "small", &at("host")]);
    let (status, _, said) = cairn(&["get", &image, "/tree", &at("host")]);
    assert_eq!(status, 1, "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("cairn: this host: no room for "), "{said}");
    assert!(last.contains(" more files: make room") && !last.contains(&image), "{said}");
}

/// A directory in which nobody but its owner makes files.
#[test]
fn a_new_image_that_cannot_be_made_is_named() {
    let (dir, other) = in_dir("other.img");
    fs::write(&other, b"").unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for name in ["closed", "tree"] {
        fs::create_dir(at(name)).unwrap();
        fs::set_permissions(at(name), PermissionsExt::from_mode(0o555)).unwrap();
    }
    let image = at("closed/x.img");
    let words = ["build", &image, &format!("{}/", at("tree"))];
    let (status, said) = cairn_as_user(dir.path(), &other, &words);
    assert_eq!(status, 1, "{said}");
    for part in [&image, "cannot be made in the directory", "permission denied: check the owner"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!Path::new(&image).exists());
}
