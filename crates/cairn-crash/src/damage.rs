//! Wrong bytes on the disk.

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;

const BITS: u8 = 0x55;

/// Inverts bits of one byte. A second call restores them.
///
/// # Panics
/// The byte is outside the device.
pub fn flip(device: &MemoryDevice, at: u64) {
    const SECTOR: u64 = 512;
    let start = at / SECTOR * SECTOR;
    let mut sector = device.read_at(start, 512).expect("a sector of the device");
    sector[usize::try_from(at - start).expect("less than a sector")] ^= BITS;
    device.write_at(start, sector).expect("memory does not fail");
}
