//! What an inode counts in the quota of its owners.

use cairn_check::quota::{Counted, Usage};

use crate::format::Inode;
use crate::format::units::BLOCK_BYTES;

/// Counts an inode with so many blocks. Linux counts all of them but the inode's own node.
pub(crate) fn count(counted: &Counted, record: &Inode, blocks: u64) {
    let project = record.extra.map_or(0, |extra| extra.projid);
    let space = blocks.saturating_sub(1).saturating_mul(BLOCK_BYTES);
    counted.add([record.uid, record.gid, project], Usage { inodes: 1, space });
}
