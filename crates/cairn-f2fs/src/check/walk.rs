//! The walk over all inodes: a step is a block of the NAT.

use std::sync::Arc;

use cairn_check::Work;

use super::context::{Context, Scratch};
use super::inode;
use crate::error::Result;
use crate::format::layout::Layout;
use crate::format::units::{BlockAddr, NIDS_PER_BLOCK, Nid};

/// Inodes that are read together.
const PART: usize = 128;

/// The work of checking all inodes.
pub(super) struct Inodes(pub(super) Arc<Context>);

impl Inodes {
    fn block(&self, scratch: &mut Scratch, number: u64) -> Result<()> {
        let context = &self.0;
        let Ok(number) = u32::try_from(number) else { return Ok(()) };
        let first = Layout::first_nid(number).get();
        let nids = (first..first.saturating_add(NIDS_PER_BLOCK)).map(Nid);
        let inodes = nids.filter_map(|nid| Some((context.nodes.inode(nid)?.addr(), nid)));
        let mut inodes: Vec<(BlockAddr, Nid)> = inodes.collect();
        inodes.sort_unstable();
        for part in inodes.chunks(PART) {
            let addrs: Vec<BlockAddr> = part.iter().map(|(addr, _)| *addr).collect();
            let blocks = context.read(scratch, &addrs)?;
            for ((_, ino), image) in part.iter().zip(blocks.iter()) {
                if let Some(node) = context.nodes.inode(*ino) {
                    inode::check(context, scratch, (*ino, node), image)?;
                }
            }
            scratch.recycle(blocks);
        }
        Ok(())
    }
}

impl Work for Inodes {
    fn steps(&self) -> u64 {
        self.0.layout.nat_blocks().into()
    }

    fn step(&self, number: u64) -> bool {
        self.0.progress.advance(1);
        self.0.step(|scratch| self.block(scratch, number))
    }
}
