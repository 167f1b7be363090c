//! Images on devices that transfer whole blocks only: disks, and the exports of an NBD server.

use std::fs::OpenOptions;
use std::sync::Arc;

use cairn_block::{Batch, BlockDevice, BlockDeviceExt, Completion, Geometry, Request, Result};
use cairn_images::qcow2;

use crate::model::Model;
use crate::qemu::{Checked, Place, alone, check, file, io, qemu};

/// A device with blocks of this many bytes, which does not grow.
struct Blocks(Arc<dyn BlockDevice>, u32);

impl BlockDevice for Blocks {
    fn geometry(&self) -> Geometry {
        Geometry { logical_block: self.1, ..self.0.geometry() }
    }

    fn submit(&self, batch: Batch) -> Completion {
        let unit = u64::from(self.1);
        for request in &batch.requests {
            let (offset, len) = match request {
                Request::Read { offset, buf } => (*offset, buf.len() as u64),
                Request::Write { offset, bufs } => {
                    (*offset, bufs.iter().map(|buf| buf.len() as u64).sum())
                }
                Request::Discard { offset, len } | Request::WriteZeroes { offset, len } => {
                    (*offset, *len)
                }
            };
            let whole = offset.is_multiple_of(unit) && len.is_multiple_of(unit);
            assert!(whole, "{len} bytes at {offset} in blocks of {unit}");
        }
        self.0.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }
}

/// An image of QEMU's on a disk with room behind it, changed and read again.
fn read_and_write(options: &str, unit: u32, seed: u64) {
    println!("{options} on blocks of {unit}");
    let place = Place::new();
    let path = place.create("disk", options, "1M");
    io(&path, &["write -P 1 0 5k", "write -P 2 100k 200k", "write -P 4 1020k 4k"]);
    qemu("qemu-img", &["snapshot", "-c", "kept", path.to_str().unwrap()]);
    io(&path, &["write -P 3 8k 64k", "write -P 5 900k 100k"]);
    let mut model = Model::new(place.contents(&path), u64::from(unit), seed);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(16 << 20).unwrap();
    let opened = |write| {
        let device = Arc::new(Blocks(file(&path, write), unit));
        qcow2::open(device, &qcow2::Options { write, backing: &alone, depth: 0 }).unwrap()
    };
    let compare = |model: &Model, disk: &dyn BlockDevice| {
        model.same(&disk.read_at(0, model.bytes.len()).unwrap(), options);
    };
    compare(&model, &opened(false));
    let disk = opened(true);
    for _ in 0..60 {
        model.step(&disk, 100 << 10);
    }
    compare(&model, &disk);
    drop(disk);
    assert_eq!(check(&path), Checked::Clean, "{options}");
    model.same(&place.contents(&path), options);
    compare(&model, &opened(false));
}

#[test]
fn tables_that_end_within_a_block_are_read_and_written() {
    for (seed, unit) in [512, 4096].into_iter().enumerate() {
        read_and_write("compat=1.1", unit, seed as u64);
        read_and_write("compat=0.10", unit, seed as u64);
        read_and_write("compat=1.1,cluster_size=4096", unit, seed as u64);
    }
    read_and_write("compat=1.1,cluster_size=512", 512, 2);
}
