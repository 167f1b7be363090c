//! Images that are built onto what keeps its size: an export, a part of a disk, an encrypted disk,
//! a block device.

use std::fs;
use std::path::Path;
use std::process::Command;

use cairn_testkit::judge;

use crate::serve::{Served, nbdcopy};
use crate::support::{fails, in_dir, works};

/// A tree with one file.
fn tree(dir: &Path) -> String {
    fs::create_dir(dir.join("tree")).unwrap();
    fs::write(dir.join("tree/file"), vec![7; 300_000]).unwrap();
    format!("{}/", dir.join("tree").display())
}

fn has_the_tree(image: &str) {
    assert!(works(&["cat", image, "/file"]) == "\u{7}".repeat(300_000), "{image}");
    works(&["check", image]);
}

#[test]
fn an_export_is_filled() {
    let (dir, image) = in_dir("disk.img");
    let tree = tree(dir.path());
    // Nothing of what was there is left where the volume needs zeros.
    fs::write(&image, vec![0xa5; 64 << 20]).unwrap();
    for format in ["ext4", "f2fs"] {
        let served = Served::start(&[&image]);
        let address = &served.address;
        let said = fails(&["build", "-t", format, address, &tree], 1);
        assert!(said.contains("would be lost") && said.contains("--force"), "{said}");
        let said = fails(&["build", "-F", "--qcow2", address, &tree], 2);
        assert!(said.contains("without another form"), "{said}");
        let said = fails(&["build", "-F", "--size", "65M", address, &tree], 2);
        assert!(said.contains("has 67108864 bytes"), "{said}");
        works(&["build", "-F", "-t", format, address, &tree]);
        has_the_tree(address);
        served.end();
        match format {
            "ext4" => judge::assert_clean(Path::new(&image)),
            _ => judge::assert_f2fs_clean(Path::new(&image)),
        }
        let size = works(&["info", &image]);
        assert!(size.contains("64.0 MiB"), "{size}");
    }
    // A smaller one leaves the end as it is, and one that does not fit changes nothing.
    let served = Served::start(&[&image]);
    works(&["build", "-F", "--size", "min", &served.address, &tree]);
    has_the_tree(&served.address);
    fs::write(dir.path().join("tree/large"), vec![1; 65 << 20]).unwrap();
    let said = fails(&["build", "-F", &served.address, &tree], 2);
    assert!(said.contains("give a larger place"), "{said}");
    fs::remove_file(dir.path().join("tree/large")).unwrap();
    has_the_tree(&served.address);
    served.end();
}

#[test]
fn a_partition_an_encrypted_disk_and_a_block_device_are_filled() {
    let (dir, image) = in_dir("disk.img");
    let tree = tree(dir.path());
    fs::write(&image, crate::mkfs_safety::disk("gpt")).unwrap();
    let part = format!("{image}#2");
    works(&["build", &part, &tree]);
    has_the_tree(&part);
    let said = fails(&["build", &part, &tree], 1);
    assert!(said.contains("an ext4 volume"), "{said}");
    let inside = dir.path().join("inside");
    let served = Served::start(&["--read-only", &part]);
    nbdcopy(&served.address, inside.to_str().unwrap());
    served.end();
    judge::assert_clean(&inside);

    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("key"), "secret").unwrap();
    fs::File::create(at("crypt")).unwrap().set_len(32 << 20).unwrap();
    let luks = "luksFormat --batch-mode --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    let mut made = Command::new("cryptsetup");
    made.args(luks.split(' ')).args([&at("crypt"), &at("key")]);
    assert!(made.status().unwrap().success());
    let crypt = format!("{}?key-file={}", at("crypt"), at("key"));
    works(&["build", "-F", "-t", "ext4", &crypt, &tree]);
    has_the_tree(&crypt);
    let said = fails(&["ls", &format!("{}?key-file=/none", at("crypt"))], 3);
    assert!(said.contains("read the key file /none: no such file"), "{said}");
    assert!(said.contains("?key-file=FILE") && !said.contains("mkfs"), "{said}");

    fs::write(at("raw"), vec![0xa5; 16 << 20]).unwrap();
    let device = judge::LoopDevice::attach(Path::new(&at("raw")), false);
    let path = device.path().to_str().unwrap();
    let said = fails(&["build", path, &tree], 1);
    assert!(said.contains("it holds data"), "{said}");
    works(&["build", "-F", path, &tree]);
    has_the_tree(path);
    drop(device);
    judge::assert_clean(Path::new(&at("raw")));
}
