//! The versions of an inode: the one of the checkpoint, and those of the chain.
//!
//! An inode keeps its type, its generation, and the room for its extra and its inline attributes,
//! as long as it exists, and its number is not given away before the next checkpoint. So a version
//! that differs in these is damaged, or another inode's. The two do not tell which one is right:
//! the inode is not recovered.
//! Linux takes the type of the newest version, and reads the contents in its way.

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

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use cairn_cache::block::BufferCache;

use super::chain::{ChainNode, Recovered};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::layout::Layout;
use crate::format::node::NodeFooter;
use crate::format::units::{BlockAddr, Nid};
use crate::format::{Inode, inode};
use crate::nat::NatTable;

/// What versions are read from.
#[derive(Clone, Copy)]
pub(crate) struct Versions<'v> {
    /// Blocks of the device.
    pub(crate) buffers: &'v BufferCache,
    /// Geometry.
    pub(crate) layout: &'v Layout,
    /// The nodes of the checkpoint.
    pub(crate) nat: &'v NatTable,
}

impl Versions<'_> {
    /// Checks the inodes of the chain that are to be recovered.
    ///
    /// # Errors
    /// A version contradicts the one before it, or the device failed.
    pub(crate) fn check(self, nodes: &[ChainNode], selected: &Selected) -> Result<()> {
        match self.faults(nodes, selected)?.into_iter().next() {
            Some((_, fault)) => Err(fault.into()),
            None => Ok(()),
        }
    }

    /// The inodes of the chain, by their index, that contradict the version before them.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn faults(
        self,
        nodes: &[ChainNode],
        selected: &Selected,
    ) -> Result<Vec<(usize, Corrupt)>> {
        let mut faults = Vec::new();
        let mut versions: HashMap<Nid, Inode> = HashMap::new();
        for (index, ChainNode { addr, footer }) in nodes.iter().enumerate() {
            let found = selected.get(&footer.ino).filter(|found| index <= found.last_fsync);
            let Some(found) = found.filter(|_| footer.is_inode()) else { continue };
            let Some(record) = self.record(*addr, footer.ino)? else { continue };
            let before = match versions.entry(footer.ino) {
                Entry::Occupied(known) => Some(known.into_mut()),
                Entry::Vacant(place) if found.created_by.is_none() => {
                    self.checkpoint(footer.ino)?.map(|old| place.insert(old))
                }
                Entry::Vacant(_) => None,
            };
            match before {
                Some(before) => {
                    let fault = contradiction(footer.ino, before, &record);
                    faults.extend(fault.map(|fault| (index, fault)));
                }
                None => drop(versions.insert(footer.ino, record)),
            }
        }
        Ok(faults)
    }

    /// The inode as the checkpoint has it, if that is sound.
    fn checkpoint(self, ino: Nid) -> Result<Option<Inode>> {
        match self.nat.lookup(ino) {
            Ok(entry) if self.layout.in_main(entry.block_addr) => {
                self.record(entry.block_addr, ino)
            }
            Ok(_) | Err(Error::Corrupt(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The inode in a block, if it is sound.
    fn record(self, addr: BlockAddr, ino: Nid) -> Result<Option<Inode>> {
        let mut image = self.buffers.get(addr.pba())?.image().to_vec();
        // The chain is read by the right numbers.
        let footer = NodeFooter::read(&image);
        if !footer.is_inode() {
            NodeFooter { nid: ino, ino, offset: 0, ..footer }.write(&mut image);
        }
        let is_sound = inode::verify(&image, ino, self.layout).is_ok();
        Ok(Inode::decode(&image, ino, self.layout.features).ok().filter(|_| is_sound))
    }
}

/// The inodes that a recovery changes.
type Selected = HashMap<Nid, Recovered>;

/// What an inode of the chain cannot have, if the version before it is right.
fn contradiction(ino: Nid, before: &Inode, now: &Inode) -> Option<Corrupt> {
    let bad = |field, value, expected| Some(Corrupt::Inode { ino, field, value, expected });
    if now.kind != before.kind {
        let expected = "the inode had another type before it was fsynced";
        return bad("i_mode", now.kind.mode_bits().into(), expected);
    }
    if now.generation != before.generation {
        let expected = "an inode of the same number was there before it was fsynced";
        return bad("i_generation", now.generation.into(), expected);
    }
    let size = |inode: &Inode| inode.extra.as_ref().map_or(0, |extra| extra.size);
    if size(now) != size(before) {
        let expected = "the inode had other extra attributes before it was fsynced";
        return bad("i_extra_isize", size(now).into(), expected);
    }
    None
}
