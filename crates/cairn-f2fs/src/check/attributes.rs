//! The extended attributes of one inode: the inline part and the attribute node.

use std::collections::BTreeSet;

use cairn_base::units::as_u64;
use cairn_check::{Finding, Place};

use super::tree::Tree;
use super::{kinds, report};
use crate::error::Result;
use crate::format::Features;
use crate::format::inode::Advise;
use crate::format::node::XATTR_OFFSET;
use crate::format::xattr::{self, NODE_BYTES};

/// Checks the attributes of the tree's inode.
///
/// # Errors
/// The device's.
pub(super) fn check(tree: &mut Tree<'_>, image: &[u8]) -> Result<()> {
    let inline = image.get(tree.record.inline_xattr_range()).unwrap_or_default();
    let nid = tree.record.xattr_nid;
    if nid.is_none() && xattr::is_empty(inline) {
        check_context(tree, &[]);
        return Ok(());
    }
    let mut area = inline.to_vec();
    if !nid.is_none() {
        let Some((addr, _)) = tree.accept(nid)? else { return Ok(()) };
        let read = tree.context.read(tree.scratch, &[addr])?;
        let node = read.iter().next().unwrap_or_default();
        if !tree.check_footer(nid, XATTR_OFFSET, addr, node) {
            return Ok(());
        }
        area.extend_from_slice(node.get(..NODE_BYTES).unwrap_or_default());
        tree.scratch.recycle(read);
    }
    let attributes = match xattr::decode(&area, tree.ino) {
        Ok(attributes) => attributes,
        Err(error) => {
            tree.context.add(report::of(&kinds::XATTR, &error));
            return Ok(());
        }
    };
    check_context(tree, &attributes);
    let mut names = BTreeSet::new();
    for attribute in &attributes {
        if !names.insert((attribute.index, &attribute.name)) {
            let place = Place::inode(tree.ino.get()).named(&attribute.name);
            tree.context.add(Finding::new(&kinds::XATTR, place).stored("the name is there twice"));
        }
    }
    if let Some(end) = unterminated(&area, &attributes) {
        let place = Place::inode(tree.ino.get()).at_offset(as_u64(end));
        tree.context.add(Finding::new(&kinds::XATTR, place).stored("the list has no end"));
    }
    Ok(())
}

/// What is encrypted has a context, which names its key: no reader reads it without.
fn check_context(tree: &Tree<'_>, attributes: &[xattr::Xattr]) {
    let is_marked = tree.record.advise.contains(Advise::ENCRYPT)
        && tree.context.layout.features.contains(Features::ENCRYPT);
    if is_marked && !attributes.iter().any(xattr::Xattr::is_encryption_context) {
        let place = Place::inode(tree.ino.get()).in_field("i_advise");
        let finding = Finding::new(&kinds::INODE_FIELD, place);
        let stored = u64::from(tree.record.advise.bits());
        tree.context.add(finding.stored(stored).computed("it has no encryption context"));
    }
}

/// Where the list ends, if neither a zero word nor the end of the area ends it.
fn unterminated(area: &[u8], attributes: &[xattr::Xattr]) -> Option<usize> {
    let sizes = attributes.iter().map(xattr::Xattr::stored_size);
    let end = sizes.fold(xattr::HEADER_SIZE, usize::saturating_add);
    let ends = area.get(end..end.saturating_add(size_of::<u32>()));
    let is_open = end < area.len() && ends.is_none_or(|word| word != [0; 4]);
    (!attributes.is_empty() && is_open).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux fills the 200 bytes in an inode to the last one.
    #[test]
    fn a_list_ends_with_a_zero_word_or_with_its_area() {
        let one = xattr::Xattr { index: 1, name: b"name".to_vec(), value: vec![7; 12] };
        let end = xattr::HEADER_SIZE + one.stored_size();
        let list = std::slice::from_ref(&one);
        let area = |behind: &[u8]| [&vec![1; end], behind].concat();
        assert_eq!(unterminated(&area(&[]), list), None);
        assert_eq!(unterminated(&area(&[0; 8]), list), None);
        assert_eq!(unterminated(&area(&[0, 0, 9, 0]), list), Some(end));
        assert_eq!(unterminated(&area(&[9; 4]), &[]), None);
    }
}
