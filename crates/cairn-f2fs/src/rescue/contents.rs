//! The bytes of a file, past what cannot be read.

use std::sync::Arc;

use cairn_base::units::as_u64;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::Image;
use cairn_check::salvage::{Contents, Faults, Found, TOO_MUCH, Whole};
use cairn_vfs::{FileKind, Timestamp};

use crate::compress;
use crate::format::Inode;
use crate::format::inode::{Advise, InlineFlags};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE, BlockAddr, Nid};
use crate::raw::RawVolume;
use crate::raw::tree::{Below, Pointer, Visitor, walk};

/// Most blocks read at once.
const MOST_BLOCKS: u64 = 256;
/// Most runs of pointers of one file.
const MOST_POINTERS: usize = 1 << 23;

/// Where the nodes of a file come from.
pub(super) type Fetch<'f> = &'f dyn Fn(Below) -> Result<(BlockAddr, Image), String>;

/// Blocks of a file that follow each other on the device.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    addr: BlockAddr,
    len: u64,
}

/// The first block and the pointers of clusters.
type Clusters = Vec<(u64, Vec<BlockAddr>)>;

/// A file's blocks on the device.
pub(super) struct Mapped {
    device: Arc<dyn BlockDevice>,
    ino: Nid,
    size: u64,
    runs: Vec<Run>,
    /// The record of a compressed file, and its clusters that are packed: the first block, and the
    /// pointers.
    packed: Option<(Inode, Clusters)>,
    faults: Faults,
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
        let mut collect = Self { fetch, pointers: Vec::new(), faults: Faults::default() };
        walk(volume, ino, (record, image), &mut collect);
        collect
    }
}

impl Visitor for Collect<'_> {
    fn fetch(&mut self, _: &RawVolume, below: Below) -> Result<(BlockAddr, Image), String> {
        (self.fetch)(below)
    }

    fn node(&mut self, _: Below, _: BlockAddr) {}

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
        let mut mapped =
            Self { device, ino, size: record.size, runs: Vec::new(), packed: None, faults };
        match record.cluster_blocks() {
            None => pointers.for_each(|one| mapped.add(volume, one.block, one.addr)),
            Some(cluster) => mapped.add_clusters(volume, record, pointers, cluster.into()),
        }
        if !volume.allowance.contents(mapped.blocks()) {
            (mapped.runs, mapped.packed) = (Vec::new(), None);
            mapped.faults.add(TOO_MUCH);
        }
        mapped
    }

    /// Blocks that are read.
    fn blocks(&self) -> u64 {
        let clusters = self.packed.iter().flat_map(|(_, packed)| packed);
        let packed = clusters.map(|(_, list)| as_u64(list.len()));
        self.runs.iter().map(|run| run.len).chain(packed).fold(0, u64::saturating_add)
    }

    fn add(&mut self, volume: &RawVolume, block: u64, addr: BlockAddr) {
        if !addr.is_address() {
            return;
        }
        if !volume.layout.in_main(addr) {
            return self.faults.add(format!("block {block} points outside the main area"));
        }
        if let Some(run) = self.runs.last_mut()
            && run.start.saturating_add(run.len) == block
            && u64::from(run.addr.get()).saturating_add(run.len) == u64::from(addr.get())
        {
            run.len = run.len.saturating_add(1);
            return;
        }
        self.runs.push(Run { start: block, addr, len: 1 });
    }

    fn add_clusters(
        &mut self,
        volume: &RawVolume,
        record: &Inode,
        pointers: impl Iterator<Item = Pointer>,
        cluster: u64,
    ) {
        let mut packed = Clusters::new();
        let size = usize::try_from(cluster).unwrap_or(1);
        for one in pointers {
            let within = one.block.checked_rem(cluster).unwrap_or(0);
            let first = one.block.saturating_sub(within);
            if one.addr == BlockAddr::COMPRESS && within == 0 {
                let mut list = vec![BlockAddr::NULL; size];
                if let Some(slot) = list.first_mut() {
                    *slot = one.addr;
                }
                packed.push((first, list));
                continue;
            }
            match packed.last_mut().filter(|(start, _)| *start == first) {
                Some((_, list)) => {
                    let at = usize::try_from(within).unwrap_or(usize::MAX);
                    if let Some(slot) = list.get_mut(at).filter(|_| volume.layout.in_main(one.addr))
                    {
                        *slot = one.addr;
                    }
                }
                None => self.add(volume, one.block, one.addr),
            }
        }
        self.packed = Some((record.clone(), packed));
    }

    fn read(&self, addr: u64, blocks: u64) -> Option<Vec<u8>> {
        let at = addr.checked_mul(BLOCK_BYTES)?;
        let len = blocks.checked_mul(BLOCK_BYTES)?;
        if at.checked_add(len)? > self.device.geometry().size {
            return None;
        }
        let bytes = self.device.read_at(at, usize::try_from(len).ok()?).ok()?;
        Some(bytes.to_vec())
    }

    /// The part of bytes at an offset that the file has.
    fn clip<'b>(&self, offset: u64, bytes: &'b [u8]) -> &'b [u8] {
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        bytes.get(..left).unwrap_or(bytes)
    }

    fn run(&mut self, run: Run, to: &mut dyn FnMut(u64, &[u8]) -> bool) -> bool {
        let mut done = 0_u64;
        while done < run.len {
            let count = MOST_BLOCKS.min(run.len.saturating_sub(done));
            let addr = u64::from(run.addr.get()).saturating_add(done);
            let first = run.start.saturating_add(done);
            match self.read(addr, count) {
                Some(bytes) => {
                    let offset = first.saturating_mul(BLOCK_BYTES);
                    if !to(offset, self.clip(offset, &bytes)) {
                        return false;
                    }
                }
                None => {
                    for (addr, block) in (addr..).zip(first..first.saturating_add(count)) {
                        let offset = block.saturating_mul(BLOCK_BYTES);
                        match self.read(addr, 1) {
                            Some(bytes) => {
                                if !to(offset, self.clip(offset, &bytes)) {
                                    return false;
                                }
                            }
                            None => self.faults.add(format!("block {block} of it cannot be read")),
                        }
                    }
                }
            }
            done = done.saturating_add(count);
        }
        true
    }
}

