//! The block map of an inode: every node with its checksum, and every extent.

use cairn_base::Ino;
use cairn_base::checksum::crc32c;
use cairn_base::units::as_index;
use cairn_check::{Detail, Fields};
use cairn_vfs::FileKind;

use super::record::record as record_of;
use crate::checksum::InodeSeed;
use crate::error::{Error, Result};
use crate::format::extent::{Extent, NodeView, Site};
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::raw::RawVolume;
use crate::raw::directory::kind_of;
use crate::raw::map::{Seen, Visitor, walk};

/// Most nodes and extents that are shown.
const MOST: usize = 1 << 20;
/// Bytes of a header, and of each entry of an extent node.
const ENTRY: usize = 12;
/// Bytes of a symbolic link that lie in the inode.
const FAST_LINK: u64 = 60;

/// Does the inode map blocks?
pub(super) fn has_map(record: &Record) -> bool {
    match kind_of(record) {
        Some(FileKind::Regular | FileKind::Directory) => true,
        Some(FileKind::Symlink) => {
            record.size >= FAST_LINK || record.flags.contains(InodeFlags::EXTENTS)
        }
        _ => false,
    }
}

struct Shown {
    seed: Option<u32>,
    nodes: Vec<Fields>,
    extents: Vec<Fields>,
    faults: Vec<Fields>,
    blocks: u64,
}

impl Visitor for Shown {
    fn node(&mut self, seen: &Seen<'_>) {
        if self.nodes.len() >= MOST {
            return;
        }
        let mut fields = Fields::new().with("depth", seen.depth).with("start", seen.start);
        if let Some(block) = seen.block {
            fields.put("block", block.get());
            self.blocks = self.blocks.saturating_add(1);
        }
        let site = Site { ino: Ino(0), pba: seen.block.unwrap_or_default() };
        if let Ok(view) = NodeView::parse(seen.bytes, None, site) {
            fields.put("eh_entries", view.len());
            fields.put("eh_max", view.capacity());
            let at = view.capacity().saturating_add(1).saturating_mul(ENTRY);
            let tail = seen.bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
            let covered = seen.bytes.get(..at);
            if let (Some(_), Some(seed), Some(tail), Some(covered)) =
                (seen.block, self.seed, tail, covered)
            {
                fields.checksum(u32::from_le_bytes(*tail), crc32c(seed, covered));
            }
        }
        self.nodes.push(fields);
    }

    fn extent(&mut self, extent: Extent) {
        self.blocks = self.blocks.saturating_add(extent.len);
        if self.extents.len() < MOST {
            self.extents.push(
                Fields::new()
                    .with("start", extent.start)
                    .with("len", extent.len)
                    .with("block", extent.pba.get())
                    .with("unwritten", extent.unwritten),
            );
        }
    }

    fn fault(&mut self, start: u64, what: String) {
        if self.faults.len() < MOST {
            self.faults.push(Fields::new().with("start", start).with("error", what));
        }
    }
}

/// Adds the map of an inode.
pub(super) fn put(volume: &RawVolume, ino: Ino, record: &Record, fields: &mut Fields) {
    let InodeSeed(seed) = volume.layout.checksum.for_inode(ino, record.generation);
    let (nodes, extents, faults) = (Vec::new(), Vec::new(), Vec::new());
    let mut shown = Shown { seed, nodes, extents, faults, blocks: 0 };
    walk(volume, ino, record, &mut shown);
    let is_tree = record.flags.contains(InodeFlags::EXTENTS);
    fields.put("map", if is_tree { "extents" } else { "block pointers" });
    fields.put("mapped_blocks", shown.blocks);
    fields.put("nodes", shown.nodes);
    fields.put("extents", shown.extents);
    if !shown.faults.is_empty() {
        fields.put("errors", shown.faults);
    }
}

/// The map of an inode.
///
/// # Errors
/// Its record cannot be read, or it maps no blocks.
pub(super) fn show(volume: &RawVolume, ino: Ino) -> Result<Fields> {
    let (_, record) = record_of(volume, ino)?;
    let mut fields = Fields::new().with("inode", ino.get()).with("i_size", record.size);
    if record.flags.contains(InodeFlags::INLINE_DATA) {
        let inline = volume.inline_bytes(ino, &record);
        let len = as_index(u32::try_from(record.size).unwrap_or(u32::MAX)).min(inline.len());
        fields.put("map", "inline");
        fields.put("inline", Detail::Bytes(inline.get(..len).unwrap_or_default().to_vec()));
        return Ok(fields);
    }
    if !has_map(&record) {
        return Err(Error::Option(format!("inode {ino} maps no blocks: look at it with `inode`")));
    }
    put(volume, ino, &record, &mut fields);
    Ok(fields)
}
