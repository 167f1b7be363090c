//! Directory entries: blocks of 214 slots, or fewer slots within an inode.
//!
//! `[bitmap][pad][entries, 11 bytes each][names, 8 bytes per slot]`. A name takes as many
//! consecutive slots as it needs. All of them are marked in the bitmap; the entry of the first
//! counts. The bitmap counts bits from the least significant one.

use cairn_base::bitmap;
use cairn_vfs::FileKind;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block;
use super::units::{BLOCK_SIZE, NAME_MAX, Nid, stored};

/// Bytes of a name that a slot holds.
pub(crate) const SLOT_LEN: usize = 8;
/// Slots of a directory block.
pub(crate) const SLOTS_PER_BLOCK: usize = 214;
/// Most levels of a directory.
pub(crate) const MAX_DEPTH: u32 = 63;
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
pub(crate) struct DentryShape {
    /// Slots.
    pub(crate) slots: usize,
    /// Bytes of the bitmap, from the start.
    pub(crate) bitmap_bytes: usize,
    /// Where the entries begin.
    pub(crate) entries_at: usize,
    /// Where the names begin.
    pub(crate) names_at: usize,
}

impl DentryShape {
    /// A directory block.
    pub(crate) const BLOCK: Self = Self::of(BLOCK_SIZE);

    /// Entries in an inode that has `bytes` for them ([`super::Inode::max_inline_data`]).
    #[must_use]
    pub(crate) const fn of(bytes: usize) -> Self {
        // A slot has a bit, an entry and a piece of a name.
        const BITS_PER_SLOT: usize = 1 + (ENTRY_SIZE + SLOT_LEN) * 8;
        let slots = bytes.strict_mul(8) / BITS_PER_SLOT;
        let names_at = bytes.strict_sub(slots.strict_mul(SLOT_LEN));
        let entries_at = names_at.strict_sub(slots.strict_mul(ENTRY_SIZE));
        Self { slots, bitmap_bytes: slots.div_ceil(8), entries_at, names_at }
    }
}

const _: () = assert!(DentryShape::BLOCK.slots == SLOTS_PER_BLOCK);
const _: () = assert!(DentryShape::BLOCK.entries_at == 30 && DentryShape::BLOCK.names_at == 2384);

/// Slots that a name takes.
#[must_use]
pub(crate) const fn slots_for(name_len: usize) -> usize {
    name_len.div_ceil(SLOT_LEN)
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dentry<'b> {
    /// Its first slot.
    pub(crate) slot: usize,
    /// Hash of the name.
    pub(crate) hash: u32,
    /// Inode, not checked.
    pub(crate) ino: Nid,
    /// Kind, if stored.
    pub(crate) kind: Option<FileKind>,
    /// Name, 1 to 255 bytes, not checked.
    pub(crate) name: &'b [u8],
}

impl Dentry<'_> {
    /// The slot behind the entry.
    #[must_use]
    pub(crate) const fn next_slot(&self) -> usize {
        self.slot.saturating_add(slots_for(self.name.len()))
    }
}

/// A name that is impossible: too long, or beyond the last slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadName {
    /// Slot of the entry.
    pub(crate) slot: usize,
    /// Stored length.
    pub(crate) name_len: u16,
}

impl BadName {
    /// The slot behind that of the entry.
    #[must_use]
    pub(crate) const fn next_slot(&self) -> usize {
        self.slot.saturating_add(1)
    }
}

/// Entries of a block or an inode, for reading. All three parts have the same number of slots.
#[derive(Clone, Copy)]
pub(crate) struct Dentries<'b> {
    bitmap: &'b [u8],
    entries: &'b [[u8; ENTRY_SIZE]],
    names: &'b [[u8; SLOT_LEN]],
}

