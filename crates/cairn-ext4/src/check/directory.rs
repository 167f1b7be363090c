//! One directory: its blocks, its index, its names.

use cairn_base::{FileBlock, Ino, Pba};
use cairn_check::{Finding, Kind};

use super::claims::Owners;
use super::dir_blocks::Directory;
use super::entries::Names;
use super::htree::{self, Role};
use super::state::State;
use super::visitor::{Fault, Run, Visitor};
use super::{kinds, map, one_bit};
use crate::corrupt::Corrupt;
use crate::format::dir_entry::{self, DirFormat};
use crate::format::features::{Compat, Incompat};
use crate::format::htree::{NodeKind, verify_node};
use crate::format::inode::InodeFlags;
use crate::format::xattr::{self, Value, XattrLocation};

/// Bytes that are read at once.
const PIECE: u64 = 256 << 10;

struct Collect<'a> {
    state: &'a State,
    runs: Vec<Run>,
}

impl Visitor for Collect<'_> {
    fn data(&mut self, run: Run) {
        self.runs.push(run);
    }

    fn node(&mut self, _: u64, pba: Pba) -> bool {
        self.state.system.count_range(pba.get(), 1) == 0 && Owners::may_read(self.state, pba)
    }

    fn fault(&mut self, _: Fault) {}
}

/// Reads the record and the map of a directory.
pub(super) fn open(state: &State, ino: Ino) -> Option<Directory<'_>> {
    let record = state.record(ino)?;
    let layout = &state.layout;
    let format = DirFormat {
        block_size: state.source.block_bytes(),
        filetype: layout.features.incompat(Incompat::FILETYPE),
        seed: record.seed(ino, layout),
        inodes_count: layout.inodes_count,
    };
    let blocks = record.size.checked_div(layout.block_size.into()).unwrap_or(0);
    let mut directory = Directory { state, ino, record, format, runs: Vec::new(), blocks };
    if !directory.record.flags.contains(InodeFlags::INLINE_DATA) {
        let mut collect = Collect { state, runs: Vec::new() };
        map::walk(state, ino, &directory.record, &mut collect);
        directory.runs = collect.runs;
    }
    Some(directory)
}

/// Checks a directory.
pub(super) fn check(state: &State, ino: Ino) {
    let Some(directory) = open(state, ino) else { return };
    if directory.record.flags.contains(InodeFlags::INLINE_DATA) {
        return directory.inline();
    }
    let is_indexed = directory.record.flags.contains(InodeFlags::INDEX)
        && state.layout.features.compat(Compat::DIR_INDEX);
    let index = if is_indexed { htree::survey(&directory) } else { htree::Index::default() };
    directory.walk(&index);
}

impl Directory<'_> {
    fn walk(&self, index: &htree::Index) {
        let mut names = Names::new(self);
        let mut next = 0;
        for run in &self.runs {
            if run.start >= self.blocks {
                break;
            }
            self.hole(next, run.start);
            next = run.end();
            self.run(run, index, &mut names);
        }
        self.hole(next, self.blocks);
        names.finish();
    }

    /// The blocks from `from` to `to` are missing.
    fn hole(&self, from: u64, to: u64) {
        if from < to {
            let finding = Finding::new(&kinds::DIRECTORY_HOLE, self.place(from));
            self.state.findings.add(finding.stored(to.saturating_sub(from)));
        }
    }

    fn run(&self, run: &Run, index: &htree::Index, names: &mut Names<'_>) {
        let end = run.end().min(self.blocks);
        if run.unwritten {
            return self.hole(run.start, end);
        }
        if self.state.system.count_range(run.pba.get(), run.len) > 0 {
            // Found when the map was walked.
            return;
        }
        let size = u64::from(self.state.layout.block_size);
        let piece = PIECE.checked_div(size).unwrap_or(1).max(1);
        let mut at = run.start;
        while at < end {
            let pba = Pba(run.pba.get().saturating_add(at.saturating_sub(run.start)));
            let mut len = piece.min(end.saturating_sub(at));
            if !Owners::may_read(self.state, pba) {
                return;
            }
            let first = self.state.cluster(pba.get());
            if self.state.twice.count_range(first, len) > 0 {
                // Block by block, because each must be allowed.
                len = 1;
            }
            match self.state.source.read(pba, len) {
                Ok(bytes) => {
                    let blocks = bytes.chunks_exact(self.format.block_size);
                    for (block, bytes) in (at..end).zip(blocks) {
                        let pba = Pba(pba.get().saturating_add(block.saturating_sub(at)));
                        self.one((block, pba), bytes, index, names);
                    }
                }
                Err(error) => {
                    let place = self.place(at).at_block(pba.get());
                    self.state.unreadable(place, &error);
                }
            }
            at = at.saturating_add(len);
        }
    }

    fn one(
        &self,
        (block, pba): (u64, Pba),
        bytes: &[u8],
        index: &htree::Index,
        names: &mut Names<'_>,
    ) {
        let place = FileBlock(block);
        let node = |kind| verify_node(bytes, kind, &self.format, self.ino, place);
        let follows = &kinds::DIRECTORY_CHECKSUM_ONLY;
        match index.role(block) {
            Some(Role::Root) => {
                self.seal(block, node(NodeKind::Root), follows);
                names.dots(bytes, 0..bytes.len());
            }
            Some(Role::Inner) => self.seal(block, node(NodeKind::Inner), follows),
            role => {
                let sealed = dir_entry::verify_leaf(bytes, &self.format, self.ino, place);
                let is_mismatch = matches!(sealed, Err(Corrupt::Checksum { .. }));
                let is_open = is_mismatch && !dir_entry::proves_entries(bytes, &self.format);
                if is_open && let Err(why) = &sealed {
                    let at = (self.ino, &self.format, place);
                    let right = one_bit::leaf(self.state, self.place(block), pba, at, bytes, why);
                    if let Some(right) = right {
                        return names.leaf(block, &right, role);
                    }
                }
                let kind = if is_open { &kinds::DIRECTORY_CHECKSUM } else { follows };
                self.seal(block, sealed, kind);
                names.leaf(block, bytes, role);
            }
        }
    }

    /// Reports a wrong checksum. An index follows from the names, and entries that are proved or
    /// have no checksum lose nothing, unless something else contradicts them.
    fn seal(&self, block: u64, sealed: Result<(), Corrupt>, kind: &'static Kind) {
        if let Err(why) = sealed {
            self.state.report(kind, kind, self.place(block), &why);
        }
    }

    /// A directory in its inode: two regions of entries, and the parent's number.
    fn inline(&self) {
        let Ok(attributes) = xattr::decode(&self.record.extra, XattrLocation::Inode, self.ino)
        else {
            return;
        };
        let tail = attributes.iter().find_map(|attribute| match attribute.value {
            Value::Here(value) if attribute.index == 7 && attribute.name == b"data" => Some(value),
            _ => None,
        });
        let mut names = Names::new(self);
        let parent = self.record.block.first_chunk().copied().map_or(0, u32::from_le_bytes);
        names.inline_dots(parent);
        names.region(0, &self.record.block, 4..self.record.block.len());
        let tail = tail.unwrap_or_default();
        if !tail.is_empty() {
            names.region(0, tail, 0..tail.len());
        }
        names.finish();
    }
}
