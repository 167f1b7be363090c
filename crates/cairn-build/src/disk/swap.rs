//! The header of a swap area. Source: `union swap_header` of `linux/swap.h`, and swapon(8).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use uuid::Uuid;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// What mkswap takes at least.
pub(super) const LEAST: u64 = 10 * PAGE;
/// Where the version is. Boot blocks lie before it.
const VERSION_AT: usize = 1024;
const UUID_AT: usize = VERSION_AT + 12;
const SIGNATURE: &[u8] = b"SWAPSPACE2";

/// Writes the header of an area of `len` bytes at `offset`.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(file: &File, offset: u64, len: u64, uuid: Uuid) -> io::Result<()> {
    let mut page = [0; PAGE as usize];
    let last = u32::try_from(len / PAGE - 1).unwrap_or(u32::MAX);
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    // Version, last page, number of bad pages (none).
    put(VERSION_AT, &1_u32.to_le_bytes());
    put(VERSION_AT + 4, &last.to_le_bytes());
    put(UUID_AT, uuid.as_bytes());
    put(PAGE as usize - SIGNATURE.len(), SIGNATURE);
    file.write_all_at(&page, offset)
}
