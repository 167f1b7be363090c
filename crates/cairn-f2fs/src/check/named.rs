//! The names of inodes that do not record one: the entries that lead to them, which a walk over all
//! directories finds. An inode with several names, or with a damaged block, records none.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use cairn_base::units::as_index;
use cairn_vfs::FileKind;

use super::context::{Context, Scratch};
use super::nodes::NodeState;
use super::slots::has_pointers;
use crate::error::Result;
use crate::form::names::Names;
use crate::format::Inode;
use crate::format::dentry::Dentries;
use crate::format::inode::InlineFlags;
use crate::format::node::{self, NodeFooter};
use crate::format::path::{self, NodeKind};
use crate::format::units::{BlockAddr, Nid};

/// Blocks of a directory that are read together.
const PART: usize = 64;

/// A name, and the directory that it is in, by inode.
pub(super) type Named = BTreeMap<Nid, (Vec<u8>, Nid)>;

/// One name of each of these inodes that has an entry.
///
/// # Errors
/// The device's.
pub(super) fn find(
    context: &Context,
    scratch: &mut Scratch,
    wanted: &BTreeSet<Nid>,
) -> Result<Named> {
    let mut named = Named::new();
    for (dir, node) in context.nodes.iter() {
        let is_directory = node.ino() == dir && node.kind() == Some(FileKind::Directory);
        if !is_directory || context.progress.is_cancelled() {
            continue;
        }
        let Some(image) = context.with_block(scratch, node.addr(), <[u8]>::to_vec)? else {
            continue;
        };
        let Ok(record) = Inode::decode(&image, dir, context.layout.features) else { continue };
        // Nobody knows the names in an encrypted directory.
        if matches!(Names::of(&record, context.layout.features), Names::Encrypted { .. }) {
            continue;
        }
        let mut see = |bytes: &[u8]| {
            for entry in Dentries::new(bytes).iter().flatten() {
                if wanted.contains(&entry.ino) && !matches!(entry.name, b"." | b"..") {
                    named.entry(entry.ino).or_insert_with(|| (entry.name.to_vec(), dir));
                }
            }
        };
        if record.inline.contains(InlineFlags::DENTRY) {
            see(image.get(record.inline_data_range()).unwrap_or_default());
            continue;
        }
        let addrs = blocks(context, scratch, (dir, &record, &image))?;
        for part in addrs.chunks(PART) {
            let read = context.read(scratch, part)?;
            read.iter().for_each(&mut see);
            scratch.recycle(read);
        }
    }
    Ok(named)
}

/// The blocks of a directory that can be reached, in rising order. No node is followed twice.
fn blocks(
    context: &Context,
    scratch: &mut Scratch,
    (dir, record, image): (Nid, &Inode, &[u8]),
) -> Result<Vec<BlockAddr>> {
    if !has_pointers(record) {
        return Ok(Vec::new());
    }
    let mut found: Vec<BlockAddr> = record.data_pointers(image).collect();
    let mut seen = HashSet::from([dir]);
    let mut waiting: Vec<(Nid, u32)> = record.nids.into_iter().zip(path::INODE_NODES).collect();
    while let Some((nid, offset)) = waiting.pop() {
        let known = context.nodes.get(nid).filter(|node| node.ino() == dir);
        let Some(addr) = known.map(NodeState::addr).filter(|_| seen.insert(nid)) else { continue };
        let image = context.with_block(scratch, addr, <[u8]>::to_vec)?;
        let Some(image) = image else { continue };
        if NodeFooter::read(&image).nid != nid {
            continue;
        }
        match (NodeKind::at(offset), path::children(offset)) {
            (Some(NodeKind::Direct), _) => {
                let slots = as_index(record.shape().node_slots);
                found.extend(node::data_pointers(&image).take(slots));
            }
            (_, Some((first, step))) => {
                let offsets =
                    (0..).map(|index: u32| first.saturating_add(step.saturating_mul(index)));
                let below = (0..node::POINTERS).map(|index| node::child(&image, index));
                waiting.extend(below.zip(offsets).filter(|(nid, _)| !nid.is_none()));
            }
            _ => {}
        }
    }
    found.retain(|addr| context.layout.in_main(*addr));
    found.sort_unstable();
    found.dedup();
    Ok(found)
}
