//! Damaged and hostile images: an error with place and values, never a panic, a hang or too much
//! memory.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_images::qcow2::{self, Damage, Error, Options, Qcow2, What};

use crate::qemu::{Place, alone, io, qemu};

fn open(bytes: &[u8], write: bool) -> qcow2::Result<Qcow2> {
    let device = Arc::new(MemoryDevice::from_image(bytes));
    qcow2::open(device, &Options { write, backing: &alone, depth: 0 })
}

/// An image with data, a snapshot and compressed clusters.
fn sound() -> Vec<u8> {
    let place = Place::new();
    let path = place.create("disk", "cluster_size=4k", "1M");
    io(&path, &["write -P 1 0 200k", "write -c -P 2 300k 8k", "write -z 400k 8k"]);
    qemu("qemu-img", &["snapshot", "-c", "one", path.to_str().unwrap()]);
    io(&path, &["write -P 3 0 64k"]);
    std::fs::read(&path).unwrap()
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn damage(bytes: &[u8], write: bool) -> Damage {
    let found = open(bytes, write).map(drop).unwrap_err();
    match found {
        Error::Damaged(damage) => damage,
        other => panic!("{other}"),
    }
}

fn with(bytes: &[u8], at: usize, value: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[at..at + value.len()].copy_from_slice(value);
    changed
}

#[test]
fn fields_of_the_header_are_named_with_their_values() {
    let bytes = sound();
    let header = |at, value: &[u8]| match damage(&with(&bytes, at, value), true) {
        Damage::Header { field, value, .. } => (field, value),
        other => panic!("{other}"),
    };
    assert_eq!(header(0, b"QFI!"), ("magic", 0x5146_4921));
    assert_eq!(header(20, &8_u32.to_be_bytes()), ("cluster_bits", 8));
    assert_eq!(header(20, &64_u32.to_be_bytes()), ("cluster_bits", 64));
    assert_eq!(header(24, &u64::MAX.to_be_bytes()), ("size", u64::MAX));
    assert_eq!(header(36, &0_u32.to_be_bytes()), ("l1_size", 0));
    assert_eq!(header(36, &u32::MAX.to_be_bytes()), ("l1_size", u64::from(u32::MAX)));
    assert_eq!(header(56, &0_u32.to_be_bytes()), ("refcount_table_clusters", 0));
    let many = u32::MAX;
    assert_eq!(header(56, &many.to_be_bytes()), ("refcount_table_clusters", u64::from(many)));
    assert_eq!(header(60, &65_537_u32.to_be_bytes()), ("nb_snapshots", 65_537));
    assert_eq!(header(96, &7_u32.to_be_bytes()), ("refcount_order", 7));
    assert_eq!(header(100, &100_u32.to_be_bytes()), ("header_length", 100));
    assert_eq!(header(104, &[9]), ("compression_type", 9));
    assert!(open(&bytes[..40], false).is_err() && open(b"QFI\xfb", false).is_err());
    assert!(open(&[], false).is_err());
}

#[test]
fn tables_beyond_the_end_or_upon_each_other_are_refused() {
    let bytes = sound();
    let far = (1_u64 << 40).to_be_bytes();
    let beyond = |at| match damage(&with(&bytes, at, &far), true) {
        Damage::Beyond { what, offset, .. } => (what, offset),
        other => panic!("{other}"),
    };
    assert_eq!(beyond(40), (What::L1, 1 << 40));
    assert_eq!(beyond(48), (What::RefcountTable, 1 << 40));
    assert_eq!(beyond(64), (What::Snapshots, 1 << 40));
    let odd = damage(&with(&bytes, 40, &0x1200_u64.to_be_bytes()), false);
    assert_eq!(odd, Damage::Unaligned { what: What::L1, offset: 0x1200, unit: 4096 });
    // The L1 table upon the refcount table.
    let upon = damage(&with(&bytes, 40, &bytes[48..56]), true);
    assert!(matches!(upon, Damage::Overlap { .. } | Damage::Reserved { .. }), "{upon}");
    // An L2 table that is the header.
    let l1 = number(&bytes, 40) as usize;
    let cyclic = with(&bytes, l1, &((1_u64 << 63) | number(&bytes, 40)).to_be_bytes());
    assert!(matches!(damage(&cyclic, true), Damage::Overlap { what: What::L2, .. }));
}

#[test]
fn data_upon_tables_is_not_written() {
    let bytes = sound();
    let l1 = number(&bytes, 40) as usize;
    let l2 = (number(&bytes, l1) & 0x00ff_ffff_ffff_fe00) as usize;
    // The disk's first cluster is the L2 table itself.
    let changed = with(&bytes, l2, &((1_u64 << 63) | l2 as u64).to_be_bytes());
    let disk = open(&changed, true).unwrap();
    let error = disk.write_at(0, vec![9; 512]).unwrap_err().to_string();
    assert!(
        error.contains("a data cluster lies at offset") && error.contains("tables of its own"),
        "{error}"
    );
    let far = with(&bytes, l2, &((1_u64 << 63) | 1 << 40).to_be_bytes());
    let error = open(&far, false).unwrap().read_at(0, 512).unwrap_err().to_string();
    assert!(error.contains("offset 1099511627776 lies beyond the end"), "{error}");
    let reserved = with(&bytes, l2, &0x8000_0000_0000_5002_u64.to_be_bytes());
    let error = open(&reserved, false).unwrap().read_at(0, 512).unwrap_err().to_string();
    assert!(error.contains("entry 0 of an L2 table") && error.contains("0x2 must be 0"), "{error}");
}

/// Uses everything of an image, whatever comes of it.
fn use_it(bytes: &[u8], seed: u64) {
    for write in [false, true] {
        let Ok(disk) = open(bytes, write) else { continue };
        let size = disk.geometry().size.min(2 << 20);
        let mut rng = fastrand::Rng::with_seed(seed);
        for at in (0..size).step_by(64 << 10) {
            let len = (size - at).min(64 << 10) as usize;
            let _ = disk.read_at(at, len);
        }
        if write && size > 4096 {
            for _ in 0..8 {
                let at = rng.u64(0..size - 4096);
                let _ = disk.write_at(at, vec![1; 4096]);
                let _ = disk.write_zeroes(at / 4096 * 4096, 4096);
                let _ = disk.flush();
            }
        }
    }
}

#[test]
fn random_damage_is_survived() {
    let bytes = sound();
    let l1 = number(&bytes, 40) as usize;
    let l2 = (number(&bytes, l1) & 0x00ff_ffff_ffff_fe00) as usize;
    let table = number(&bytes, 48) as usize;
    let block = number(&bytes, table) as usize;
    let snapshots = number(&bytes, 64) as usize;
    let places = [(0, 112), (l1, 32), (l2, 512), (table, 32), (block, 128), (snapshots, 80)];
    let count = if cairn_testkit::deep() { 20_000 } else { 400 };
    for seed in 0..count {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut changed = bytes.clone();
        for _ in 0..rng.u32(1..4) {
            let (start, len) = places[rng.usize(0..places.len())];
            let at = start + rng.usize(0..len);
            match rng.u32(0..3) {
                0 => changed[at] = rng.u8(..),
                1 => changed[at] ^= 1 << rng.u32(0..8),
                _ => {
                    let value = [0, u64::MAX, 1 << 62, 4096, rng.u64(..)][rng.usize(0..5)];
                    let at = at / 8 * 8;
                    changed[at..at + 8].copy_from_slice(&value.to_be_bytes());
                }
            }
        }
        if rng.u32(0..8) == 0 {
            changed.truncate(rng.usize(0..changed.len()));
        }
        use_it(&changed, seed);
    }
}
