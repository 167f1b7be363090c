//! Reads the NAT: the current copy of each block, with the journal over it.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_base::units::as_index;
use cairn_check::{Finding, Place, Work};

use super::context::{Context, Scratch};
use super::nat_bits::NatBits;
use super::{kinds, report};
use crate::error::Result;
use crate::format::block::is_zero;
use crate::format::layout::{Layout, Side};
use crate::format::units::{BLOCKS_PER_SEGMENT, BlockAddr, Nid};
use crate::format::{NatEntry, bits, nat};

/// The work of reading the NAT: a step is a segment of NAT blocks.
pub(super) struct ReadNat {
    context: Arc<Context>,
    journal: HashMap<Nid, NatEntry>,
    bits: Option<NatBits>,
}

impl ReadNat {
    /// The NAT of the volume. `bits` are the pack's.
    pub(super) fn new(context: Arc<Context>, bits: Option<NatBits>) -> Self {
        let journal = context.volume.journals.nat.0.iter().copied().collect();
        Self { context, journal, bits }
    }

    fn segment(&self, scratch: &mut Scratch, number: u64) -> Result<()> {
        let (context, layout) = (&self.context, &self.context.layout);
        let blocks_per_segment = u64::from(BLOCKS_PER_SEGMENT);
        let first = number.saturating_mul(blocks_per_segment);
        let end = first.saturating_add(blocks_per_segment).min(layout.nat_blocks().into());
        let bitmap = &context.volume.loaded.checkpoint.nat_bitmap;
        let mut places = Vec::new();
        for block in (first..end).filter_map(|block| u32::try_from(block).ok()) {
            let side = Side::of_bit(bits::test(bitmap, as_index(block)));
            let address = layout.nat_address(block, side).get();
            places.extend(u32::try_from(address).map(|address| (BlockAddr(address), block)));
        }
        places.sort_unstable();
        for part in places.chunks(PART) {
            let addrs: Vec<BlockAddr> = part.iter().map(|(addr, _)| *addr).collect();
            let read = context.read(scratch, &addrs)?;
            for ((_, block), bytes) in part.iter().zip(read.iter()) {
                self.block(*block, bytes);
            }
            scratch.recycle(read);
        }
        Ok(())
    }

    fn block(&self, block: u32, bytes: &[u8]) {
        if let Some(nat_bits) = &self.bits {
            nat_bits.check(&self.context.findings, block, bytes);
        }
        // Most blocks of a large NAT are empty, but not the first one. Entries of the journal are
        // added separately.
        if block > 0 && is_zero(bytes) {
            return;
        }
        let first = Layout::first_nid(block);
        for (nid, entry) in (first.get()..).map(Nid).zip(nat::entries(bytes)) {
            match self.journal.contains_key(&nid) {
                false => self.entry(nid, entry),
                true => self.replaced(nid, entry),
            }
        }
    }

    /// An entry that the journal replaces: a repair by fsck.f2fs would read it.
    fn replaced(&self, nid: Nid, entry: NatEntry) {
        if !entry.is_free() && !self.context.layout.is_nid(entry.ino) {
            let finding = Finding::new(&kinds::NAT_REPLACED, Place::node(nid.get()));
            self.context.add(finding.stored(entry.ino.get()));
        }
    }

    fn entry(&self, nid: Nid, entry: NatEntry) {
        if let Some(right) = NatEntry::reserved(nid) {
            if entry.block_addr != right.block_addr {
                let finding = Finding::new(&kinds::NAT_RESERVED, Place::node(nid.get()));
                let (stored, right) = (entry.block_addr.get(), right.block_addr.get());
                self.context.add(finding.stored(stored).computed(u64::from(right)));
            }
            return;
        }
        if entry.is_free() {
            return;
        }
        match entry.validate(nid, &self.context.layout) {
            Ok(entry) => self.context.nodes.add(nid, entry),
            Err(error) => self.context.add(report::of(&kinds::NAT_ENTRY, &error)),
        }
    }

    /// Adds the entries of the journal. Called once.
    pub(super) fn add_journal(&self) {
        self.journal.iter().for_each(|(nid, entry)| self.entry(*nid, *entry));
    }
}

/// NAT blocks that are read together.
const PART: usize = 128;

impl Work for ReadNat {
    fn steps(&self) -> u64 {
        u64::from(self.context.layout.nat_blocks()).div_ceil(BLOCKS_PER_SEGMENT.into())
    }

    fn step(&self, number: u64) -> bool {
        self.context.progress.advance(1);
        self.context.step(|scratch| self.segment(scratch, number))
    }
}

/// Marks the inodes that need no name: orphans and quota.
pub(super) fn mark(
    context: &Context,
    inos: &[Nid],
    mark: u16,
    missing: &'static cairn_check::Kind,
) {
    for ino in inos {
        match context.nodes.inode(*ino) {
            Some(node) if !node.mark(mark) => {}
            _ => context.add(Finding::new(missing, Place::inode(ino.get()))),
        }
    }
}
