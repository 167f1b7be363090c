//! Images that grow, are full, are made by us, and what a flush costs.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Record;
use cairn_block::wrap::record::Event;
use cairn_block::{BlockDevice, BlockDeviceExt, ErrorKind, IoBuf};
use cairn_images::qcow2::{self, CreateOptions, Options, Qcow2};
use cairn_images::{Kind, recognise};
use cairn_testkit::crash::write_image;

use crate::model::Model;
use crate::qemu::{Checked, Place, alone, check, file, io, open, qemu};

fn image(device: Arc<dyn BlockDevice>) -> Qcow2 {
    qcow2::open(device, &Options { write: true, backing: &alone, depth: 0 }).unwrap()
}

#[test]
fn images_of_ours_are_accepted_and_grow() {
    let place = Place::new();
    for (number, cluster_size) in [512, 4096, 65_536, 2 << 20].into_iter().enumerate() {
        let path = place.path(&format!("disk{number}"));
        std::fs::write(&path, b"").unwrap();
        let options = CreateOptions { size: 9 << 20, cluster_size };
        qcow2::create(file(&path, true), &options).unwrap();
        assert_eq!(recognise(&*file(&path, false)), Some(Kind::Qcow2));
        assert_eq!(check(&path), Checked::Clean);
        let mut model = Model::new(vec![0; 9 << 20], 512, number as u64);
        let disk = open(&path, true);
        for _ in 0..30 {
            model.step(&disk, 1 << 20);
        }
        model.compare(&disk);
        drop(disk);
        assert_eq!(check(&path), Checked::Clean, "{cluster_size}");
        model.same(&place.contents(&path), "by qemu-img");
        io(&path, &["write -P 7 1M 3M"]);
        assert_eq!(check(&path), Checked::Clean);
    }
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let make = |size, cluster_size| {
        let device = Arc::new(MemoryDevice::new(16 << 20));
        qcow2::create(device, &CreateOptions { size, cluster_size })
            .map_err(|error| error.to_string())
    };
    assert!(make(1 << 20, 1000).unwrap_err().contains("power of two"));
    assert!(make(1 << 20, 4 << 20).unwrap_err().contains("power of two"));
    assert!(make(1 << 50, 512).unwrap_err().contains("give larger clusters"));
    assert!(make(1 << 42, 4096).unwrap_err().contains("device of 16777216 bytes"));
    make(0, 512).unwrap();
    make(1 << 50, 2 << 20).unwrap();
}

#[test]
fn a_full_device_is_an_error_and_the_image_stays_whole() {
    let place = Place::new();
    let device = Arc::new(MemoryDevice::new(2 << 20));
    qcow2::create(device.clone(), &CreateOptions { size: 8 << 20, cluster_size: 4096 }).unwrap();
    let disk = image(device.clone());
    let mut written = 0;
    let error = loop {
        match disk.write_at(written, vec![3; 100 << 10]) {
            Ok(()) => written += 100 << 10,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
    assert!(error.to_string().contains("move the image to a larger one"), "{error}");
    assert!(written > 1 << 20);
    disk.flush().unwrap();
    // What is discarded can be used again after the next flush.
    disk.discard(0, 400 << 10).unwrap();
    disk.flush().unwrap();
    disk.write_at(4 << 20, vec![4; 300 << 10]).unwrap();
    drop(disk);
    let path = place.path("disk");
    write_image(&device, &path).unwrap();
    assert_eq!(check(&path), Checked::Clean);
    let contents = place.contents(&path);
    assert!(contents[400 << 10..written as usize].iter().all(|byte| *byte == 3));
    assert!(contents[4 << 20..(4 << 20) + (300 << 10)].iter().all(|byte| *byte == 4));
}

#[test]
fn a_flush_costs_at_most_three_and_a_write_none() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    qcow2::create(device.clone(), &CreateOptions { size: 32 << 20, cluster_size: 512 }).unwrap();
    let record = Arc::new(Record::new(device));
    let disk = image(record.clone());
    let flushes = || record.log().events.iter().filter(|event| **event == Event::Flush).count();
    let (mut most, mut before) = (0, flushes());
    for number in 0..40_u64 {
        disk.write_at(number * 512 * 1024, vec![1; 300 << 10]).unwrap();
        assert_eq!(flushes(), before, "a write does not flush");
        disk.flush().unwrap();
        most = most.max(flushes() - before);
        before = flushes();
    }
    assert_eq!(most, 3);
    disk.write_at(0, vec![2; 4096]).unwrap();
    disk.flush().unwrap();
    assert_eq!(flushes() - before, 1, "nothing was allocated");
}

#[test]
fn a_sparse_disk_of_a_tebibyte_takes_little() {
    let place = Place::new();
    let path = place.path("disk");
    std::fs::write(&path, b"").unwrap();
    qcow2::create(file(&path, true), &CreateOptions::new(1 << 40)).unwrap();
    let disk = open(&path, true);
    for at in [0, 1 << 30, (1 << 40) - 4096] {
        disk.write_at(at, vec![5; 4096]).unwrap();
    }
    disk.discard(0, 1 << 40).unwrap();
    disk.write_zeroes(0, 1 << 40).unwrap();
    disk.write_at(1 << 39, IoBuf::copy_from(&[6; 4096]).into_bytes()).unwrap();
    drop(disk);
    assert_eq!(check(&path), Checked::Clean);
    let info = qemu("qemu-img", &["info", path.to_str().unwrap()]);
    assert!(info.contains("virtual size: 1 TiB"), "{info}");
    assert!(std::fs::metadata(&path).unwrap().len() < 4 << 20);
}

/// Where the disk has data, by `qemu-img map`.
fn mapped(path: &std::path::Path) -> Vec<std::ops::Range<u64>> {
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    let text = qemu("qemu-img", &["map", path.to_str().unwrap()]);
    let lines = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.map(|words| number(words[0])..number(words[0]) + number(words[1])).collect()
}

#[test]
fn extents_are_those_of_qemu() {
    let place = Place::new();
    let base = place.create("base.qcow2", "cluster_size=4k", "4M");
    io(&base, &["write -P 9 1M 1M", "write -z 3M 512k"]);
    let over = place.path("over.qcow2");
    let name = over.to_str().unwrap();
    let create = ["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "base.qcow2", name, "6M"];
    qemu("qemu-img", &create);
    let alone = place.create("alone.qcow2", "cluster_size=64k", "6M");
    for path in [base, over, alone] {
        let disk = open(&path, true);
        let mut model = Model::new(disk.read_at(0, 4 << 20).unwrap().to_vec(), 4096, 5);
        for _ in 0..12 {
            model.step(&disk, 200 << 10);
        }
        disk.flush().unwrap();
        let size = disk.geometry().size;
        let told = disk.extents(0..size).unwrap();
        assert!(told.iter().any(|one| one.hole && one.zero));
        let mut at = 0;
        for extent in &told {
            assert_eq!(extent.offset, at);
            at = extent.end();
            let bytes = disk.read_at(extent.offset, extent.len as usize).unwrap();
            assert!(!extent.zero || bytes.iter().all(|byte| *byte == 0), "{extent:?}");
        }
        assert_eq!(at, size);
        drop(disk);
        let theirs = mapped(&path);
        assert!(!theirs.is_empty());
        let in_zeros = |range: &std::ops::Range<u64>| {
            told.iter().any(|one| one.zero && one.offset < range.end && range.start < one.end())
        };
        assert_eq!(theirs.iter().find(|range| in_zeros(range)), None, "{}", path.display());
    }
}
