//! Inodes, read by the form and the type that they prove: as the check corrects them. What
//! contradicts itself and proves nothing is copied as it is, and told.

use cairn_base::{Ino, Pba};
use cairn_cache::block::Image;
use cairn_vfs::FileKind;

use crate::form::{Around, Maps, loaded, set, shape, types};
use crate::format::extent::Extent;
use crate::format::inode::Inode as Record;
use crate::format::layout::Layout;
use crate::raw::RawVolume;
use crate::raw::directory::kind_of;
use crate::raw::map::{Child, Seen, Visitor, walk};

/// Blocks of a map that are read for the first block of a file.
const MOST_TO_FIRST: u32 = 8;
/// Blocks of pointers that are counted.
const MOST_NODES: u32 = 64;

/// An inode, and what is wrong with its record.
pub(super) struct Judged {
    pub(super) record: Record,
    pub(super) wrong: Option<String>,
}

/// An inode as it proves to be. `said` is the type that its name has.
pub(super) fn judge(
    volume: &RawVolume,
    ino: Ino,
    bytes: &[u8],
    said: Option<FileKind>,
) -> Option<Judged> {
    let stored = Record::decode_unchecked(bytes, &volume.layout)?;
    let flags = shape::flags(volume, ino, &stored);
    let with = |mode, flags| {
        let mut bytes = bytes.to_vec();
        set(&mut bytes, mode, flags);
        Record::decode_unchecked(&bytes, &volume.layout)
    };
    let (mut record, mut wrong) = (stored, Vec::new());
    if flags != record.flags {
        let (stored, right) = (record.flags.bits(), flags.bits());
        wrong.push(format!(
            "i_flags is {stored:#x}, and it was read by {right:#x}, as it shows itself"
        ));
        record = with(None, Some(right))?;
    }
    if let Some(kind) = kind(volume, ino, &record, said) {
        let stored = kind_of(&record).map_or("of no type", FileKind::words);
        wrong.push(format!("i_mode says {stored}, and it was read as a {}", kind.words()));
        record = with(Some(types::mode_of(record.mode, kind)), Some(flags.bits()))?;
    }
    if wrong.is_empty()
        && let Some(kind) = kind_of(&record)
        && let Err(why) = loaded::check(volume, ino, &record, kind)
    {
        wrong.push(format!("{why}: what was copied may be wrong"));
    }
    let wrong = (!wrong.is_empty()).then(|| wrong.join("; "));
    Some(Judged { record, wrong })
}

/// The type of an inode, if it is not that of its mode.
fn kind(volume: &RawVolume, ino: Ino, record: &Record, said: Option<FileKind>) -> Option<FileKind> {
    let fitting = types::contradicted(volume, ino, record);
    if !fitting.is_empty() {
        return types::decided(record, said.map(Some), &fitting).map(|(kind, _)| kind);
    }
    // The name decides, unless a checksum says that the mode is what was written.
    let is_sealed = volume.layout.checksum.seed().is_some();
    let said = said.filter(|said| !is_sealed && Some(*said) != kind_of(record))?;
    types::may_be(volume, ino, record, said).then_some(said)
}

impl Around for RawVolume {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn first_block(&self, ino: Ino, record: &Record) -> Option<Vec<u8>> {
        let mut first = First { found: None, left: MOST_TO_FIRST };
        walk(self, ino, record, &mut first);
        self.block(first.found?).ok().map(|image| image.to_vec())
    }

    fn attribute_block(&self, record: &Record) -> Option<Vec<u8>> {
        self.block(record.file_acl).ok().map(|image| image.to_vec())
    }
}

impl Maps for RawVolume {
    fn pointed(&self, ino: Ino, record: &Record) -> Option<u64> {
        let mut count = Count { blocks: Some(0), left: MOST_NODES };
        walk(self, ino, record, &mut count);
        count.blocks
    }
}

/// Looks for the first block of a file.
struct First {
    found: Option<Pba>,
    left: u32,
}

impl Visitor for First {
    fn fetch(&mut self, volume: &RawVolume, child: Child) -> Result<Image, String> {
        let left = self.left.checked_sub(1).filter(|_| self.found.is_none() && child.start == 0);
        self.left = left.ok_or("it is not asked for")?;
        volume.block(child.block).map_err(|error| error.to_string())
    }

    fn node(&mut self, _: &Seen<'_>) {}

    fn extent(&mut self, extent: Extent) {
        if extent.start == 0 && !extent.unwritten {
            self.found.get_or_insert(extent.pba);
        }
    }

    fn fault(&mut self, _: u64, _: String) {}
}

/// Counts the blocks of a map; `None` if a part of it is impossible, or it has too many nodes.
struct Count {
    blocks: Option<u64>,
    left: u32,
}

impl Count {
    fn add(&mut self, blocks: u64) {
        self.blocks = self.blocks.map(|count| count.saturating_add(blocks));
    }
}

impl Visitor for Count {
    fn fetch(&mut self, volume: &RawVolume, child: Child) -> Result<Image, String> {
        self.left = self.left.checked_sub(1).ok_or("it has too many nodes")?;
        volume.block(child.block).map_err(|error| error.to_string())
    }

    fn node(&mut self, seen: &Seen<'_>) {
        self.add(seen.block.is_some().into());
    }

    fn extent(&mut self, extent: Extent) {
        self.add(extent.len);
    }

    fn fault(&mut self, _: u64, _: String) {
        self.blocks = None;
    }
}
