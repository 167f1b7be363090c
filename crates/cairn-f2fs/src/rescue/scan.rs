//! Every version of every node in the main area. F2FS writes a node to a new place each time, and
//! the old version stays until its segment is written again.

use std::collections::HashMap;

use cairn_check::salvage::Receiver;

use crate::blocks;
use crate::format::node::NodeFooter;
use crate::format::units::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, BlockAddr, Nid, SegNo};
use crate::raw::RawVolume;

/// Most versions that are kept.
const MOST: usize = 1 << 23;

/// A version of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) addr: BlockAddr,
    pub(super) ino: Nid,
    pub(super) offset: u32,
    /// The lower half of the checkpoint's version before it was written.
    pub(super) checkpoint: u32,
    /// Of an inode: its generation, its links, and when it changed last.
    pub(super) generation: u32,
    pub(super) links: u32,
    pub(super) ctime: u64,
}

impl Version {
    /// Later versions have larger keys.
    pub(super) fn age(&self) -> (u32, u64, BlockAddr) {
        (self.checkpoint, self.ctime, self.addr)
    }
}

/// All versions, by nid.
#[derive(Default)]
pub(super) struct Scan(HashMap<Nid, Vec<Version>>);

impl Scan {
    /// Reads the whole main area.
    pub(super) fn read(volume: &RawVolume, receiver: Option<&mut dyn Receiver>) -> Self {
        let mut scan = Self::default();
        let (mut count, mut receiver) = (0_usize, receiver);
        let total = u64::from(volume.layout.main_segments);
        for segno in 0..volume.layout.main_segments {
            if let Some(receiver) = receiver.as_deref_mut()
                && !receiver.progress("segments", segno.into(), total)
            {
                break;
            }
            let start = volume.layout.address(SegNo(segno), 0);
            let whole = usize::try_from(BLOCKS_PER_SEGMENT).unwrap_or(0);
            match blocks::read(&*volume.device, start.pba(), whole) {
                Ok(bytes) => {
                    for (addr, block) in (start.get()..).zip(bytes.chunks_exact(BLOCK_SIZE)) {
                        count = count.saturating_add(scan.add(volume, BlockAddr(addr), block));
                    }
                }
                Err(_) => {
                    for addr in (start.get()..).take(whole).map(BlockAddr) {
                        if let Ok(block) = volume.block(addr.pba()) {
                            count = count.saturating_add(scan.add(volume, addr, &block));
                        }
                    }
                }
            }
            if count >= MOST {
                break;
            }
        }
        scan
    }

    fn add(&mut self, volume: &RawVolume, addr: BlockAddr, block: &[u8]) -> usize {
        let Some((nid, version)) = look(volume, addr, block) else { return 0 };
        self.0.entry(nid).or_default().push(version);
        1
    }

    /// The versions of a node.
    pub(super) fn of(&self, nid: Nid) -> &[Version] {
        self.0.get(&nid).map(Vec::as_slice).unwrap_or_default()
    }

    /// All nids that are those of inodes, in order.
    pub(super) fn inodes(&self) -> Vec<Nid> {
        let is_inode =
            |(nid, list): &(&Nid, &Vec<Version>)| list.iter().any(|version| version.ino == **nid);
        let mut inos: Vec<Nid> = self.0.iter().filter(is_inode).map(|(nid, _)| *nid).collect();
        inos.sort_unstable();
        inos
    }
}

/// The node that a block is, if it looks like one.
fn look(volume: &RawVolume, addr: BlockAddr, block: &[u8]) -> Option<(Nid, Version)> {
    let footer = NodeFooter::read(block);
    if !footer.is_possible(&volume.layout) {
        return None;
    }
    let checkpoint = u32::try_from(footer.cp_ver & 0xffff_ffff).unwrap_or(0);
    if let Some(loaded) = &volume.loaded {
        let now = u32::try_from(loaded.checkpoint.version & 0xffff_ffff).unwrap_or(u32::MAX);
        if checkpoint.wrapping_sub(now).cast_signed() > 0 && checkpoint != now.wrapping_add(1) {
            return None;
        }
    }
    let word = |at: usize| {
        block.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
    };
    let (mut generation, mut links, mut ctime) = (0, 0, 0);
    if footer.is_inode() {
        (links, generation) = (word(12), word(68));
        ctime = u64::from(word(40)) << 32 | u64::from(word(60));
    }
    let (ino, offset) = (footer.ino, footer.offset);
    Some((footer.nid, Version { addr, ino, offset, checkpoint, generation, links, ctime }))
}
