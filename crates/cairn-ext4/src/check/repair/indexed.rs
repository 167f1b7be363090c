//! The blocks of a directory that is made anew with an index.

use super::super::dir_blocks::Directory;
use crate::dir::full::{self, Head, Row};
use crate::dir::hash::NameHash;
use crate::format::dir_entry::entry_len;
use crate::format::features::{Compat, Incompat};
use crate::format::inode::InodeFlags;

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) ino: u32,
    pub(super) file_type: u8,
    pub(super) name: Vec<u8>,
}

/// All blocks. `None` if the directory has no index: its names fit one block, the volume indexes no
/// directories, or the hash is not known, as where names ignore case.
pub(super) fn blocks(
    directory: &Directory<'_>,
    names: &[Named],
    dots: (u32, u32),
) -> Option<Vec<Vec<u8>>> {
    let (state, format) = (directory.state, &directory.format);
    let features = &state.layout.features;
    let lens = |named: &Named| entry_len(named.name.len());
    let all = names.iter().map(lens).fold(lens_of_dots(), usize::saturating_add);
    let is_folded = directory.record.flags.contains(InodeFlags::CASEFOLD);
    if !features.compat(Compat::DIR_INDEX) || is_folded || all <= format.leaf_len() {
        return None;
    }
    let hash_version = state.hash.default_version;
    let mut sorted: Vec<(NameHash, &Named)> = Vec::new();
    for named in names {
        sorted.push((state.hash.hash(hash_version, &named.name)?, named));
    }
    sorted.sort_by(|one, other| (one.0, &one.1.name).cmp(&(other.0, &other.1.name)));
    let leaves = full::leaves(sorted.iter().map(|(_, named)| lens(named)), format);
    let most = if features.incompat(Incompat::LARGE_DIR) { 2 } else { 1 };
    let levels = full::levels(leaves.len(), format).filter(|levels| *levels <= most)?;
    let count = full::blocks(leaves.len(), levels, format);
    let mut bytes = vec![0; count.checked_mul(format.block_size)?];
    let head = Head { format, hash_version, dots };
    head.encode(&leaves, levels, &Sorted(sorted), &mut bytes)?;
    Some(bytes.chunks(format.block_size).map(<[u8]>::to_vec).collect())
}

fn lens_of_dots() -> usize {
    entry_len(1).saturating_add(entry_len(2))
}

/// Entries in the order of their hashes.
struct Sorted<'a>(Vec<(NameHash, &'a Named)>);

impl full::Entries for Sorted<'_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn entry(&self, number: usize) -> Option<(u32, Row<'_>)> {
        let (hash, named) = self.0.get(number)?;
        Some((hash.major, (named.ino, named.file_type, named.name.as_slice())))
    }
}
