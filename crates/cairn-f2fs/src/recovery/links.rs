//! Words of the chain's footers that the nodes around them disprove.
//!
//! A log takes the blocks of a segment in rising order, and each of its nodes names the next one.
//! So a node of the checkpoint in force that lies between a node of the chain and the next one, in
//! the same segment, was left out by a wrong `next_blkaddr`. A power cut does not do that: it
//! leaves a block that is older, and the chain ends there.
//!
//! The numbers in the footer of an inode agree with each other, and with its checksum.
//!
//! `cp_ver` has two halves, the version of the checkpoint and its checksum. No sound node has the
//! checksum of the checkpoint in force and another version.

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

use cairn_cache::block::{BufferCache, Image};

use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::checkpoint::{Checkpoint, CheckpointFlags};
use crate::format::features::Features;
use crate::format::inode::{self, Inode};
use crate::format::layout::Layout;
use crate::format::node::{Marks, NodeFooter};
use crate::format::units::{BLOCKS_PER_SEGMENT, BlockAddr, Nid};

/// A word of a node that is wrong, and what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// Where the node is.
    pub(crate) addr: BlockAddr,
    /// The field of its footer, as the specification has it.
    pub(crate) field: &'static str,
    /// The value.
    pub(crate) stored: u64,
    /// What the nodes around it prove.
    pub(crate) right: u64,
}

/// What the chain is read from.
#[derive(Clone, Copy)]
pub(super) struct Around<'v> {
    pub(super) buffers: &'v BufferCache,
    pub(super) layout: &'v Layout,
    pub(super) checkpoint: &'v Checkpoint,
}

