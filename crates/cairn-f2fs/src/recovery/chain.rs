//! The chain of warm nodes after a checkpoint, and the part of it that is recovered.
//!
//! A block belongs to the chain if its footer carries the version of the checkpoint in force. Of
//! each inode that has at least one node with the fsync mark, all nodes up to the last such node
//! count, marked or not. An inode that the checkpoint does not know needs a node with the marks
//! fsync and dent.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use cairn_base::memory;
use cairn_base::sabotage::Safeguard;
use cairn_cache::block::BufferCache;

use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::checkpoint::Checkpoint;
use crate::format::features::Features;
use crate::format::layout::Layout;
use crate::format::log::Log;
use crate::format::node::{Marks, NodeFooter};
use crate::format::units::{BlockAddr, Nid};
use crate::nat::NatTable;

/// One node of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainNode {
    /// Its address.
    pub(crate) addr: BlockAddr,
    /// Its footer.
    pub(crate) footer: NodeFooter,
}

/// Reads the chain. Its length is bounded by the main area; a block that comes a second time is
/// corruption.
///
/// # Errors
/// The chain is a loop, or the device failed.
pub(crate) fn scan(
    buffers: &BufferCache,
    layout: &Layout,
    checkpoint: &Checkpoint,
) -> Result<Vec<ChainNode>> {
    let mut chain = Vec::new();
    let position = checkpoint.log(Log::WarmNode);
    // A volume that was never written has no warm log.
    if layout.features.contains(Features::RO) || position.segno.get() >= layout.main_segments {
        return Ok(chain);
    }
    let mut seen = HashSet::new();
    let mut addr = layout.address(position.segno, position.blkoff);
    while layout.in_main(addr) {
        memory::admit("the chain of fsynced nodes")?;
        let footer = NodeFooter::read(&buffers.get(addr.pba())?.image());
        let is_of_chain =
            checkpoint.is_node_version(footer.cp_ver) || Safeguard::ChainVersion.is_off();
        if !is_of_chain {
            break;
        }
        if !seen.insert(addr) {
            let (nid, value) = (footer.nid, addr.get().into());
            return Err(Corrupt::Node {
                nid,
                addr,
                what: "the chain of fsynced nodes is a loop",
                value,
            }
            .into());
        }
        chain.push(ChainNode { addr, footer });
        addr = footer.next_blkaddr;
    }
    Ok(chain)
}

/// An inode that the chain changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Index in the chain of its last node with the fsync mark. Later nodes are ignored.
    pub(crate) last_fsync: usize,
    /// Index of its last inode block with the marks fsync and dent: there its directory entry is
    /// made.
    pub(crate) last_dent: Option<usize>,
    /// Index of the inode block that creates it, if the checkpoint does not have it.
    pub(crate) created_by: Option<usize>,
}

/// The inodes that the chain changes.
///
/// # Errors
/// The NAT is damaged, or the device failed.
pub(crate) fn select(chain: &[ChainNode], nat: &NatTable) -> Result<HashMap<Nid, Recovered>> {
    let mut found: HashMap<Nid, Recovered> = HashMap::new();
    for (index, ChainNode { footer, .. }) in chain.iter().enumerate() {
        if !footer.marks.contains(Marks::FSYNC) {
            continue;
        }
        let dent = footer.is_inode() && footer.marks.contains(Marks::DENT);
        let recovered = match found.entry(footer.ino) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let known = nat.lookup(footer.ino)?;
                let created_by = (known.is_free() && dent).then_some(index);
                if created_by.is_none() && (known.is_free() || known.ino != footer.ino) {
                    // This block does not show the inode's creation; a later block may.
                    continue;
                }
                place.insert(Recovered { last_fsync: index, last_dent: None, created_by })
            }
        };
        recovered.last_fsync = index;
        recovered.last_dent = if dent { Some(index) } else { recovered.last_dent };
    }
    Ok(found)
}
