//! Base images as they are in the repository: the blocks that are not zeros, compressed.
//!
//! `CAIRNIMG`, the size of the image in bytes, then for each block of 4,096 bytes that is used its
//! number and contents; all of it gzip.

use std::io::{self, Read, Write};

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

const MAGIC: &[u8; 8] = b"CAIRNIMG";
/// Bytes of a piece.
const BLOCK: usize = 4096;
/// Largest base.
const MOST: u64 = 1 << 30;

/// The packed form of a device.
///
/// # Errors
/// The device fails.
pub fn pack(device: &MemoryDevice) -> io::Result<Vec<u8>> {
    let size = device.geometry().size;
    let mut out = GzEncoder::new(Vec::new(), Compression::best());
    out.write_all(MAGIC)?;
    out.write_all(&size.to_le_bytes())?;
    for number in 0..size / BLOCK as u64 {
        let bytes = device.read_at(number * BLOCK as u64, BLOCK).map_err(io::Error::other)?;
        if bytes.iter().any(|byte| *byte != 0) {
            out.write_all(&number.to_le_bytes())?;
            out.write_all(&bytes)?;
        }
    }
    out.finish()
}

/// The device of a packed form.
///
/// # Errors
/// It is none.
pub fn unpack(packed: &[u8]) -> io::Result<MemoryDevice> {
    let mut bytes = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut bytes)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not a packed image");
    let number = |bytes: &[u8]| bytes.first_chunk().map(|eight| u64::from_le_bytes(*eight));
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(wrong)?;
    let size = number(rest).filter(|size| *size <= MOST).ok_or_else(wrong)?;
    let device = MemoryDevice::new(size);
    for piece in rest[8..].chunks(8 + BLOCK) {
        let at = number(piece).and_then(|block| block.checked_mul(BLOCK as u64));
        let fits = |at: &u64| piece.len() == 8 + BLOCK && *at <= size.saturating_sub(BLOCK as u64);
        device.load(at.filter(fits).ok_or_else(wrong)?, &piece[8..]);
    }
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_come_back() {
        let device = MemoryDevice::new(1 << 20);
        device.load(8192, &[7; 5000]);
        let packed = pack(&device).unwrap();
        assert!(packed.len() < 200, "{}", packed.len());
        let again = unpack(&packed).unwrap();
        let read = |device: &MemoryDevice| device.read_at(0, 1 << 20).unwrap().to_vec();
        assert!(read(&again) == read(&device));
        assert!(unpack(&packed[..packed.len() / 2]).is_err());
        assert!(unpack(b"").is_err());
    }
}
