//! The form of an inode: flags and sizes that say how its body is read, against the body itself.
//!
//! `i_inline`, `i_extra_isize` and `i_inline_xattr_size` say where pointers, contents and
//! attributes lie. A wrong value that is possible gives a file other contents. What lies in the
//! body shows the right one: blocks whose summaries name the pointer to them, the header of
//! attributes, the entry `.`, zeros where nothing may be. A form is proved if nothing speaks
//! against it, something speaks for it, and it differs in one field from a form against which
//! something speaks.
//!
//! An inode without pointers, contents and attributes of its own shows nothing. If it has nodes,
//! the end of its blocks does (`of_nodes`), unless it lies before the end of the file, as holes
//! may.

use cairn_base::units::as_u64;
use cairn_vfs::FileKind;

use super::Around;
use crate::error::Result;
use crate::format::block::{is_zero, len_without_zeros};
use crate::format::dentry::Dentries;
use crate::format::inode::{
    Advise, DEFAULT_INLINE_XATTR_WORDS, EXTRA_SIZE, FileFlags, InlineFlags,
};
use crate::format::units::{BLOCK_BYTES, BlockAddr, Nid};
use crate::format::{Features, Inode, xattr};

/// Pointers that are compared with the summaries.
const ASKED: usize = 8;
/// Where the words of pointers, contents and attributes begin.
const WORDS_AT: usize = 360;
const WORD: usize = size_of::<u32>();

/// A field of the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    /// As the specification has it.
    name: &'static str,
    at: usize,
    width: usize,
}

const INLINE: Field = Field { name: "i_inline", at: 3, width: 1 };
const EXTRA: Field = Field { name: "i_extra_isize", at: WORDS_AT, width: 2 };
const XATTR: Field = Field { name: "i_inline_xattr_size", at: 362, width: 2 };

impl Field {
    fn read(self, image: &[u8]) -> u64 {
        let bytes = image.get(self.at..self.at.saturating_add(self.width)).unwrap_or_default();
        bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    fn write(self, image: &mut [u8], value: u64) {
        let to = image.get_mut(self.at..self.at.saturating_add(self.width)).unwrap_or_default();
        to.iter_mut().zip(value.to_le_bytes()).for_each(|(to, byte)| *to = byte);
    }

    fn with(self, image: &[u8], value: u64) -> Vec<u8> {
        let mut image = image.to_vec();
        self.write(&mut image, value);
        image
    }

    fn change(self, image: &[u8], right: u64) -> Change {
        Change { field: self.name, stored: self.read(image), right }
    }
}

/// A field that is wrong, and what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) field: &'static str,
    pub(crate) stored: u64,
    pub(crate) right: u64,
}

/// Sets a field of the form in an inode's block. False if the name is none of such a field.
pub(crate) fn set(image: &mut [u8], name: &str, value: u64) -> bool {
    let field = [INLINE, EXTRA, XATTR].into_iter().find(|field| field.name == name);
    field.inspect(|field| field.write(image, value)).is_some()
}

/// What speaks for a form and against it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weight {
    against: u32,
    support: u32,
}

/// What is usual on the volume.
#[derive(Default)]
struct Usual {
    /// Bytes of extra attributes: those of the root, and those of new inodes.
    extra: Vec<u16>,
    /// Words of inline attributes.
    words: Vec<u16>,
}

/// The block of an inode with the form that its body proves, if it has another one, and what is
/// wrong.
///
/// # Errors
/// The device's.
pub(crate) fn proved(
    around: &mut dyn Around,
    ino: Nid,
    image: &[u8],
) -> Result<Option<(Change, Vec<u8>)>> {
    let now = weigh(around, (ino, image), &Usual::default())?;
    if now.is_some_and(|now| now.against == 0) {
        return Ok(None);
    }
    // The root is no example of itself.
    let usual = if ino == Nid::ROOT { Usual::default() } else { usual(around)? };
    let features = around.layout().features;
    let now = weigh(around, (ino, image), &usual)?;
    let mut most = now.map_or(0, |now| now.support);
    let mut found = None;
    for (field, value) in candidates(features, image, &usual) {
        let other = field.with(image, value);
        let weight = weigh(around, (ino, &other), &usual)?;
        // What both forms have shows neither.
        let shared = field != EXTRA && shares_extra(image, &other, &usual);
        let weight = weight.filter(|weight| weight.support > shared.into());
        let is_more = |support: u32| match &found {
            // As much, and nothing against it, is more than with something against it.
            None => support > 0 && support >= most,
            Some(_) => support > most,
        };
        if let Some(weight) = weight.filter(|one| one.against == 0 && is_more(one.support)) {
            most = weight.support;
            found = Some((field, value, other));
        }
    }
    Ok(found.map(|(field, value, other)| (field.change(image, value), other)))
}

