//! Searches the index of a hashed directory: from the root to a leaf, and to the following leaf.
//!
//! Every search is bounded: children must lie inside the directory, the features limit the levels,
//! and a search visits at most as many leaves as the directory has blocks.

use std::ops::RangeInclusive;

use cairn_base::FileBlock;
use smallvec::{SmallVec, smallvec};

use super::blocks::{DirBlocks, DirSettings, Loaded, load_node};
use super::hash::leaf_hashes;
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::htree::{Node, NodeKind, RootInfo, root_info};

/// An index block on the path to a leaf.
pub(super) struct Frame {
    pub(super) block: FileBlock,
    pub(super) kind: NodeKind,
    /// The index of the followed entry.
    pub(super) at: usize,
    pub(super) loaded: Loaded,
}

impl Frame {
    /// The entries of this block.
    pub(super) fn node(&self, settings: &DirSettings) -> Result<Node<'_>, Corrupt> {
        Node::parse(&self.loaded.image, self.kind, &settings.format)
            .map_err(|defect| settings.corrupt(self.block, defect))
    }
}

/// A directory has up to three levels with `large_dir`, otherwise two.
type Frames = SmallVec<[Frame; 3]>;

/// A path from the root to one leaf.
pub(super) struct Path {
    /// From the root to the parent of the leaf; never empty.
    pub(super) frames: Frames,
    pub(super) leaf: FileBlock,
    pub(super) info: RootInfo,
    leaves_left: u64,
}

/// Reads the root and its description of the index.
pub(super) fn read_root(dir: &dyn DirBlocks, settings: &DirSettings) -> Result<(Loaded, RootInfo)> {
    let loaded = load_node(dir, settings, FileBlock(0), NodeKind::Root)?;
    let info = root_info(&loaded.image, &settings.format, settings.max_levels())
        .map_err(|defect| settings.corrupt(FileBlock(0), defect))?;
    Ok((loaded, info))
}

impl Path {
    /// The path to the first leaf that may hold `major`.
    pub(super) fn to(
        dir: &dyn DirBlocks,
        settings: &DirSettings,
        root: (Loaded, RootInfo),
        major: u32,
    ) -> Result<Self> {
        let (loaded, info) = root;
        let mut top = Frame { block: FileBlock(0), kind: NodeKind::Root, at: 0, loaded };
        top.at = top.node(settings)?.search(major);
        let mut path =
            Self { frames: smallvec![top], leaf: FileBlock(0), info, leaves_left: dir.count() };
        path.descend(dir, settings, |node| node.search(major))?;
        Ok(path)
    }

    /// Follows the last frame's entry to a leaf.
    fn descend(
        &mut self,
        dir: &dyn DirBlocks,
        settings: &DirSettings,
        choose: impl Fn(&Node<'_>) -> usize,
    ) -> Result<()> {
        while self.frames.len() <= usize::from(self.info.indirect_levels) {
            let block = self.child(dir, settings)?;
            let mut frame = Frame {
                block,
                kind: NodeKind::Inner,
                at: 0,
                loaded: load_node(dir, settings, block, NodeKind::Inner)?,
            };
            frame.at = choose(&frame.node(settings)?);
            self.frames.push(frame);
        }
        self.leaf = self.child(dir, settings)?;
        Ok(())
    }

    /// The parent of the leaf.
    pub(super) fn last(&self) -> &Frame {
        self.frames.last().unwrap_or_else(|| panic!("a path has a root"))
    }

    /// Takes the lowest frame off.
    pub(super) fn pop(&mut self) -> Frame {
        self.frames.pop().unwrap_or_else(|| panic!("a path has a root"))
    }

    /// The child of the last frame's entry.
    fn child(&self, dir: &dyn DirBlocks, settings: &DirSettings) -> Result<FileBlock> {
        let frame = self.last();
        let child = frame.node(settings)?.child(frame.at).unwrap_or(FileBlock(0));
        if child.get() == 0
            || child.get() >= dir.count()
            || self.frames.iter().any(|f| f.block == child)
        {
            return Err(Corrupt::Directory {
                ino: settings.ino,
                block: frame.block,
                offset: 0,
                what: "index entry points outside the directory",
                value: child.get(),
            }
            .into());
        }
        Ok(child)
    }

    /// The first hash of the next leaf, with its lowest bit. `None` at the end.
    pub(super) fn next_hash(&self, settings: &DirSettings) -> Result<Option<u32>> {
        for frame in self.frames.iter().rev() {
            let node = frame.node(settings)?;
            let next = frame.at.saturating_add(1);
            if next < node.count() {
                return Ok(Some(node.hash(next)));
            }
        }
        Ok(None)
    }

    /// The hashes of the names in the leaf.
    pub(super) fn hashes(&self, settings: &DirSettings) -> Result<RangeInclusive<u32>> {
        let from = match self.frames.iter().rev().find(|frame| frame.at > 0) {
            Some(frame) => frame.node(settings)?.hash(frame.at),
            None => 0,
        };
        Ok(leaf_hashes(from, self.next_hash(settings)?))
    }

    /// Moves to the next leaf. False at the end.
    pub(super) fn advance(&mut self, dir: &dyn DirBlocks, settings: &DirSettings) -> Result<bool> {
        let mut depth = self.frames.len();
        loop {
            let Some(frame) = depth.checked_sub(1).and_then(|i| self.frames.get_mut(i)) else {
                return Ok(false);
            };
            let next = frame.at.saturating_add(1);
            if next < frame.node(settings)?.count() {
                frame.at = next;
                break;
            }
            depth = depth.saturating_sub(1);
        }
        self.leaves_left = self.leaves_left.checked_sub(1).ok_or(Corrupt::Directory {
            ino: settings.ino,
            block: FileBlock(0),
            offset: 0,
            what: "index has more leaves than the directory has blocks",
            value: dir.count(),
        })?;
        self.frames.truncate(depth);
        self.descend(dir, settings, |_| 0)?;
        Ok(true)
    }

    /// True if names with hash `major` may continue in the next leaf.
    pub(super) fn continues(&self, settings: &DirSettings, major: u32) -> Result<bool> {
        Ok(self.next_hash(settings)?.is_some_and(|next| next & !1 == major))
    }
}
