//! What others have in an image stays: internal snapshots, and their disks.

use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::model::Model;
use crate::qemu::{Checked, Place, check, io, open, qemu};

#[test]
fn snapshots_keep_their_disk() {
    let place = Place::new();
    for options in ["compat=1.1,cluster_size=4k", "compat=0.10,cluster_size=64k"] {
        let path = place.create("disk", options, "1M");
        let text = path.to_str().unwrap();
        io(&path, &["write -P 1 0 300k", "write -P 2 700k 100k"]);
        let old = place.contents(&path);
        qemu("qemu-img", &["snapshot", "-c", "one", text]);
        io(&path, &["write -P 3 100k 10k"]);
        qemu("qemu-img", &["snapshot", "-c", "two", text]);
        let mut model = Model::new(place.contents(&path), 512, 11);
        let disk = open(&path, true);
        assert_eq!(disk.snapshots(), 2);
        for _ in 0..60 {
            model.step(&disk, 60 << 10);
        }
        disk.discard(0, 400 << 10).unwrap();
        disk.flush().unwrap();
        model.set(0, &disk.read_at(0, 400 << 10).unwrap());
        model.compare(&disk);
        drop(disk);
        assert_eq!(check(&path), Checked::Clean, "{options}");
        model.same(&place.contents(&path), options);
        let raw = place.path("one.raw");
        let to = raw.to_str().unwrap();
        let one = "snapshot.name=one";
        qemu("qemu-img", &["convert", "-l", one, "-f", "qcow2", "-O", "raw", text, to]);
        assert!(std::fs::read(&raw).unwrap() == old, "{options}");
        // And can be deleted.
        qemu("qemu-img", &["snapshot", "-d", "one", text]);
        qemu("qemu-img", &["snapshot", "-d", "two", text]);
        assert_eq!(check(&path), Checked::Clean, "{options}");
        model.same(&place.contents(&path), options);
    }
}

#[test]
fn bitmaps_are_marked_as_out_of_date() {
    let place = Place::new();
    let path = place.create("disk", "", "1M");
    let text = path.to_str().unwrap();
    qemu("qemu-img", &["bitmap", "--add", text, "changes"]);
    let disk = open(&path, true);
    disk.write_at(4096, vec![7; 4096]).unwrap();
    drop(disk);
    let info = qemu("qemu-img", &["info", text]);
    assert!(!info.contains("changes"), "{info}");
    // The clusters of the bitmap are leaked, as the format says.
    check(&path);
}
