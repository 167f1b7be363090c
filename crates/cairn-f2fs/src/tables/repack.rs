//! The last checkpoint anew, for a main area of another size: the NAT, the SIT and the logs stay.
//!
//! Superblock and checkpoint say the same of the size only if both are written, and they are two
//! blocks. So everything else of the new pack is written before; what remains is one write each.

use cairn_base::Pba;
use cairn_block::{BlockDevice, BlockDeviceExt, Durability};

use super::Tables;
use crate::blocks::{self, Writes};
use crate::error::{Error, Result};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{Checkpoint, CheckpointFlags, Layout, SegNo};
use crate::sizes::Sizes;

/// A checkpoint pack whose closing block is not written yet.
pub(crate) struct OpenPack {
    at: Pba,
    closing: Vec<u8>,
}

impl OpenPack {
    /// Writes the closing block, durably: from then on this is the last checkpoint. The rest of it
    /// is on the medium.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn close(self, device: &dyn BlockDevice) -> Result<()> {
        let durability = Durability { preflush: false, fua: true };
        Ok(device.write_durable(self.at.get() * BLOCK_BYTES, self.closing, durability)?)
    }
}

impl Tables {
    /// Writes the last checkpoint for another size of the main area, in the pack that it does not
    /// use, without the closing block. With `pending` it says that the size changes.
    ///
    /// # Errors
    /// The volume was not unmounted cleanly, a segment in use is outside the new main area, or the
    /// device failed.
    pub(crate) fn repack(&self, new: &Layout, sizes: Sizes, pending: bool) -> Result<OpenPack> {
        let last = &self.loaded.checkpoint;
        if !last.flags.contains(CheckpointFlags::UMOUNT) {
            return Err(Error::Refused("the volume is not clean: mount and unmount it".into()));
        }
        let gone = self.segments().skip(new.main_segments as usize);
        if let Some((segno, _)) = gone.clone().find(|(_, free)| !free) {
            let why = format!("segment {segno} is in use behind the new end");
            return Err(Error::NeedsCheck(why));
        }
        let kept = self.segments().take(new.main_segments as usize).filter(|(_, free)| *free);
        let added = new.main_segments.saturating_sub(self.layout.main_segments);
        let free = u32::try_from(kept.count()).unwrap_or(u32::MAX) + added;
        let mut flags = last.flags.difference(
            CheckpointFlags::NAT_BITS | CheckpointFlags::TRIMMED | CheckpointFlags::RESIZEFS,
        );
        flags.set(CheckpointFlags::RESIZEFS, pending);
        let mut checkpoint = Checkpoint {
            version: last.version.wrapping_add(1),
            free_segment_count: free,
            flags,
            ..last.clone()
        };
        sizes.put(&mut checkpoint);
        self.write_body(new, checkpoint)
    }

    /// Segments, and whether each is free.
    fn segments(&self) -> impl Iterator<Item = (SegNo, bool)> + Clone {
        let entries = (0..).map(SegNo).zip(&self.sit);
        entries.map(|(segno, entry)| (segno, entry.valid_blocks() == 0 && !self.is_current(segno)))
    }

    fn write_body(&self, new: &Layout, mut checkpoint: Checkpoint) -> Result<OpenPack> {
        let total = checkpoint.pack_total_blocks;
        let from = self.loaded.address(&self.layout, 0);
        let mut body = blocks::read(&*self.device, from, total as usize - 1)?.to_vec();
        let head = checkpoint.encode(new);
        let closing = head[..BLOCK_SIZE].to_vec();
        body[..head.len()].copy_from_slice(&head);
        let to = new.pack_start(self.loaded.side.other());
        let mut writes = Writes::new();
        writes.push(to, body);
        writes.write(&*self.device)?;
        self.device.flush()?;
        Ok(OpenPack { at: Pba(to.get() + u64::from(total) - 1), closing })
    }
}