impl<'b> Dentries<'b> {
    /// A view of a whole directory block, or of an inode's inline contents.
    #[must_use]
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        let shape = DentryShape::of(bytes.len());
        let (head, names) = bytes.split_at(shape.names_at);
        let (head, entries) = head.split_at(shape.entries_at);
        let (bitmap, _) = head.split_at(shape.bitmap_bytes);
        let ((entries, _), (names, _)) = (entries.as_chunks(), names.as_chunks());
        Self { bitmap, entries, names }
    }

    /// Number of slots.
    #[must_use]
    pub(crate) const fn slots(&self) -> usize {
        self.entries.len()
    }

    fn raw(&self, slot: usize) -> Option<&'b RawDentry> {
        self.entries.get(slot).map(|entry| zerocopy::transmute_ref!(entry))
    }

    /// The name of `len` bytes that begins at a slot. `None` if it is impossible.
    fn name(&self, slot: usize, len: usize) -> Option<&'b [u8]> {
        self.names.get(slot..)?.as_flattened().get(..len).filter(|_| len <= NAME_MAX)
    }

    /// The entry whose first slot is at or after `slot`. Entries with an empty name are passed
    /// over, as Linux does.
    #[must_use]
    pub(crate) fn next(&self, slot: usize) -> Option<Result<Dentry<'b>, BadName>> {
        let mut from = slot;
        loop {
            let slot = bitmap::next_set(self.bitmap, from.min(self.slots()), self.slots())?;
            let raw = self.raw(slot)?;
            let name_len = raw.name_len.get();
            if name_len > 0 {
                let (hash, ino) = (raw.hash_code.get(), Nid(raw.ino.get()));
                let kind = FileKind::of_entry_code(raw.file_type);
                let entry = |name| Dentry { slot, hash, ino, kind, name };
                return Some(
                    self.name(slot, name_len.into()).map(entry).ok_or(BadName { slot, name_len }),
                );
            }
            from = slot.saturating_add(1);
        }
    }

    /// All entries. Continues with the slot after a bad one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<Dentry<'b>, BadName>> + use<'b> {
        let view = *self;
        let mut next = Some(0);
        std::iter::from_fn(move || {
            let found = view.next(next?)?;
            next = Some(found.map_or_else(|bad| bad.next_slot(), |entry| entry.next_slot()));
            Some(found)
        })
    }

    /// The entries in slots that are free now. They stay until the slots are used again.
    pub(crate) fn freed(&self) -> impl Iterator<Item = Dentry<'b>> + use<'b> {
        let view = *self;
        let free = (0..view.slots()).filter(move |slot| !bitmap::test(view.bitmap, *slot));
        free.filter_map(move |slot| {
            let raw = view.raw(slot).filter(|raw| raw.name_len.get() > 0)?;
            let name = view.name(slot, raw.name_len.get().into())?;
            let (hash, ino) = (raw.hash_code.get(), Nid(raw.ino.get()));
            Some(Dentry { slot, hash, ino, kind: FileKind::of_entry_code(raw.file_type), name })
        })
    }

    /// Slots that are marked as used.
    #[must_use]
    pub(crate) fn used_slots(&self) -> usize {
        bitmap::count_set(self.bitmap, 0, self.slots())
    }

    /// Are all slots of an entry marked as used?
    #[must_use]
    pub(crate) fn is_whole(&self, entry: &Dentry<'_>) -> bool {
        let count = slots_for(entry.name.len());
        bitmap::count_set(self.bitmap, entry.slot, count) == count
    }

    /// Are all slots of an entry marked as free?
    #[must_use]
    pub(crate) fn is_free(&self, entry: &Dentry<'_>) -> bool {
        bitmap::count_set(self.bitmap, entry.slot, slots_for(entry.name.len())) == 0
    }

    /// The hash that is stored in a slot.
    pub(crate) fn hash_at(&self, slot: usize) -> Option<u32> {
        self.raw(slot).map(|raw| raw.hash_code.get())
    }

    /// The length that makes the name at a slot the wanted one. Its slots are marked as used.
    pub(crate) fn length_of(
        &self,
        slot: usize,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Option<usize> {
        (1..=NAME_MAX).find(|len| {
            let count = slots_for(*len);
            let name = self.name(slot, *len).filter(|name| is_wanted(name));
            name.is_some() && bitmap::count_set(self.bitmap, slot, count) == count
        })
    }

    /// The entry with this hash whose name is the wanted one.
    ///
    /// Finds the same entry as a walk by [`Dentries::next`], but checks only length and hash of the
    /// others. Most look-ups are for names that do not exist, and read a block of each level.
    ///
    /// # Errors
    /// There is no such entry, and a bad one was found.
    pub(crate) fn find(
        &self,
        hash: u32,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Dentry<'b>>, BadName> {
        let (mut slot, mut damage) = (0, None);
        while slot < self.slots() {
            if !bitmap::test(self.bitmap, slot) {
                match bitmap::next_set(self.bitmap, slot, self.slots()) {
                    Some(next) => slot = next,
                    None => break,
                }
            }
            let Some(raw) = self.raw(slot) else { break };
            let len = usize::from(raw.name_len.get());
            if len > NAME_MAX || raw.hash_code.get() == hash {
                match self.next(slot) {
                    Some(Ok(entry)) if entry.slot == slot && wanted(entry.name) => {
                        return Ok(Some(entry));
                    }
                    Some(Err(bad)) => damage = damage.or(Some(bad)),
                    _ => {}
                }
            }
            slot = slot.saturating_add(if len > NAME_MAX { 1 } else { slots_for(len).max(1) });
        }
        damage.map_or(Ok(None), Err)
    }

    /// First of `count` free slots in a row.
    #[must_use]
    pub(crate) fn find_room(&self, count: usize) -> Option<usize> {
        let slots = self.slots();
        let mut from = 0;
        loop {
            let start = bitmap::next_clear(self.bitmap, from, slots)?;
            let end = bitmap::next_set(self.bitmap, start, slots).unwrap_or(slots);
            if (start..end).len() >= count {
                return Some(start);
            }
            from = end;
        }
    }

    /// True if there is no entry, `.` and `..` aside.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.iter().all(|entry| entry.is_ok_and(|entry| matches!(entry.name, b"." | b"..")))
    }

    /// True if no slot is taken.
    #[must_use]
    pub(crate) fn is_blank(&self) -> bool {
        bitmap::next_set(self.bitmap, 0, self.slots()).is_none()
    }
}

