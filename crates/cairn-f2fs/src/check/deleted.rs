//! Nodes of deleted files that the NAT has again: an old copy of one of its blocks came back.
//!
//! Nothing names them, and the blocks of most are something else since. A file that has lost its
//! name and its block looks the same. They are those of deleted files if nothing is lost without
//! their entries: all that the checkpoint counts and all that the SIT calls used is there, and
//! nothing leads to what is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::units::as_index;
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::{Step, Steps};
use cairn_check::{Finding, Findings, Observer, Place, Severity};

use super::context::{Context, Scratch, Totals};
use super::examine::examine;
use super::nodes::{DAMAGED, NodeState, ORPHAN, QUOTA, VISITED};
use super::replay::{self, Pending};
use super::volume::Volume;
use super::{kinds, owners};
use crate::error::Result;
use crate::format::layout::{Layout, Side};
use crate::format::node::NodeFooter;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE, Nid, SegNo};
use crate::format::{Features, NatEntry, bits, nat};

/// Most entries that are tried.
const MOST: usize = 1 << 16;

/// The volume without entries of deleted nodes.
pub(super) struct Deleted {
    /// The walk over it. Its findings have those entries.
    pub(super) context: Arc<Context>,
    /// The blocks of the NAT without them, by their places in bytes.
    blocks: BTreeMap<u64, Vec<u8>>,
    nids: BTreeSet<Nid>,
}

impl Deleted {
    /// Writes those blocks. A further round does the rest.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn write(
        self,
        device: &Arc<dyn BlockDevice>,
        steps: &mut Steps,
    ) -> Result<Arc<Context>> {
        for (at, bytes) in self.blocks {
            device.write_at(at, bytes)?;
        }
        for nid in self.nids {
            steps.add(Step::new(&kinds::NAT_DELETED, Place::node(nid.get())));
        }
        Ok(self.context)
    }
}

/// Looks for such entries among the nodes of a walk that nothing leads to. `early` is what was
/// found before the walk.
///
/// # Errors
/// The device failed.
pub(super) fn proved(
    context: &Context,
    (runtime, observer): (&Arc<dyn Runtime>, &Arc<dyn Observer>),
    threads: usize,
    early: Findings,
) -> Result<Option<Deleted>> {
    let volume = &context.volume;
    let signs = [&kinds::NODE_FOOTER, &kinds::NAT_UNREACHABLE];
    if signs.iter().all(|kind| context.findings.count_of(kind) == 0)
        || volume.device.as_zoned().is_some()
        || context.layout.features.contains(Features::RO)
        || context.progress.is_cancelled()
        || !matches!(
            replay::pending(volume, &Findings::new()),
            Ok(Pending::Nothing | Pending::Contradicted)
        )
    {
        return Ok(None);
    }
    let nids = candidates(context)?;
    let Some(blocks) = without(volume, &nids)? else { return Ok(None) };
    let above: Arc<dyn BlockDevice> = Arc::new(Overlay::new(volume.device.clone())?);
    for (at, bytes) in &blocks {
        above.write_at(*at, bytes.clone())?;
    }
    let Some(mut opened) = Volume::open(above, &Findings::new())? else { return Ok(None) };
    opened.is_recovered = volume.is_recovered;
    let other = examine(opened, early, (runtime, observer.clone()), threads, None)?;
    if other.progress.is_cancelled() || !is_whole(&other)? {
        return Ok(None);
    }
    for (nid, node) in nids.iter().filter_map(|nid| Some((nid, context.nodes.get(*nid)?))) {
        let place = Place::node(nid.get()).of_inode(node.ino().get());
        other.add(Finding::new(&kinds::NAT_DELETED, place.at_block(node.addr().get())));
    }
    Ok(Some(Deleted { context: other, blocks, nids }))
}

