//! The index of a directory: which block is a node, and which hashes each leaf has.

use std::collections::BTreeMap;

use cairn_check::{Finding, Place, Value};

use super::dir_blocks::Directory;
use super::kinds;
use crate::dir::hash::leaf_hashes;
use crate::format::dir_entry::Defect;
use crate::format::features::Incompat;
use crate::format::htree::{Node, NodeKind, root_info};
use crate::format::inode::InodeFlags;

/// What the index says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Block 0.
    Root,
    /// Another node.
    Inner,
    /// Entries with these hashes.
    Leaf(Hashes),
}

/// The hashes of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hashes {
    pub(super) version: u8,
    /// The smallest one.
    pub(super) from: u32,
    /// The largest one.
    pub(super) to: u32,
}

/// The roles of the blocks of a directory; without an index, none.
#[derive(Debug, Default)]
pub(super) struct Index {
    roles: BTreeMap<u64, Role>,
}

impl Index {
    pub(super) fn role(&self, block: u64) -> Option<Role> {
        self.roles.get(&block).copied()
    }
}

/// The range of a node: the hash of its entry, and that of the next one.
#[derive(Clone, Copy)]
struct Range {
    from: u32,
    /// The stored hash of the next entry, with its lowest bit; `None` at the end.
    next: Option<u32>,
}

struct Survey<'a> {
    directory: &'a Directory<'a>,
    version: u8,
    roles: BTreeMap<u64, Role>,
}

/// Reads the index. If it is invalid, all blocks are leaves of any hash, as a reader without the
/// index sees them.
pub(super) fn survey(directory: &Directory<'_>) -> Index {
    let state = directory.state;
    let most = if state.layout.features.incompat(Incompat::LARGE_DIR) { 2 } else { 1 };
    let Some(root) = directory.block(0) else { return Index::default() };
    let info = match root_info(&root, &directory.format, most) {
        Ok(info) => info,
        Err(defect) => {
            fault(directory, 0, &defect);
            return Index::default();
        }
    };
    let is_folded = directory.record.flags.contains(InodeFlags::CASEFOLD);
    if !is_folded && state.hash.hash(info.hash_version, b"").is_none() {
        let (what, value) = ("unknown hash", info.hash_version.into());
        fault(directory, 0, &Defect { offset: 28, what, value });
    }
    let mut survey = Survey { directory, version: info.hash_version, roles: BTreeMap::new() };
    survey.roles.insert(0, Role::Root);
    let whole = Range { from: 0, next: None };
    if survey.node(0, &root, info.indirect_levels, whole).is_none() {
        return Index::default();
    }
    let known = u64::try_from(survey.roles.len()).unwrap_or(u64::MAX);
    if known < directory.blocks {
        let missing = (0..directory.blocks).find(|block| !survey.roles.contains_key(block));
        let place = directory.place(missing.unwrap_or(0));
        let finding = Finding::new(&kinds::HTREE_BLOCKS, place);
        let count = directory.blocks.saturating_sub(known);
        state.findings.add(finding.stored(Value::text(format!("{count} blocks left out"))));
    }
    Index { roles: survey.roles }
}

fn fault(directory: &Directory<'_>, block: u64, defect: &Defect) {
    let Defect { offset, what, value } = *defect;
    let offset = u64::try_from(offset).unwrap_or(u64::MAX);
    let finding = Finding::new(&kinds::HTREE_NODE, directory.place(block).at_offset(offset));
    directory.state.findings.add(finding.stored(Value::text(format!("{what}, value {value}"))));
}

impl Survey<'_> {
    /// Visits a node and what is below it. `None` if it is invalid. Every block is visited once.
    fn node(&mut self, at: u64, bytes: &[u8], levels: u8, range: Range) -> Option<()> {
        let kind = if at == 0 { NodeKind::Root } else { NodeKind::Inner };
        let node = match Node::parse(bytes, kind, &self.directory.format) {
            Ok(node) => node,
            Err(defect) => {
                fault(self.directory, at, &defect);
                return None;
            }
        };
        for number in 0..node.count() {
            let behind = number.saturating_add(1);
            let from = if number == 0 { range.from } else { node.hash(number) };
            let next = if behind < node.count() { Some(node.hash(behind)) } else { range.next };
            let block = node.child(number)?.get();
            if from < range.from || range.next.is_some_and(|end| from > end) {
                self.wrong(at, &kinds::HTREE_RANGE, from);
            }
            if block >= self.directory.blocks || self.roles.contains_key(&block) {
                self.wrong(at, &kinds::HTREE_BLOCKS, u32::try_from(block).unwrap_or(u32::MAX));
                continue;
            }
            let range = Range { from, next };
            match levels.checked_sub(1) {
                None => {
                    self.roles.insert(block, Role::Leaf(self.hashes(range)));
                }
                Some(levels) => {
                    self.roles.insert(block, Role::Inner);
                    let bytes = self.directory.block(block)?;
                    self.node(block, &bytes, levels, range)?;
                }
            }
        }
        Some(())
    }

    fn wrong(&self, at: u64, kind: &'static cairn_check::Kind, value: u32) {
        let place: Place = self.directory.place(at);
        self.directory.state.findings.add(Finding::new(kind, place).stored(value));
    }

    /// A name has an even hash. With the lowest bit of the next entry set, its names continue those
    /// of this leaf.
    fn hashes(&self, range: Range) -> Hashes {
        let (from, to) = leaf_hashes(range.from, range.next).into_inner();
        Hashes { version: self.version, from, to }
    }
}