/// Does nothing in the body of an inode speak against its form?
///
/// # Errors
/// The device's.
pub(crate) fn fits(around: &mut dyn Around, (ino, image): (Nid, &[u8])) -> Result<bool> {
    let weight = weigh(around, (ino, image), &Usual::default())?;
    Ok(weight.is_some_and(|weight| weight.against == 0))
}

/// After the nodes were followed: does the last block lie at the end of the file, if a field of the
/// form has another value, and only then? Returns that field.
///
/// # Errors
/// The device's.
pub(crate) fn of_nodes(
    around: &mut dyn Around,
    (ino, record, image): (Nid, &Inode, &[u8]),
    end: u64,
) -> Result<Option<Change>> {
    let right = record.size.div_ceil(BLOCK_BYTES);
    let slots = u64::from(record.address_slots());
    let has_more = record.advise.intersects(Advise::KEEP_SIZE | Advise::VERITY | Advise::ENCRYPT)
        || record.cluster_blocks().is_some();
    if end == right || end <= slots || has_more {
        return Ok(None);
    }
    let (usual, features) = (usual(around)?, around.layout().features);
    for (field, value) in candidates(features, image, &usual) {
        let is_usual = match field {
            EXTRA => is_among(&usual.extra, field.read(image)),
            XATTR => is_among(&usual.words, field.read(image)),
            _ => true,
        };
        let is_better = match field {
            EXTRA => is_among(&usual.extra, value),
            XATTR => is_among(&usual.words, value),
            // One bit, that of attributes.
            _ => value ^ field.read(image) == InlineFlags::XATTR.bits().into(),
        };
        // A file that ends in a hole is usual; blocks behind its end are not.
        if !is_better || (end < right && is_usual) {
            continue;
        }
        let other = field.with(image, value);
        let Ok(form) = Inode::decode(&other, ino, features) else { continue };
        let end = end.saturating_sub(slots).saturating_add(form.address_slots().into());
        let weight = weigh(around, (ino, &other), &usual)?;
        if end == right && weight.is_some_and(|weight| weight.against == 0) {
            return Ok(Some(field.change(image, value)));
        }
    }
    Ok(None)
}

/// Have both forms the same extra attributes, of a usual size?
fn shares_extra(image: &[u8], other: &[u8], usual: &Usual) -> bool {
    let flag = u64::from(InlineFlags::EXTRA_ATTR.bits());
    let has_extra = |image: &[u8]| INLINE.read(image) & flag != 0;
    has_extra(image) && has_extra(other) && is_among(&usual.extra, EXTRA.read(image))
}

fn is_among(list: &[u16], value: u64) -> bool {
    list.iter().any(|one| u64::from(*one) == value)
}

fn usual(around: &mut dyn Around) -> Result<Usual> {
    let mut usual = Usual::default();
    if let Some(extra) = around.root()?.and_then(|root| root.extra) {
        usual.extra.push(extra.size);
        usual.words.push(extra.inline_xattr_size);
    }
    usual.extra.push(EXTRA_SIZE);
    usual.words.extend(u16::try_from(DEFAULT_INLINE_XATTR_WORDS));
    Ok(usual)
}

