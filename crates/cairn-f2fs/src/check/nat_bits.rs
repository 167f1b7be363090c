//! The bits of full and of empty NAT blocks at the end of a pack's segment (`nat_bits`).

use cairn_base::Pba;
use cairn_base::bitmap;
use cairn_base::units::{as_index, as_u64};
use cairn_check::{Finding, Findings, Place};

use super::kinds;
use super::volume::Volume;
use crate::error::Result;
use crate::format::units::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::format::{CheckpointFlags, nat};

/// Bytes before the bits: version and checksum of the checkpoint.
const HEADER: usize = 8;

/// The bits of a pack, which count from the least significant one.
pub(super) struct NatBits {
    full: Vec<u8>,
    empty: Vec<u8>,
}

impl NatBits {
    /// Reads them; `None` if the pack has none that count.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn read(volume: &Volume) -> Result<Option<Self>> {
        let checkpoint = &volume.loaded.checkpoint;
        if !checkpoint.flags.contains(CheckpointFlags::NAT_BITS) {
            return Ok(None);
        }
        let map = as_index(volume.layout.nat_blocks() / 8);
        let blocks = map.saturating_mul(2).saturating_add(HEADER).div_ceil(BLOCK_SIZE);
        let first = u64::from(BLOCKS_PER_SEGMENT).saturating_sub(as_u64(blocks));
        let start = volume.layout.pack_start(volume.loaded.side).get().saturating_add(first);
        let mut bytes = Vec::new();
        for block in (start..).take(blocks) {
            bytes.extend_from_slice(&volume.buffers.get(Pba(block))?.image());
        }
        let stamp = checkpoint.version | u64::from(checkpoint.crc) << 32;
        let Some((header, bits)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        // A checkpoint that is not written at unmount does not write them.
        if u64::from_le_bytes(*header) != stamp {
            return Ok(None);
        }
        let (Some(full), Some(empty)) = (bits.get(..map), bits.get(map..map.saturating_mul(2)))
        else {
            return Ok(None);
        };
        Ok(Some(Self { full: full.to_vec(), empty: empty.to_vec() }))
    }

    /// Compares the bits of a logical NAT block with its entries.
    pub(super) fn check(&self, findings: &Findings, block: u32, bytes: &[u8]) {
        let used = nat::entries(bytes).filter(|entry| !entry.is_free()).count();
        // Nid 0 counts as used.
        let used = used.saturating_add(usize::from(block == 0));
        let right = (used == nat::ENTRIES_PER_BLOCK, used == 0);
        let bit = |map: &[u8]| bitmap::test(map, as_index(block));
        let stored = (bit(&self.full), bit(&self.empty));
        if stored != right {
            let place = Place { offset: Some(block.into()), ..Place::field("nat_bits") };
            let text = |(full, empty)| match (full, empty) {
                (true, true) => "full and empty",
                (true, false) => "full",
                (false, true) => "empty",
                (false, false) => "partly used",
            };
            findings.add(
                Finding::new(&kinds::NAT_BITS, place).stored(text(stored)).computed(text(right)),
            );
        }
    }
}
