//! The bytes of a file, past what cannot be read.

use std::sync::Arc;

use cairn_base::units::{as_u64, stored};
use cairn_block::BlockDevice;
use cairn_cache::block::Image;
use cairn_check::salvage::{Contents, Faults, Found, Inline, Run, Runs};
use cairn_vfs::{FileKind, Timestamp};

use super::owned;
use crate::compress;
use crate::format::Inode;
use crate::format::inode::{Advise, InlineFlags};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE, BlockAddr, Nid};
use crate::raw::RawVolume;
use crate::raw::tree::{Below, Pointer, Visitor, walk};

/// Most runs of pointers of one file.
const MOST_POINTERS: usize = 1 << 23;

/// Where the nodes of a file come from.
pub(super) type Fetch<'f> = &'f dyn Fn(Below) -> Result<(BlockAddr, Image), String>;

/// The first block and the pointers of clusters.
type Clusters = Vec<(u64, Vec<BlockAddr>)>;

/// A file's blocks on the device.
pub(super) struct Mapped {
    device: Arc<dyn BlockDevice>,
    ino: Nid,
    size: u64,
    runs: Runs,
    /// The record of a compressed file, and its clusters that are packed: the first block, and the
    /// pointers.
    packed: Option<(Inode, Clusters)>,
}

/// Pointers of one node to blocks that follow each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pointers {
    first: Pointer,
    len: u32,
}

impl Pointers {
    /// Each of them.
    pub(super) fn iter(self) -> impl Iterator<Item = Pointer> {
        let Pointer { block, addr, holder, slot } = self.first;
        (0..self.len).map(move |within| Pointer {
            block: block.saturating_add(within.into()),
            addr: if addr.is_address() {
                BlockAddr(addr.get().saturating_add(within))
            } else {
                addr
            },
            holder,
            slot: slot.saturating_add(within),
        })
    }

    /// Does the pointer follow them?
    fn goes_on_with(&self, next: &Pointer) -> bool {
        let Pointer { block, addr, holder, slot } = self.first;
        next.holder == holder
            && next.slot == slot.saturating_add(self.len)
            && next.block == block.saturating_add(self.len.into())
            && addr.is_address()
            && next.addr.is_address()
            && Some(next.addr.get()) == addr.get().checked_add(self.len)
    }
}

/// Collects the pointers of a file.
pub(super) struct Collect<'f> {
    fetch: Fetch<'f>,
    pub(super) pointers: Vec<Pointers>,
    /// Nodes below the inode.
    nodes: u64,
    pub(super) faults: Faults,
}

impl<'f> Collect<'f> {
    /// All pointers of a file.
    pub(super) fn all(
        volume: &RawVolume,
        ino: Nid,
        (record, image): (&Inode, &[u8]),
        fetch: Fetch<'f>,
    ) -> Self {
        let mut collect = Self { fetch, pointers: Vec::new(), nodes: 0, faults: Faults::default() };
        walk(volume, ino, (record, image), &mut collect);
        collect
    }

    /// The number of blocks that the inode counts and that were not found.
    fn missing(&self, record: &Inode) -> u64 {
        let own = 1_u64.saturating_add(u64::from(!record.xattr_nid.is_none()));
        // The marks of clusters whose saved blocks were given back are not counted.
        let is_counted = !is_released(record);
        let counted = self
            .pointers
            .iter()
            .filter(|run| is_counted || run.first.addr != BlockAddr::COMPRESS)
            .fold(0, |all: u64, run| all.saturating_add(run.len.into()));
        record.blocks.saturating_sub(own.saturating_add(self.nodes).saturating_add(counted))
    }
}

impl Visitor for Collect<'_> {
    fn fetch(&mut self, _: &RawVolume, below: Below) -> Result<(BlockAddr, Image), String> {
        (self.fetch)(below)
    }

    fn node(&mut self, _: Below, _: BlockAddr) {
        self.nodes = self.nodes.saturating_add(1);
    }

    fn pointer(&mut self, pointer: Pointer) {
        if let Some(last) = self.pointers.last_mut().filter(|last| last.goes_on_with(&pointer)) {
            last.len = last.len.saturating_add(1);
        } else if self.pointers.len() < MOST_POINTERS {
            self.pointers.push(Pointers { first: pointer, len: 1 });
        } else if self.faults.is_empty() {
            self.faults.add("its contents are in too many pieces");
        }
    }

    fn fault(&mut self, below: Below, what: String) {
        self.faults.add(format!("its contents are not all known: node {}: {what}", below.nid));
    }
}

