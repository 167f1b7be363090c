//! [`Claims`]: the visitor of a map that claims its blocks; [`Owners`]: the one that tells whose
//! blocks were claimed twice.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

use cairn_base::{Ino, Pba};
use cairn_check::{Finding, Place, Value};

use super::kinds;
use super::state::State;
use super::visitor::{Fault, Run, Visitor, Why};
use crate::format::layout::inodes;

/// What a walk has found of a file.
pub(super) struct Claims<'a> {
    state: &'a State,
    ino: Ino,
    /// Clusters of the file, with those of its map.
    pub(super) clusters: u64,
    /// The block behind the last one that has contents.
    pub(super) end_written: u64,
    /// The block behind the last one.
    pub(super) end: u64,
    /// The block behind the last one that the size has.
    pub(super) end_of_size: u64,
    /// Blocks with contents behind that.
    pub(super) behind: u64,
    /// Pieces in which the file lies.
    pub(super) pieces: u64,
    /// The whole map was seen.
    pub(super) is_read: bool,
    /// The whole map was seen, and no other file has a part of it.
    pub(super) is_whole: bool,
    /// Blocks of the map that were claimed before, by this file or another, and that the walk has
    /// gone down from since.
    seen: HashSet<u64>,
    first: Option<Pba>,
    /// The last cluster, of the file and of the volume.
    last_cluster: Option<(u64, u64)>,
    next_pba: u64,
}

impl<'a> Claims<'a> {
    pub(super) fn new(state: &'a State, ino: Ino) -> Self {
        Self {
            state,
            ino,
            clusters: 0,
            end_written: 0,
            end: 0,
            end_of_size: u64::MAX,
            behind: 0,
            pieces: 0,
            is_read: true,
            is_whole: true,
            seen: HashSet::new(),
            first: None,
            last_cluster: None,
            next_pba: 0,
        }
    }

    /// The block with the start of the file.
    pub(super) fn first_block(&self) -> Option<Pba> {
        self.first
    }

    fn place(&self, at: u64, pba: Pba) -> Place {
        Place::inode(self.ino.get()).at_file_block(at).at_block(pba.get())
    }

    /// Claims a block that no file block is in: of the map or of attributes. True if it is new.
    pub(super) fn claim_block(&mut self, pba: Pba) -> bool {
        self.clusters = self.clusters.saturating_add(1);
        let cluster = self.state.cluster(pba.get());
        let is_new = self.state.claimed.insert(cluster);
        if !is_new {
            (self.is_read, self.is_whole) = (false, false);
            self.state.twice.insert(cluster);
        }
        is_new
    }

    /// True if the blocks belong to the volume's structures; then that is found.
    pub(super) fn is_system(&mut self, at: u64, pba: Pba, len: u64) -> bool {
        let is_system = self.state.system.count_range(pba.get(), len) > 0;
        if is_system {
            (self.is_read, self.is_whole) = (false, false);
            let finding = Finding::new(&kinds::MAP_SYSTEM, self.place(at, pba));
            self.state.findings.add(finding.stored(len));
        }
        is_system
    }

    /// Bad blocks in a copy of the superblock or of the descriptors, which mke2fs lists, too.
    fn is_bad_copy(&self, run: &Run) -> bool {
        let layout = &self.state.layout;
        let group = layout.group_of(run.pba).filter(|group| *group > 0);
        let Some(group) = group.filter(|_| self.ino == inodes::BAD) else { return false };
        let end = u64::from(layout.base_metadata(group))
            .saturating_add(layout.group_first_block(group).get());
        layout.cluster_bits == 0 && run.pba.get().saturating_add(run.len) <= end
    }

    /// What lies in one cluster of the file lies in one cluster of the volume.
    fn check_cluster(&self, run: &Run) {
        let here = run.start >> self.state.layout.cluster_bits;
        let cluster = self.state.cluster(run.pba.get());
        if self.last_cluster.is_some_and(|(file, last)| file == here && last != cluster) {
            self.state.find(&kinds::MAP_CLUSTER, self.place(run.start, run.pba));
        }
    }

    fn claim_clusters(&mut self, run: &Run) {
        let state = self.state;
        self.check_cluster(run);
        let last = run.pba.get().saturating_add(run.len).saturating_sub(1);
        let (mut first, last) = (state.cluster(run.pba.get()), state.cluster(last));
        // Runs of one cluster of the file may lie in one cluster of the volume.
        let here = run.start >> state.layout.cluster_bits;
        if self.last_cluster == Some((here, first)) {
            first = first.saturating_add(1);
        }
        self.last_cluster = Some((run.end().saturating_sub(1) >> state.layout.cluster_bits, last));
        let count = last.saturating_add(1).saturating_sub(first);
        self.clusters = self.clusters.saturating_add(count);
        let mut is_whole = true;
        state.claimed.insert_range(first, count, &mut |at, len| {
            is_whole = false;
            state.twice.insert_range(at, len, &mut |_, _| ());
        });
        self.is_whole &= is_whole;
    }
}

