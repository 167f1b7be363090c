//! The extended attributes of a file, as far as they can be read.

use cairn_check::salvage::{Found, Loss, Receiver, Xattr};
use cairn_vfs::acl::shown_from_compact;

use super::contents::Fetch;
use crate::format::Inode;
use crate::format::node::XATTR_OFFSET;
use crate::format::units::Nid;
use crate::format::xattr::{
    self, INDEX_ACL_ACCESS, INDEX_ACL_DEFAULT, NODE_BYTES, Xattr as Stored,
};
use crate::raw::tree::Below;

/// Adds its attributes to a file, and reports those that are lost.
pub(super) fn add(
    ino: Nid,
    (record, image): (&Inode, &[u8]),
    fetch: Fetch<'_>,
    found: &mut Found,
    receiver: &mut dyn Receiver,
) -> bool {
    let mut faults = Vec::new();
    let mut area = image.get(record.inline_xattr_range()).unwrap_or_default().to_vec();
    if !record.xattr_nid.is_none() {
        match fetch(Below { nid: record.xattr_nid, ino, offset: XATTR_OFFSET }) {
            Ok((_, node)) => area.extend_from_slice(node.get(..NODE_BYTES).unwrap_or_default()),
            Err(why) => faults.push(why),
        }
    }
    match xattr::decode(&area, ino) {
        Ok(list) => {
            for shown in list.into_iter().map(shown) {
                match shown {
                    Ok(shown) => found.xattrs.extend(shown),
                    Err(why) => faults.push(why),
                }
            }
        }
        Err(error) => faults.push(error.to_string()),
    }
    faults.into_iter().all(|what| {
        let what = format!("its attributes are not all known: {what}");
        receiver.lost(Loss { path: found.path.clone(), ino: found.ino, what })
    })
}

/// An attribute as a host has it, if it has it.
fn shown(one: Stored) -> Result<Option<Xattr>, String> {
    let Some(name) = one.full_name() else { return Ok(None) };
    let value = match one.index {
        INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT => {
            shown_from_compact(&one.value).map_err(|error| error.to_string())?
        }
        _ => Some(one.value),
    };
    Ok(value.map(|value| (name, value)))
}
