//! F2FS's node blocks, which the search never tears.

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDeviceExt, Result};

/// Recognises the node blocks of this volume by their contents. F2FS needs the device to write each
/// of them whole or not at all: their footer is at the end, and only inodes of some volumes have
/// checksums.
///
/// # Errors
/// The device fails.
pub fn node_blocks_of(
    volume: &MemoryDevice,
) -> Result<impl Fn(&[u8]) -> bool + Send + Sync + use<>> {
    /// `cp_blkaddr` in the superblock. A pack begins with its version, the second one a segment
    /// later.
    const CP_BLKADDR: u64 = 1024 + 76;
    const SEGMENT: u64 = 512;
    /// `nid`, `ino`, `flag` and `cp_ver` of a node's footer.
    const FOOTER: usize = 4072;
    /// No search writes more checkpoints.
    const MANY: u32 = 100_000;
    let number = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    let read = |at: u64| -> Result<u32> {
        let sector = volume.read_at(at / 512 * 512, 512)?;
        Ok(number(&sector, usize::try_from(at % 512).expect("within a sector")))
    };
    let packs = u64::from(read(CP_BLKADDR)?);
    let version = read(packs * 4096)?.max(read((packs + SEGMENT) * 4096)?);
    Ok(move |block: &[u8]| {
        let later = number(block, FOOTER + 12).wrapping_sub(version);
        later < MANY && number(block, FOOTER) != 0 && number(block, FOOTER + 4) != 0
    })
}
