//! Contents in the record (the feature inline_data).

use cairn_vfs::new_tree::{Kind, Node};

use super::settings::Settings;
use crate::format::xattr::{XattrLocation, encoded_len};
use crate::xattr::Content;
use crate::xattr::inline_data::{HEAD_LEN, attribute};

/// The length of contents that may be inline. `blocks` are those of the contents outside.
pub(super) fn length(node: &Node<'_>, blocks: usize, settings: &Settings) -> Option<usize> {
    if !settings.inline_data() || blocks != 1 {
        return None;
    }
    match node.kind {
        Kind::Regular { size, .. } => usize::try_from(size).ok(),
        _ => None,
    }
}

/// True if contents of this length fit beside the attributes in the record.
pub(super) fn fits(attributes: &Content, len: usize, settings: &Settings) -> bool {
    let mut all = attributes.inode.clone();
    all.insert(0, attribute(vec![0; len.saturating_sub(HEAD_LEN)]));
    encoded_len(XattrLocation::Inode, &all) <= settings.area
}
