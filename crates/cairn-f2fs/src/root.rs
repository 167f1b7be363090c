//! The check of the root directory's inode before a volume is opened.
//!
//! Without its root nothing of a volume can be reached. Linux refuses the same volumes.

use std::sync::Arc;

use cairn_cache::block::BufferCache;
use cairn_vfs::FileKind;

use crate::checkpoint::{Loaded, summaries};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::Nid;
use crate::format::inode::Inode as Record;
use crate::format::layout::Layout;
use crate::inodes::Inodes;
use crate::nat::NatTable;
use crate::node::NodeCache;
use crate::recovery::overlay::Overlay;
use crate::sit::SitTable;

/// The error of a volume whose NAT has no address of the root.
const MISSING: Corrupt = Corrupt::Inode {
    ino: Nid::ROOT,
    field: "nid",
    value: 3,
    expected: "the root must have an address",
};

/// Checks the inode of the root directory of a volume that is being opened.
///
/// # Errors
/// There is no such inode, it is not that of a directory with contents, or it cannot be read.
pub(crate) fn check_opened(inodes: &Inodes) -> Result<()> {
    match inodes.inode(Nid::ROOT.ino()) {
        Ok(root) => check(&root.record()),
        Err(Error::Vfs(cairn_vfs::Error::Stale)) => Err(MISSING.into()),
        Err(error) => Err(error),
    }
}

/// Checks that the inode is that of a directory with contents.
fn check(record: &Record) -> Result<()> {
    let wrong = |field, value, expected| {
        Err(Corrupt::Inode { ino: Nid::ROOT, field, value, expected }.into())
    };
    if record.kind != FileKind::Directory {
        return wrong("i_mode", record.kind.mode_bits().into(), "the root must be a directory");
    }
    if record.links == 0 {
        return wrong("i_links", 0, "the root is in use");
    }
    // The inode's own block is counted.
    if record.blocks <= 1 {
        return wrong("i_blocks", record.blocks, "the root has at least one block");
    }
    if record.size == 0 {
        return wrong("i_size", 0, "the root has at least one block");
    }
    Ok(())
}

/// As [`check_opened`], of a volume that is not open. If nodes follow its checkpoint, what they
/// change counts, as far as it can be recovered.
///
/// # Errors
/// As [`check_opened`].
pub(crate) fn check_unopened(
    buffers: &Arc<BufferCache>,
    layout: &Layout,
    loaded: &Loaded,
    replays: bool,
) -> Result<()> {
    let layout = Arc::new(*layout);
    let journals = summaries::journals(loaded, buffers, &layout)?;
    let nat = NatTable::new(layout.clone(), buffers.clone(), &loaded.checkpoint, &journals.nat);
    let features = layout.features;
    let sit = SitTable::new(layout.clone(), buffers.clone(), &loaded.checkpoint, &journals.sit);
    let overlay = match replays {
        true => match Overlay::build(buffers, &layout, &loaded.checkpoint, &nat) {
            // Damage behind the checkpoint says nothing of the root.
            Err(Error::Corrupt(_)) => Overlay::default(),
            overlay => overlay?,
        },
        false => Overlay::default(),
    };
    let nodes = NodeCache::new(layout, buffers.clone(), Arc::new(nat), sit, overlay);
    let image = nodes.inode(Nid::ROOT)?.ok_or(MISSING)?;
    check(&Record::decode(&image, Nid::ROOT, features)?)
}
