//! Inodes of the chain that the NAT does not know.
//!
//! They are new. (A power cut may leave nodes of a new file without the block that shows its
//! creation: such a file was not fsynced yet, and is left out.) If a valid node has the number, the
//! NAT is damaged: a checkpoint would cost what was fsynced, or the older file. So it is if the NAT
//! calls such a number a node of another inode: no number that was in use is given away before the
//! next checkpoint.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::chain::{ChainNode, Recovered};
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::Nid;
use crate::format::node::Marks;
use crate::nat::NatTable;
use crate::store::Store;

/// Inodes of the chain that were fsynced and are not recovered, because the NAT has nodes of other
/// inodes with their numbers. With each the inode that the NAT names.
///
/// # Errors
/// The NAT is damaged, or the device failed.
pub(crate) fn contradicted(
    chain: &[ChainNode],
    recovered: &HashMap<Nid, Recovered>,
    nat: &NatTable,
) -> Result<BTreeMap<Nid, Nid>> {
    let mut found = BTreeMap::new();
    let fsynced = chain.iter().filter(|node| node.footer.marks.contains(Marks::FSYNC));
    for ino in fsynced.map(|node| node.footer.ino).filter(|ino| !recovered.contains_key(ino)) {
        let known = nat.lookup(ino)?;
        if !known.is_free() && known.ino != ino {
            found.insert(ino, known.ino);
        }
    }
    Ok(found)
}

/// Expects that inodes of the chain which the NAT does not know are new.
///
/// # Errors
/// A valid node has the number of one of them, or the NAT says so.
pub(crate) fn expect_new(
    store: &Store,
    chain: &[ChainNode],
    recovered: &HashMap<Nid, Recovered>,
) -> Result<()> {
    if let Some((nid, ino)) = contradicted(chain, recovered, &store.nat)?.into_iter().next() {
        let what = "the number of an inode that was fsynced is another node's";
        return Err(Corrupt::Nat { nid, what, value: ino.get().into() }.into());
    }
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
