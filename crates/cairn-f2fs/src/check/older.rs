//! Nodes that the NAT leads to in blocks that the SIT calls free, or of which it says nothing
//! possible, and of which there are signs of a newer version: the SIT may be wrong, or the NAT, and
//! then the file would be an old one again.
//!
//! If a block that the SIT calls used is the newer version, the NAT is wrong. Everything else is a
//! doubt: a newer version in a block that the SIT does not call used, either, and a block in use
//! that the summary gives to the node, and that cannot be read as one. That one is none if the SIT
//! calls other numbers of nodes used than the checkpoint counts: then its entry is an old one, and
//! the block was freed since. If the numbers are the same, a node of which the SIT calls all
//! versions free was deleted.
//!
//! An entry of the SIT that calls blocks used to which nothing leads, or nodes free, may be an old
//! one, which says of no block what is in it now. So of the nodes in such a segment a newer
//! version, which the summary names, is looked for in the segment, whatever the entry says. The
//! same is done for the nodes in a block of the NAT with an old entry, everywhere: an old block and
//! an old entry of the SIT may agree.
//!
//! Without such a node, segment or block nothing is read. Memory: at most [`MOST`] nodes and
//! segments.

use std::collections::{BTreeMap, BTreeSet};

use cairn_check::{Finding, Place};

use super::claims::Use;
use super::context::{Context, Scratch};
use super::nodes::NodeState;
use super::{kinds, owners};
use crate::error::Result;
use crate::format::layout::Layout;
use crate::format::node::NodeFooter;
use crate::format::sit::VALID_MAP_SIZE;
use crate::format::summary::ENTRIES;
use crate::format::units::{BlockAddr, NIDS_PER_BLOCK, Nid, SegNo};
use crate::format::{Features, SitEntry, bits};

/// Most nodes that are asked.
const MOST: usize = 1 << 16;

/// Nodes that may be older versions.
#[derive(Default)]
pub(super) struct Older {
    /// Their blocks.
    nodes: Vec<BlockAddr>,
    /// Segments whose entries say of a block what the walk contradicts.
    contradicted: BTreeSet<SegNo>,
}

/// Such a node.
struct Suspect {
    footer: NodeFooter,
    /// The SIT calls its block free.
    is_free: bool,
    /// The SIT calls its block used.
    is_used: bool,
    /// The NAT has it in a block with an old entry.
    is_beside: bool,
    /// The best sign of a newer version, its block, and the inode whose node it is: the number may
    /// have been given away.
    sign: Option<(Sign, BlockAddr, Nid)>,
}

/// Signs of a newer version of a node, the best one last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    /// The version, which the SIT calls free as the older one.
    Freed(u64),
    /// The block is in use and the node's, as the summary says, and no readable version of it.
    Unreadable,
    /// The version, by which the newest one is the last. The SIT says of one of them nothing
    /// possible.
    Newer(u64),
    /// As before, and the SIT calls the block used.
    Present(u64),
}

/// A block that nothing leads to.
struct Stray {
    addr: BlockAddr,
    /// What the SIT says, if that is possible.
    is_used: Option<bool>,
    /// What it says of the segment is contradicted.
    is_contradicted: bool,
    /// The node that the summary names.
    named: Option<Nid>,
}

impl Older {
    /// Notes the nodes of a segment that the SIT does not call used, and all of one whose entry is
    /// contradicted.
    pub(super) fn add(&mut self, context: &Context, segno: SegNo, entry: Option<&SitEntry>) {
        if !context.claims.has(segno, Use::Node) || self.nodes.len() >= MOST {
            return;
        }
        let stored = entry.map_or([0; VALID_MAP_SIZE], |entry| entry.valid_map);
        let claimed = context.claims.valid_map(segno);
        if claimed == stored {
            return;
        }
        self.contradicted.insert(segno);
        let offsets = (0_u16..).take(ENTRIES).filter(|at| bits::test(&claimed, (*at).into()));
        self.nodes.extend(offsets.map(|offset| context.layout.address(segno, offset)));
    }

