//! Volumes on several devices: named by the superblock of the first, and joined one after the
//! other.
//!
//! A further device does not describe itself: it holds only blocks of the main area. The names in
//! the superblock come from the image, not from the user. So the device must be recognised
//! ([`recognise`]) before anything is written to it: it must contain the inodes that the
//! checkpoint, the SIT and the NAT have there. Only inodes distinguish the device from another
//! file: the image chooses the address of a block, but not the contents of a file beside it.

use std::ops::Range;
use std::sync::Arc;

use cairn_block::wrap::Concat;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;

use crate::checkpoint::{self, summaries};
use crate::error::Result;
use crate::format::checksum::MAGIC;
use crate::format::superblock::{self, Superblock};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE, BLOCKS_PER_SEGMENT, BlockAddr, SegNo};
use crate::format::{Inode, Layout, NodeFooter, SitEntry};
use crate::nat::NatTable;
use crate::segment;

/// Bytes of a segment.
const SEGMENT_BYTES: u64 = BLOCKS_PER_SEGMENT as u64 * BLOCK_BYTES;
/// How many nodes are checked on a device.
const SAMPLE: usize = 256;
/// Bytes that are checked at both ends of a device without contents.
const ENDS: u64 = 1 << 20;
/// How many other places are checked on it.
const PLACES: u64 = 1024;

/// The paths that the superblock on a volume's first device names, its own one first; none if the
/// volume lies on this device alone, or there is none.
///
/// # Errors
/// The device cannot be read.
pub fn paths(first: &dyn BlockDevice) -> Result<Vec<String>> {
    let paths =
        superblock_of(first)?.map(|superblock| superblock.device_paths()).unwrap_or_default();
    Ok(if paths.len() > 1 { paths } else { Vec::new() })
}

/// The whole volume, of all its devices in order.
///
/// # Errors
/// Their number or their sizes differ from the superblock's, or the first one cannot be read.
pub fn assemble(devices: Vec<Arc<dyn BlockDevice>>) -> Result<Arc<dyn BlockDevice>> {
    let Some(first) = devices.first().cloned() else {
        return Err(crate::Error::Option("a volume lies on a device: give one".into()));
    };
    let lengths =
        superblock_of(&*first)?.map(|superblock| superblock.device_lengths()).unwrap_or_default();
    if lengths.len() < 2 && devices.len() == 1 {
        return Ok(first);
    }
    if lengths.len() != devices.len() {
        let text = format!(
            "the volume is on {} devices, but {} are given",
            lengths.len().max(1),
            devices.len()
        );
        return Err(crate::Error::Option(text));
    }
    Ok(Arc::new(Concat::new(devices.into_iter().zip(lengths).collect())?))
}

/// The result of the check of a further device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceCheck {
    /// It belongs to the volume: the volume's inodes are on it.
    Recognised,
    /// The volume has no blocks on it, and the checked places are zeros.
    Blank,
    /// Its contents do not show whether it belongs to the volume.
    Unknown,
    /// Its size in bytes is not that of the volume's device.
    Resized {
        /// Its size.
        size: u64,
        /// The size that the volume uses.
        used: u64,
    },
    /// It is another device: the volume's nodes are not on it.
    Foreign,
}

/// Checks the further devices by their contents. Nothing is written.
///
/// # Errors
/// As [`assemble`]; or the volume's checkpoint, SIT or NAT is damaged.
pub fn recognise(devices: Vec<Arc<dyn BlockDevice>>) -> Result<Vec<DeviceCheck>> {
    let lengths = match devices.first() {
        Some(first) => superblock_of(&**first)?
            .map(|superblock| superblock.device_lengths())
            .unwrap_or_default(),
        None => Vec::new(),
    };
    let sizes = devices.iter().map(|device| device.geometry().size).zip(lengths);
    let sizes: Vec<DeviceCheck> =
        sizes.skip(1).map(|(size, used)| sized(DeviceCheck::Unknown, size, used)).collect();
    if sizes.iter().any(|check| matches!(check, DeviceCheck::Resized { size, used } if size < used))
    {
        return Ok(sizes);
    }
    let whole = assemble(devices.clone())?;
    let Some(probe) = crate::probe(&*whole)? else { return Ok(Vec::new()) };
    let layout = Arc::new(probe.layout);
    let buffers = BufferCache::new(whole, BLOCK_SIZE as u32, Budget::new(8 << 20));
    let loaded = checkpoint::load(&buffers, &layout)?;
    let journals = summaries::journals(&loaded, &buffers, &layout)?;
    let sit = segment::load(&buffers, &layout, &loaded.checkpoint, &journals.sit)?;
    let nat = NatTable::new(layout.clone(), buffers.clone(), &loaded.checkpoint, &journals.nat);
    let volume = Contents { layout, buffers, sit, nat };
    let (mut checks, mut start) = (Vec::new(), 0);
    for (index, (device, used)) in devices.iter().zip(probe.superblock.device_lengths()).enumerate()
    {
        if index > 0 {
            checks.push(volume.recognise(&**device, start, used)?);
        }
        start += used;
    }
    Ok(checks)
}

