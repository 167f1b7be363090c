//! Partition tables, and what else a disk may look like.

use cairn_block::memory::MemoryDevice;

/// Bytes of the disk.
const DISK: u64 = 2 << 20;
const SIGNATURE: &[u8] = b"EFI PART";

/// Reads the table of a disk that begins with the input. The first byte says whether checksums of
/// GPT headers are put right, and whether the table is at the end, too.
pub(super) fn partition(bytes: &[u8]) {
    let Some((how, rest)) = bytes.split_first() else { return };
    let mut start = rest.to_vec();
    if how & 0x80 == 0 {
        for sector in [512, 4096] {
            seal_header(&mut start, sector);
        }
    }
    let device = MemoryDevice::new(DISK);
    if how & 1 != 0 {
        device.load(DISK - start.len() as u64, &start);
        start.truncate(512);
    }
    device.load(0, &start);
    match cairn::partition::read(&device) {
        Ok(Some(table)) => {
            for number in table.partitions.iter().map(|partition| partition.number).take(200) {
                let found = cairn::partition::find(&device, number);
                let present = cairn::partition::find_present(&device, number);
                for range in [found, present].into_iter().flatten() {
                    assert!(range.offset + range.len <= DISK, "a partition outside of the disk");
                }
            }
        }
        Ok(None) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    drop(cairn::format::probe(&device));
    let device: std::sync::Arc<dyn cairn_block::BlockDevice> = std::sync::Arc::new(device);
    drop(cairn::format::inspect(&device, std::time::SystemTime::UNIX_EPOCH));
}

/// The checksum of the entries, then that of the header.
fn seal_header(disk: &mut [u8], sector: usize) {
    const HEADER: usize = 92;
    let number = |disk: &[u8], at: usize, len: usize| {
        let bytes = disk.get(at..at + len).unwrap_or_default();
        bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
    };
    if !disk.get(sector..).is_some_and(|rest| rest.starts_with(SIGNATURE)) {
        return;
    }
    let at = number(disk, sector + 72, 8).saturating_mul(sector as u64);
    let len = number(disk, sector + 80, 4) * number(disk, sector + 84, 4);
    let (at, len) = (at.min(DISK) as usize, len.min(DISK) as usize);
    // What is behind the input is zeros.
    let mut entries = disk.get(at..).unwrap_or_default().to_vec();
    entries.resize(len, 0);
    let sum = crc32fast::hash(&entries).to_le_bytes();
    if let Some(header) = disk.get_mut(sector..sector + HEADER) {
        header[88..92].copy_from_slice(&sum);
        header[16..20].fill(0);
        let sum = crc32fast::hash(header).to_le_bytes();
        header[16..20].copy_from_slice(&sum);
    }
}