    /// Reports those of which there are signs of a newer version. `found` were reported before.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn check(
        self,
        context: &Context,
        scratch: &mut Scratch,
        found: &BTreeSet<Nid>,
    ) -> Result<()> {
        let mut suspects = BTreeMap::new();
        let nat_blocks = context.contradicted.nat_blocks();
        for addr in self.nodes.iter().copied().chain(beside(context, &nat_blocks)) {
            let footer = context.with_block(scratch, addr, NodeFooter::read)?;
            let is_it = |footer: &NodeFooter| {
                let node = context.nodes.get(footer.nid).filter(|_| !found.contains(&footer.nid));
                node.is_some_and(|node| node.addr() == addr && node.ino() == footer.ino)
            };
            let place = context.layout.segment_of(addr);
            let Some((footer, place)) = footer.filter(is_it).zip(place) else { continue };
            let entry = context.volume.sit_entry(place.0)?;
            let is_used = entry.map(|entry| bits::test(&entry.valid_map, place.1.into()));
            let (is_free, is_used) = (is_used == Some(false), is_used == Some(true));
            let is_beside = nat_blocks.contains(&Layout::nat_place(footer.nid).0);
            let suspect = Suspect { footer, is_free, is_used, is_beside, sign: None };
            suspects.insert(footer.nid, suspect);
        }
        if suspects.is_empty() || context.layout.features.contains(Features::RO) {
            return Ok(());
        }
        let mut nodes = Some(0_u64);
        let is_everywhere = suspects.values().any(|suspect| !suspect.is_used || suspect.is_beside);
        let is_asked = |segno: &SegNo| is_everywhere || self.contradicted.contains(segno);
        for segno in (0..context.layout.main_segments).map(SegNo).filter(is_asked) {
            if context.progress.is_cancelled() {
                return Ok(());
            }
            let entry = context.volume.sit_entry(segno)?;
            let used = entry.as_ref().map(|entry| match entry.log.is_node() {
                true => u64::from(entry.valid_blocks()),
                false => 0,
            });
            nodes = nodes.zip(used).map(|(nodes, used)| nodes.saturating_add(used));
            let is_contradicted = self.contradicted.contains(&segno);
            search(context, scratch, (segno, entry, is_contradicted), &mut suspects)?;
        }
        let counted = u64::from(context.volume.loaded.checkpoint.valid_node_count);
        let is_counted = nodes == Some(counted);
        for (nid, suspect) in suspects {
            let Some((sign, addr, ino)) = suspect.sign else { continue };
            let kind = match sign {
                Sign::Present(_) => &kinds::NAT_ADDRESS,
                Sign::Unreadable if !is_counted => continue,
                Sign::Freed(_) if is_counted => continue,
                Sign::Freed(_) | Sign::Newer(_) | Sign::Unreadable => &kinds::NAT_DOUBT,
            };
            let place = Place::node(nid.get()).of_inode(ino.get());
            context.add(Finding::new(kind, place.at_block(addr.get())));
        }
        Ok(())
    }
}

/// The nodes in these blocks of the NAT.
fn beside<'c>(
    context: &'c Context,
    nat_blocks: &'c BTreeSet<u32>,
) -> impl Iterator<Item = BlockAddr> + 'c {
    let nodes = |block: &u32| {
        let first = Layout::first_nid(*block).get();
        let nids = first..first.saturating_add(NIDS_PER_BLOCK);
        nids.filter_map(|nid| context.nodes.get(Nid(nid)).map(NodeState::addr))
    };
    nat_blocks.iter().flat_map(nodes).take(MOST)
}

/// Looks for newer versions in the blocks of a segment that nothing leads to.
fn search(
    context: &Context,
    scratch: &mut Scratch,
    (segno, entry, is_contradicted): (SegNo, Option<SitEntry>, bool),
    suspects: &mut BTreeMap<Nid, Suspect>,
) -> Result<()> {
    for addr in context.claims.left(&context.layout, segno, &[u8::MAX; _]) {
        let Some((_, offset)) = context.layout.segment_of(addr) else { continue };
        let is_used = entry.as_ref().map(|entry| bits::test(&entry.valid_map, offset.into()));
        let stored = owners::stored(context, scratch, addr)?;
        let named = stored.and_then(|(is_node, owner)| is_node.then_some(owner.nid));
        let named = named.filter(|nid| suspects.contains_key(nid));
        let is_of_nodes = entry.as_ref().is_none_or(|entry| entry.log.is_node());
        if named.is_none() && (is_used == Some(false) || !is_of_nodes) {
            continue;
        }
        let Some(footer) = context.with_block(scratch, addr, NodeFooter::read)? else { continue };
        let stray = Stray { addr, is_used, is_contradicted, named };
        look(context, suspects, &stray, &footer);
    }
    Ok(())
}

/// Is the block a newer version of a node?
fn look(
    context: &Context,
    suspects: &mut BTreeMap<Nid, Suspect>,
    stray: &Stray,
    footer: &NodeFooter,
) {
    let age = |version: u64| version & u64::from(u32::MAX);
    let now = age(context.volume.loaded.checkpoint.version);
    let then = age(footer.cp_ver);
    let is_used = stray.is_used == Some(true);
    if let Some(suspect) = suspects.get_mut(&footer.nid) {
        let is_readable = footer.is_possible(&context.layout);
        // Another inode's node is a newer one if the SIT and the summary say so.
        let is_named = is_used && stray.named == Some(footer.nid);
        let is_same = is_readable && (is_named || footer.ino == suspect.footer.ino);
        // What was written behind the checkpoint has its version.
        let is_newer = (age(suspect.footer.cp_ver).saturating_add(1)..now).contains(&then);
        let is_in_old =
            (stray.is_contradicted || suspect.is_beside) && stray.named == Some(footer.nid);
        let is_possible = suspect.is_free || stray.is_used != Some(false) || is_in_old;
        if is_same && is_newer && is_possible {
            let sign = match (suspect.is_free, stray.is_used) {
                (true, Some(true)) => Sign::Present(then),
                (true, Some(false)) => Sign::Freed(then),
                _ => Sign::Newer(then),
            };
            suspect.sign = suspect.sign.max(Some((sign, stray.addr, footer.ino)));
        }
        // An older version, or a deleted node that had the number before.
        if is_readable && then <= age(suspect.footer.cp_ver) {
            return;
        }
    }
    let named = stray.named.filter(|_| is_used).and_then(|nid| suspects.get_mut(&nid));
    if let Some(suspect) = named.filter(|suspect| suspect.is_free) {
        let sign = (Sign::Unreadable, stray.addr, suspect.footer.ino);
        suspect.sign = suspect.sign.max(Some(sign));
    }
}
