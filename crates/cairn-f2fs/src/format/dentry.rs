//! Directory entries: blocks of 214 slots, or fewer slots within an inode.
//!
//! `[bitmap][pad][entries, 11 bytes each][names, 8 bytes a slot]`. A name takes as many slots as it needs, one after the
//! other, all marked in the bitmap; the entry of the first counts. The bitmap's bits go from the least significant one.

use cairn_base::bitmap;
use cairn_vfs::FileKind;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::units::{BLOCK_SIZE, NAME_MAX, Nid};

/// Bytes of a name that a slot holds.
pub const SLOT_LEN: usize = 8;
/// Slots of a directory block.
pub const SLOTS_PER_BLOCK: usize = 214;
/// Most levels of a directory.
pub const MAX_DEPTH: u32 = 63;
const ENTRY_SIZE: usize = 11;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDentry {
    hash_code: U32,
    ino: U32,
    name_len: U16,
    file_type: u8,
}

const _: () = assert!(size_of::<RawDentry>() == ENTRY_SIZE);

/// Where bitmap, entries and names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DentryShape {
    /// Slots.
    pub slots: usize,
    /// Bytes of the bitmap, from the start.
    pub bitmap_bytes: usize,
    /// Where the entries begin.
    pub entries_at: usize,
    /// Where the names begin.
    pub names_at: usize,
}

impl DentryShape {
    /// A directory block.
    pub const BLOCK: Self = Self::of(BLOCK_SIZE);

    /// Entries in an inode that has `bytes` for them ([`super::Inode::max_inline_data`]).
    #[must_use]
    pub const fn of(bytes: usize) -> Self {
        let slots = bytes * 8 / ((ENTRY_SIZE + SLOT_LEN) * 8 + 1);
        let bitmap_bytes = slots.div_ceil(8);
        let names_at = bytes - slots * SLOT_LEN;
        Self { slots, bitmap_bytes, entries_at: names_at - slots * ENTRY_SIZE, names_at }
    }
}

const _: () = assert!(DentryShape::BLOCK.slots == SLOTS_PER_BLOCK);
const _: () = assert!(DentryShape::BLOCK.entries_at == 30 && DentryShape::BLOCK.names_at == 2384);

/// Slots that a name takes.
#[must_use]
pub const fn slots_for(name_len: usize) -> usize {
    name_len.div_ceil(SLOT_LEN)
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dentry<'b> {
    /// Its first slot.
    pub slot: usize,
    /// Hash of the name.
    pub hash: u32,
    /// Inode, not checked.
    pub ino: Nid,
    /// Kind, if stored.
    pub kind: Option<FileKind>,
    /// Name, 1 to 255 bytes, not checked.
    pub name: &'b [u8],
}

/// A name that is impossible: too long, or beyond the last slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadName {
    /// Slot of the entry.
    pub slot: usize,
    /// Stored length.
    pub name_len: u16,
}

/// Entries of a block or an inode, for reading.
#[derive(Clone, Copy)]
pub struct Dentries<'b> {
    bytes: &'b [u8],
    shape: DentryShape,
}

impl<'b> Dentries<'b> {
    /// A view of a whole directory block, or of an inode's inline contents.
    #[must_use]
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, shape: DentryShape::of(bytes.len()) }
    }

    /// Number of slots.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.shape.slots
    }

    fn bitmap(&self) -> &'b [u8] {
        &self.bytes[..self.shape.bitmap_bytes]
    }

    fn raw(&self, slot: usize) -> RawDentry {
        let at = self.shape.entries_at + slot * ENTRY_SIZE;
        RawDentry::read_from_bytes(&self.bytes[at..at + ENTRY_SIZE]).expect("11 bytes")
    }

    /// The entry whose first slot is at or after `slot`. Entries with an empty name are passed over, as Linux does.
    #[must_use]
    pub fn next(&self, slot: usize) -> Option<Result<Dentry<'b>, BadName>> {
        let mut from = slot;
        loop {
            let slot = bitmap::next_set(self.bitmap(), from.min(self.shape.slots), self.shape.slots)?;
            let raw = self.raw(slot);
            let name_len = raw.name_len.get();
            let len = usize::from(name_len);
            if len == 0 {
                from = slot + 1;
                continue;
            }
            if len > NAME_MAX || slot + slots_for(len) > self.shape.slots {
                return Some(Err(BadName { slot, name_len }));
            }
            let at = self.shape.names_at + slot * SLOT_LEN;
            let (ino, kind) = (Nid(raw.ino.get()), FileKind::of_entry_code(raw.file_type));
            return Some(Ok(Dentry { slot, hash: raw.hash_code.get(), ino, kind, name: &self.bytes[at..at + len] }));
        }
    }

    /// All entries; goes on with the slot after a bad one.
    pub fn iter(&self) -> impl Iterator<Item = Result<Dentry<'b>, BadName>> + use<'b> {
        let view = *self;
        let mut next = Some(0);
        std::iter::from_fn(move || {
            let found = view.next(next?)?;
            next = Some(found.map_or_else(|bad| bad.slot + 1, |entry| entry.slot + slots_for(entry.name.len())));
            Some(found)
        })
    }

    /// The entry with this hash whose name is the wanted one.
    ///
    /// As a walk by [`Dentries::next`], but of the others it looks at length and hash alone: most lookups are of names that
    /// a directory does not have, and those look at a block of every level.
    ///
    /// # Errors
    /// There is none, and a bad entry.
    pub fn find(&self, hash: u32, wanted: impl Fn(&[u8]) -> bool) -> Result<Option<Dentry<'b>>, BadName> {
        let map = self.bitmap();
        let (mut slot, mut damage) = (0, None);
        while slot < self.shape.slots {
            if !bitmap::test(map, slot) {
                match bitmap::next_set(map, slot, self.shape.slots) {
                    Some(next) => slot = next,
                    None => break,
                }
            }
            let raw = self.raw(slot);
            let len = usize::from(raw.name_len.get());
            if len > NAME_MAX || raw.hash_code.get() == hash {
                match self.next(slot) {
                    Some(Ok(entry)) if entry.slot == slot && wanted(entry.name) => return Ok(Some(entry)),
                    Some(Err(bad)) => damage = damage.or(Some(bad)),
                    _ => {}
                }
            }
            slot += if len > NAME_MAX { 1 } else { slots_for(len).max(1) };
        }
        damage.map_or(Ok(None), Err)
    }

    /// First of `count` free slots in a row.
    #[must_use]
    pub fn find_room(&self, count: usize) -> Option<usize> {
        let (map, slots) = (self.bitmap(), self.shape.slots);
        let mut from = 0;
        loop {
            let start = bitmap::next_clear(map, from, slots)?;
            let end = bitmap::next_set(map, start, slots).unwrap_or(slots);
            if end - start >= count {
                return Some(start);
            }
            from = end;
        }
    }

    /// True if there is no entry, `.` and `..` aside.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().all(|entry| entry.is_ok_and(|entry| matches!(entry.name, b"." | b"..")))
    }

    /// True if no slot is taken.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        bitmap::next_set(self.bitmap(), 0, self.shape.slots).is_none()
    }
}

