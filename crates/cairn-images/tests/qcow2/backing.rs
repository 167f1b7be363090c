//! Chains of backing files.

use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_images::qcow2;

use crate::model::Model;
use crate::qemu::{Checked, Place, check, file, io, open, qemu, try_open};

/// A raw file, a qcow2 image over it that is shorter or longer, and one above both.
fn chain(place: &Place, compat: &str, middle: &str, top: &str) -> std::path::PathBuf {
    let base = place.path("base.raw");
    std::fs::write(&base, vec![0xbb; 1 << 20]).unwrap();
    let names = [("middle", "base.raw", "raw", middle), ("top", "middle", "qcow2", top)];
    for (name, below, format, size) in names {
        let options =
            format!("compat={compat},cluster_size=4k,backing_file={below},backing_fmt={format}");
        place.create(name, &options, size);
        let end = if name == "middle" { "write -P 1 200k 50k" } else { "write -P 2 230k 50k" };
        io(&place.path(name), &[end]);
    }
    place.path("top")
}

#[test]
fn reads_fall_through_and_writes_stay_above() {
    for (compat, middle, top) in [("1.1", "1M", "1M"), ("1.1", "600k", "2M"), ("0.10", "2M", "1M")]
    {
        let place = Place::new();
        let path = chain(&place, compat, middle, top);
        let below = std::fs::read(place.path("middle")).unwrap();
        let mut model = Model::new(place.contents(&path), 512, 21);
        let disk = open(&path, true);
        assert_eq!(disk.backing_name(), Some("middle"));
        model.compare(&disk);
        for _ in 0..60 {
            model.step(&disk, 60 << 10);
        }
        model.compare(&disk);
        drop(disk);
        assert_eq!(check(&path), Checked::Clean, "{compat}");
        model.same(&place.contents(&path), compat);
        assert!(std::fs::read(place.path("middle")).unwrap() == below, "the chain is only read");
    }
}

#[test]
fn discarded_clusters_do_not_show_what_is_below() {
    let place = Place::new();
    let path = chain(&place, "1.1", "1M", "1M");
    let disk = open(&path, true);
    disk.write_at(64 << 10, vec![7; 64 << 10]).unwrap();
    disk.discard(64 << 10, 64 << 10).unwrap();
    assert_eq!(disk.read_at(64 << 10, 64 << 10).unwrap()[..], [0; 64 << 10]);
    assert_eq!(disk.read_at(0, 512).unwrap()[..], [0xbb; 512]);
    drop(disk);
    assert_eq!(check(&path), Checked::Clean);
}

#[test]
fn a_loop_and_a_missing_file_are_errors() {
    let place = Place::new();
    let path = chain(&place, "1.1", "1M", "1M");
    let (middle, top) = (place.path("middle"), path.to_str().unwrap());
    let args = ["rebase", "-u", "-F", "qcow2", "-b", top, middle.to_str().unwrap()];
    qemu("qemu-img", &args);
    let error = try_open(&path, false).unwrap_err().to_string();
    assert!(error.contains("that is a loop"), "{error}");
    std::fs::remove_file(middle).unwrap();
    let lost = std::panic::catch_unwind(|| try_open(&path, false).map(drop));
    assert!(lost.is_err() || lost.unwrap().is_err());
}

#[test]
fn a_larger_disk_does_not_show_what_is_below() {
    for size in ["512", "64k"] {
        let place = Place::new();
        std::fs::write(place.path("base.raw"), vec![0xbb; 4 << 20]).unwrap();
        let options = format!("cluster_size={size},backing_file=base.raw,backing_fmt=raw");
        let path = place.create("disk", &options, "300k");
        let below =
            |_: &qcow2::BackingName| -> cairn_block::Result<std::sync::Arc<dyn BlockDevice>> {
                Ok(file(&place.path("base.raw"), false))
            };
        let options = qcow2::Options { write: true, backing: &below, depth: 0 };
        qcow2::resize(file(&path, true), 8 << 20, &options).unwrap();
        let smaller = qcow2::resize(file(&path, true), 4096, &options).unwrap_err().to_string();
        assert!(smaller.contains("qemu-img resize --shrink"), "{smaller}");
        assert_eq!(check(&path), Checked::Clean, "{size}");
        let mut expected = vec![0; 8 << 20];
        expected[..300 << 10].fill(0xbb);
        let mut model = Model::new(expected, 512, 3);
        model.same(&place.contents(&path), size);
        let disk = open(&path, true);
        for _ in 0..20 {
            model.step(&disk, 400 << 10);
        }
        model.compare(&disk);
        drop(disk);
        assert_eq!(check(&path), Checked::Clean, "{size}");
    }
}