impl Contents for Mapped {
    fn copy(&mut self, to: &mut dyn FnMut(u64, &[u8]) -> bool) -> Vec<String> {
        let end = self.size.div_ceil(BLOCK_BYTES);
        for run in std::mem::take(&mut self.runs) {
            let len = run.len.min(end.saturating_sub(run.start));
            if len > 0 && !self.run(Run { len, ..run }, to) {
                return std::mem::take(&mut self.faults).into_list();
            }
        }
        if let Some((record, packed)) = self.packed.take() {
            for (start, list) in packed.into_iter().filter(|(start, _)| *start < end) {
                let offset = start.saturating_mul(BLOCK_BYTES);
                match compress::unpack_cluster(&*self.device, self.ino, &record, start, &list) {
                    Ok(bytes) => {
                        if !to(offset, self.clip(offset, &bytes)) {
                            break;
                        }
                    }
                    Err(error) => self.faults.add(format!("the cluster at block {start}: {error}")),
                }
            }
        }
        std::mem::take(&mut self.faults).into_list()
    }
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
        device: (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xf_ff00),
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
        return Box::new(Whole(bytes));
    }
    if !matches!(record.kind, FileKind::Regular | FileKind::Symlink) {
        return Box::new(Whole::default());
    }
    let found = Collect::all(volume, ino, (record, image), fetch);
    let mut faults = found.faults;
    if record.advise.contains(Advise::ENCRYPT) {
        faults.add("it is encrypted: what was copied is not readable");
    }
    let pointers = found.pointers.into_iter().flat_map(Pointers::iter);
    Box::new(Mapped::new(volume, ino, record, pointers, faults))
}

/// Blocks that a file of this size has.
pub(super) fn blocks_of(size: u64) -> u64 {
    size.div_ceil(as_u64(BLOCK_SIZE))
}