impl Visitor for Claims<'_> {
    fn data(&mut self, run: Run) {
        if run.start == 0 {
            self.first = Some(run.pba);
        }
        if self.next_pba != run.pba.get() {
            self.pieces = self.pieces.saturating_add(1);
        }
        self.next_pba = run.pba.get().saturating_add(run.len);
        self.end = self.end.max(run.end());
        if !run.unwritten {
            self.end_written = self.end_written.max(run.end());
            let behind = run.end().saturating_sub(self.end_of_size).min(run.len);
            self.behind = self.behind.saturating_add(behind);
        }
        let inside = self.state.cluster_blocks().saturating_sub(1);
        if run.pba.get() & inside != run.start & inside {
            let place = self.place(run.start, run.pba);
            self.state.find(&kinds::MAP_CLUSTER, place);
        }
        if self.is_bad_copy(&run) {
            self.clusters = self.clusters.saturating_add(run.len);
        } else if !self.is_system(run.start, run.pba, run.len) {
            self.claim_clusters(&run);
        }
    }

    fn node(&mut self, at: u64, pba: Pba) -> bool {
        if self.is_system(at, pba, 1) {
            return false;
        }
        // What lies below is the file's, too, even if another file has this block as contents.
        let is_unseen = self.claim_block(pba) || self.seen.insert(pba.get());
        is_unseen && Owners::may_read(self.state, pba)
    }

    fn fault(&mut self, fault: Fault) {
        let Fault { kind, at, pba, why } = fault;
        let whole = [&kinds::EXTENT_CHECKSUM, &kinds::EXTENT_INDEX, &kinds::EXTENT_START];
        let whole = whole.map(|kind| kind.code);
        self.is_read &= whole.contains(&kind.code);
        self.is_whole &= self.is_read;
        let place = match pba {
            Pba(0) => Place::inode(self.ino.get()).at_file_block(at),
            pba => self.place(at, pba),
        };
        match why {
            Why::Decoder(why) => self.state.report(kind, &kinds::EXTENT_CHECKSUM, place, &why),
            Why::Number(number) => {
                let finding = Finding::new(kind, place).stored(Value::Number(number));
                self.state.findings.add(finding);
            }
        }
    }
}

/// How often each block may be read as one of several files, on the average: of the volume, and of
/// the maps that are read. A map that leads anywhere reads each once in each of the walks.
const READS: u64 = 8;
/// Bytes of blocks of maps that several files have which are read however small the maps are.
const BYTES_AGAIN: u64 = 16 << 20;

/// Finds the blocks of a file that were claimed twice.
pub(super) struct Owners<'a> {
    state: &'a State,
    ino: Ino,
    /// Blocks of several files that the walk has gone down from.
    seen: HashSet<u64>,
    /// The first such block, as a file block and one of the volume.
    first: Option<(u64, u64)>,
    /// Blocks that the file shares.
    shared: u64,
}

impl<'a> Owners<'a> {
    pub(super) fn new(state: &'a State, ino: Ino) -> Self {
        Self { state, ino, seen: HashSet::new(), first: None, shared: 0 }
    }

    fn look(&mut self, at: u64, pba: Pba, len: u64) {
        let state = self.state;
        let last = pba.get().saturating_add(len).saturating_sub(1);
        let (first, last) = (state.cluster(pba.get()), state.cluster(last));
        let count = last.saturating_add(1).saturating_sub(first);
        let shared = state.twice.count_range(first, count);
        if shared > 0 {
            let block = || state.twice.next(first).unwrap_or(first) << state.layout.cluster_bits;
            self.first.get_or_insert_with(|| (at, block()));
            self.shared = self.shared.saturating_add(shared.saturating_mul(state.cluster_blocks()));
        }
    }

    /// Adds the finding, if the file shares blocks. It is one for the file: a map can share very
    /// many pieces, and each of many inodes can have that map.
    pub(super) fn report(self) {
        let Some((at, block)) = self.first else { return };
        let place = Place::inode(self.ino.get()).at_file_block(at).at_block(block);
        let blocks = Value::text(format!("{} blocks", self.shared));
        self.state.findings.add(Finding::new(&kinds::MAP_TWICE, place).stored(blocks));
    }

    /// May a walk read this block? Blocks of one file are read once; those of several files, so
    /// often that no wrong pointer reaches the limit, and a volume of nothing else ends.
    pub(super) fn may_read(state: &State, pba: Pba) -> bool {
        if !state.twice.contains(state.cluster(pba.get())) {
            state.totals.read_once.fetch_add(1, Relaxed);
            return true;
        }
        Self::may_read_again(state)
    }

    /// As [`Owners::may_read`], of a block that this walk has read before.
    pub(super) fn may_read_again(state: &State) -> bool {
        let again = state.totals.read_twice.fetch_add(1, Relaxed);
        let least = BYTES_AGAIN >> state.layout.block_bits;
        let by_maps = state.totals.read_once.load(Relaxed).saturating_mul(READS);
        let by_volume = state.layout.blocks_count.saturating_mul(READS);
        if again >= by_volume.min(by_maps.saturating_add(least)) {
            state.totals.is_cut.store(true, Relaxed);
        }
        !Self::are_too_many(state)
    }

    /// Was so much read of blocks of several files that walks end before their maps do?
    pub(super) fn are_too_many(state: &State) -> bool {
        state.totals.is_cut.load(Relaxed)
    }
}

impl Visitor for Owners<'_> {
    fn data(&mut self, run: Run) {
        self.look(run.start, run.pba, run.len);
    }

    fn node(&mut self, at: u64, pba: Pba) -> bool {
        self.look(at, pba, 1);
        let is_new = !self.state.twice.contains(self.state.cluster(pba.get()))
            || self.seen.insert(pba.get());
        is_new
            && self.state.system.count_range(pba.get(), 1) == 0
            && Self::may_read(self.state, pba)
    }

    fn fault(&mut self, _: Fault) {}
}