/// Entries of a block or an inode, for writing.
pub(crate) struct DentriesMut<'b> {
    bitmap: &'b mut [u8],
    entries: &'b mut [[u8; ENTRY_SIZE]],
    names: &'b mut [[u8; SLOT_LEN]],
}

impl<'b> DentriesMut<'b> {
    /// See [`Dentries::new`].
    #[must_use]
    pub(crate) fn new(bytes: &'b mut [u8]) -> Self {
        let shape = DentryShape::of(bytes.len());
        let (head, names) = bytes.split_at_mut(shape.names_at);
        let (head, entries) = head.split_at_mut(shape.entries_at);
        let (bitmap, _) = head.split_at_mut(shape.bitmap_bytes);
        let ((entries, _), (names, _)) = (entries.as_chunks_mut(), names.as_chunks_mut());
        Self { bitmap, entries, names }
    }

    /// The same for reading.
    #[must_use]
    pub(crate) fn view(&self) -> Dentries<'_> {
        Dentries { bitmap: self.bitmap, entries: self.entries, names: self.names }
    }

    /// Makes an entry in slots that are free ([`Dentries::find_room`]).
    ///
    /// # Panics
    /// The name is empty or longer than 255 bytes, or the slots are taken or do not exist.
    pub(crate) fn insert(&mut self, slot: usize, name: &[u8], hash: u32, ino: Nid, kind: FileKind) {
        let count = slots_for(name.len());
        assert_eq!(
            bitmap::count_set(self.bitmap, slot, count),
            0,
            "slots {slot}+{count} are taken"
        );
        let room = slot..slot.strict_add(count);
        let entries = self.entries.get_mut(room.clone()).and_then(<[_]>::split_first_mut);
        let (Some((first, others)), Some(names)) = (entries, self.names.get_mut(room)) else {
            panic!("no slots {slot}+{count}")
        };
        *first = zerocopy::transmute!(RawDentry {
            hash_code: hash.into(),
            ino: ino.get().into(),
            name_len: u16::from(stored::<_, u8>(name.len())).into(),
            file_type: kind.entry_code(),
        });
        // The other slots get length 0, so that a reader that starts there does not take them for
        // entries.
        others.fill([0; ENTRY_SIZE]);
        let (text, padding) = names.as_flattened_mut().split_at_mut(name.len());
        text.copy_from_slice(name);
        padding.fill(0);
        bitmap::set_range(self.bitmap, slot, count);
    }

    /// Frees the slots of the entry at `slot`.
    ///
    /// # Panics
    /// There is no entry.
    pub(crate) fn remove(&mut self, slot: usize) {
        let len = match self.view().next(slot) {
            Some(Ok(entry)) if entry.slot == slot => entry.name.len(),
            other => panic!("no entry at slot {slot} but {other:?}"),
        };
        bitmap::clear_range(self.bitmap, slot, slots_for(len));
    }

    /// Sets the length of the name at `slot`.
    ///
    /// # Panics
    /// There is no such slot, or the name is longer than 255 bytes.
    pub(crate) fn set_length(&mut self, slot: usize, len: usize) {
        let raw: &mut RawDentry = zerocopy::transmute_mut!(block::entry_mut(self.entries, slot));
        raw.name_len = u16::from(stored::<_, u8>(len)).into();
    }

    /// Points the entry at `slot` to another inode.
    ///
    /// # Panics
    /// There is no such slot.
    pub(crate) fn set_target(&mut self, slot: usize, ino: Nid, kind: FileKind) {
        let raw: &mut RawDentry = zerocopy::transmute_mut!(block::entry_mut(self.entries, slot));
        raw.ino = ino.get().into();
        raw.file_type = kind.entry_code();
    }
}

