//! The checksums of a log: superblock, descriptors and the blocks that they name, revoke and commit
//! blocks, fast commits. All numbers of the log are big-endian, those of fast commits are not.

use cairn_base::checksum::crc32c;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;

use super::Volume;
use super::read::{is_journal, number};

const CHECKSUM_V2: u32 = 8;
const CHECKSUM_V3: u32 = 0x10;
const WIDE: u32 = 2;
const FAST_COMMIT: u32 = 0x20;
/// Blocks of the area of fast commits where the superblock has no number.
const FAST_COMMIT_BLOCKS: u32 = 256;

const SAME_UUID: u32 = 2;
const LAST: u32 = 8;

/// The TAIL of a fast commit, and its bytes before the checksum.
const TAIL: u64 = 8;
const TAIL_COVERED: usize = 8;

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_be_bytes(*four))
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(four) = bytes.get_mut(at..at + 4) {
        four.copy_from_slice(&value.to_be_bytes());
    }
}

/// What the superblock of the log says.
struct Log<'a> {
    volume: &'a Volume,
    device: &'a MemoryDevice,
    incompat: u32,
    seed: u32,
}

/// Puts all checksums of the log right.
pub(super) fn seal(volume: &Volume, device: &MemoryDevice) {
    let Some(first) = volume.journal.first() else { return };
    let mut superblock = volume.geometry.block(device, *first);
    let incompat = word(&superblock, 0x28).unwrap_or(0);
    let seed = crc32c(!0, &superblock[0x30..0x40]);
    let log = Log { volume, device, incompat, seed };
    if log.has_checksums() {
        put(&mut superblock, 0xfc, 0);
        let sum = crc32c(!0, &superblock[..1024]);
        put(&mut superblock, 0xfc, sum);
        log.write(0, superblock.clone());
        log.seal_blocks();
    }
    if incompat & FAST_COMMIT != 0 {
        let blocks = match word(&superblock, 0x54).unwrap_or(0) {
            0 => FAST_COMMIT_BLOCKS,
            blocks => blocks,
        };
        log.seal_fast_commits(blocks as usize);
    }
}

impl Log<'_> {
    fn has_checksums(&self) -> bool {
        self.incompat & (CHECKSUM_V2 | CHECKSUM_V3) != 0
    }

    fn read(&self, index: usize) -> Option<Vec<u8>> {
        let block = self.volume.journal.get(index)?;
        Some(self.volume.geometry.block(self.device, *block))
    }

    fn write(&self, index: usize, bytes: Vec<u8>) {
        let size = self.volume.geometry.block_size as u64;
        if let Some(block) = self.volume.journal.get(index) {
            self.device.write_at(block * size, bytes).expect("a block of the volume");
        }
    }

    /// Up to the first block that was never written.
    fn seal_blocks(&self) {
        let mut index = 1;
        while let Some(mut bytes) = self.read(index) {
            if bytes.iter().all(|byte| *byte == 0) {
                return;
            }
            let mut next = index + 1;
            if is_journal(&bytes) {
                match word(&bytes, 4) {
                    Some(1) => next += self.seal_tags(&mut bytes, index),
                    Some(2) => {
                        put(&mut bytes, 16, 0);
                        let sum = crc32c(self.seed, &bytes);
                        put(&mut bytes, 16, sum);
                    }
                    Some(5) => self.seal_tail(&mut bytes),
                    _ => {}
                }
                self.write(index, bytes);
            }
            index = next;
        }
    }

    fn seal_tail(&self, bytes: &mut [u8]) {
        let tail = bytes.len() - 4;
        let sum = crc32c(crc32c(self.seed, &bytes[..tail]), &[0; 4]);
        put(bytes, tail, sum);
    }

    /// Seals a descriptor. Returns how many blocks it names.
    fn seal_tags(&self, bytes: &mut [u8], index: usize) -> usize {
        let sequence = bytes[8..12].to_vec();
        let is_third = self.incompat & CHECKSUM_V3 != 0;
        let wide = if self.incompat & WIDE != 0 { 4 } else { 0 };
        let size = if is_third { 16 } else { 8 + wide + 2 };
        let (mut at, mut count) = (12, 0);
        while at + size + 4 <= bytes.len() {
            count += 1;
            let Some(data) = self.read(index + count) else { break };
            let sum = crc32c(crc32c(self.seed, &sequence), &data);
            let flags = if is_third {
                put(bytes, at + 12, sum);
                word(bytes, at + 4).unwrap_or(LAST)
            } else {
                bytes[at + 4..at + 6].copy_from_slice(&(sum as u16).to_be_bytes());
                u32::from(u16::from_be_bytes([bytes[at + 6], bytes[at + 7]]))
            };
            at += size + if flags & SAME_UUID == 0 { 16 } else { 0 };
            if flags & LAST != 0 {
                break;
            }
        }
        self.seal_tail(bytes);
        count
    }

    fn seal_fast_commits(&self, blocks: usize) {
        let len = self.volume.journal.len();
        let mut sum = 0;
        for index in len.saturating_sub(blocks) + 1..len {
            let Some(mut bytes) = self.read(index) else { return };
            if bytes.iter().all(|byte| *byte == 0) {
                return;
            }
            let mut at = 0;
            while at + 4 <= bytes.len() {
                let tag = number(&bytes, at, 2);
                let value = number(&bytes, at + 2, 2) as usize;
                let end = (at + 4 + value).min(bytes.len());
                if tag == TAIL && at + 12 <= bytes.len() {
                    let computed = crc32c(sum, &bytes[at..at + TAIL_COVERED]);
                    bytes[at + 8..at + 12].copy_from_slice(&computed.to_le_bytes());
                    sum = 0;
                } else {
                    sum = crc32c(sum, &bytes[at..end]);
                }
                at = end;
            }
            self.write(index, bytes);
        }
    }
}
