//! The record of a change that needs many blocks at once on a volume without a log: what it writes,
//! kept in free blocks until it is done.
//!
//! The superblock of such a volume is marked as not clean meanwhile, and names the record in words
//! that belong to a journal. The record has the checksum of this superblock, and those of its
//! blocks: whoever writes the volume in another way changes the superblock, so that the record is
//! void. Who finds it finishes the change. e2fsck does not know it, and checks the volume.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cairn_base::Pba;
use cairn_base::checksum::crc32c;
use cairn_base::units::as_index;
use cairn_block::{BlockDevice, BlockDeviceExt, Durability};
use cairn_jbd2::Images;
use zerocopy::little_endian::U32;

use crate::error::{Error, Result};
use crate::format::features::{Access, Compat};
use crate::format::layout::Layout;
use crate::format::superblock::{MAGIC, OFFSET, SIZE, STATE_VALID, Superblock, magic_of};
use crate::replayed_device::ReplayedDevice;

/// Most bytes of a change: they are in memory at once.
const MOST: usize = 256 << 20;
/// The first word in `s_jnl_blocks`; the next two are the address of the record.
const MARK: u32 = 0x4f44_4552;
/// The first bytes of a block of the record that names others.
const LIST: [u8; 8] = *b"REDOLIST";
/// Bytes before the entries: the magic, the checksum of the superblock, the number of entries, the
/// next block of this kind, the checksum of this one, and four zeros.
const HEAD: usize = 32;
/// Where the checksum is.
const SUM: usize = 24;
/// Bytes of an entry: a block, the place of its new contents, their checksum, and four zeros.
const ENTRY: usize = 24;

fn entries_of(block_size: u32) -> usize {
    as_index(block_size).saturating_sub(HEAD).strict_div(ENTRY)
}

fn most(block_size: u32) -> usize {
    MOST.strict_div(as_index(block_size))
}

/// Blocks of the record of so many blocks. `None` if they are too many.
pub(crate) fn needed(blocks: usize, block_size: u32) -> Option<usize> {
    (blocks <= most(block_size))
        .then(|| blocks.saturating_add(blocks.div_ceil(entries_of(block_size))))
}

/// Writes the record in these free blocks, of which there are as many as [`needed`], and names it
/// in the superblock. Nothing is durable yet.
///
/// # Errors
/// The device failed.
pub(crate) fn write(
    device: &dyn BlockDevice,
    superblock: &mut Superblock,
    block_size: u32,
    blocks: &BTreeMap<Pba, Vec<u8>>,
    places: &[Pba],
) -> Result<()> {
    let (size, per_list) = (u64::from(block_size), entries_of(block_size));
    let (lists, copies) = places.split_at(blocks.len().div_ceil(per_list).min(places.len()));
    let Some(first) = lists.first() else { return Ok(()) };
    let words = &mut superblock.raw.s_jnl_blocks;
    let (low, high) = (first.get() & 0xffff_ffff, first.get() >> 32);
    let half = |word: u64| U32::new(u32::try_from(word).unwrap_or(0));
    for (place, word) in words.iter_mut().zip([U32::new(MARK), half(low), half(high)]) {
        *place = word;
    }
    let sum = crc32c(!0, &superblock.encode());
    let mut entries = Vec::with_capacity(blocks.len());
    for ((target, bytes), copy) in blocks.iter().zip(copies) {
        device.write_at(copy.get().saturating_mul(size), bytes.clone())?;
        entries.push((target.get(), copy.get(), crc32c(!0, bytes)));
    }
    for (index, (list, entries)) in lists.iter().zip(entries.chunks(per_list)).enumerate() {
        let next = lists.get(index + 1).map_or(0, |next| next.get());
        let mut block = LIST.to_vec();
        block.extend(sum.to_le_bytes());
        block.extend(u32::try_from(entries.len()).unwrap_or(0).to_le_bytes());
        block.extend(next.to_le_bytes());
        block.extend([0; HEAD - SUM]);
        for (target, copy, sum) in entries {
            block.extend(target.to_le_bytes());
            block.extend(copy.to_le_bytes());
            block.extend(u64::from(*sum).to_le_bytes());
        }
        block.resize(as_index(block_size), 0);
        let own = crc32c(!0, &block).to_le_bytes();
        if let Some(place) = block.get_mut(SUM..SUM + 4) {
            place.copy_from_slice(&own);
        }
        device.write_at(list.get().saturating_mul(size), block)?;
    }
    Ok(())
}

/// A change that was begun and is recorded.
pub(crate) struct Unfinished {
    /// Bytes of a block.
    pub(crate) block_size: u32,
    /// What it writes.
    pub(crate) images: Images,
    /// No feature forbids it.
    pub(crate) is_allowed: bool,
}

