//! One inode: its block, its fields, and then everything below it.

use cairn_check::{Finding, Place};
use cairn_vfs::FileKind;

use super::claims::Use;
use super::context::{Context, Scratch, Totals};
use super::nodes::{self, NodeState};
use super::owners::{self, Owner};
use super::slots::has_pointers;
use super::tree::Tree;
use super::{attributes, directory, kinds, report, shape, symlink, types};
use crate::error::Result;
use crate::form;
use crate::format::block::is_zero;
use crate::format::features::Features;
use crate::format::inode::{self, Advise, FileFlags, InlineFlags};
use crate::format::units::{BLOCK_BYTES, Nid};
use crate::format::{Inode, NodeFooter, Summary};

/// Checks the inode in a block, its nodes, attributes, and entries.
///
/// # Errors
/// The device's.
pub(super) fn check(
    context: &Context,
    scratch: &mut Scratch,
    (ino, node): (Nid, &NodeState),
    image: &[u8],
) -> Result<()> {
    node.mark(nodes::VISITED);
    Totals::add(&context.totals.nodes, 1);
    Totals::add(&context.totals.inodes, 1);
    let place = Place::inode(ino.get());
    let summary = Summary { nid: ino, ..Summary::default() };
    let owner = Owner { what: Use::Node, summary, place: place.clone() };
    owners::claim(context, scratch, node.addr(), &owner)?;
    let is_it = is_itself(context, ino, node, image);
    let other = if is_it { shape::proved(context, scratch, ino, image)? } else { None };
    let image = other.as_deref().unwrap_or(image);
    let other = if is_it { types::proved(context, scratch, (ino, node), image)? } else { None };
    let image = other.as_deref().unwrap_or(image);
    let record = is_it.then(|| decode(context, ino, node, image)).flatten();
    let Some(record) = record else {
        node.mark(nodes::DAMAGED);
        Totals::add(&context.totals.blocks, 1);
        return Ok(());
    };
    if node.set_kind(record.kind).is_some_and(|entry| entry != record.kind) {
        context.add(Finding::new(&kinds::DIRECTORY_TYPE, place.clone()));
    }
    if record.kind == FileKind::Directory {
        Totals::add(&context.totals.directories, 1);
    } else {
        node.set_other(record.links);
    }
    check_fields(context, ino, &record, image);
    let mut tree = Tree::new(context, scratch, ino, &record);
    if has_pointers(&record) {
        tree.walk(node, image)?;
    }
    tree.finish();
    if record.kind == FileKind::Symlink {
        symlink::check(context, tree.scratch, (ino, &record, image))?;
    }
    attributes::check(&mut tree, image)?;
    check_counts(&mut tree, image)?;
    if let Some(quota) = &context.quota {
        match node.is(nodes::QUOTA) {
            true => quota.add_file(ino, &record, tree.contents.take().unwrap_or_default()),
            false => form::quota::count(&quota.counted, &record, tree.blocks),
        }
    }
    if record.kind == FileKind::Directory {
        directory::check(tree, node, image)?;
    }
    Ok(())
}

/// Is the block that of the inode? If it is another's, that is a finding, and so is a wrong
/// checksum.
fn is_itself(context: &Context, ino: Nid, node: &NodeState, image: &[u8]) -> bool {
    if let Err(error) = NodeFooter::read(image).check(ino, ino, node.addr()) {
        let found = report::of(&kinds::NODE_FOOTER, &error);
        let place = Place::inode(ino.get()).at_block(node.addr().get());
        context.add(Finding { place, ..found });
        return false;
    }
    if let Err(error) = inode::verify(image, ino, &context.layout) {
        context.add(report::of(&kinds::INODE_CHECKSUM, &error));
    }
    true
}

/// The inode of a block; `None` if it cannot be used, which is a finding.
fn decode(context: &Context, ino: Nid, node: &NodeState, image: &[u8]) -> Option<Inode> {
    match Inode::decode(image, ino, context.layout.features) {
        Ok(record) => Some(record),
        Err(error) => {
            let found = report::of(&kinds::INODE_FIELD, &error);
            context
                .add(Finding { place: found.place.clone().at_block(node.addr().get()), ..found });
            None
        }
    }
}

