//! Inodes of the chain that the NAT does not know.
//!
//! They are new. (A power cut may leave nodes of a new file without the block that shows its
//! creation: such a file was not fsynced yet, and is left out.) If a valid node has the number, the
//! NAT is damaged: a checkpoint would cost what was fsynced, or the older file.

use std::collections::{HashMap, HashSet};

use super::chain::{ChainNode, Recovered};
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::Nid;
use crate::format::node::Marks;
use crate::store::Store;

/// Expects that inodes of the chain which the NAT does not know are new.
///
/// # Errors
/// A valid node has the number of one of them.
pub(crate) fn expect_new(
    store: &Store,
    chain: &[ChainNode],
    recovered: &HashMap<Nid, Recovered>,
) -> Result<()> {
    let fsynced = chain.iter().filter(|node| node.footer.marks.contains(Marks::FSYNC));
    let is_unknown = |ino: &Nid| recovered.get(ino).is_none_or(|found| found.created_by.is_some());
    let unknown: HashSet<Nid> = fsynced.map(|node| node.footer.ino).filter(is_unknown).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let mut known = None;
    store.segments.nids_of_nodes(|nid| known = known.or(unknown.contains(&nid).then_some(nid)));
    let what = "the number of an inode that was fsynced is called free";
    known.map_or(Ok(()), |nid| Err(Corrupt::Nat { nid, what, value: 0 }.into()))
}
