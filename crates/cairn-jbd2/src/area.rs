//! The blocks of the journal on its device: the extents of a file, or a whole device.

#![deny(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used
)]

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{FileBlock, Pba};
use cairn_block::{Batch, BlockDevice, BlockDeviceExt, Durability, IoBuf, Request};

use crate::error::{Error, Result};
use crate::format::has_magic;
use crate::format::superblock::{Correction, Superblock, WrongField, corrected};

/// The journal's place on a device.
#[derive(Clone)]
pub struct JournalArea {
    /// Device that holds the journal.
    pub device: Arc<dyn BlockDevice>,
    /// Bytes of a block.
    pub block_size: u32,
    /// Extents in file order: first block in the file, address on the device, length.
    pub extents: Vec<(FileBlock, Pba, u64)>,
    /// When the volume was made or mounted last, in seconds since 1970: commit blocks of an earlier
    /// time are none of this log. 0 if it is not known.
    pub since: u64,
}

/// A journal block on the device.
struct Place {
    /// Offset on the device.
    offset: u64,
    /// Journal blocks from this one on that are contiguous on the device.
    contiguous: u64,
}

impl JournalArea {
    /// Blocks of the journal.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.extents.iter().fold(0, |sum, (_, _, len)| sum.saturating_add(*len))
    }

    fn place(&self, block: u32) -> Result<Place> {
        let number = u64::from(block);
        let (what, expected) = ("mapping", "a block of the journal file");
        self.find(number).ok_or(Error::Corrupt { block, what, value: number, expected })
    }

    fn find(&self, number: u64) -> Option<Place> {
        let after = self.extents.partition_point(|(start, _, _)| start.get() <= number);
        let (start, pba, len) = self.extents.get(after.checked_sub(1)?)?;
        let within = number.checked_sub(start.get())?;
        let contiguous = len.checked_sub(within).filter(|blocks| *blocks > 0)?;
        let offset = pba.get().checked_add(within)?.checked_mul(u64::from(self.block_size))?;
        Some(Place { offset, contiguous })
    }

    /// The block on the device of a journal block.
    pub(crate) fn address(&self, block: u32) -> Option<Pba> {
        let offset = self.find(block.into())?.offset;
        Some(Pba(offset.checked_div(self.block_size.into())?))
    }

    /// Reads one block.
    pub(crate) fn read(&self, block: u32) -> Result<IoBuf> {
        self.read_run(block, 1, None)
    }

    /// Reads at least one block and at most `count` blocks: those that are contiguous. Into
    /// `spare`, if that is large enough.
    pub(crate) fn read_run(&self, block: u32, count: u32, spare: Option<IoBuf>) -> Result<IoBuf> {
        let Place { offset, contiguous } = self.place(block)?;
        let count = contiguous.min(u64::from(count)).max(1);
        let length = count.saturating_mul(u64::from(self.block_size));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(mut buf) = spare.filter(|spare| spare.capacity() >= length) else {
            return Ok(self.device.read_at(offset, length)?);
        };
        buf.set_len(length);
        Ok(self.device.read_into(offset, buf)?)
    }

    /// Adds the requests that write consecutive journal blocks: one for each contiguous part.
    pub(crate) fn add_write_requests(
        &self,
        start: u32,
        mut blocks: Vec<Bytes>,
        requests: &mut Vec<Request>,
    ) -> Result<()> {
        let mut next = start;
        while !blocks.is_empty() {
            let Place { offset, contiguous } = self.place(next)?;
            let count = usize::try_from(contiguous).unwrap_or(usize::MAX).min(blocks.len());
            // `split_off` at the end allocates nothing.
            let rest = blocks.split_off(count);
            next = next.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
            requests.push(Request::Write { offset, bufs: blocks });
            blocks = rest;
        }
        Ok(())
    }

    /// Writes consecutive journal blocks.
    pub(crate) fn write(
        &self,
        start: u32,
        blocks: Vec<Bytes>,
        durability: Durability,
    ) -> Result<()> {
        let mut requests = Vec::with_capacity(1);
        self.add_write_requests(start, blocks, &mut requests)?;
        self.device.submit(Batch { requests, durability }).wait()?;
        Ok(())
    }
}

/// Reads and validates the journal superblock.
///
/// # Errors
/// The device failed, or the superblock is damaged.
pub fn read_superblock(area: &JournalArea) -> Result<Superblock> {
    Superblock::decode(&area.read(0)?, area.block_size, area.blocks())
}

/// Does the area begin as a journal does?
///
/// # Errors
/// The device failed.
pub fn has_superblock(area: &JournalArea) -> Result<bool> {
    match area.read(0) {
        Ok(block) => Ok(has_magic(&block)),
        Err(Error::Corrupt { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Corrects what is wrong in a journal superblock, if its checksum proves it, or if the file of the
/// journal tells what it was. `None`, and nothing is written, if the superblock is valid, or
/// nothing proves what it was.
///
/// # Errors
/// The device failed.
pub fn correct_superblock(area: &JournalArea) -> Result<Option<Correction>> {
    let block = match area.read(0) {
        Err(Error::Corrupt { .. }) => return Ok(None),
        read => read?,
    };
    if Superblock::decode(&block, area.block_size, area.blocks()).is_ok() {
        return Ok(None);
    }
    let Some((bytes, correction)) = corrected(&block, area.block_size, area.blocks()) else {
        return Ok(None);
    };
    area.write(0, vec![Bytes::from(bytes)], FORCED)?;
    Ok(Some(correction))
}

/// Puts fields right for which Linux does not mount the volume, although the superblock is valid.
/// Returns them.
///
/// # Errors
/// The device failed, or the superblock is damaged.
pub fn make_mountable(area: &JournalArea) -> Result<Vec<WrongField>> {
    let mut found = Vec::new();
    let mut superblock = read_superblock(area)?;
    while let Some((right, field)) = superblock.mountable() {
        found.push(field);
        superblock = right;
    }
    if !found.is_empty() {
        write_superblock(area, &superblock, FORCED)?;
    }
    Ok(found)
}

/// A write that is durable on return.
pub(crate) const FORCED: Durability = Durability { preflush: false, fua: true };

/// Writes the journal superblock.
pub(crate) fn write_superblock(
    area: &JournalArea,
    superblock: &Superblock,
    durability: Durability,
) -> Result<()> {
    let mut block = superblock.encode();
    block.resize(usize::try_from(area.block_size).unwrap_or(usize::MAX), 0);
    area.write(0, vec![Bytes::from(block)], durability)
}
