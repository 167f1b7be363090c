//! Names that roll-forward makes in directories whose hashes Cairn does not compute.

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

use cairn_cache::block::BufferCache;

use super::chain::{ChainNode, Recovered};
use crate::error::Result;
use crate::form::names::Names;
use crate::format::features::Features;
use crate::format::inode::Inode as Record;
use crate::format::layout::Layout;
use crate::format::node::NodeFooter;
use crate::format::units::Nid;
use crate::nat::NatTable;

/// Is there a name of the chain that has a hash which Cairn does not compute? Then the chain cannot
/// be applied.
///
/// # Errors
/// An inode is damaged, or the device failed.
pub(crate) fn has_unknown_hash(
    (buffers, layout, nat): (&BufferCache, &Layout, &NatTable),
    chain: &[ChainNode],
    selected: &HashMap<Nid, Recovered>,
) -> Result<bool> {
    if !layout.features.contains(Features::CASEFOLD) {
        return Ok(false);
    }
    for (ino, recovered) in selected {
        let Some(entry) = recovered.last_dent.and_then(|index| chain.get(index)) else { continue };
        let record =
            Record::decode(&buffers.get(entry.addr.pba())?.image(), *ino, layout.features)?;
        let known = nat.lookup(record.pino)?;
        // Its directory is not in the checkpoint: there the name is not made.
        if known.is_free() || known.ino != record.pino {
            continue;
        }
        let image = buffers.get(known.block_addr.pba())?.image();
        NodeFooter::read(&image).check(record.pino, record.pino, known.block_addr)?;
        let directory = Record::decode(&image, record.pino, layout.features)?;
        if Names::of(&directory, layout.features).hash(&record.name).is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}
