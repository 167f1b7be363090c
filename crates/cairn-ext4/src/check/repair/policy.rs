//! [`Policy`]: what becomes of the blocks of a map.

use cairn_base::{Ino, Pba};

use super::super::visitor::Run;
use super::mender::Mender;
use crate::error::Result;

/// What becomes of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Keep,
    Drop,
    /// A part of a run is kept.
    Part {
        skip: u64,
        len: u64,
    },
    /// They lie here from now on.
    Move(Pba),
    /// A block of the map was copied as it is. What lies below it is not known yet.
    Copied(Pba),
}

/// What becomes of the blocks of a map.
pub(super) trait Policy {
    /// Of blocks of the file.
    fn data(&mut self, mender: &Mender<'_>, run: Run) -> Result<Fate>;

    /// Of a block of the map, which is inside the volume.
    fn node(&mut self, mender: &Mender<'_>, pba: Pba) -> Result<Fate>;
}

/// Drops what lies outside the volume, over its superblocks and descriptors, or out of line with
/// its clusters, and blocks of the map that another file proves to have; copies what lies under
/// bitmaps and inode tables. Of a directory also what was never written: it has no names, and takes
/// the place of what has some.
#[derive(Debug)]
pub(super) struct Prune {
    ino: Ino,
    /// The map is that of a directory.
    is_directory: bool,
    /// The last cluster that is kept, of the file and of the volume.
    last: Option<(u64, u64)>,
    /// Something was dropped.
    pub(super) is_cut: bool,
}

impl Prune {
    pub(super) const fn new(ino: Ino, is_directory: bool) -> Self {
        Self { ino, is_directory, last: None, is_cut: false }
    }

    /// A copy of blocks over which a bitmap or an inode table lies. Which of the two has the wrong
    /// place is not known, and the copy loses nothing of the file.
    fn copy(mender: &Mender<'_>, run: &Run) -> Result<Option<Pba>> {
        let state = mender.state;
        let shared = state.system.count_range(run.pba.get(), run.len);
        let most = u64::from(state.layout.inode_table_blocks());
        if run.unwritten || shared > most || lies_on_base(mender, run.pba, run.len) {
            return Ok(None);
        }
        mender.copy(run.pba, run.len)
    }
}

/// Is one of the blocks a superblock or a descriptor, or reserved for descriptors?
fn lies_on_base(mender: &Mender<'_>, pba: Pba, len: u64) -> bool {
    let layout = &mender.state.layout;
    let end = pba.get().saturating_add(len);
    let last = Pba(end.saturating_sub(1).min(layout.blocks_count.saturating_sub(1)));
    let first = layout.group_of(pba).unwrap_or(0);
    (first..=layout.group_of(last).unwrap_or(first)).any(|group| {
        let from = layout.group_first_block(group).get();
        let behind = from.saturating_add(layout.base_metadata(group).into());
        pba.get() < behind && from < end
    })
}

impl Policy for Prune {
    fn data(&mut self, mender: &Mender<'_>, run: Run) -> Result<Fate> {
        let (state, layout) = (mender.state, &mender.state.layout);
        let inside = state.cluster_blocks().saturating_sub(1);
        let bits = layout.cluster_bits;
        let (here, cluster) = (run.start >> bits, state.cluster(run.pba.get()));
        let is_split = self.last.is_some_and(|(file, last)| file == here && last != cluster);
        let is_aligned = run.pba.get() & inside == run.start & inside;
        let is_empty = self.is_directory && run.unwritten;
        if is_empty || is_split || !is_aligned || !layout.contains(run.pba, 1) {
            self.is_cut = true;
            return Ok(Fate::Drop);
        }
        let end = run.pba.get().saturating_add(run.len).saturating_sub(1);
        self.last = Some((run.end().saturating_sub(1) >> bits, state.cluster(end)));
        let room = layout.blocks_count.saturating_sub(run.pba.get());
        let len = run.len.min(room);
        if len < run.len {
            self.is_cut = true;
            return Ok(Fate::Part { skip: 0, len });
        }
        if state.system.count_range(run.pba.get(), len) == 0 {
            return Ok(Fate::Keep);
        }
        if let Some(place) = Self::copy(mender, &run)? {
            let end = place.get().saturating_add(len).saturating_sub(1);
            self.last = Some((run.end().saturating_sub(1) >> bits, state.cluster(end)));
            return Ok(Fate::Move(place));
        }
        self.is_cut = true;
        // The longer one of what is before the first such block and what is behind the last one.
        let is_system = |at: &u64| state.system.contains(run.pba.get().saturating_add(*at));
        let head = (0..len).position(|at| is_system(&at)).unwrap_or(0);
        let tail = (0..len).rev().position(|at| is_system(&at)).unwrap_or(0);
        let (head, tail) = (cairn_base::units::as_u64(head), cairn_base::units::as_u64(tail));
        Ok(match head.max(tail) {
            0 => Fate::Drop,
            longest if longest == head => Fate::Part { skip: 0, len: head },
            _ => Fate::Part { skip: len.saturating_sub(tail), len: tail },
        })
    }

    fn node(&mut self, mender: &Mender<'_>, pba: Pba) -> Result<Fate> {
        if mender.proved.is_others(mender.state, self.ino, pba) {
            self.is_cut = true;
            return Ok(Fate::Drop);
        }
        if !mender.state.system.contains(pba.get()) {
            return Ok(Fate::Keep);
        }
        let is_base = lies_on_base(mender, pba, 1);
        let place = if is_base { None } else { mender.copy(pba, 1)? };
        self.is_cut |= place.is_none();
        Ok(place.map_or(Fate::Drop, Fate::Copied))
    }
}

/// Drops what lies behind the end of the file.
pub(super) struct Truncate {
    /// Blocks of the file.
    pub(super) blocks: u64,
}

impl Policy for Truncate {
    fn data(&mut self, _: &Mender<'_>, run: Run) -> Result<Fate> {
        let kept = self.blocks.saturating_sub(run.start).min(run.len);
        Ok(match kept {
            0 => Fate::Drop,
            kept if kept == run.len => Fate::Keep,
            kept => Fate::Part { skip: 0, len: kept },
        })
    }

    fn node(&mut self, _: &Mender<'_>, _: Pba) -> Result<Fate> {
        Ok(Fate::Keep)
    }
}
