//! The blocks of a directory at its final size: one linear block, or an index over leaves that are
//! filled in the order of hashes.

use std::ops::Range;

use cairn_base::units::stored;
use cairn_vfs::FileKind;
use cairn_vfs::new_tree::Source;

use super::super::files::{LOST_AND_FOUND, LOST_AND_FOUND_NAME};
use super::error::{PopulateError, PopulateResult};
use super::settings::Settings;
use crate::checksum::InodeSeed;
use crate::dir::full;
use crate::dir::hash::NameHash;
use crate::format::dir_entry::{self, DirFormat, entry_len};

/// Bytes of `.` and `..`.
const DOTS: usize = entry_len(1) + entry_len(2);

/// The names of a directory.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) id: u32,
    /// Entries in the source.
    pub(super) entries: u32,
    /// A `lost+found` that the source has not comes last.
    pub(super) lost_found: bool,
}

impl Names<'_> {
    fn count(&self) -> u32 {
        self.entries + u32::from(self.lost_found)
    }

    fn name(&self, index: u32) -> &[u8] {
        if index < self.entries { self.source.entry(self.id, index).0 } else { LOST_AND_FOUND_NAME }
    }

    fn len(&self, index: u32) -> usize {
        entry_len(self.name(index).len())
    }

    /// True if the names do not fit one block, and directories are indexed then.
    pub(super) fn have_index(&self, settings: &Settings) -> bool {
        let room = settings.directory(InodeSeed(settings.checksum.seed())).leaf_len();
        let fits = (0..self.count()).try_fold(DOTS, |all, index| {
            let all = all + self.len(index);
            (all <= room).then_some(all)
        });
        settings.dir_index() && fits.is_none()
    }
}

/// An entry: its hash, and its index in the source.
type Hashed = (NameHash, u32);

/// The blocks of a directory.
pub(super) enum Form {
    /// Ranges of entries, in the order of the source. The dots are in the first one.
    Linear(Vec<Range<u32>>),
    /// Entries in the order of their hashes, and for each leaf the first entry.
    Indexed { entries: Vec<Hashed>, leaves: Vec<usize> },
}

impl Form {
    /// # Errors
    /// The index would need too many levels.
    pub(super) fn new(names: &Names<'_>, settings: &Settings) -> PopulateResult<Self> {
        let format = settings.directory(InodeSeed(settings.checksum.seed()));
        let room = format.leaf_len();
        if !names.have_index(settings) {
            return Ok(Self::Linear(linear(names, room)));
        }
        let hash = |index| {
            let hash = settings.hash.hash(settings.hash.default_version, names.name(index));
            (hash.expect("mkfs knows the hash that it chose"), index)
        };
        let mut entries: Vec<Hashed> = (0..names.count()).map(hash).collect();
        entries.sort_unstable();
        let leaves = full::leaves(entries.iter().map(|(_, index)| names.len(*index)), &format);
        let form = Self::Indexed { entries, leaves };
        if form.levels(&format).is_none_or(|levels| levels > settings.index_levels()) {
            let why = format!("{} entries are too many for one directory", names.count());
            return Err(PopulateError::node(names.source.path(names.id), why));
        }
        Ok(form)
    }

    /// Levels of nodes below the root of the index. `None` if there are too many leaves.
    fn levels(&self, format: &DirFormat) -> Option<u8> {
        let Self::Indexed { leaves, .. } = self else { return Some(0) };
        full::levels(leaves.len(), format)
    }

    /// Number of blocks.
    pub(super) fn blocks(&self, settings: &Settings) -> usize {
        match self {
            Self::Linear(blocks) => blocks.len(),
            Self::Indexed { leaves, .. } => {
                let format = settings.directory(InodeSeed(settings.checksum.seed()));
                full::blocks(leaves.len(), self.levels(&format).unwrap_or(0), &format)
            }
        }
    }
}

/// Ranges of entries that fit a block each.
fn linear(names: &Names<'_>, room: usize) -> Vec<Range<u32>> {
    let (mut blocks, mut first, mut filled) = (Vec::new(), 0, DOTS);
    for index in 0..names.count() {
        if filled + names.len(index) > room {
            blocks.push(first..index);
            (first, filled) = (index, 0);
        }
        filled += names.len(index);
    }
    blocks.push(first..names.count());
    blocks
}

/// What the blocks of a directory are made of.
pub(super) struct Writer<'a> {
    pub(super) names: Names<'a>,
    pub(super) format: DirFormat,
    pub(super) hash_version: u8,
    /// Inode numbers of the directory and its parent.
    pub(super) dots: (u32, u32),
    /// The inode number of a node.
    pub(super) ino: &'a dyn Fn(u32) -> u32,
}

impl Writer<'_> {
    pub(super) fn row(&self, index: u32) -> (u32, u8, &[u8]) {
        if index >= self.names.entries {
            let kind = self.format.file_type(FileKind::Directory);
            return (stored(LOST_AND_FOUND.get()), kind, LOST_AND_FOUND_NAME);
        }
        let (name, id) = self.names.source.entry(self.names.id, index);
        let kind = self.names.source.node(id).kind.file_kind();
        ((self.ino)(id), self.format.file_type(kind), name)
    }

    /// The bytes of all blocks. Blocks behind those of a linear form are empty leaves.
    pub(super) fn encode(&self, form: &Form, out: &mut [u8]) {
        match form {
            Form::Linear(blocks) => self.linear(blocks, out),
            Form::Indexed { entries, leaves } => {
                let levels = form.levels(&self.format).unwrap_or(0);
                self.indexed(entries, leaves, levels, out);
            }
        }
    }

    fn linear(&self, blocks: &[Range<u32>], out: &mut [u8]) {
        let kind = self.format.file_type(FileKind::Directory);
        let dots = [(self.dots.0, kind, &b"."[..]), (self.dots.1, kind, b"..")];
        for (number, block) in out.chunks_mut(self.format.block_size).enumerate() {
            let range = blocks.get(number).cloned().unwrap_or(0..0);
            let rows = range.map(|index| self.row(index));
            let first = dots.iter().copied().filter(|_| number == 0);
            dir_entry::pack_leaf(block, &self.format, first.chain(rows));
        }
    }

    fn indexed(&self, entries: &[Hashed], leaves: &[usize], levels: u8, out: &mut [u8]) {
        let (format, hash_version) = (&self.format, self.hash_version);
        let head = full::Head { format, hash_version, dots: self.dots };
        let rows = Rows { writer: self, entries };
        head.encode(leaves, levels, &rows, out).expect("the blocks were planned");
    }
}

struct Rows<'a> {
    writer: &'a Writer<'a>,
    entries: &'a [Hashed],
}

impl full::Entries for Rows<'_> {
    fn count(&self) -> usize {
        self.entries.len()
    }

    fn entry(&self, number: usize) -> Option<(u32, full::Row<'_>)> {
        let (hash, index) = self.entries.get(number)?;
        Some((hash.major, self.writer.row(*index)))
    }
}
