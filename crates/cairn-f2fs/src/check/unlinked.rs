//! Blocks in use to which nothing leads, and whose summaries name a pointer that leads elsewhere:
//! the pointer is what is damaged. If they name a node, its entry of the NAT is.
//!
//! A bit of the SIT that is wrong contradicts the count beside it. So a block that a possible entry
//! calls used was in use, and the summary of a block in use is right. That is not so of an entry
//! that is an old one: an empty pointer is a hole unless its inode counts more blocks than it has.

use std::collections::{BTreeMap, BTreeSet};

use cairn_check::{Finding, Kind, Place};

use super::context::{Context, Scratch};
use super::nodes::{DAMAGED, NodeState, VISITED};
use super::slots::{self, Named};
use super::{kinds, owners};
use crate::error::Result;
use crate::format::units::{BlockAddr, Nid, SegNo};
use crate::format::{SitEntry, Summary};

/// Most blocks that are asked.
const MOST: usize = 1 << 16;

/// What must be mended first: by it an inode is read.
const FIRST: [&Kind; 5] = [
    &kinds::INODE_SHAPE,
    &kinds::INODE_FIELD,
    &kinds::INODE_CHECKSUM,
    &kinds::INODE_TYPE,
    &kinds::INODE_DOUBT,
];

/// Blocks that the SIT calls used, and that nothing leads to.
#[derive(Default)]
pub(super) struct Left(Vec<BlockAddr>);

impl Left {
    /// Notes those of a segment.
    pub(super) fn add(&mut self, context: &Context, segno: SegNo, entry: &SitEntry) {
        let left = context.claims.left(&context.layout, segno, &entry.valid_map);
        let room = MOST.saturating_sub(self.0.len());
        self.0.extend(left.into_iter().take(room));
    }

    /// Reports those whose pointers lead elsewhere. Returns the nodes whose entries of the NAT do.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn check(self, context: &Context, scratch: &mut Scratch) -> Result<BTreeSet<Nid>> {
        let mut nodes = BTreeSet::new();
        for addr in &self.0 {
            if let Some(footer) = owners::node_at(context, scratch, *addr)? {
                nodes.insert(footer.nid);
                context.contradicted.add_entry(footer.nid);
                let place = Place::node(footer.nid.get()).of_inode(footer.ino.get());
                context.add(Finding::new(&kinds::NAT_ADDRESS, place.at_block(addr.get())));
            }
        }
        if FIRST.iter().any(|kind| context.findings.count_of(kind) > 0) {
            return Ok(nodes);
        }
        let mut found = Vec::new();
        let elsewhere = |addr: BlockAddr, pointer: BlockAddr| {
            let place = context.layout.segment_of(addr).filter(|_| pointer.is_address());
            place.map(|(segno, _)| segno)
        };
        let mut empty: BTreeMap<Nid, u64> = BTreeMap::new();
        for addr in self.0 {
            if let Some((owner, pointer)) = pointer_to(context, scratch, addr)? {
                let ino = context.nodes.get(owner.nid).map_or(owner.nid, NodeState::ino);
                let is_empty = pointer == BlockAddr::NULL;
                if is_empty {
                    let count = empty.entry(ino).or_default();
                    *count = count.saturating_add(1);
                }
                if let Some(segno) = elsewhere(addr, pointer) {
                    context.contradicted.add(segno, owner.nid);
                }
                found.push((addr, owner, ino, pointer));
            }
        }
        for (addr, owner, ino, pointer) in found {
            let is_empty = pointer == BlockAddr::NULL;
            let is_old =
                elsewhere(addr, pointer).is_some_and(|segno| context.contradicted.is_old(segno));
            if pointer == BlockAddr::NEW || is_old {
                // The inode counts a reserved place as one with a block.
                context.add(owners::doubted(addr, owner, ino));
                continue;
            }
            let count = empty.get(&ino).copied().unwrap_or_default();
            if !is_empty || count <= context.lacking.of(ino) {
                context.add(owners::unlinked(addr, owner, ino, None));
            }
        }
        Ok(nodes)
    }
}

/// The pointer that the summary of a block names and its value, if it leads elsewhere, and not to
/// another block of its own.
///
/// # Errors
/// The device's.
pub(super) fn pointer_to(
    context: &Context,
    scratch: &mut Scratch,
    addr: BlockAddr,
) -> Result<Option<(Summary, BlockAddr)>> {
    let Some((false, owner)) = owners::stored(context, scratch, addr)? else { return Ok(None) };
    let Some(holder) = context.nodes.get(owner.nid) else { return Ok(None) };
    let inode = context.nodes.inode(holder.ino());
    // What a node holds that was not come to is not the volume's.
    let is_seen = holder.is(VISITED) && inode.is_some_and(|inode| !inode.is(DAMAGED));
    if !is_seen {
        return Ok(None);
    }
    let found = slots::named(context, scratch, owner)?;
    let Some(Named { pointer, offset, .. }) = found.filter(|found| found.pointer != addr) else {
        return Ok(None);
    };
    // A node, or an old version of one, in a segment whose summary calls it data.
    let is_node = slots::footer(context, scratch, addr)?
        .is_some_and(|footer| footer.nid == owner.nid || context.nodes.has_block(addr));
    if is_node {
        return Ok(None);
    }
    if pointer == BlockAddr::NULL
        && slots::is_cut_off(context, scratch, (holder.ino(), offset, owner.ofs_in_node))?
    {
        return Ok(None);
    }
    // An old version of the block that is there now.
    let is_own = pointer.is_address()
        && context.layout.in_main(pointer)
        && owners::stored(context, scratch, pointer)? == Some((false, owner));
    Ok((!is_own).then_some((owner, pointer)))
}
