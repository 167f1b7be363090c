//! Extended attributes: those that can be read are kept.

use std::collections::BTreeSet;

use cairn_check::Finding;

use super::edit::{Edit, ino_of};
use crate::error::Result;
use crate::format::units::Nid;
use crate::format::xattr::{self, HEADER_SIZE, MAGIC, NODE_BYTES, Xattr};

/// The zero word behind the last attribute.
const END: usize = 4;

impl Edit<'_> {
    /// Writes the attributes of an inode anew, as far as they can be read.
    pub(super) fn mend_attributes(&mut self, finding: &Finding) -> Result<bool> {
        let Some(ino) = ino_of(&finding.place) else { return Ok(false) };
        let Some((record, mut image)) = self.inode(ino)? else { return Ok(false) };
        let range = record.inline_xattr_range();
        let inline = image.get(range.clone()).unwrap_or_default().to_vec();
        let node = match record.xattr_nid {
            nid if nid.is_none() => None,
            nid => self.node(nid)?.map(|(_, image)| (nid, image)),
        };
        let mut area = inline.clone();
        if let Some((_, node)) = &node {
            area.extend_from_slice(node.get(..NODE_BYTES).unwrap_or_default());
        }
        let list = salvage(&area, ino);
        let new = xattr::encode(&list, area.len()).unwrap_or_else(|| vec![0; area.len()]);
        let (first, rest) = new.split_at_checked(inline.len()).unwrap_or_default();
        image.get_mut(range).unwrap_or_default().copy_from_slice(first);
        if let Some((nid, mut node)) = node {
            node.get_mut(..NODE_BYTES).unwrap_or_default().copy_from_slice(rest);
            self.put_node(nid, node)?;
        }
        self.put_node(ino, image)?;
        self.lost((finding.kind, finding.place.clone()), ino, "attributes that cannot be read");
        Ok(true)
    }
}

/// The attributes of an area up to the first one that cannot be read, each name once, as far as an
/// end fits behind them.
fn salvage(area: &[u8], ino: Nid) -> Vec<Xattr> {
    let mut area = area.to_vec();
    if let Some(magic) = area.first_chunk_mut() {
        *magic = MAGIC.to_le_bytes();
    }
    // The error names the place of the entry that crosses the end. What is before it ends there.
    let found = match xattr::decode(&area, ino) {
        Err(crate::corrupt::Corrupt::Xattr { offset, .. }) => {
            area.get_mut(offset..).unwrap_or_default().fill(0);
            xattr::decode(&area, ino).unwrap_or_default()
        }
        found => found.unwrap_or_default(),
    };
    let mut names = BTreeSet::new();
    let mut size = HEADER_SIZE.saturating_add(END);
    let mut kept = Vec::new();
    for attribute in found {
        size = size.saturating_add(attribute.stored_size());
        if size > area.len() {
            break;
        }
        if names.insert((attribute.index, attribute.name.clone())) {
            kept.push(attribute);
        }
    }
    kept
}
