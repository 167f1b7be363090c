//! The UUID, by the hashes of attributes' values in inodes of their own.
//!
//! The hash of such a value begins with the UUID also where nothing else has a checksum. Each value
//! whose bytes have another hash than its inode says implies how the UUID would have to differ. One
//! byte of it that explains all of them is wrong.

use cairn_base::Ino;
use cairn_base::checksum::{crc32c, crc32c_before};
use cairn_base::units::as_index;
use cairn_block::BlockDevice;

use super::super::facts::Bytes;
use super::super::state::State;
use super::candidate::{Candidate, Proof};
use crate::format::features::Incompat;

/// Values at most, and bytes of each.
const MOST: usize = 8;
const LONGEST: u64 = 1 << 20;
/// Bytes of a UUID.
const UUID: usize = 16;

/// The UUIDs by which all values have the hashes that their inodes say.
pub(super) fn candidates(device: &dyn BlockDevice, state: &State) -> Vec<Candidate> {
    let features = &state.layout.features;
    let has_seed = features.incompat(Incompat::CSUM_SEED) || state.layout.checksum.seed().is_some();
    if has_seed || !features.incompat(Incompat::EA_INODE) {
        return Vec::new();
    }
    let Some(wrong) = difference(state) else { return Vec::new() };
    let changes = (0..UUID).flat_map(|at| (1..=u8::MAX).map(move |change| (at, change)));
    let found = changes.filter(|(at, change)| {
        let mut bytes = [0; UUID];
        bytes.iter_mut().skip(*at).take(1).for_each(|byte| *byte = *change);
        crc32c(0, &bytes) == wrong
    });
    let with = |(at, change): (usize, u8)| {
        Candidate::superblock(state, device, Proof::Witness, |raw| {
            raw.s_uuid.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= change);
        })
    };
    found.filter_map(with).collect()
}

/// By what the seed of all values' hashes differs from the right one. `None` if they do not agree
/// on it, or if one has the right hash.
fn difference(state: &State) -> Option<u32> {
    let hashes = state.values.lock().clone().into_iter();
    let hashes = hashes.filter_map(|(number, bytes)| match bytes {
        Bytes::Hash(hash) => Some((Ino(number), hash)),
        Bytes::Unknown | Bytes::Refused(_) => None,
    });
    let mut found = None;
    for (ino, hash) in hashes.take(MOST) {
        let record = state.record(ino).filter(|record| record.size <= LONGEST)?;
        let zeros = vec![0; as_index(u32::try_from(record.size).unwrap_or(0))];
        // A checksum is linear: of two seeds, the difference takes the way of a seed through zeros.
        let seed = crc32c_before(hash ^ record.value_facts().hash, &zeros);
        if found.is_some_and(|known| known != seed) {
            return None;
        }
        found = Some(seed);
    }
    found.filter(|seed| *seed != 0)
}
