//! The check of the root directory's inode before a volume is opened.
//!
//! Without its root nothing of a volume can be reached. Linux refuses the same volumes.

use std::sync::Arc;

use cairn_cache::block::BufferCache;
use cairn_vfs::FileKind;

use crate::checkpoint::{Loaded, summaries};
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::Nid;
use crate::format::inode::Inode as Record;
use crate::format::layout::Layout;
use crate::nat::NatTable;
use crate::node::NodeCache;
use crate::recovery::overlay::Overlay;
use crate::sit::SitTable;

/// Checks the inode of the root directory.
///
/// # Errors
/// The inode is not that of a directory with contents.
pub(crate) fn check(record: &Record) -> Result<()> {
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

/// As [`check`], of a volume that is not open. No nodes follow its checkpoint.
///
/// # Errors
/// As [`check`]; there is no such inode; its node or what leads to it is damaged; the device
/// failed.
pub(crate) fn check_unopened(
    buffers: &Arc<BufferCache>,
    layout: &Layout,
    loaded: &Loaded,
) -> Result<()> {
    let layout = Arc::new(*layout);
    let journals = summaries::journals(loaded, buffers, &layout)?;
    let nat = NatTable::new(layout.clone(), buffers.clone(), &loaded.checkpoint, &journals.nat);
    let features = layout.features;
    let sit = SitTable::new(layout.clone(), buffers.clone(), &loaded.checkpoint, &journals.sit);
    let nodes = NodeCache::new(layout, buffers.clone(), Arc::new(nat), sit, Overlay::default());
    let Some(image) = nodes.inode(Nid::ROOT)? else {
        let expected = "the root must have an address";
        return Err(Corrupt::Inode { ino: Nid::ROOT, field: "nid", value: 3, expected }.into());
    };
    check(&Record::decode(&image, Nid::ROOT, features)?)
}
