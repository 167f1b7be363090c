//! The table after the zones of an image: blocks of numbers, the written bytes of each zone.
//!
//! A block begins with its checksum (CRC-32C of the rest of it); one number a zone follows: bytes
//! written, bit 63: finished, 62: read-only, 61: offline. All numbers are 64-bit little-endian.

use std::collections::BTreeSet;

use cairn_base::checksum::crc32c;

use super::rules::{self, Health, State, ZoneLayout};
use crate::device::{Batch, BlockDevice, BlockDeviceExt, Durability, Request};
use crate::error::{Error, ErrorKind, Result};

/// Bytes of a block, here and at the image's end.
pub(super) const BLOCK: usize = 4096;
/// Zones a table block.
const ENTRIES: u64 = (BLOCK / 8 - 1) as u64;
const FINISHED: u64 = 1 << 63;
const READ_ONLY: u64 = 1 << 62;
const OFFLINE: u64 = 1 << 61;

/// Where the table of an image is.
pub(super) struct Table {
    start: u64,
    zones: u32,
}

impl Table {
    pub(super) fn new(layout: &ZoneLayout) -> Self {
        Self { start: layout.size(), zones: layout.zones }
    }

    pub(super) fn blocks(&self) -> u64 {
        u64::from(self.zones).div_ceil(ENTRIES)
    }

    /// Writes the table blocks of these zones after a flush, with forced unit access.
    pub(super) fn write(
        &self,
        device: &dyn BlockDevice,
        states: &[State],
        zones: &BTreeSet<u32>,
    ) -> Result<()> {
        let blocks: BTreeSet<u64> = zones.iter().map(|zone| u64::from(*zone) / ENTRIES).collect();
        let requests = blocks.into_iter().map(|block| {
            let first = (block * ENTRIES) as usize;
            let entries = states.iter().skip(first).take(ENTRIES as usize);
            let words: Vec<u64> = std::iter::once(0).chain(entries.map(word)).collect();
            Request::Write {
                offset: self.start + block * BLOCK as u64,
                bufs: vec![sealed(words).into()],
            }
        });
        let durability = Durability { preflush: true, fua: true };
        device.submit(Batch { requests: requests.collect(), durability }).wait().map(drop)
    }

    pub(super) fn read(&self, device: &dyn BlockDevice, layout: &ZoneLayout) -> Result<Vec<State>> {
        let mut states = Vec::new();
        for block in 0..self.blocks() {
            let offset = self.start + block * BLOCK as u64;
            let words = words(&device.read_at(offset, BLOCK)?, "table", offset)?;
            let left = (u64::from(self.zones) - block * ENTRIES).min(ENTRIES) as usize;
            for word in words.iter().skip(1).take(left) {
                let state = state(*word);
                if state.written > layout.capacity || !state.written.is_multiple_of(rules::BLOCK) {
                    let detail = format!(
                        "zone {} cannot have {} bytes written",
                        states.len(),
                        state.written
                    );
                    return Err(damaged(detail, offset));
                }
                states.push(state);
            }
        }
        Ok(states)
    }
}

fn word(state: &State) -> u64 {
    let health = match state.health {
        Health::Good => 0,
        Health::ReadOnly => READ_ONLY,
        Health::Offline => OFFLINE,
    };
    state.written | health | if state.finished { FINISHED } else { 0 }
}

fn state(word: u64) -> State {
    let health = match word & (READ_ONLY | OFFLINE) {
        0 => Health::Good,
        READ_ONLY => Health::ReadOnly,
        _ => Health::Offline,
    };
    State {
        written: word & !(FINISHED | READ_ONLY | OFFLINE),
        finished: word & FINISHED != 0,
        health,
    }
}

/// A block of words; its checksum goes into the first one.
pub(super) fn sealed(words: Vec<u64>) -> Vec<u8> {
    let mut block: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    block.resize(BLOCK, 0);
    let sum = crc32c(!0, &block[8..]);
    block[..4].copy_from_slice(&sum.to_le_bytes());
    block
}

/// The words of a block, if its checksum is right.
pub(super) fn words(block: &[u8], what: &str, offset: u64) -> Result<Vec<u64>> {
    let words: Vec<u64> = block
        .chunks_exact(8)
        .filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?)))
        .collect();
    let (stored, computed) =
        (words.first().copied().unwrap_or(0), crc32c(!0, block.get(8..).unwrap_or_default()));
    if stored != u64::from(computed) {
        return Err(damaged(
            format!("the {what}'s checksum is {stored:#x}, its bytes give {computed:#x}"),
            offset,
        ));
    }
    Ok(words)
}

pub(super) fn damaged(detail: String, offset: u64) -> Error {
    Error::new(ErrorKind::Io, "read zones of the image", detail).at(offset, BLOCK as u64)
}
