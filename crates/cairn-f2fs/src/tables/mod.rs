//! All tables of a volume that was unmounted cleanly: checkpoint, SIT, NAT and summaries. They can
//! be written anew for other areas ([`Tables::write`]), where nothing of the volume is. The
//! superblock then decides which of the two is the volume: each state in between is a whole one.

mod areas;
mod finish;
mod need;
mod repack;
mod write;

use std::collections::HashMap;
use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_cache::block::{BufferCache, Image};
use cairn_cache::budget::Budget;

use crate::checkpoint::summaries::{self, CurrentSummaries};
use crate::checkpoint::{Loaded, load};
use crate::error::{Error, Result};
use crate::format::layout::Side;
use crate::format::units::{BLOCK_SIZE, NIDS_PER_BLOCK};
use crate::format::{Layout, NatEntry, Nid, SitEntry, bits, nat};
use crate::segment;

pub(crate) use areas::{Areas, blocks, whole_blocks};
pub(crate) use finish::finish;
pub(crate) use repack::OpenPack;

/// Memory for blocks that were read.
const CACHE_BYTES: u64 = 4 << 20;

/// The tables.
pub(crate) struct Tables {
    device: Arc<dyn BlockDevice>,
    layout: Layout,
    buffers: Arc<BufferCache>,
    /// The last checkpoint.
    pub(crate) loaded: Loaded,
    sit: Vec<SitEntry>,
    current: CurrentSummaries,
    /// Entries that override the NAT area.
    journal: HashMap<Nid, NatEntry>,
}

impl Tables {
    /// Reads checkpoint, SIT and current summaries.
    ///
    /// # Errors
    /// They are damaged, or the device failed.
    pub(crate) fn read(device: &Arc<dyn BlockDevice>, layout: &Layout) -> Result<Self> {
        let budget = Budget::new(CACHE_BYTES);
        let buffers = BufferCache::new(device.clone(), BLOCK_SIZE as u32, budget);
        let loaded = load(&buffers, layout)?;
        let journals = summaries::journals(&loaded, &buffers, layout)?;
        Ok(Self {
            sit: segment::load(&buffers, layout, &loaded.checkpoint, &journals.sit)?,
            current: summaries::current(&loaded, &buffers, layout)?,
            journal: journals.nat.0.into_iter().collect(),
            device: device.clone(),
            layout: *layout,
            buffers,
            loaded,
        })
    }

    /// A block of the NAT with the entries of the journal.
    fn nat_block(&self, block: u32) -> Result<Image> {
        let bitmap = &self.loaded.checkpoint.nat_bitmap;
        let side = Side::of_bit(bits::test(bitmap, block as usize));
        let mut image = self.buffers.get(self.layout.nat_address(block, side))?.image();
        let first = Layout::first_nid(block).get();
        let mine = (first..first + NIDS_PER_BLOCK).map(Nid);
        for (nid, entry) in mine.filter_map(|nid| Some((nid, self.journal.get(&nid)?))) {
            nat::set_entry(image.make_mut(), Layout::nat_place(nid).1, *entry);
        }
        Ok(image)
    }

    /// Fails if nodes are in use whose numbers a NAT of this many segments does not have.
    ///
    /// # Errors
    /// That, or the device failed.
    pub(crate) fn check_nids(&self, segments: u32) -> Result<()> {
        let room = Layout { nat_segments: segments, ..self.layout }.nat_blocks();
        for block in room..self.layout.nat_blocks() {
            if nat::entries(&self.nat_block(block)?).any(|entry| !entry.is_free()) {
                let why = "files have numbers that the volume would no longer have at that size: \
                           make a new volume of that size with them";
                return Err(Error::Refused(why.into()));
            }
        }
        Ok(())
    }
}
