//! [`packed_head`]: all of an image but its data, for a disk that is written once, from front to
//! back.
//!
//! The clusters of the disk that hold something follow each other in the file, in their order, so
//! the bytes of the image follow from those of the disk.

use zerocopy::IntoBytes;

use super::create::{CreateOptions, Layout, ORDER, check, header};
use super::error::Result;
use super::format::entry::COPIED;
use super::format::refcount;
use super::host::index;

/// Bytes of a cluster of such an image.
pub const PACKED_CLUSTER: u64 = 64 << 10;
/// Entries of a table, which fills a cluster.
const ENTRIES: u64 = PACKED_CLUSTER / 8;

/// What stands before the data in an image of a disk of `size` bytes. `filled` are the numbers of
/// its clusters that hold something, in order: these follow, each as [`PACKED_CLUSTER`] bytes. All
/// others read as zeros.
///
/// # Errors
/// [`Error::Refused`](super::Error::Refused): the disk is too large.
pub fn packed_head(size: u64, filled: &[u64]) -> Result<Vec<u8>> {
    let options = CreateOptions { size, cluster_size: 64 << 10 };
    let l1_entries = check(&options)?;
    let l1_clusters = l1_entries.div_ceil(ENTRIES);
    let mut l2_numbers: Vec<u64> = filled.iter().map(|cluster| cluster / ENTRIES).collect();
    l2_numbers.dedup();
    let rest = 1 + l1_clusters + l2_numbers.len() as u64 + filled.len() as u64;
    let per_block = (PACKED_CLUSTER * 8) >> ORDER;
    let (mut table, mut blocks) = (1, 1);
    // Refcounts count their own clusters, too.
    while table + blocks + rest > blocks * per_block || blocks > table * ENTRIES {
        blocks = (table + blocks + rest).div_ceil(per_block);
        table = blocks.div_ceil(ENTRIES);
    }
    let (l1, l2) = (1 + table + blocks, 1 + table + blocks + l1_clusters);
    let data = l2 + l2_numbers.len() as u64;
    let end = data + filled.len() as u64;
    let mut head = vec![0; index(data * PACKED_CLUSTER)];
    let layout = Layout { table: 1, blocks: 1 + table, l1, end, l1_entries };
    let first = header(&options, &layout);
    head[..first.as_bytes().len()].copy_from_slice(first.as_bytes());
    let mut put = |at: u64, value: u64| {
        head[index(at)..index(at + 8)].copy_from_slice(&value.to_be_bytes());
    };
    for block in 0..blocks {
        put(PACKED_CLUSTER + block * 8, (1 + table + block) * PACKED_CLUSTER);
    }
    for (number, entry) in (l2..).zip(&l2_numbers) {
        put(l1 * PACKED_CLUSTER + entry * 8, (number * PACKED_CLUSTER) | COPIED);
    }
    let mut tables = (l2..).zip(&l2_numbers).peekable();
    for (number, cluster) in (data..).zip(filled) {
        while tables.next_if(|(_, entry)| **entry < cluster / ENTRIES).is_some() {}
        let Some((table, _)) = tables.peek() else { break };
        let at = table * PACKED_CLUSTER + cluster % ENTRIES * 8;
        put(at, (number * PACKED_CLUSTER) | COPIED);
    }
    let counts = &mut head[index((1 + table) * PACKED_CLUSTER)..index(l1 * PACKED_CLUSTER)];
    (0..end).for_each(|number| refcount::set(counts, ORDER, index(number), 1));
    Ok(head)
}
