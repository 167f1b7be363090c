//! A directory that is written as a whole: an index over leaves that are filled in the order of
//! hashes.

use cairn_base::FileBlock;

use crate::format::dir_entry::{self, DirFormat};
use crate::format::htree::{self, NodeKind};

/// Most levels of nodes between the root and the leaves.
const MOST_LEVELS: u8 = 2;

/// Inode number, type and name of an entry.
pub(crate) type Row<'n> = (u32, u8, &'n [u8]);

/// For each leaf its first entry, of entries that are so long, in the order of their hashes.
pub(crate) fn leaves(lens: impl Iterator<Item = usize>, format: &DirFormat) -> Vec<usize> {
    let room = format.leaf_len();
    let (mut leaves, mut filled) = (Vec::new(), room);
    for (number, len) in lens.enumerate() {
        if filled.saturating_add(len) > room {
            leaves.push(number);
            filled = 0;
        }
        filled = filled.saturating_add(len);
    }
    leaves
}

/// Levels of nodes between the root and so many leaves. `None` if there are too many leaves.
pub(crate) fn levels(leaves: usize, format: &DirFormat) -> Option<u8> {
    let mut nodes = leaves;
    for level in 0..=MOST_LEVELS {
        if nodes <= NodeKind::Root.limit(format) {
            return Some(level);
        }
        nodes = nodes.div_ceil(NodeKind::Inner.limit(format));
    }
    None
}

/// Blocks of the root, the nodes and the leaves.
pub(crate) fn blocks(leaves: usize, levels: u8, format: &DirFormat) -> usize {
    let (mut blocks, mut nodes) = (leaves.saturating_add(1), leaves);
    for _ in 0..levels {
        nodes = nodes.div_ceil(NodeKind::Inner.limit(format));
        blocks = blocks.saturating_add(nodes);
    }
    blocks
}

/// What all blocks of a directory have in common.
pub(crate) struct Head<'f> {
    pub(crate) format: &'f DirFormat,
    pub(crate) hash_version: u8,
    /// Inode numbers of the directory and its parent.
    pub(crate) dots: (u32, u32),
}

/// Entries in the order of their hashes.
pub(crate) trait Entries {
    /// Number of entries.
    fn count(&self) -> usize;

    /// The hash of an entry (`NameHash::major`), and the entry.
    fn entry(&self, number: usize) -> Option<(u32, Row<'_>)>;
}

impl Head<'_> {
    /// Writes the root, the leaves and the nodes, in this order. `out` has [`blocks`]. `None` if it
    /// has fewer, or an entry is missing.
    pub(crate) fn encode(
        &self,
        leaves: &[usize],
        levels: u8,
        entries: &dyn Entries,
        out: &mut [u8],
    ) -> Option<()> {
        let format = self.format;
        let mut blocks = out.chunks_mut(format.block_size);
        let root = blocks.next()?;
        let mut number = 0_u64;
        let mut behind = move || {
            number = number.saturating_add(1);
            FileBlock(number)
        };
        let ends = leaves.iter().skip(1).copied().chain([entries.count()]);
        let mut upper: Vec<(u32, FileBlock)> = Vec::with_capacity(leaves.len());
        for (first, end) in leaves.iter().copied().zip(ends) {
            let rows = (first..end).map_while(|number| entries.entry(number).map(|(_, row)| row));
            dir_entry::pack_leaf(blocks.next()?, format, rows);
            let (hash, _) = entries.entry(first)?;
            let before = first.checked_sub(1).and_then(|number| entries.entry(number));
            // The lowest bit tells a search that names of this hash begin in the leaf before.
            let is_continued = before.is_some_and(|(before, _)| before == hash);
            upper.push((hash | u32::from(is_continued), behind()));
        }
        for _ in 0..levels {
            let mut nodes = Vec::new();
            for part in upper.chunks(NodeKind::Inner.limit(format)) {
                htree::init_inner(blocks.next()?, format, part);
                nodes.push((part.first()?.0, behind()));
            }
            upper = nodes;
        }
        let (this, parent) = self.dots;
        let (_, top) = *upper.first()?;
        htree::init_root(root, format, this, parent, self.hash_version, top);
        for _ in 0..levels {
            htree::deepen_root(root, format, top);
        }
        htree::write_entries(root, NodeKind::Root, format, &upper);
        Some(())
    }
}