/// Inodes without a name whose blocks are something else, and nodes that no inode reaches whose
/// blocks are something else or free.
fn candidates(context: &Context) -> Result<BTreeSet<Nid>> {
    let scratch = &mut Scratch::default();
    let mut found = BTreeSet::new();
    for (ino, node) in context.nodes.iter().filter(|(nid, node)| is_nameless(*nid, node)) {
        let footer = context.with_block(scratch, node.addr(), NodeFooter::read)?;
        if footer.is_some_and(|footer| footer.nid != ino) {
            found.insert(ino);
        }
        if found.len() > MOST {
            return Ok(BTreeSet::new());
        }
    }
    let is_lost = |(nid, node): &(Nid, &NodeState)| {
        let owner = context.nodes.inode(node.ino());
        let is_read = owner.is_none_or(|owner| !owner.is(DAMAGED)) || found.contains(&node.ino());
        *nid != node.ino() && !node.is(VISITED) && is_read
    };
    let mut below = Vec::new();
    for (nid, node) in context.nodes.iter().filter(is_lost).take(MOST) {
        if is_dead(context, scratch, (nid, node))? {
            below.push(nid);
        }
    }
    found.extend(below);
    Ok(found)
}

/// Is the block of a node another's, or free?
fn is_dead(
    context: &Context,
    scratch: &mut Scratch,
    (nid, node): (Nid, &NodeState),
) -> Result<bool> {
    let footer = context.with_block(scratch, node.addr(), NodeFooter::read)?;
    if !footer.is_some_and(|footer| footer.nid == nid && footer.ino == node.ino()) {
        return Ok(true);
    }
    let place = context.layout.segment_of(node.addr());
    place.map_or(Ok(false), |place| owners::is_free(context, place))
}

/// An inode that is damaged, without a name, and that nothing else names.
fn is_nameless(nid: Nid, node: &NodeState) -> bool {
    let is_named = [ORPHAN, QUOTA].iter().any(|mark| node.is(*mark)) || node.links() > 0;
    node.ino() == nid && node.is(DAMAGED) && !is_named && nid != Nid::ROOT
}

/// The blocks of the NAT without these entries. `None` if there are none, or if the journal has
/// one: it is of the last checkpoint.
fn without(volume: &Volume, nids: &BTreeSet<Nid>) -> Result<Option<BTreeMap<u64, Vec<u8>>>> {
    let journal = &volume.journals.nat.0;
    if nids.is_empty() || journal.iter().any(|(nid, _)| nids.contains(nid)) {
        return Ok(None);
    }
    let bitmap = &volume.loaded.checkpoint.nat_bitmap;
    let mut blocks = BTreeMap::new();
    for nid in nids {
        let (block, index) = Layout::nat_place(*nid);
        let side = Side::of_bit(bits::test(bitmap, as_index(block)));
        let at = volume.layout.nat_address(block, side).get().saturating_mul(BLOCK_BYTES);
        let mut bytes = match blocks.remove(&at) {
            Some(bytes) => bytes,
            None => volume.device.read_at(at, BLOCK_SIZE)?.to_vec(),
        };
        let version = nat::entry(&bytes, index).version.wrapping_add(1);
        nat::set_entry(&mut bytes, index, NatEntry { version, ..NatEntry::default() });
        blocks.insert(at, bytes);
    }
    Ok(Some(blocks))
}

/// Is everything there that the checkpoint counts and that the SIT calls used, and is nothing found
/// by which a file loses something?
fn is_whole(context: &Context) -> Result<bool> {
    let (totals, checkpoint) = (&context.totals, &context.volume.loaded.checkpoint);
    let counts = [
        (checkpoint.valid_block_count, &totals.blocks),
        (checkpoint.valid_node_count.into(), &totals.nodes),
        (checkpoint.valid_inode_count.into(), &totals.inodes),
    ];
    if context.findings.worst() > Some(Severity::Accounting)
        || counts.into_iter().any(|(counted, found)| counted > Totals::get(found))
    {
        return Ok(false);
    }
    for segno in (0..context.layout.main_segments).map(SegNo) {
        let Some(entry) = context.volume.sit_entry(segno)? else { return Ok(false) };
        if !context.claims.left(&context.layout, segno, &entry.valid_map).is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}
