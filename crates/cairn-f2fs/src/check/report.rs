//! Findings from the errors that decoding returns.

use cairn_check::{Finding, Kind, Place, Value};

use crate::corrupt::Corrupt;

/// The place that an error names.
pub(super) fn place_of(error: &Corrupt) -> Place {
    match error {
        Corrupt::Superblock { field, .. } | Corrupt::Checkpoint { field, .. } => {
            Place::field(field)
        }
        Corrupt::Checksum { what: "inode", place, .. } => Place::inode(*place),
        Corrupt::Checksum { place, .. } => Place::block(*place),
        Corrupt::NewestPack { block, .. } => Place::block(*block),
        Corrupt::Nat { nid, .. } => Place::node(nid.get()),
        Corrupt::Sit { segno, .. } => Place::segment(segno.get()),
        Corrupt::Node { nid, addr, .. } => Place::node(nid.get()).at_block(addr.get()),
        Corrupt::Inode { ino, field, .. } => Place::inode(ino.get()).in_field(field),
        Corrupt::Mapping { ino, block, .. } | Corrupt::Cluster { ino, block, .. } => {
            Place::inode(ino.get()).at_file_block(*block)
        }
        Corrupt::Directory { ino, block, .. } => Place::inode(ino.get()).at_file_block(*block),
        Corrupt::Xattr { ino, offset, .. } => {
            Place::inode(ino.get()).at_offset(cairn_base::units::as_u64(*offset))
        }
        _ => Place::volume(),
    }
}

/// The finding for an error: the error's text is what is stored.
pub(super) fn of(kind: &'static Kind, error: &Corrupt) -> Finding {
    let finding = Finding::new(kind, place_of(error));
    match error {
        Corrupt::Checksum { stored, computed, .. } => finding.hex(*stored, *computed),
        _ => finding.stored(Value::text(error.to_string())),
    }
}
