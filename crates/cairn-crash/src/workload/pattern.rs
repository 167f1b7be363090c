//! Contents that identify themselves: every eight bytes contain file, version and offset.
//!
//! A check can thus distinguish a file's own bytes from those of another file or offset, from
//! metadata and from zeros.

/// Bytes of one word; all offsets and lengths of the workloads are multiples of it.
pub(super) const WORD: u64 = 8;
/// From this number on, a file's contents move (collapse and insert), and its words do not contain
/// their offset.
pub(super) const MOVING: u16 = 0x8000;

/// The word of file `id` at byte `offset`, as its `version`-th change writes it.
fn word(id: u16, version: u16, offset: u64) -> u64 {
    u64::from(id) << 48 | u64::from(version) << 32 | (offset / WORD) & 0xffff_ffff
}

/// `len` bytes at `offset`.
pub(super) fn fill(id: u16, version: u16, offset: u64, len: u64) -> Vec<u8> {
    (0..len / WORD)
        .flat_map(|index| word(id, version, offset + index * WORD).to_le_bytes())
        .collect()
}

/// The file's number, by its first word that is not zero.
pub(super) fn owner(bytes: &[u8]) -> Option<u16> {
    let mut words = bytes.as_chunks::<8>().0.iter().map(|raw| u64::from_le_bytes(*raw));
    words.find(|word| *word != 0).map(|word| u16::try_from(word >> 48).expect("16 bits"))
}

/// Checks that every word is zero or this file's own at this offset. Zeros are wrong from byte
/// `from` on.
pub(super) fn check(id: u16, bytes: &[u8], from: usize) -> Result<(), String> {
    for (index, raw) in bytes.as_chunks::<8>().0.iter().enumerate() {
        let found = u64::from_le_bytes(*raw);
        let at = index * 8;
        if found == 0 && at < from {
            continue;
        }
        let version = u16::try_from(found >> 32 & 0xffff).expect("masked");
        let in_place = id >= MOVING || found == word(id, version, at as u64);
        if found >> 48 != u64::from(id) || !in_place {
            return Err(format!("byte {at} of file {id:#x} holds {found:#018x}"));
        }
    }
    Ok(())
}
