//! Hashes of an entry, its name and its value, and of all entries of a block.

/// `e_hash` of a name and a value in the same container.
#[must_use]
pub(crate) fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    with_value(name_hash(name), value)
}

/// The valid results for [`entry_hash`]: older kernels use signed bytes of the name.
#[must_use]
pub(crate) fn entry_hashes(name: &[u8], value: &[u8]) -> [u32; 2] {
    [entry_hash(name, value), with_value(signed_name_hash(name), value)]
}

fn with_value(name_hash: u32, value: &[u8]) -> u32 {
    let (words, rest) = value.as_chunks();
    let mut last = [0; 4];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let words = words.iter().chain((!rest.is_empty()).then_some(&last));
    words.fold(name_hash, |hash, word| hash.rotate_left(16) ^ u32::from_le_bytes(*word))
}

/// `e_hash` of a name whose value has its own inode with this value hash.
#[must_use]
pub(crate) fn entry_hash_of_inode(name: &[u8], value_hash: u32) -> u32 {
    entry_hash(name, &value_hash.to_le_bytes())
}

/// The valid results for [`entry_hash_of_inode`]: older kernels use signed bytes of the name.
fn entry_hashes_of_inode(name: &[u8], value_hash: u32) -> [u32; 2] {
    entry_hashes(name, &value_hash.to_le_bytes())
}

/// Does an entry with this hash have the value with this one? 0 says nothing.
#[must_use]
pub(crate) fn is_of_value(entry: u32, name: &[u8], value_hash: u32) -> bool {
    entry == 0 || entry_hashes_of_inode(name, value_hash).contains(&entry)
}

/// `h_hash` of the hashes of all entries of a block: 0 if one of them is 0.
#[must_use]
pub(crate) fn block_hash(entries: impl IntoIterator<Item = u32>) -> u32 {
    let all = entries
        .into_iter()
        .try_fold(0_u32, |all, hash| (hash != 0).then_some(all.rotate_left(16) ^ hash));
    all.unwrap_or(0)
}

fn signed_name_hash(name: &[u8]) -> u32 {
    name.iter().fold(0_u32, |hash, byte| {
        hash.rotate_left(5) ^ i32::from(byte.cast_signed()).cast_unsigned()
    })
}

fn name_hash(name: &[u8]) -> u32 {
    name.iter().fold(0_u32, |hash, byte| hash.rotate_left(5) ^ u32::from(*byte))
}
