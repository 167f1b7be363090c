//! The chain of warm nodes after a checkpoint, and the part of it that is recovered.
//!
//! A block belongs to the chain if its footer carries the version of the checkpoint in force. Of
//! each inode that has at least one node with the fsync mark, all nodes up to the last such node
//! count, marked or not. An inode that the checkpoint does not know needs a node with the marks
//! fsync and dent.
//!
//! A link that the nodes around it disprove is followed as they say ([`super::links`]). Linux
//! follows it as it is, and loses what it leaves out.

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

use super::links::{Around, Broken};
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

/// The chain, and what is wrong with it.
#[derive(Default)]
pub(crate) struct Followed {
    /// Its nodes, in order, with the footers that they must have.
    pub(crate) nodes: Vec<ChainNode>,
    /// Words of footers that were wrong.
    pub(crate) broken: Vec<Broken>,
    /// Nodes that cannot be recovered, by their index, or where the chain is a loop.
    pub(crate) faults: Vec<(usize, Corrupt)>,
    /// The block at which it ends.
    pub(crate) end: BlockAddr,
}

/// Reads the chain. Its length is bounded by the main area; a block that comes a second time is
/// corruption.
///
/// # Errors
/// A node of the chain is damaged, it is a loop, or the device failed.
pub(crate) fn scan(
    buffers: &BufferCache,
    layout: &Layout,
    checkpoint: &Checkpoint,
) -> Result<Vec<ChainNode>> {
    let mut followed = follow(buffers, layout, checkpoint)?;
    for Broken { addr, field, stored, right } in &followed.broken {
        tracing::warn!(%addr, field, stored, right, "a node of the chain of fsynced nodes is \
            damaged: it is read as the nodes around it say");
    }
    match followed.faults.is_empty() {
        true => Ok(followed.nodes),
        false => Err(followed.faults.swap_remove(0).1.into()),
    }
}

/// As [`scan`], but damage is no error.
///
/// # Errors
/// The device failed.
pub(crate) fn follow(
    buffers: &BufferCache,
    layout: &Layout,
    checkpoint: &Checkpoint,
) -> Result<Followed> {
    let mut followed = Followed::default();
    let position = checkpoint.log(Log::WarmNode);
    // A volume that was never written has no warm log.
    if layout.features.contains(Features::RO) || position.segno.get() >= layout.main_segments {
        return Ok(followed);
    }
    let around = Around { buffers, layout, checkpoint };
    let mut seen = HashSet::new();
    let mut addr = layout.address(position.segno, position.blkoff);
    while layout.in_main(addr) {
        memory::admit("the chain of fsynced nodes")?;
        let image = around.image(addr)?;
        let stored = NodeFooter::read(&image);
        let mut footer = stored;
        if !checkpoint.is_node_version(footer.cp_ver) && !Safeguard::ChainVersion.is_off() {
            if !around.is_version_damaged(&footer, &image)? {
                break;
            }
            footer.cp_ver = checkpoint.node_version();
        }
        if let Some(right) = around.renumbered(&footer, &image) {
            footer = right;
        }
        if !seen.insert(addr) {
            let (nid, value) = (footer.nid, addr.get().into());
            let what = "the chain of fsynced nodes is a loop";
            let index = followed.nodes.len();
            followed.faults.push((index, Corrupt::Node { nid, addr, what, value }));
            break;
        }
        if let Some(next) = around.skipped(addr, footer.next_blkaddr)? {
            footer.next_blkaddr = next;
        }
        followed.add(ChainNode { addr, footer }, &stored);
        if let Some(fault) = around.fault(addr, &footer, &image) {
            followed.faults.push((followed.nodes.len().saturating_sub(1), fault));
        }
        addr = footer.next_blkaddr;
    }
    followed.end = addr;
    Ok(followed)
}

/// Fsynced nodes behind the end of the chain, which are not recovered. A power cut may leave such
/// nodes, if they were written before those in front of them.
///
/// # Errors
/// The device failed.
pub(crate) fn behind(
    buffers: &BufferCache,
    layout: &Layout,
    checkpoint: &Checkpoint,
    followed: &Followed,
) -> Result<Vec<ChainNode>> {
    if !layout.in_main(followed.end) {
        return Ok(Vec::new());
    }
    let found = Around { buffers, layout, checkpoint }.behind(followed.end)?;
    let nodes = found.into_iter().map(|(addr, footer)| ChainNode { addr, footer });
    Ok(nodes.collect())
}

impl Followed {
    fn add(&mut self, node: ChainNode, stored: &NodeFooter) {
        let (addr, right) = (node.addr, node.footer);
        let words = [
            ("cp_ver", stored.cp_ver, right.cp_ver),
            ("next_blkaddr", stored.next_blkaddr.get().into(), right.next_blkaddr.get().into()),
            ("nid", stored.nid.get().into(), right.nid.get().into()),
            ("ino", stored.ino.get().into(), right.ino.get().into()),
            ("flag", stored.offset.into(), right.offset.into()),
        ];
        let wrong = words.into_iter().filter(|(_, stored, right)| stored != right);
        self.broken.extend(wrong.map(|(field, stored, right)| Broken {
            addr,
            field,
            stored,
            right,
        }));
        self.nodes.push(node);
    }
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