impl Mapped {
    /// The blocks of these pointers.
    pub(super) fn new(
        volume: &RawVolume,
        ino: Nid,
        record: &Inode,
        pointers: impl Iterator<Item = Pointer>,
        faults: Faults,
    ) -> Self {
        let device = volume.device.clone();
        let mut runs = Runs::new(device.clone(), stored(BLOCK_SIZE), record.size);
        runs.faults = faults;
        let mut mapped = Self { device, ino, size: record.size, runs, packed: None };
        match record.cluster_blocks() {
            None => pointers.for_each(|one| mapped.add(volume, one.block, one.addr)),
            Some(cluster) => mapped.add_clusters(volume, record, pointers, cluster.into()),
        }
        let clusters = mapped.packed.iter().flat_map(|(_, packed)| packed);
        let packed = clusters.fold(0, |all: u64, (_, list)| all.saturating_add(as_u64(list.len())));
        if !mapped.runs.take_from(&volume.allowance, packed) {
            mapped.packed = None;
        }
        mapped
    }

    fn add(&mut self, volume: &RawVolume, start: u64, addr: BlockAddr) {
        if !addr.is_address() {
            return;
        }
        match volume.layout.in_main(addr) {
            true => self.runs.push(Run { start, block: addr.get().into(), len: 1 }),
            false => self.runs.faults.add(format!("block {start} points outside the main area")),
        }
    }

    fn add_clusters(
        &mut self,
        volume: &RawVolume,
        record: &Inode,
        pointers: impl Iterator<Item = Pointer>,
        cluster: u64,
    ) {
        let (mut packed, mut unmarked) = (Clusters::new(), Clusters::new());
        let mut present: Option<(u64, Vec<BlockAddr>)> = None;
        let size = usize::try_from(cluster).unwrap_or(1);
        for one in pointers {
            let within = one.block.checked_rem(cluster).unwrap_or(0);
            let first = one.block.saturating_sub(within);
            if present.as_ref().is_none_or(|(start, _)| *start != first) {
                let next = Some((first, vec![BlockAddr::NULL; size]));
                let before = std::mem::replace(&mut present, next);
                self.end_cluster(volume, record, before, (&mut packed, &mut unmarked));
            }
            let at = usize::try_from(within).unwrap_or(usize::MAX);
            let is_mark = one.addr == BlockAddr::COMPRESS && within == 0;
            if let Some((_, list)) = &mut present
                && let Some(slot) = list.get_mut(at)
                && (is_mark || one.addr.is_address())
            {
                *slot = one.addr;
            }
        }
        self.end_cluster(volume, record, present, (&mut packed, &mut unmarked));
        let used = |list: &[BlockAddr]| {
            as_u64(list.iter().skip(1).filter(|addr| addr.is_address()).count())
        };
        let saved = packed.iter().map(|(_, list)| cluster.saturating_sub(used(list)));
        let saved = saved.fold(0, u64::saturating_add);
        // Other contents may look as if they were packed.
        if is_released(record) || record.extra.is_some_and(|extra| extra.compr_blocks > saved) {
            for (start, _) in &unmarked {
                let what = "has lost its mark, and was unpacked as its data show";
                self.runs.faults.add(format!("the cluster at block {start} {what}"));
            }
            packed.append(&mut unmarked);
        } else {
            for (start, list) in unmarked {
                self.add_plain(volume, start, &list);
            }
        }
        self.packed = Some((record.clone(), packed));
    }

    /// Sorts a cluster by what it is: packed, perhaps packed, or plain.
    fn end_cluster(
        &mut self,
        volume: &RawVolume,
        record: &Inode,
        cluster: Option<(u64, Vec<BlockAddr>)>,
        (packed, unmarked): (&mut Clusters, &mut Clusters),
    ) {
        let Some((start, mut list)) = cluster else { return };
        let is_packed = list.first() == Some(&BlockAddr::COMPRESS);
        let is_inside = |addr: &BlockAddr| !addr.is_address() || volume.layout.in_main(*addr);
        if is_packed {
            list.iter_mut()
                .filter(|addr| !is_inside(addr))
                .for_each(|addr| *addr = BlockAddr::NULL);
            packed.push((start, list));
            return;
        }
        let first = list.first().copied().unwrap_or_default();
        let may_lack = match is_released(record) {
            true => compress::may_lack_mark(first),
            false => record.extra.is_some_and(|extra| extra.compr_blocks > 0),
        };
        let may_be = may_lack
            && list.iter().all(is_inside)
            && self.looks_packed(volume, record, (start, &list));
        match may_be {
            true => unmarked.push((start, list)),
            false => self.add_plain(volume, start, &list),
        }
    }

    fn looks_packed(
        &self,
        volume: &RawVolume,
        record: &Inode,
        cluster: (u64, &[BlockAddr]),
    ) -> bool {
        let second = cluster.1.get(1).filter(|addr| addr.is_address());
        let Some(second) = second.and_then(|addr| volume.block(addr.pba()).ok()) else {
            return false;
        };
        compress::looks_packed(&*self.device, (self.ino, record), cluster, &second).unwrap_or(false)
    }

    fn add_plain(&mut self, volume: &RawVolume, start: u64, list: &[BlockAddr]) {
        for (block, addr) in (start..).zip(list) {
            self.add(volume, block, *addr);
        }
    }
}

