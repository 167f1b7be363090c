//! [`RawVolume`]: reads structures one by one, of a volume that need not mount. Nothing is written.
//!
//! Each structure is found with as few others as possible: a node needs the superblock, a
//! checkpoint and one block of the NAT. What is damaged is left to the caller, with its place.
//!
//! **Bounds.** An [`Allowance`] ends what nodes, directories and contents may have read.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

mod choice;
pub(crate) mod directory;
mod features;
mod open;
pub(crate) mod tree;

use std::collections::HashMap;
use std::sync::Arc;

use cairn_base::Pba;
use cairn_block::{BlockDevice, Error, ErrorKind, Operation};
use cairn_cache::block::{BufferCache, Image};
use cairn_check::salvage::Allowance;

use crate::checkpoint::Loaded;
use crate::checkpoint::summaries::{CurrentSummaries, Journals};
use crate::corrupt::Corrupt;
use crate::format::layout::{Layout, Side};
use crate::format::node::NodeFooter;
use crate::format::sit;
use crate::format::summary::SummaryBlock;
use crate::format::superblock::Superblock;
use crate::format::units::{BLOCK_BYTES, BlockAddr, Nid, SegNo};
use crate::format::{Inode, Log, NatEntry, SitEntry, Summary, bits, nat};

pub use choice::Choice;

/// A volume whose structures are read by themselves.
pub(crate) struct RawVolume {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) buffers: Arc<BufferCache>,
    pub(crate) superblock: Superblock,
    /// The block of the superblock in use: 0 or 1.
    pub(crate) superblock_block: u64,
    pub(crate) layout: Layout,
    /// The checkpoint in use, if there is one.
    pub(crate) loaded: Option<Loaded>,
    /// One of the packs is damaged: it may have been the later one.
    pub(crate) has_lost_pack: bool,
    pub(crate) journals: Journals,
    /// Owners of the blocks of the logs' segments.
    pub(crate) current: Option<CurrentSummaries>,
    /// Nodes that are newer than the checkpoint.
    pub(crate) newer: HashMap<Nid, BlockAddr>,
    /// Blocks of such nodes with wrong footers, and the right ones.
    pub(crate) footers: HashMap<Pba, NodeFooter>,
    /// Most inodes have wrong checksums: these say nothing of one inode.
    pub(crate) ignores_checksums: bool,
    /// What is wrong with the volume as a whole.
    pub(crate) notes: Vec<String>,
    /// What may still be read.
    pub(crate) allowance: Allowance,
}

/// Where an entry of the NAT or the SIT stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// In a journal of the checkpoint.
    Journal,
    /// In this block of the area.
    Area(Pba),
}

impl RawVolume {
    /// A block of the volume.
    ///
    /// # Errors
    /// The device ends before, or failed.
    pub(crate) fn block(&self, pba: Pba) -> Result<Image, Error> {
        let end = pba.get().checked_add(1).and_then(|end| end.checked_mul(BLOCK_BYTES));
        if end.is_none_or(|end| end > self.device.geometry().size) {
            let what = format!("block {pba} lies beyond the end");
            return Err(Error::new(ErrorKind::Io, Operation::Read, what));
        }
        let image = self.buffers.get(pba)?.image();
        let Some(footer) = self.footers.get(&pba) else { return Ok(image) };
        let mut bytes = image.to_vec();
        footer.write(&mut bytes);
        Ok(bytes.into())
    }

    /// The copy of a NAT block that the checkpoint uses.
    pub(crate) fn nat_side(&self, block: u32) -> Side {
        let bitmap = self.loaded.as_ref().map(|loaded| &loaded.checkpoint.nat_bitmap);
        let at = usize::try_from(block).unwrap_or(usize::MAX);
        let is_second =
            bitmap.is_some_and(|map| at < map.len().saturating_mul(8) && bits::test(map, at));
        Side::of_bit(is_second)
    }

    /// The entry of a nid in one copy of its NAT block.
    pub(crate) fn nat_in(&self, nid: Nid, side: Side) -> Result<(Pba, NatEntry), Error> {
        let (block, index) = Layout::nat_place(nid);
        let pba = self.layout.nat_address(block, side);
        Ok((pba, nat::entry(&self.block(pba)?, index)))
    }

    /// The entry of a nid, and where it stands.
    pub(crate) fn nat(&self, nid: Nid) -> Result<(Stands, NatEntry), String> {
        if !self.layout.is_nid(nid) {
            return Err(format!("nid {nid}: the NAT has no entry for it"));
        }
        if let Some((_, entry)) = self.journals.nat.0.iter().find(|(known, _)| *known == nid) {
            return Ok((Stands::Journal, *entry));
        }
        let (block, _) = Layout::nat_place(nid);
        let found = self.nat_in(nid, self.nat_side(block));
        found
            .map(|(pba, entry)| (Stands::Area(pba), entry))
            .map_err(|error| format!("nid {nid}: its NAT block cannot be read: {error}"))
    }