/// Forms that differ in one field, the usual ones first.
fn candidates(features: Features, image: &[u8], usual: &Usual) -> Vec<(Field, u64)> {
    let now = INLINE.read(image);
    let mut found = Vec::new();
    let mode = image.iter().take(2).rev().fold(0, |mode, byte| mode << 8 | u32::from(*byte));
    let contents = match FileKind::from_mode(mode) {
        Some(FileKind::Directory) => InlineFlags::DENTRY,
        Some(FileKind::Regular | FileKind::Symlink) => InlineFlags::DATA,
        _ => InlineFlags::empty(),
    };
    let none = InlineFlags::empty();
    let form = InlineFlags::XATTR | InlineFlags::DATA | InlineFlags::DENTRY;
    let form = u64::from((form | InlineFlags::EXTRA_ATTR).bits());
    for extra in [none, InlineFlags::EXTRA_ATTR] {
        for contents in [none, contents] {
            for attributes in [none, InlineFlags::XATTR] {
                let value = now & !form | u64::from((extra | contents | attributes).bits());
                if value != now && !found.contains(&(INLINE, value)) {
                    found.push((INLINE, value));
                }
            }
        }
    }
    // The nearest ones first.
    found.sort_by_key(|(_, value)| (value ^ now).count_ones());
    if now & u64::from(InlineFlags::EXTRA_ATTR.bits()) == 0 {
        return found;
    }
    let sizes = usual.extra.iter().copied().chain(
        (WORD..=usize::from(EXTRA_SIZE)).step_by(WORD).filter_map(|size| u16::try_from(size).ok()),
    );
    found.extend(sizes.map(|size| (EXTRA, size.into())));
    if features.contains(Features::FLEXIBLE_INLINE_XATTR) {
        let words = usual.words.iter().copied().chain(words_of_header(image));
        found.extend(words.map(|words| (XATTR, words.into())));
    }
    found.retain(|(field, value)| field.read(image) != *value);
    found
}

/// Words from the header of attributes to the end of the words.
fn words_of_header(image: &[u8]) -> Option<u16> {
    let end = end_of_words(image.len());
    let words = image.get(WORDS_AT..end)?.chunks_exact(WORD);
    let at = words.clone().rposition(|word| word == xattr::MAGIC.to_le_bytes())?;
    u16::try_from(words.len().saturating_sub(at)).ok()
}

/// Where the nids begin.
const fn end_of_words(len: usize) -> usize {
    const NIDS_AND_FOOTER: usize = 44;
    len.saturating_sub(NIDS_AND_FOOTER)
}

/// What speaks for the form of an inode, and against it. None if it is impossible.
fn weigh(
    around: &mut dyn Around,
    (ino, image): (Nid, &[u8]),
    usual: &Usual,
) -> Result<Option<Weight>> {
    let features = around.layout().features;
    let Ok(record) = Inode::decode(image, ino, features) else { return Ok(None) };
    let mut weight = Weight::default();
    weight.attributes(&record, image);
    weight.extra(&record, usual);
    if record.inline.contains(InlineFlags::DATA) {
        weight.data(ino, &record, image);
    } else if record.inline.contains(InlineFlags::DENTRY) {
        weight.entries(ino, &record, image);
    } else if matches!(record.kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink) {
        weight.pointers(around, (ino, &record, image))?;
    } else {
        weight.special(&record, image);
    }
    Ok(Some(weight))
}

impl Weight {
    fn ask(&mut self, is_right: bool) {
        self.against = self.against.saturating_add((!is_right).into());
    }

    fn prove(&mut self, is_shown: bool) {
        self.support = self.support.saturating_add(is_shown.into());
    }

    /// The header of attributes is where the form says, and nowhere else.
    fn attributes(&mut self, record: &Inode, image: &[u8]) {
        let range = record.inline_xattr_range();
        let magic = xattr::MAGIC.to_le_bytes();
        if range.is_empty() {
            let words = match record.inline_xattr_words() {
                0 => DEFAULT_INLINE_XATTR_WORDS,
                words => words,
            };
            let len = usize::try_from(words).unwrap_or(0).saturating_mul(WORD);
            let tail = image.get(range.end.saturating_sub(len)..).unwrap_or_default();
            return self.ask(!tail.starts_with(&magic));
        }
        let area = image.get(range).unwrap_or_default();
        let is_header = area.starts_with(&magic);
        // With a node of attributes, the header is in the inode nevertheless.
        self.ask(is_header || (is_zero(area) && record.xattr_nid.is_none()));
        self.prove(is_header);
    }