/// The fields that decoding accepts, but that cannot be.
fn check_fields(context: &Context, ino: Nid, record: &Inode, image: &[u8]) {
    let field = |name, stored: u64, why: &str| {
        let place = Place::inode(ino.get()).in_field(name);
        context.add(Finding::new(&kinds::INODE_FIELD, place).stored(stored).computed(why));
    };
    let features = context.layout.features;
    let flags = record.flags;
    let needs = [
        (FileFlags::CASEFOLD, Features::CASEFOLD, "the feature casefold is missing"),
        (FileFlags::COMPR, Features::COMPRESSION, "the feature compression is missing"),
    ];
    for (flag, feature, why) in needs {
        if flags.contains(flag) && !features.contains(feature) {
            field("i_flags", flags.bits().into(), why);
        }
    }
    if let Some(extra) = record
        .extra
        .filter(|extra| features.contains(Features::INODE_CHECKSUM) && !extra.has_checksum())
    {
        field("i_extra_isize", extra.size.into(), "it must have room for the checksum");
    }
    if flags.contains(FileFlags::CASEFOLD) && record.kind != FileKind::Directory {
        field("i_flags", flags.bits().into(), "only directories ignore case");
    }
    if record.advise.contains(Advise::ENCRYPT) && !features.contains(Features::ENCRYPT) {
        field("i_advise", record.advise.bits().into(), "the feature encrypt is missing");
    }
    if let Some(extra) = record.extra.filter(|extra| !extra.has_possible_crtime()) {
        let seconds = extra.crtime.seconds.cast_unsigned();
        field("i_crtime", seconds, "it is millennia away");
    }
    if record.kind == FileKind::Regular && record.size > record.max_size() {
        field("i_size", record.size, "no file of F2FS is as long");
    }
    check_inline(context, ino, record, image);
}

fn check_inline(context: &Context, ino: Nid, record: &Inode, image: &[u8]) {
    if !record.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY) {
        return;
    }
    let range = record.inline_data_range();
    let found = |stored: &str| {
        let place = Place::inode(ino.get());
        context.add(Finding::new(&kinds::INODE_INLINE, place).stored(stored));
    };
    let reserved = range.start.checked_sub(size_of::<u32>()).and_then(|at| image.get(at..));
    if reserved.and_then(<[u8]>::first_chunk) != Some(&[0; 4]) {
        found("the reserved word before the contents is not 0");
    }
    if record.nids.iter().any(|nid| !nid.is_none()) {
        found("there are pointers to nodes, too");
    }
    let contents = image.get(range).unwrap_or_default();
    if !record.inline.contains(InlineFlags::DATA) {
        return;
    }
    if !record.inline.contains(InlineFlags::DATA_EXIST) && !is_zero(contents) {
        found("the flag for contents (FI_DATA_EXIST) is not set, but there are some");
    }
    let end = record.inline_end(image);
    // The target of a link has its own check.
    if record.kind == FileKind::Regular && end > record.size {
        let place = Place::inode(ino.get()).in_field("i_size");
        let size = record.inline_size(image);
        context.add(Finding::new(&kinds::INODE_TAIL, place).stored(record.size).computed(size));
    }
}

/// What the tree says of the counts in the inode.
fn check_counts(tree: &mut Tree<'_>, image: &[u8]) -> Result<()> {
    let (context, record) = (tree.context, tree.record);
    // Its own node was counted before.
    Totals::add(&context.totals.blocks, tree.blocks);
    if tree.pieces > 1 {
        Totals::add(&context.totals.fragmented, 1);
    }
    let place = |field| Place::inode(tree.ino.get()).in_field(field);
    let is = |mark| context.nodes.get(tree.ino).is_some_and(|node| node.is(mark));
    let damaged = is(nodes::DAMAGED);
    if record.blocks != tree.blocks && !damaged {
        let finding = Finding::new(&kinds::INODE_BLOCKS, place("i_blocks"));
        context.add(finding.stored(record.blocks).computed(tree.blocks));
        context.lacking.note(tree.ino, (record.blocks, tree.blocks));
    }
    let least = tree.end.saturating_mul(BLOCK_BYTES);
    // A directory that was removed while it is open has no size any more.
    let is_kept = record.kind == FileKind::Directory && !is(nodes::ORPHAN);
    if is_kept && record.size < least {
        let finding = Finding::new(&kinds::INODE_SIZE, place("i_size"));
        context.add(finding.stored(record.size).computed(least));
    }
    if damaged {
        return Ok(());
    }
    shape::of_nodes(context, tree.scratch, (tree.ino, record, image), tree.end)
}
