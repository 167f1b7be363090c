//! Writes an inode back: its data to the device, its record into its node. fsync does both, the
//! write-back daemon the first, a checkpoint the second. The inode's ledger says what is durable
//! ([`cairn_cache::durability`]).

use std::ops::Range;
use std::sync::{Arc, Weak};

use cairn_base::FileBlock;
use cairn_cache::file::CacheError;
use cairn_cache::mapper::{MapError, Run};
use cairn_cache::writeback::{Flushable, Flushed, WritebackMode};

use super::Inode;
use super::mapper::{InodeMapper, Policy, SMALL_FSYNC};
use super::read_mapper::ReadMapper;
use crate::error::Result;
use crate::format::units::BLOCK_BYTES;
use crate::inodes::Inodes;
use crate::op::Operations;
use crate::space::WRITE_BACK_PIECE;

impl Inode {
    /// Writes the record into its node if it has changed. The caller holds the operation lock,
    /// shared or exclusively.
    ///
    /// # Errors
    /// The node is damaged, or the device failed.
    pub(crate) fn write_inode(&self, inodes: &Inodes) -> Result<()> {
        // The node is read before the state is locked: nothing is read with that lock held.
        let store = inodes.mount.store()?;
        let node = match store.nodes.inode(self.nid)? {
            Some(node) => node,
            None if self.state.read().deleted => return Ok(()),
            None => return Err(cairn_vfs::Error::Stale.into()),
        };
        let mut state = self.state.write();
        if std::mem::take(&mut state.dirty) && !state.deleted {
            state.record.encode_into(&mut node.modify());
        }
        if !self.entries.is_dirty() {
            inodes.dirty.remove(self.nid);
        }
        Ok(())
    }
}

struct Flusher {
    ops: Weak<Operations>,
    inode: Weak<Inode>,
}

/// Registers the inode with the volume's write-back and readahead, before its first write and read.
pub(crate) fn adopt(ops: &Arc<Operations>, inode: &Arc<Inode>) {
    let mut first = false;
    let flusher = inode.sync.flusher.get_or_init(|| {
        first = true;
        Arc::new(Flusher { ops: Arc::downgrade(ops), inode: Arc::downgrade(inode) })
    });
    if first {
        inode.cache.set_owner(Arc::downgrade(flusher));
    }
}

impl Flushable for Flusher {
    fn flush(&self, mode: WritebackMode) -> Result<Flushed, CacheError> {
        let (Some(ops), Some(inode)) = (self.ops.upgrade(), self.inode.upgrade()) else {
            return Ok(Flushed::Clean);
        };
        let data = match mode {
            WritebackMode::Sync => Some(inode.data.read()),
            WritebackMode::Background => inode.data.try_read(),
        };
        if data.is_none() {
            return Ok(Flushed::Busy);
        }
        let clean = !inode.cache.has_dirty();
        let outcome = write_back(&ops, &inode, 0..u64::MAX, mode);
        drop(data);
        outcome.map_err(MapError::from)?;
        Ok(if clean { Flushed::Clean } else { Flushed::Written })
    }

    fn read_ahead(&self, blocks: Range<u64>) {
        let (Some(ops), Some(inode)) = (self.ops.upgrade(), self.inode.upgrade()) else { return };
        let Some(_data) = inode.data.try_read() else { return };
        // An inline file has no blocks to read.
        if inode.is_inline() {
            return;
        }
        ReadMapper::while_stable(&ops.disk, &inode, |mapper| {
            inode.cache.read_ahead(mapper, inode.size(), blocks)
        });
    }

    fn release_reservation(&self) {
        if let (Some(ops), Some(inode)) = (self.ops.upgrade(), self.inode.upgrade()) {
            inode.cache.release_reservation(&ReadMapper::new(&ops.disk, &inode));
        }
    }
}

/// Writes the dirty data of a range of blocks, a piece at a time, with room made before each. The
/// caller holds inode.data, shared or exclusively, and not the operation lock.
///
/// # Errors
/// No room could be made, the volume has stopped, a node is damaged, or the device failed: the data
/// stays dirty. A device that does not take it stops the volume.
pub(crate) fn write_back(
    ops: &Operations,
    inode: &Arc<Inode>,
    blocks: Range<u64>,
    mode: WritebackMode,
) -> Result<()> {
    ops.mount.observe(write_back_pieces(ops, inode, blocks, mode))
}

fn write_back_pieces(
    ops: &Operations,
    inode: &Arc<Inode>,
    blocks: Range<u64>,
    mode: WritebackMode,
) -> Result<()> {
    let runs = inode.cache.dirty_ranges(blocks.clone());
    if runs.is_empty() {
        return Ok(());
    }
    let total: u64 = runs.iter().map(|run| run.len).sum();
    let small = mode == WritebackMode::Sync && total <= SMALL_FSYNC;
    let policy = if small { Policy::SmallFsync } else { Policy::Usual };
    for piece in pieces(&runs) {
        ops.room()?;
        let inside = ops.store()?.operation_lock.lock_data()?;
        let mapper = InodeMapper::with_policy(ops, inode, &inside, policy);
        let bytes = piece.start * BLOCK_BYTES..piece.end.saturating_mul(BLOCK_BYTES);
        inode.cache.write_back(&mapper, bytes, inode.size(), mode)?;
    }
    if mode == WritebackMode::Sync {
        inode.cache.wait_writeback(blocks);
    }
    Ok(())
}

/// Ranges of blocks with about [`WRITE_BACK_PIECE`] dirty ones in each.
fn pieces(runs: &[Run]) -> Vec<Range<u64>> {
    let mut pieces: Vec<Range<u64>> = Vec::new();
    let mut left = 0;
    for run in runs {
        let (mut at, end) = (run.start.get(), FileBlock(run.start.get() + run.len).get());
        while at < end {
            if left == 0 {
                pieces.push(at..at);
                left = WRITE_BACK_PIECE;
            }
            let len = left.min(end - at);
            at += len;
            left -= len;
            if let Some(piece) = pieces.last_mut() {
                piece.end = at;
            }
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_runs_and_are_bounded() {
        let run = |start, len| Run { start: FileBlock(start), len };
        assert_eq!(pieces(&[]), []);
        assert_eq!(pieces(&[run(3, 5), run(100, 1019), run(9000, 1)]), [3..1119, 9000..9001]);
        assert_eq!(pieces(&[run(0, 3000)]), [0..1024, 1024..2048, 2048..3000]);
    }
}