impl Around<'_> {
    /// A block of the main area.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn image(&self, addr: BlockAddr) -> Result<Image> {
        Ok(self.buffers.get(addr.pba())?.image())
    }

    /// Was the node written behind the checkpoint in force?
    fn is_current(&self, footer: &NodeFooter) -> bool {
        self.checkpoint.is_node_version(footer.cp_ver)
    }

    /// Is a version that is not the checkpoint's a damaged one?
    ///
    /// # Errors
    /// The device's.
    pub(super) fn is_version_damaged(&self, footer: &NodeFooter, image: &[u8]) -> Result<bool> {
        let flags = self.checkpoint.flags;
        let right = self.checkpoint.node_version();
        let [version, sum] = [right ^ footer.cp_ver, (right ^ footer.cp_ver) >> 32]
            .map(|half| half & u64::from(u32::MAX) != 0);
        let has_sum = flags.contains(CheckpointFlags::CRC_RECOVERY)
            && !flags.contains(CheckpointFlags::NOCRC_RECOVERY);
        if !has_sum || version == sum || !footer.is_possible(self.layout) {
            return Ok(false);
        }
        let has_checksum = self.layout.features.contains(Features::INODE_CHECKSUM);
        let mended = NodeFooter { cp_ver: right, ..*footer };
        if !sum || (has_checksum && footer.is_inode() && self.unsealed(&mended, image).is_none()) {
            return Ok(true);
        }
        // A checkpoint that was not finished had this version, too.
        let next = footer.next_blkaddr;
        Ok(self.layout.in_main(next) && self.is_current(&NodeFooter::read(&self.image(next)?)))
    }

    /// The node that a link leaves out.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn skipped(&self, at: BlockAddr, next: BlockAddr) -> Result<Option<BlockAddr>> {
        let Some((segno, offset)) = self.layout.segment_of(at) else { return Ok(None) };
        let end = match self.layout.segment_of(next) {
            Some((other, to)) if other == segno && to > offset => u32::from(to),
            _ => BLOCKS_PER_SEGMENT,
        };
        let has_sum = !self.checkpoint.flags.contains(CheckpointFlags::NOCRC_RECOVERY);
        for addr in (at.get()..).zip(u32::from(offset)..end).skip(1).map(|(addr, _)| addr) {
            let addr = BlockAddr(addr);
            let footer = NodeFooter::read(&self.image(addr)?);
            // Other programs give nodes that the checkpoint has its version, without its checksum.
            let is_left_out = has_sum || footer.marks.contains(Marks::FSYNC);
            if is_left_out && self.is_current(&footer) && footer.is_possible(self.layout) {
                return Ok(Some(addr));
            }
        }
        Ok(None)
    }

    /// Fsynced nodes of the checkpoint in force behind a block of the same segment. Either the
    /// power failed before the block was written, and after they were; or it is damaged.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn behind(&self, end: BlockAddr) -> Result<Vec<(BlockAddr, NodeFooter)>> {
        let mut found = Vec::new();
        let Some((_, offset)) = self.layout.segment_of(end) else { return Ok(found) };
        for (addr, _) in (end.get()..).zip(u32::from(offset)..BLOCKS_PER_SEGMENT).skip(1) {
            let addr = BlockAddr(addr);
            let footer = NodeFooter::read(&self.image(addr)?);
            let is_fsynced = footer.marks.contains(Marks::FSYNC) && self.is_current(&footer);
            found.extend((is_fsynced && footer.is_possible(self.layout)).then_some((addr, footer)));
        }
        Ok(found)
    }

    /// The footer of an inode of which one number is wrong, if the others and its block show which.
    pub(super) fn renumbered(&self, footer: &NodeFooter, image: &[u8]) -> Option<NodeFooter> {
        let is_sound = self.layout.is_nid(footer.nid) && footer.is_inode();
        let candidates: &[Nid] = match (footer.is_inode(), footer.offset) {
            (true, 0) if is_sound => &[],
            (true, _) => &[footer.nid],
            (false, 0) => &[footer.nid, footer.ino],
            (false, _) => &[],
        };
        let right = |ino: Nid| NodeFooter { nid: ino, ino, offset: 0, ..*footer };
        let fits = |ino: &&Nid| {
            let right = right(**ino);
            let is_possible = self.layout.is_nid(**ino) && **ino != Nid::ROOT;
            is_possible
                && self.unsealed(&right, image).or_else(|| self.unreadable(&right, image)).is_none()
        };
        let mut found = candidates.iter().filter(fits);
        let (ino, None) = (found.next()?, found.next()) else { return None };
        Some(right(*ino))
    }

    /// Why a node of the chain is none that can be recovered.
    pub(super) fn fault(
        &self,
        addr: BlockAddr,
        footer: &NodeFooter,
        image: &[u8],
    ) -> Option<Corrupt> {
        let bad = |what, value: u32| {
            Some(Corrupt::Node { nid: footer.nid, addr, what, value: value.into() })
        };
        if !self.layout.is_nid(footer.nid) {
            return bad("the number of an fsynced node is impossible", footer.nid.get());
        }
        if !self.layout.is_nid(footer.ino) {
            return bad("an fsynced node is of an impossible inode", footer.ino.get());
        }
        if footer.is_inode() != (footer.offset == 0) {
            let what = "the number of an fsynced node contradicts its place in its inode";
            return bad(what, footer.offset);
        }
        if !footer.is_inode() {
            return None;
        }
        self.unsealed(footer, image).or_else(|| self.unreadable(footer, image))
    }

    /// Why no reader would read the inode. The root has no nodes in the chain: what has its number
    /// was dropped by a repair.
    fn unreadable(&self, footer: &NodeFooter, image: &[u8]) -> Option<Corrupt> {
        if footer.ino == Nid::ROOT {
            return None;
        }
        let record = Inode::decode(image, footer.ino, self.layout.features);
        record.and_then(|record| record.check_body(image, footer.ino, self.layout)).err()
    }

    /// Why the block of an inode with this footer is damaged.
    fn unsealed(&self, footer: &NodeFooter, image: &[u8]) -> Option<Corrupt> {
        let mut bytes = image.to_vec();
        footer.write(&mut bytes);
        inode::verify(&bytes, footer.ino, self.layout).err()
    }
}