/// The volume's tables of its main area.
struct Contents {
    layout: Arc<Layout>,
    buffers: Arc<BufferCache>,
    sit: Vec<SitEntry>,
    nat: NatTable,
}

impl Contents {
    fn recognise(&self, device: &dyn BlockDevice, start: u64, used: u64) -> Result<DeviceCheck> {
        let size = device.geometry().size;
        let segments = self.segments(start..start + used);
        let mut nodes =
            segments.clone().flat_map(|segment| self.nodes(segment)).take(SAMPLE).peekable();
        if nodes.peek().is_some() {
            let (mut inodes, mut strangers) = (0, 0);
            for addr in nodes {
                match self.is_inode(addr)? {
                    Some(is_inode) => inodes += usize::from(is_inode),
                    None => strangers += 1,
                }
            }
            return Ok(match (inodes, strangers) {
                (0, 0) => DeviceCheck::Unknown,
                (0, _) => DeviceCheck::Foreign,
                (inodes, strangers) if strangers > inodes => DeviceCheck::Foreign,
                _ => sized(DeviceCheck::Recognised, size, used),
            });
        }
        let in_use = segments
            .into_iter()
            .any(|segment| self.sit.get(segment).is_some_and(|entry| entry.valid_blocks() > 0));
        if in_use || !is_blank(device)? {
            return Ok(DeviceCheck::Unknown);
        }
        Ok(sized(DeviceCheck::Blank, size, used))
    }

    /// The segments in a range of the volume's bytes.
    fn segments(&self, bytes: Range<u64>) -> Range<usize> {
        let main = u64::from(self.layout.main) * BLOCK_BYTES;
        let segment = |byte: u64| {
            let index = byte.saturating_sub(main).div_ceil(SEGMENT_BYTES);
            usize::try_from(index).unwrap_or(usize::MAX).min(self.sit.len())
        };
        segment(bytes.start)..segment(bytes.end)
    }

    /// The nodes in use of a segment.
    fn nodes(&self, segment: usize) -> impl Iterator<Item = BlockAddr> + '_ {
        let entry = self.sit.get(segment).filter(|entry| entry.log.is_node());
        let number = SegNo(u32::try_from(segment).unwrap_or(u32::MAX));
        let blocks = (0..BLOCKS_PER_SEGMENT as u16)
            .filter(move |block| entry.is_some_and(|entry| entry.is_valid(*block)));
        blocks.map(move |block| self.layout.address(number, block))
    }

    /// Whether the volume's node at this address is an inode; `None` if another block is there.
    fn is_inode(&self, addr: BlockAddr) -> Result<Option<bool>> {
        let image = self.buffers.get(addr.pba())?.image();
        let footer = NodeFooter::read(&image);
        let known = self.nat.lookup(footer.nid)?;
        if known.is_free() || known.block_addr != addr || known.ino != footer.ino {
            return Ok(None);
        }
        if !footer.is_inode() {
            return Ok(Some(false));
        }
        Ok(Inode::decode(&image, footer.nid, self.layout.features).is_ok().then_some(true))
    }
}

/// `check`, if the size is right: mkfs takes all whole segments of a device.
fn sized(check: DeviceCheck, size: u64, used: u64) -> DeviceCheck {
    if (used..used + SEGMENT_BYTES).contains(&size) {
        check
    } else {
        DeviceCheck::Resized { size, used }
    }
}

/// True if the device reads as zeros at both ends and at places in between. A file with other
/// contents does not.
fn is_blank(device: &dyn BlockDevice) -> Result<bool> {
    let size = device.geometry().size / BLOCK_BYTES * BLOCK_BYTES;
    let ends = ENDS.min(size);
    let step = (size / PLACES / BLOCK_BYTES).max(1) * BLOCK_BYTES;
    let places = (0..size / step).map(|place| (place * step, BLOCK_BYTES));
    for (offset, len) in [(0, ends), (size - ends, ends)].into_iter().chain(places) {
        let bytes = device.read_at(offset, usize::try_from(len).unwrap_or(0))?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The superblock from a valid copy, without a check against the device.
fn superblock_of(device: &dyn BlockDevice) -> Result<Option<Superblock>> {
    if device.geometry().size < 2 * BLOCK_BYTES {
        return Ok(None);
    }
    let blocks = device.read_at(0, 2 * BLOCK_SIZE)?;
    let mut copies =
        blocks.chunks_exact(BLOCK_SIZE).filter(|block| superblock::magic_of(block) == Some(MAGIC));
    Ok(copies.find_map(|block| Superblock::decode(block).ok()))
}
