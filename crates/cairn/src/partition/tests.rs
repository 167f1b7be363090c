//! Tables made by `gpt` and `mbrman` themselves, then broken.

use std::io::Cursor;

use ::gpt::disk::LogicalBlockSize;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use mbrman::{CHS, MBR, MBRPartitionEntry};

use super::*;

const MIB: u64 = 1 << 20;

fn device(bytes: &[u8]) -> MemoryDevice {
    let device = MemoryDevice::new(bytes.len() as u64);
    device.write_at(0, bytes.to_vec()).unwrap();
    device
}

/// Two partitions, of 2 MiB and 3 MiB.
fn gpt_disk(sector: LogicalBlockSize) -> Vec<u8> {
    let mut disk = Cursor::new(vec![0; 16 << 20]);
    let sectors = u32::try_from((16 << 20) / sector.as_u64()).unwrap();
    ::gpt::mbr::ProtectiveMBR::with_lb_size(sectors - 1).overwrite_lba0(&mut disk).unwrap();
    let mut table = ::gpt::GptConfig::new()
        .writable(true)
        .logical_block_size(sector)
        .create_from_device(disk, None)
        .unwrap();
    for (name, mib) in [("boot", 2), ("root", 3)] {
        table.add_partition(name, mib * MIB, ::gpt::partition_types::LINUX_FS, 0, None).unwrap();
    }
    table.write().unwrap().into_inner()
}

fn entry(starting_lba: u32, sectors: u32, sys: u8) -> MBRPartitionEntry {
    let chs = CHS::empty();
    MBRPartitionEntry { boot: 0, first_chs: chs, sys, last_chs: chs, starting_lba, sectors }
}

fn mbr_disk() -> Vec<u8> {
    let mut disk = Cursor::new(vec![0; 16 << 20]);
    let mut table = MBR::new_from(&mut disk, 512, *b"CAIR").unwrap();
    table[1] = entry(2048, 4096, 0x83);
    table[3] = entry(8192, 2048, 0x83);
    table.write_into(&mut disk).unwrap();
    disk.into_inner()
}

/// A boot record with two raw entries.
fn record(entries: [(u32, u32, u8); 2]) -> Vec<u8> {
    let mut sector = vec![0; 512];
    for (index, (start, sectors, sys)) in entries.into_iter().enumerate() {
        let at = 446 + 16 * index;
        sector[at + 4] = sys;
        sector[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        sector[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
    }
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

#[test]
fn gpt_of_both_sector_sizes() {
    for sector in [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096] {
        let device = device(&gpt_disk(sector));
        let table = read(&device).unwrap().unwrap();
        assert_eq!((table.kind, table.partitions.len()), ("GPT", 2));
        assert_eq!(find(&device, 1).unwrap().len, 2 * MIB);
        let second = find(&device, 2).unwrap();
        assert_eq!(second.len, 3 * MIB);
        assert!(second.offset >= find(&device, 1).unwrap().offset + 2 * MIB);
    }
}

#[test]
fn gpt_backup_is_used_when_the_primary_is_gone() {
    let mut disk = gpt_disk(LogicalBlockSize::Lb512);
    let before = find(&device(&disk), 2).unwrap();
    disk[512..1024].fill(0);
    assert_eq!(find(&device(&disk), 2).unwrap(), before);
}

#[test]
fn mbr_primary_entries_keep_their_numbers() {
    let device = device(&mbr_disk());
    assert_eq!(find(&device, 1).unwrap(), Range { offset: MIB, len: 2 * MIB });
    assert_eq!(find(&device, 3).unwrap(), Range { offset: 4 * MIB, len: MIB });
    match find(&device, 2) {
        Err(Cause::NoSuchPartition { number: 2, table: "MBR", present }) => {
            assert_eq!(present, [1, 3])
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn mbr_logical_partitions_count_from_five() {
    let mut disk = vec![0; 16 << 20];
    disk[..512].copy_from_slice(&record([(64, 64, 0x83), (2048, 16384, 0x05)]));
    let at = |lba: usize| lba * 512..(lba + 1) * 512;
    disk[at(2048)].copy_from_slice(&record([(8, 100, 0x83), (4096, 2048, 0x05)]));
    disk[at(2048 + 4096)].copy_from_slice(&record([(8, 200, 0x83), (0, 0, 0)]));
    let device = device(&disk);
    assert_eq!(find(&device, 5).unwrap(), Range { offset: 2056 * 512, len: 100 * 512 });
    assert_eq!(
        find(&device, 6).unwrap(),
        Range { offset: (2048 + 4096 + 8) * 512, len: 200 * 512 }
    );
}

#[test]
fn a_looping_chain_is_damage() {
    let mut disk = vec![0; 1 << 20];
    disk[..512].copy_from_slice(&record([(0, 0, 0), (100, 500, 0x0f)]));
    disk[100 * 512..101 * 512].copy_from_slice(&record([(8, 10, 0x83), (1, 9, 0x05)]));
    disk[101 * 512..102 * 512].copy_from_slice(&record([(8, 10, 0x83), (1, 9, 0x05)]));
    assert!(matches!(read(&device(&disk)), Err(Cause::PartitionTable { table: "MBR", .. })));
}

#[test]
fn no_table_and_beyond_the_end() {
    assert!(matches!(find(&device(&vec![0; 1 << 20]), 1), Err(Cause::NoPartitionTable)));
    let mut disk = mbr_disk();
    disk.truncate(2 << 20);
    let short = device(&disk);
    for found in [find(&short, 3), find_present(&short, 3)] {
        assert!(
            matches!(found, Err(Cause::ShortDisk { number: 3, end, size, .. })
                if (end, size) == (5 << 20, 2 << 20)),
            "{found:?}"
        );
    }
    assert_eq!(find_present(&short, 1).unwrap(), Range { offset: MIB, len: MIB });
    assert!(matches!(find(&device(&[0; 100]), 1), Err(Cause::NoPartitionTable)));
}

#[test]
fn mutated_tables_are_errors_or_ranges_never_panics() {
    let pristine = [gpt_disk(LogicalBlockSize::Lb512), mbr_disk()];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut damaged = 0;
    for round in 0..600_usize {
        let mut disk = pristine[round % 2][..2 << 20].to_vec();
        for _ in 0..4 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(state >> 33).unwrap() % 1536;
            disk[at] ^= 1 << (state & 7);
        }
        damaged += usize::from(read(&device(&disk)).is_err());
    }
    assert!(damaged > 0, "no mutation was noticed");
}