/// Buckets of a level: `dir_level` is the inode's.
#[must_use]
pub(crate) fn buckets(level: u32, dir_level: u8) -> u64 {
    // Half of the depth limit. Deeper levels have no more buckets.
    const WIDEST: u32 = MAX_DEPTH / 2 - 1;
    1 << level.saturating_add(dir_level.into()).min(WIDEST)
}

/// Blocks per bucket of a level.
#[must_use]
pub(crate) const fn bucket_blocks(level: u32) -> u64 {
    if level < MAX_DEPTH / 2 { 2 } else { 4 }
}

/// Blocks of a level.
#[must_use]
pub(crate) fn level_blocks(level: u32, dir_level: u8) -> u64 {
    buckets(level, dir_level).strict_mul(bucket_blocks(level))
}

/// First block of the bucket that a hash falls into at a level.
#[must_use]
pub(crate) fn bucket_start(level: u32, dir_level: u8, hash: u32) -> u64 {
    let before: u64 = (0..level).map(|level| level_blocks(level, dir_level)).sum();
    let bucket = u64::from(hash).strict_rem(buckets(level, dir_level));
    before.strict_add(bucket.strict_mul(bucket_blocks(level)))
}

/// Does a search for a name with this hash come to the block, in a directory with so many levels
/// and this `dir_level`?
#[must_use]
pub(crate) fn is_in_bucket((depth, dir_level): (u32, u8), block: u64, hash: u32) -> bool {
    let mut end = 0_u64;
    for level in 0..depth.min(MAX_DEPTH) {
        end = end.saturating_add(level_blocks(level, dir_level));
        if block < end {
            let start = bucket_start(level, dir_level, hash);
            return (start..start.saturating_add(bucket_blocks(level))).contains(&block);
        }
    }
    false
}

#[cfg(test)]
mod tests;