impl Contents for Mapped {
    fn copy(&mut self, to: &mut dyn FnMut(u64, &[u8]) -> bool) -> Vec<String> {
        let mut goes_on = true;
        let mut faults = self.runs.copy(&mut |offset, bytes| {
            goes_on = to(offset, bytes);
            goes_on
        });
        let end = self.size.div_ceil(BLOCK_BYTES);
        let packed = self.packed.take().filter(|_| goes_on);
        if let Some((record, clusters)) = packed {
            for (start, list) in clusters.into_iter().filter(|(start, _)| *start < end) {
                let offset = start.saturating_mul(BLOCK_BYTES);
                match compress::unpack_cluster(&*self.device, self.ino, &record, start, &list) {
                    Ok(bytes) => {
                        if !to(offset, self.runs.clip(offset, &bytes)) {
                            return faults;
                        }
                    }
                    Err(error) => faults.push(format!("the cluster at block {start}: {error}")),
                }
            }
        }
        faults
    }
}

/// Were the blocks that compression saves given back? Nothing counts them then.
const fn is_released(record: &Inode) -> bool {
    record.inline.contains(InlineFlags::COMPRESS_RELEASED)
}

fn moment(stamp: Timestamp) -> (i64, u32) {
    (stamp.seconds, stamp.nanoseconds)
}

/// What an inode says of its file.
pub(super) fn describe(ino: Nid, record: &Inode, image: &[u8], path: Vec<u8>) -> Found {
    let is_device = matches!(record.kind, FileKind::BlockDevice | FileKind::CharDevice);
    let number = if is_device { record.device(image) } else { 0 };
    Found {
        path,
        ino: ino.get().into(),
        mode: record.kind.mode_bits() | u32::from(record.permissions),
        uid: record.uid,
        gid: record.gid,
        size: record.size,
        atime: moment(record.atime),
        mtime: moment(record.mtime),
        device: cairn_vfs::decode_device(number),
        xattrs: Vec::new(),
    }
}

/// Bytes that lie in the inode instead of blocks.
pub(super) fn bytes_of_inode(record: &Inode, image: &[u8]) -> Option<Vec<u8>> {
    if !record.inline.contains(InlineFlags::DATA) {
        return None;
    }
    let range = record.inline_data_range();
    let mut bytes = image.get(range).unwrap_or_default().to_vec();
    bytes.truncate(usize::try_from(record.size).unwrap_or(usize::MAX));
    Some(bytes)
}

/// The contents of a file or a link.
pub(super) fn contents(
    volume: &RawVolume,
    ino: Nid,
    record: &Inode,
    image: &[u8],
    fetch: Fetch<'_>,
) -> Box<dyn Contents> {
    if let Some(bytes) = bytes_of_inode(record, image) {
        return Box::new(Inline { bytes, size: record.size });
    }
    if !matches!(record.kind, FileKind::Regular | FileKind::Symlink) {
        return Box::new(Inline::default());
    }
    let found = Collect::all(volume, ino, (record, image), fetch);
    let missing = found.missing(record);
    let mut faults = found.faults;
    if faults.is_empty() && missing > 0 {
        faults.add(format!("the inode counts {missing} blocks that were not found"));
    }
    if record.advise.contains(Advise::ENCRYPT) {
        faults.add("it is encrypted: what was copied is not readable");
    }
    // A wrong pointer begins a run.
    for run in &found.pointers {
        owned::fault(volume, run.first).into_iter().for_each(|what| faults.add(what));
    }
    let mut pointers = found.pointers;
    for (index, addr) in lost(volume, &pointers) {
        let Some(run) = pointers.get_mut(index) else { continue };
        let block = run.first.block;
        faults.add(format!("block {block} is called empty, and was copied from block {addr}"));
        run.first.addr = addr;
    }
    let pointers = pointers.into_iter().flat_map(Pointers::iter);
    Box::new(Mapped::new(volume, ino, record, pointers, faults))
}

/// Pointers without a block that have lost it, by their index, and the blocks.
fn lost(volume: &RawVolume, runs: &[Pointers]) -> Vec<(usize, BlockAddr)> {
    let mut found = Vec::new();
    for (index, run) in runs.iter().enumerate().filter(|(_, run)| run.first.addr == BlockAddr::NEW)
    {
        let beside = |number: Option<usize>| {
            let run = number.and_then(|number| runs.get(number))?;
            run.first.addr.is_address().then_some(run)
        };
        let before = beside(index.checked_sub(1));
        let before = before.and_then(|run| run.first.addr.get().checked_add(run.len));
        let after = beside(index.checked_add(1));
        let after = after.and_then(|run| run.first.addr.get().checked_sub(1));
        let addr = owned::lost(volume, run.first, before);
        let addr = addr.or_else(|| owned::lost(volume, run.first, after));
        found.extend(addr.map(|addr| (index, addr)));
    }
    found
}

/// Blocks that a file of this size has.
pub(super) fn blocks_of(size: u64) -> u64 {
    size.div_ceil(as_u64(BLOCK_SIZE))
}
