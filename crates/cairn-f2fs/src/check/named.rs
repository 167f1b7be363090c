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

/// A block of a directory, or its entries within the inode.
pub(super) struct Part<'p> {
    pub(super) dir: Nid,
    pub(super) record: &'p Inode,
    /// The file block. `None` for entries within the inode.
    pub(super) block: Option<u64>,
}

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
    each(context, scratch, &|_| true, &mut |part, bytes| {
        for entry in Dentries::new(bytes).iter().flatten() {
            if wanted.contains(&entry.ino) && !matches!(entry.name, b"." | b"..") {
                named.entry(entry.ino).or_insert_with(|| (entry.name.to_vec(), part.dir));
            }
        }
    })?;
    Ok(named)
}

/// Shows the entries of all directories that are wanted.
///
/// # Errors
/// The device's.
pub(super) fn each(
    context: &Context,
    scratch: &mut Scratch,
    is_wanted: &dyn Fn(Nid) -> bool,
    see: &mut dyn FnMut(&Part<'_>, &[u8]),
) -> Result<()> {
    for (dir, node) in context.nodes.iter() {
        let is_directory = node.ino() == dir && node.kind() == Some(FileKind::Directory);
        if !is_directory || !is_wanted(dir) || context.progress.is_cancelled() {
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
        let part = |block| Part { dir, record: &record, block };
        if record.inline.contains(InlineFlags::DENTRY) {
            see(&part(None), image.get(record.inline_data_range()).unwrap_or_default());
            continue;
        }
        let places = blocks(context, scratch, (dir, &record, &image))?;
        for some in places.chunks(PART) {
            let addrs: Vec<BlockAddr> = some.iter().map(|(addr, _)| *addr).collect();
            let read = context.read(scratch, &addrs)?;
            for ((_, block), bytes) in some.iter().zip(read.iter()) {
                see(&part(Some(*block)), bytes);
            }
            scratch.recycle(read);
        }
    }
    Ok(())
}

/// The blocks of a directory that can be reached and their file blocks, in rising order of
/// their addresses. No node is followed twice.
fn blocks(
    context: &Context,
    scratch: &mut Scratch,
    (dir, record, image): (Nid, &Inode, &[u8]),
) -> Result<Vec<(BlockAddr, u64)>> {
    if !has_pointers(record) {
        return Ok(Vec::new());
    }
    let mut found: Vec<(BlockAddr, u64)> = record.data_pointers(image).zip(0..).collect();
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
                let first = record.shape().first_block(offset).unwrap_or(u64::MAX);
                found.extend(node::data_pointers(&image).take(slots).zip(first..));
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
    found.retain(|(addr, _)| context.layout.in_main(*addr));
    found.sort_unstable();
    found.dedup_by_key(|(addr, _)| *addr);
    Ok(found)
}