/// The change that was interrupted on this device, if there is one, and its record is whole.
///
/// # Errors
/// The device failed.
pub(crate) fn find(device: &dyn BlockDevice) -> Result<Option<Unfinished>> {
    let bytes = device.geometry().size;
    if bytes < OFFSET.saturating_add(SIZE as u64) {
        return Ok(None);
    }
    let stored = device.read_bytes(OFFSET, SIZE)?;
    if magic_of(&stored) != Some(MAGIC) {
        return Ok(None);
    }
    let Ok(superblock) = Superblock::decode(&stored) else { return Ok(None) };
    let Ok(layout) = Layout::new(&superblock, bytes) else { return Ok(None) };
    let is_clean = superblock.raw.s_state.get() & STATE_VALID != 0;
    let [mark, low, high, ..] = superblock.raw.s_jnl_blocks.map(|word| u64::from(word.get()));
    if is_clean || layout.features.compat(Compat::HAS_JOURNAL) || mark != u64::from(MARK) {
        return Ok(None);
    }
    let reader = Reader { device, block_size: layout.block_size, end: bytes >> layout.block_bits };
    let images = reader.images(low | high << 32, crc32c(!0, &stored))?;
    let is_allowed = matches!(layout.features.access(), Access::ReadWrite);
    Ok(images.map(|images| Unfinished { block_size: layout.block_size, images, is_allowed }))
}

/// The device with the change that was interrupted on it, in memory, if there is one.
///
/// # Errors
/// As [`find`].
pub(crate) fn in_memory(device: &Arc<dyn BlockDevice>) -> Result<Option<Arc<dyn BlockDevice>>> {
    let found = find(&**device)?;
    Ok(found.map(|Unfinished { block_size, images, .. }| {
        let whole: Arc<dyn BlockDevice> =
            Arc::new(ReplayedDevice::new(device.clone(), block_size, &images));
        whole
    }))
}

struct Reader<'a> {
    device: &'a dyn BlockDevice,
    block_size: u32,
    /// Blocks of the device.
    end: u64,
}

impl Reader<'_> {
    fn read(&self, block: u64) -> Result<Option<Vec<u8>>> {
        if block == 0 || block >= self.end {
            return Ok(None);
        }
        let at = block.saturating_mul(self.block_size.into());
        Ok(Some(self.device.read_block(at, as_index(self.block_size))?.to_vec()))
    }

    /// `None` if the record is not whole.
    fn images(&self, first: u64, superblock: u32) -> Result<Option<Images>> {
        let (mut images, mut next) = (HashMap::new(), first);
        while next != 0 {
            let Some(list) = self.read(next)?.and_then(|block| List::decode(&block)) else {
                return Ok(None);
            };
            if list.superblock != superblock || list.entries.is_empty() {
                return Ok(None);
            }
            for (target, copy, sum) in list.entries {
                let Some(bytes) = self.read(copy)?.filter(|_| target < self.end) else {
                    return Ok(None);
                };
                let is_known = images.contains_key(&Pba(target));
                if crc32c(!0, &bytes) != sum || is_known || images.len() >= most(self.block_size) {
                    return Ok(None);
                }
                images.insert(Pba(target), bytes.into());
            }
            next = list.next;
        }
        Ok((!images.is_empty()).then_some(images))
    }
}

/// A block of the record that names others.
struct List {
    superblock: u32,
    next: u64,
    entries: Vec<(u64, u64, u32)>,
}

impl List {
    /// `None` if it is none, or damaged.
    fn decode(block: &[u8]) -> Option<Self> {
        let word = |at: usize| block.get(at..)?.first_chunk().copied().map(u64::from_le_bytes);
        let half = |at: usize| block.get(at..)?.first_chunk().copied().map(u32::from_le_bytes);
        let mut unsealed = block.to_vec();
        unsealed.get_mut(SUM..SUM + 4)?.fill(0);
        if !block.starts_with(&LIST) || crc32c(!0, &unsealed) != half(SUM)? {
            return None;
        }
        let count = as_index(half(12)?);
        let entry = |index: usize| {
            let at = HEAD.checked_add(index.checked_mul(ENTRY)?)?;
            Some((word(at)?, word(at + 8)?, half(at + 16)?))
        };
        let entries = (0..count.min(block.len())).map(entry).collect::<Option<_>>()?;
        Some(Self { superblock: half(8)?, next: word(16)?, entries })
    }
}

/// Finishes the change that was interrupted on this device, if there is one. The superblock is
/// written last.
///
/// # Errors
/// The device failed.
pub(crate) fn finish(device: &dyn BlockDevice) -> Result<bool> {
    let Some(Unfinished { block_size, mut images, .. }) = find(device)? else { return Ok(false) };
    let size = u64::from(block_size);
    let last = Pba(OFFSET.strict_div(size));
    let end = images.remove(&last).ok_or_else(|| {
        Error::NeedsCheck("the record of an interrupted change has no superblock".into())
    })?;
    tracing::info!(blocks = images.len(), "an interrupted change is finished");
    for (pba, bytes) in images {
        device.write_at(pba.get().saturating_mul(size), bytes.to_vec())?;
    }
    // The flush before it makes the blocks durable.
    let durability = Durability { preflush: true, fua: true };
    device.write_durable(last.get().saturating_mul(size), end.to_vec(), durability)?;
    Ok(true)
}