    /// The entry of a segment, and where it stands.
    pub(crate) fn sit(&self, segno: SegNo) -> Result<(Stands, SitEntry), String> {
        if segno.get() >= self.layout.main_segments {
            return Err(format!("segment {segno}: the main area has no such segment"));
        }
        if let Some((_, entry)) = self.journals.sit.0.iter().find(|(known, _)| *known == segno) {
            return Ok((Stands::Journal, entry.clone()));
        }
        let (block, index) = Layout::sit_place(segno);
        let bitmap = self.loaded.as_ref().map(|loaded| &loaded.checkpoint.sit_bitmap);
        let at = usize::try_from(block).unwrap_or(usize::MAX);
        let is_second =
            bitmap.is_some_and(|map| at < map.len().saturating_mul(8) && bits::test(map, at));
        let pba = self.layout.sit_address(block, Side::of_bit(is_second));
        let image = self.block(pba).map_err(|error| format!("segment {segno}: {error}"))?;
        let entry = sit::entry(&image, index, segno).map_err(|error| error.to_string())?;
        Ok((Stands::Area(pba), entry))
    }

    /// Is the block marked as valid? `None` if that cannot be read.
    pub(crate) fn is_valid(&self, addr: BlockAddr) -> Option<bool> {
        let (segno, offset) = self.layout.segment_of(addr)?;
        self.loaded.as_ref()?;
        Some(self.sit(segno).ok()?.1.is_valid(offset))
    }

    /// Does the SIT say that the block is free? An entry of zeros says nothing: it was never
    /// written, or is lost.
    pub(crate) fn is_freed(&self, addr: BlockAddr) -> bool {
        let Some((segno, offset)) = self.layout.segment_of(addr) else { return false };
        let Some((stands, entry)) = self.loaded.as_ref().and_then(|_| self.sit(segno).ok()) else {
            return false;
        };
        let is_blank = entry == SitEntry::empty(Log::HotData) && stands != Stands::Journal;
        !is_blank && !entry.is_valid(offset)
    }

    /// The log that is in a segment.
    pub(crate) fn log_in(&self, segno: SegNo) -> Option<Log> {
        let checkpoint = &self.loaded.as_ref()?.checkpoint;
        Log::ALL.into_iter().find(|log| checkpoint.log(*log).segno == segno)
    }

    /// The owners of a segment's blocks: true if they are nodes, and where that stands.
    pub(crate) fn summary(&self, segno: SegNo) -> Result<(bool, Vec<Summary>, Stands), String> {
        if let (Some(log), Some(current)) = (self.log_in(segno), &self.current) {
            return Ok((log.is_node(), log.of(&current.entries).clone(), Stands::Journal));
        }
        if segno.get() >= self.layout.main_segments {
            return Err(format!("segment {segno}: the main area has no such segment"));
        }
        let pba = self.layout.summary_address(segno);
        let image = self.block(pba).map_err(|error| error.to_string())?;
        let block = SummaryBlock::decode(&image).map_err(|error| error.to_string())?;
        Ok((block.is_node, block.entries, Stands::Area(pba)))
    }

    /// The owner of a block of the main area: true if it is a node.
    pub(crate) fn owner(&self, addr: BlockAddr) -> Option<(bool, Summary)> {
        let (segno, offset) = self.layout.segment_of(addr)?;
        let (is_node, entries, _) = self.summary(segno).ok()?;
        Some((is_node, *entries.get(usize::from(offset))?))
    }

    /// Where a node is: in the chain after the checkpoint, else as the NAT says.
    pub(crate) fn node_address(&self, nid: Nid) -> Result<BlockAddr, String> {
        if let Some(addr) = self.newer.get(&nid) {
            return Ok(*addr);
        }
        let (_, entry) = self.nat(nid)?;
        match entry.validate(nid, &self.layout) {
            Ok(entry) if entry.is_free() => Err(format!("nid {nid}: the NAT has it as free")),
            Ok(entry) => Ok(entry.block_addr),
            Err(error) => Err(error.to_string()),
        }
    }

    /// A node with its address; its footer names it.
    pub(crate) fn node(&self, nid: Nid) -> Result<(BlockAddr, Image), String> {
        let addr = self.node_address(nid)?;
        let image = self.block(addr.pba()).map_err(|error| error.to_string())?;
        let footer = NodeFooter::read(&image);
        match footer.nid == nid {
            true => Ok((addr, image)),
            false => {
                Err(format!("block {addr} is not node {nid}: its footer names {}", footer.nid))
            }
        }
    }

    /// A sound inode.
    pub(crate) fn inode(&self, ino: Nid) -> Result<(BlockAddr, Image, Inode), String> {
        let (addr, image) = self.node(ino)?;
        let record = self.decode(ino, addr, &image).map_err(|error| error.to_string())?;
        Ok((addr, image, record))
    }

    /// Is the block that of an inode, and is its checksum right?
    pub(crate) fn verify(&self, ino: Nid, addr: BlockAddr, image: &[u8]) -> Result<(), Corrupt> {
        NodeFooter::read(image).check(ino, ino, addr)?;
        match self.ignores_checksums {
            true => Ok(()),
            false => crate::format::inode::verify(image, ino, &self.layout),
        }
    }

    /// An inode's record, if the block is a sound one of it.
    pub(crate) fn decode(&self, ino: Nid, addr: BlockAddr, image: &[u8]) -> Result<Inode, Corrupt> {
        self.verify(ino, addr, image)?;
        Inode::decode(image, ino, self.layout.features)
    }
}