/// Entries of a block or an inode, for writing.
pub struct DentriesMut<'b> {
    bytes: &'b mut [u8],
    shape: DentryShape,
}

impl<'b> DentriesMut<'b> {
    /// See [`Dentries::new`].
    #[must_use]
    pub fn new(bytes: &'b mut [u8]) -> Self {
        let shape = DentryShape::of(bytes.len());
        Self { bytes, shape }
    }

    /// The same for reading.
    #[must_use]
    pub fn view(&self) -> Dentries<'_> {
        Dentries { bytes: self.bytes, shape: self.shape }
    }

    fn entry_bytes(&mut self, slot: usize) -> &mut [u8] {
        let at = self.shape.entries_at + slot * ENTRY_SIZE;
        &mut self.bytes[at..at + ENTRY_SIZE]
    }

    /// Makes an entry in slots that are free ([`Dentries::find_room`]).
    ///
    /// # Panics
    /// The name is empty or longer than 255 bytes, or the slots are taken or do not exist.
    pub fn insert(&mut self, slot: usize, name: &[u8], hash: u32, ino: Nid, kind: FileKind) {
        let count = slots_for(name.len());
        assert!((1..=NAME_MAX).contains(&name.len()) && slot + count <= self.shape.slots, "entry at slot {slot}");
        assert_eq!(bitmap::count_set(self.view().bitmap(), slot, count), 0, "slots {slot}+{count} are taken");
        bitmap::set_range(&mut self.bytes[..self.shape.bitmap_bytes], slot, count);
        let raw = RawDentry {
            hash_code: hash.into(),
            ino: ino.get().into(),
            name_len: (name.len() as u16).into(),
            file_type: kind.entry_code(),
        };
        self.entry_bytes(slot).copy_from_slice(raw.as_bytes());
        for next in slot + 1..slot + count {
            // The length of the others must not look like an entry's to a reader that starts there.
            self.entry_bytes(next).fill(0);
        }
        let at = self.shape.names_at + slot * SLOT_LEN;
        let room = &mut self.bytes[at..at + count * SLOT_LEN];
        room.fill(0);
        room[..name.len()].copy_from_slice(name);
    }

    /// Frees the slots of the entry at `slot`.
    ///
    /// # Panics
    /// There is no entry.
    pub fn remove(&mut self, slot: usize) {
        let len = match self.view().next(slot) {
            Some(Ok(entry)) if entry.slot == slot => entry.name.len(),
            other => panic!("no entry at slot {slot} but {other:?}"),
        };
        bitmap::clear_range(&mut self.bytes[..self.shape.bitmap_bytes], slot, slots_for(len));
    }

    /// Points the entry at `slot` to another inode.
    pub fn set_target(&mut self, slot: usize, ino: Nid, kind: FileKind) {
        let bytes = self.entry_bytes(slot);
        bytes[4..8].copy_from_slice(&ino.get().to_le_bytes());
        bytes[10] = kind.entry_code();
    }
}

/// Buckets of a level: `dir_level` is the inode's.
#[must_use]
pub const fn buckets(level: u32, dir_level: u8) -> u64 {
    let shift = level + dir_level as u32;
    // Half of the depth limit, beyond which a directory does not widen.
    if shift < MAX_DEPTH / 2 { 1 << shift } else { 1 << (MAX_DEPTH / 2 - 1) }
}

/// Blocks a bucket of a level.
#[must_use]
pub const fn bucket_blocks(level: u32) -> u64 {
    if level < MAX_DEPTH / 2 { 2 } else { 4 }
}

/// First block of the bucket that a hash falls into at a level.
#[must_use]
pub fn bucket_start(level: u32, dir_level: u8, hash: u32) -> u64 {
    let before: u64 = (0..level).map(|level| buckets(level, dir_level) * bucket_blocks(level)).sum();
    before + u64::from(hash) % buckets(level, dir_level) * bucket_blocks(level)
}

#[cfg(test)]
#[path = "dentry_tests.rs"]
mod tests;
