//! Inodes of the chain that the NAT does not know.
//!
//! A power cut may leave nodes of a new file without the block that shows its creation: such a file
//! was not fsynced yet, and is left out. If a valid node has the number, the file is not new, and the
//! NAT is damaged: a checkpoint would cost what was fsynced.

use std::collections::{HashMap, HashSet};

use super::chain::{ChainNode, Recovered};
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::Nid;
use crate::format::node::Marks;
use crate::store::Store;

/// Expects that inodes of the chain which are not recovered are new.
///
/// # Errors
/// A valid node has the number of one of them.
pub(crate) fn expect_new(
    store: &Store,
    chain: &[ChainNode],
    recovered: &HashMap<Nid, Recovered>,
) -> Result<()> {
    let fsynced = chain.iter().filter(|node| node.footer.marks.contains(Marks::FSYNC));
    let left_out: HashSet<Nid> =
        fsynced.map(|node| node.footer.ino).filter(|ino| !recovered.contains_key(ino)).collect();
    if left_out.is_empty() {
        return Ok(());
    }
    let mut known = None;
    store.segments.nids_of_nodes(|nid| known = known.or(left_out.contains(&nid).then_some(nid)));
    let what = "the number of an inode that was fsynced is called free";
    known.map_or(Ok(()), |nid| Err(Corrupt::Nat { nid, what, value: 0 }.into()))
}
