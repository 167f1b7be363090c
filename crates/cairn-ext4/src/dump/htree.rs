//! The index of a directory: its nodes, and the hashes of each leaf.

use std::collections::HashSet;

use cairn_base::{FileBlock, Ino, Pba};
use cairn_check::{Detail, Fields};

use super::record::record as record_of;
use crate::error::{Error, Result};
use crate::format::dir_entry::{DirFormat, entries, verify_leaf};
use crate::format::htree::{Node, NodeKind, root_info, verify_node};
use crate::format::inode::{Inode as Record, InodeFlags, mode};
use crate::format::superblock::FLAG_UNSIGNED_HASH;
use crate::inode::directory::hash_settings;
use crate::raw::RawVolume;
use crate::raw::map::{Extents, walk};

/// Levels of the deepest index (large_dir).
const MOST_LEVELS: u8 = 2;
/// Most blocks that are shown.
const MOST: usize = 1 << 20;

struct Shown<'a> {
    volume: &'a RawVolume,
    ino: Ino,
    format: DirFormat,
    map: Extents,
    version: u8,
    seen: HashSet<u64>,
    nodes: Vec<Fields>,
    leaves: Vec<Fields>,
}

/// The index of a directory.
///
/// # Errors
/// The inode cannot be read, or has no index.
pub(super) fn show(volume: &RawVolume, ino: Ino) -> Result<Fields> {
    let (_, record) = record_of(volume, ino)?;
    let is_directory = record.mode & mode::TYPE == mode::DIRECTORY;
    if !is_directory || !record.flags.contains(InodeFlags::INDEX) {
        return Err(Error::Option(format!(
            "inode {ino} is no directory with an index: only large directories have one"
        )));
    }
    let mut shown = Shown::new(volume, ino, &record);
    let mut fields = Fields::new().with("inode", ino.get());
    let root = shown.read(0).ok_or_else(|| {
        Error::Option(format!("inode {ino}: block 0 cannot be read: look at its `extents`"))
    })?;
    match root_info(&root.1, &shown.format, MOST_LEVELS) {
        Ok(info) => {
            let flags = volume.superblock.raw.s_flags.get();
            fields.put("hash_version", info.hash_version);
            fields.put("hash", hash_name(info.hash_version));
            fields.put("unsigned", flags & FLAG_UNSIGNED_HASH != 0);
            fields.put("indirect_levels", info.indirect_levels);
            shown.version = info.hash_version;
            shown.node(0, info.indirect_levels, 0);
        }
        Err(defect) => fields.put("error", defect.at(ino, FileBlock(0)).to_string()),
    }
    fields.put("nodes", shown.nodes);
    fields.put("leaves", shown.leaves);
    Ok(fields)
}

fn hash_name(version: u8) -> &'static str {
    match version {
        0 => "legacy",
        1 => "half_md4",
        2 => "tea",
        3 => "legacy_unsigned",
        4 => "half_md4_unsigned",
        5 => "tea_unsigned",
        6 => "siphash",
        _ => "unknown",
    }
}

impl<'a> Shown<'a> {
    fn new(volume: &'a RawVolume, ino: Ino, record: &Record) -> Self {
        let seed = volume.layout.checksum.for_inode(ino, record.generation);
        let mut map = Extents::default();
        walk(volume, ino, record, &mut map);
        let (seen, nodes, leaves) = (HashSet::new(), Vec::new(), Vec::new());
        let format = volume.dir_format(seed);
        Self { volume, ino, format, map, version: 0, seen, nodes, leaves }
    }

    fn read(&self, block: u64) -> Option<(Pba, Vec<u8>)> {
        let end = block.saturating_add(1);
        let part = self.map.extents.iter().find_map(|extent| extent.clip(block, end))?;
        Some((part.pba, self.volume.block(part.pba).ok()?.to_vec()))
    }

    /// Shows a node and what is below it. Each block is shown once.
    fn node(&mut self, block: u64, levels: u8, from: u32) {
        if self.seen.len() >= MOST || !self.seen.insert(block) {
            return;
        }
        let mut fields = Fields::new()
            .with("file_block", block)
            .with("level", levels)
            .with("hash", Detail::Hex(from.into()));
        let Some((pba, bytes)) = self.read(block) else {
            self.nodes.push(fields.with("error", "it cannot be read"));
            return;
        };
        fields.put("block", pba.get());
        let kind = if block == 0 { NodeKind::Root } else { NodeKind::Inner };
        let place = FileBlock(block);
        let node = match Node::parse(&bytes, kind, &self.format) {
            Ok(node) => node,
            Err(defect) => {
                self.nodes.push(fields.with("error", defect.at(self.ino, place).to_string()));
                return;
            }
        };
        fields.put("count", node.count());
        fields.put("limit", kind.limit(&self.format));
        if self.format.seed.0.is_some() {
            let right = verify_node(&bytes, kind, &self.format, self.ino, place);
            fields.put("checksum_right", right.is_ok());
        }
        let pairs = node.pairs();
        let entries: Vec<Fields> = pairs
            .iter()
            .map(|(hash, child)| {
                let hash = Detail::Hex(u64::from(*hash));
                Fields::new().with("hash", hash).with("file_block", child.get())
            })
            .collect();
        fields.put("entries", entries);
        self.nodes.push(fields);
        for (hash, child) in pairs {
            match levels.checked_sub(1) {
                Some(levels) => self.node(child.get(), levels, hash),
                None => self.leaf(child.get(), hash),
            }
        }
    }

    fn leaf(&mut self, block: u64, from: u32) {
        if self.seen.len() >= MOST || !self.seen.insert(block) {
            return;
        }
        let mut fields =
            Fields::new().with("file_block", block).with("hash", Detail::Hex(from.into()));
        let Some((pba, bytes)) = self.read(block) else {
            self.leaves.push(fields.with("error", "it cannot be read"));
            return;
        };
        fields.put("block", pba.get());
        let hashes = hash_settings(&self.volume.superblock);
        let (mut names, mut least, mut most) = (0_u64, u32::MAX, 0);
        for entry in entries(&bytes, &self.format).flatten().filter(|entry| entry.ino != 0) {
            names = names.saturating_add(1);
            if let Some(hash) = hashes.hash(self.version, entry.name) {
                (least, most) = (least.min(hash.major), most.max(hash.major));
            }
        }
        fields.put("names", names);
        if names > 0 {
            fields.put("least_hash", Detail::Hex(least.into()));
            fields.put("most_hash", Detail::Hex(most.into()));
        }
        if self.format.seed.0.is_some() {
            let place = FileBlock(block);
            let right = verify_leaf(&bytes, &self.format, self.ino, place);
            fields.put("checksum_right", right.is_ok());
        }
        self.leaves.push(fields);
    }
}