    fn extra(&mut self, record: &Inode, usual: &Usual) {
        let Some(extra) = &record.extra else { return };
        self.prove(usual.extra.contains(&extra.size));
        self.ask(record.flags.contains(FileFlags::COMPR) || extra.compr_blocks == 0);
        self.ask(extra.has_possible_crtime());
    }

    /// Contents in the inode: nothing before them, nothing behind them.
    fn data(&mut self, ino: Nid, record: &Inode, image: &[u8]) {
        let bytes = self.inline(record, image);
        let len = len_without_zeros(bytes);
        self.ask(as_u64(len) <= record.size);
        self.prove(len > 0 && as_u64(len) == record.size);
        self.ask(!begins_with_itself(bytes, ino));
    }

    fn entries(&mut self, ino: Nid, record: &Inode, image: &[u8]) {
        let bytes = self.inline(record, image);
        let is_it = begins_with_itself(bytes, ino);
        self.ask(is_it);
        self.prove(is_it);
    }

    fn inline<'i>(&mut self, record: &Inode, image: &'i [u8]) -> &'i [u8] {
        let range = record.inline_data_range();
        let before = range.start.saturating_sub(WORD)..range.start;
        self.ask(image.get(before).is_some_and(is_zero));
        self.ask(record.nids.iter().all(|nid| nid.is_none()));
        self.ask(record.blocks == own_blocks(record));
        image.get(range).unwrap_or_default()
    }

    fn pointers(
        &mut self,
        around: &mut dyn Around,
        (ino, record, image): (Nid, &Inode, &[u8]),
    ) -> Result<()> {
        let layout = *around.layout();
        let is_compressed = record.flags.contains(FileFlags::COMPR);
        let has_summaries = !layout.features.contains(Features::RO);
        let (mut asked, mut blocks) = (0_usize, own_blocks(record));
        for (slot, addr) in (0_u16..).zip(record.data_pointers(image)) {
            blocks = blocks.saturating_add((addr != BlockAddr::NULL).into());
            if !addr.is_address() {
                self.ask(addr != BlockAddr::COMPRESS || is_compressed);
                continue;
            }
            if !layout.in_main(addr) {
                self.ask(false);
                continue;
            }
            if asked == ASKED || !has_summaries {
                continue;
            }
            asked = asked.saturating_add(1);
            if let Some((is_node, owner)) = around.owner(addr)? {
                let is_own = !is_node && owner.nid == ino && owner.ofs_in_node == slot;
                self.ask(is_own);
                self.prove(is_own);
            }
        }
        if record.kind == FileKind::Directory {
            let first = record.data_pointers(image).next().unwrap_or(BlockAddr::NULL);
            self.ask(layout.in_main(first));
        }
        if !is_compressed && record.nids.iter().all(|nid| nid.is_none()) {
            self.ask(record.blocks == blocks);
        }
        Ok(())
    }

    /// A device has its number, and other special files have nothing.
    fn special(&mut self, record: &Inode, image: &[u8]) {
        let mut words = record.data_pointers(image).map(BlockAddr::get);
        if matches!(record.kind, FileKind::CharDevice | FileKind::BlockDevice) {
            let (old, new) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
            self.ask(old <= u32::from(u16::MAX) && (old == 0 || new == 0));
        }
        let is_empty = words.all(|word| word == 0);
        self.ask(is_empty);
        self.prove(is_empty);
    }
}

/// The inode's own block, and that of its attributes.
fn own_blocks(record: &Inode) -> u64 {
    if record.xattr_nid.is_none() { 1 } else { 2 }
}

/// Do these bytes begin with the entry `.` of a directory?
pub(crate) fn begins_with_itself(bytes: &[u8], ino: Nid) -> bool {
    let first = Dentries::new(bytes).next(0);
    first.is_some_and(|entry| entry.is_ok_and(|entry| entry.name == b"." && entry.ino == ino))
}
