//! The entries of a directory at its final size: in the inode if they fit, else in blocks, in the
//! first level whose bucket has room, as Linux adds one after the other.

use std::collections::BTreeMap;

use cairn_vfs::FileKind;
use cairn_vfs::new_tree::Source;

use super::nodes::Runs;
use crate::format::Nid;
use crate::format::dentry::{
    DentriesMut, DentryShape, MAX_DEPTH, SLOTS_PER_BLOCK, bucket_blocks, buckets, level_blocks,
    slots_for,
};
use crate::format::hash::name_hash;
use crate::format::units::BLOCK_SIZE;

/// Slots of `.` and `..`.
const DOTS: usize = 2;
/// Levels below this one are tables of their blocks; of the others only the blocks in use are
/// known.
const TABLES: u32 = 16;

/// The entries of a directory.
#[derive(Clone, Copy)]
pub(super) struct Entries<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) id: u32,
    pub(super) count: u32,
}

impl Entries<'_> {
    fn name(&self, index: u32) -> &[u8] {
        self.source.entry(self.id, index).0
    }

    /// True if all of them fit into `bytes` of an inode.
    pub(super) fn fit(&self, bytes: usize) -> bool {
        let room = DentryShape::of(bytes).slots;
        let used = (0..self.count).try_fold(DOTS, |used, index| {
            let used = used + slots_for(self.name(index).len());
            (used <= room).then_some(used)
        });
        used.is_some()
    }

    /// Writes the entries of an inode.
    pub(super) fn encode_inline(
        &self,
        bytes: &mut [u8],
        dots: (Nid, Nid),
        nid: impl Fn(u32) -> Nid,
    ) {
        let mut entries = DentriesMut::new(bytes);
        insert_dots(&mut entries, dots);
        let mut slot = DOTS;
        for index in 0..self.count {
            slot += self.insert(&mut entries, slot, index, &nid);
        }
    }

    /// Writes an entry, and returns its number of slots.
    fn insert(
        &self,
        to: &mut DentriesMut<'_>,
        slot: usize,
        index: u32,
        nid: &impl Fn(u32) -> Nid,
    ) -> usize {
        let (name, id) = self.source.entry(self.id, index);
        let kind = self.source.node(id).kind.file_kind();
        to.insert(slot, name, name_hash(name), nid(id), kind);
        slots_for(name.len())
    }
}

fn insert_dots(to: &mut DentriesMut<'_>, (own, parent): (Nid, Nid)) {
    to.insert(0, b".", 0, own, FileKind::Directory);
    to.insert(1, b"..", 0, parent, FileKind::Directory);
}

/// The blocks of a directory that does not fit into its inode.
pub(super) struct Placement {
    /// For each entry its block and its first slot.
    spots: Vec<(u64, u8)>,
    /// Blocks that exist.
    pub(super) runs: Runs,
    /// Levels in use.
    pub(super) depth: u32,
}

impl Placement {
    /// Places all entries. None if too many names have one hash: a block would be one of the
    /// `most` blocks that a directory can have.
    pub(super) fn new(entries: &Entries<'_>, most: u64) -> Option<Self> {
        let mut levels = Levels::default();
        let spots = (0..entries.count).map(|index| {
            let name = entries.name(index);
            levels.take(name_hash(name), slots_for(name.len()), most)
        });
        let spots = spots.collect::<Option<Vec<_>>>()?;
        Some(Self { spots, depth: levels.depth, runs: levels.runs() })
    }

    /// Writes all blocks.
    pub(super) fn encode(
        &self,
        entries: &Entries<'_>,
        out: &mut [u8],
        dots: (Nid, Nid),
        nid: impl Fn(u32) -> Nid,
    ) {
        out.fill(0);
        // For each run, the number of blocks before it.
        let before: Vec<u64> = self
            .runs
            .iter()
            .scan(0, |sum, run| Some(std::mem::replace(sum, *sum + (run.end - run.start))))
            .collect();
        let (first, _) = out.split_at_mut(BLOCK_SIZE);
        insert_dots(&mut DentriesMut::new(first), dots);
        for (index, (block, slot)) in (0..).zip(&self.spots) {
            let run = self.runs.partition_point(|run| run.end <= *block);
            let at = (before[run] + block - self.runs[run].start) as usize * BLOCK_SIZE;
            let mut block = DentriesMut::new(&mut out[at..at + BLOCK_SIZE]);
            entries.insert(&mut block, usize::from(*slot), index, &nid);
        }
    }
}

/// How many slots of each block are taken. A block is filled from its first slot on.
struct Levels {
    tables: Vec<Vec<u8>>,
    far: BTreeMap<u64, u8>,
    depth: u32,
}

impl Default for Levels {
    fn default() -> Self {
        let mut first = vec![0; level_blocks(0, 0) as usize];
        first[0] = DOTS as u8;
        Self { tables: vec![first], far: BTreeMap::new(), depth: 1 }
    }
}

impl Levels {
    /// Takes slots in the first level with room.
    fn take(&mut self, hash: u32, slots: usize, most: u64) -> Option<(u64, u8)> {
        let mut before = 0;
        for level in 0..MAX_DEPTH {
            let bucket = u64::from(hash) % buckets(level, 0) * bucket_blocks(level);
            for block in bucket..bucket + bucket_blocks(level) {
                if before + block >= most {
                    return None;
                }
                let used = self.used(level, before, block);
                if usize::from(*used) + slots <= SLOTS_PER_BLOCK {
                    let spot = (before + block, *used);
                    *used += slots as u8;
                    self.depth = self.depth.max(level + 1);
                    return Some(spot);
                }
            }
            before += level_blocks(level, 0);
        }
        None
    }

    /// The slots that are taken in a block of a level, which begins `before` blocks behind the
    /// start.
    fn used(&mut self, level: u32, before: u64, block: u64) -> &mut u8 {
        if level >= TABLES {
            return self.far.entry(before + block).or_insert(0);
        }
        while self.tables.len() <= level as usize {
            let blocks = level_blocks(self.tables.len() as u32, 0);
            self.tables.push(vec![0; blocks as usize]);
        }
        &mut self.tables[level as usize][block as usize]
    }

    /// The blocks that have entries.
    fn runs(&self) -> Runs {
        let near = (0..).zip(self.tables.iter().flatten());
        let far = self.far.iter().map(|(block, used)| (*block, used));
        let mut runs = Runs::new();
        for (block, _) in near.chain(far).filter(|(_, used)| **used > 0) {
            match runs.last_mut() {
                Some(run) if run.end == block => run.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
        runs
    }
}
