//! Nodes that the checkpoint counts and that the NAT does not have: a block of the NAT was lost.
//!
//! They are looked for in the blocks that the SIT calls used and that nothing leads to. If the
//! counts say that the SIT is wrong, too, every block of the main area that nothing leads to may
//! be one. The footer of a node names it; of a node that is damaged itself, the summary does.
//!
//! Without such a difference of the counts nothing is looked for: a deleted node stays where it
//! was.

use std::collections::{BTreeMap, BTreeSet};

use cairn_base::units::as_u64;
use cairn_check::{Finding, Place};

use super::context::{Context, Scratch, Totals};
use super::{kinds, owners};
use crate::error::{Error, Result};
use crate::format::Features;
use crate::format::node::NodeFooter;
use crate::format::units::{BlockAddr, Nid, SegNo};

/// Blocks that are read together.
const PART: usize = 128;
/// Where an inode has its links, and when it changed last.
const LINKS_AT: usize = 12;
const CTIME_AT: usize = 40;

/// A node in a block that nothing leads to. Of two, the later one is larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stray {
    checkpoint: u64,
    ctime: u64,
    addr: BlockAddr,
    ino: Nid,
}

struct Search<'c> {
    context: &'c Context,
    strays: BTreeMap<Nid, Stray>,
    /// Nodes that summaries name, and whose blocks are something else.
    gone: BTreeMap<Nid, BlockAddr>,
    /// Inodes that wait for their deletion.
    orphans: BTreeSet<Nid>,
}

/// Looks for nodes that are missing.
///
/// # Errors
/// The device's.
pub(super) fn check(context: &Context, scratch: &mut Scratch) -> Result<()> {
    let checkpoint = &context.volume.loaded.checkpoint;
    let counted = u64::from(checkpoint.valid_node_count);
    if counted <= Totals::get(&context.totals.nodes)
        || context.layout.features.contains(Features::RO)
    {
        return Ok(());
    }
    let known = as_u64(context.nodes.iter().count());
    let Some(missing) = counted.checked_sub(known).filter(|missing| *missing > 0) else {
        return Ok(());
    };
    let listed = match context.volume.loaded.orphans(&context.volume.buffers, &context.layout) {
        Err(Error::Corrupt(_)) => Vec::new(),
        listed => listed?,
    };
    let orphans = listed.into_iter().collect();
    let mut search = Search { context, strays: BTreeMap::new(), gone: BTreeMap::new(), orphans };
    search.segments(scratch, true)?;
    let found = as_u64(search.strays.len().saturating_add(search.gone.len()));
    let totals = &context.totals;
    // One count alone may be wrong itself.
    let others = u64::from(checkpoint.valid_inode_count) > Totals::get(&totals.inodes)
        || checkpoint.valid_block_count > Totals::get(&totals.blocks);
    if found < missing && others {
        search.segments(scratch, false)?;
    }
    search.report();
    Ok(())
}

impl Search<'_> {
    /// Goes through blocks that nothing leads to: those that the SIT calls used, or the others.
    fn segments(&mut self, scratch: &mut Scratch, used: bool) -> Result<()> {
        for segno in (0..self.context.layout.main_segments).map(SegNo) {
            if self.context.progress.is_cancelled() {
                break;
            }
            // What the SIT contradicts itself about may be in use.
            let entry = self.context.volume.sit_entry(segno)?;
            let stored = entry.map_or([u8::MAX; _], |entry| entry.valid_map);
            let asked = stored.map(|bits| if used { bits } else { !bits });
            let addrs = self.context.claims.left(&self.context.layout, segno, &asked);
            for part in addrs.chunks(PART) {
                let read = self.context.read(scratch, part)?;
                for (addr, block) in part.iter().zip(read.iter()) {
                    if !self.look(*addr, block, used) && used {
                        self.ask_summary(scratch, *addr)?;
                    }
                }
                scratch.recycle(read);
            }
        }
        Ok(())
    }

    /// Is the block a node? It is kept if the NAT does not have it.
    fn look(&mut self, addr: BlockAddr, block: &[u8], used: bool) -> bool {
        let footer = NodeFooter::read(block);
        let checkpoint = &self.context.volume.loaded.checkpoint;
        let version = checkpoint.version;
        let [now, then] = [version, footer.cp_ver].map(|version| version & u64::from(u32::MAX));
        // What was written behind the checkpoint is none of its nodes.
        if !used && checkpoint.is_node_version(footer.cp_ver) {
            return false;
        }
        if !footer.is_possible(&self.context.layout) || then > now {
            return false;
        }
        let is_inode = footer.is_inode();
        // It was being deleted.
        let is_listed = used && self.orphans.contains(&footer.nid);
        let is_deleted = is_inode && word(block, LINKS_AT) == [0; 4] && !is_listed;
        if !is_deleted && self.context.nodes.get(footer.nid).is_none() {
            let ctime = if is_inode { u64::from_le_bytes(word(block, CTIME_AT)) } else { 0 };
            let stray = Stray { checkpoint: then, ctime, addr, ino: footer.ino };
            let known = self.strays.entry(footer.nid).or_insert(stray);
            *known = stray.max(*known);
        }
        true
    }

    /// Which node does the summary name for a block that is none?
    fn ask_summary(&mut self, scratch: &mut Scratch, addr: BlockAddr) -> Result<()> {
        if let Some((true, entry)) = owners::stored(self.context, scratch, addr)?
            && self.context.layout.is_nid(entry.nid)
            && self.context.nodes.get(entry.nid).is_none()
        {
            self.gone.insert(entry.nid, addr);
        }
        Ok(())
    }

    fn report(self) {
        let missing = self.strays.keys().chain(self.gone.keys());
        missing.for_each(|nid| self.context.contradicted.add_entry(*nid));
        for (nid, stray) in &self.strays {
            let place = Place::node(nid.get()).of_inode(stray.ino.get());
            let place = place.at_block(stray.addr.get());
            self.context.add(Finding::new(&kinds::NAT_LOST, place));
        }
        for (nid, addr) in self.gone.iter().filter(|(nid, _)| !self.strays.contains_key(nid)) {
            let place = Place::node(nid.get()).at_block(addr.get());
            self.context.add(Finding::new(&kinds::NODE_LOST, place));
        }
    }
}

fn word<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
    block.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}
