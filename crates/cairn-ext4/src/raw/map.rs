//! The walk through the block map of an inode, whatever its bytes are.
//!
//! A walk descends from a block of the map once, so that it ends. Its [`Visitor`] says where the
//! bytes of such a block come from: the volume, or an old copy of it.

use std::collections::HashSet;

use cairn_base::{Ino, Pba};
use cairn_cache::block::Image;

use super::RawVolume;
use crate::checksum::InodeSeed;
use crate::format::extent::{Entries, Extent, Index, MAX_FILE_BLOCKS, NodeView, Site};
use crate::format::indirect::{decode, decode_inode, slot_range, span};
use crate::format::inode::{Inode as Record, InodeFlags};

/// Most blocks of a map that one walk descends from.
const MOST_NODES: usize = 1 << 20;

/// A node of a map.
pub(crate) struct Seen<'a> {
    /// Its block; `None` for the inode.
    pub(crate) block: Option<Pba>,
    /// The first file block that it maps.
    pub(crate) start: u64,
    /// Levels below it.
    pub(crate) depth: u32,
    /// Its bytes.
    pub(crate) bytes: &'a [u8],
}

/// A block of a map, as its parent describes it.
#[derive(Clone, Copy)]
pub(crate) struct Child {
    pub(crate) block: Pba,
    pub(crate) start: u64,
    pub(crate) depth: u32,
    /// Seed of its checksum; `None` for block pointers, which have none.
    pub(crate) seed: Option<InodeSeed>,
}

/// Who looks at a map.
pub(crate) trait Visitor {
    /// The bytes of a block of the map.
    fn fetch(&mut self, volume: &RawVolume, child: Child) -> Result<Image, String> {
        volume.block(child.block).map_err(|error| error.to_string())
    }

    /// A node.
    fn node(&mut self, seen: &Seen<'_>);

    /// Blocks with contents: they lie on the volume.
    fn extent(&mut self, extent: Extent);

    /// A part of the map that cannot be followed.
    fn fault(&mut self, start: u64, what: String);
}

struct Walk<'a> {
    volume: &'a RawVolume,
    ino: Ino,
    visitor: &'a mut dyn Visitor,
    descended: HashSet<u64>,
    /// Pointers that were found and may go on.
    run: Option<Extent>,
}

/// Visits the map of an inode.
pub(crate) fn walk(volume: &RawVolume, ino: Ino, record: &Record, visitor: &mut dyn Visitor) {
    let mut walk = Walk { volume, ino, visitor, descended: HashSet::new(), run: None };
    if record.flags.contains(InodeFlags::EXTENTS) {
        let seed = volume.layout.checksum.for_inode(ino, record.generation);
        walk.extents(&record.block, None, seed);
        return;
    }
    walk.visitor.node(&Seen { block: None, start: 0, depth: 3, bytes: &record.block });
    for (slot, pointer) in decode_inode(&record.block).into_iter().enumerate() {
        let (level, start) = slot_range(slot, volume.layout.block_size);
        walk.pointer(level, start, pointer);
    }
    walk.flush();
}

impl Walk<'_> {
    /// The bytes of a block, if the walk may descend from it.
    fn descend(&mut self, child: Child) -> Option<Image> {
        let why = if !self.volume.layout.contains(child.block, 1) {
            format!("node {} lies outside the volume", child.block)
        } else if self.descended.len() >= MOST_NODES {
            "the map has too many nodes".to_owned()
        } else if !self.descended.insert(child.block.get()) {
            format!("node {} is in the map twice", child.block)
        } else if !self.volume.allowance.structure() {
            "the maps of the volume name too many blocks".to_owned()
        } else {
            match self.visitor.fetch(self.volume, child) {
                Ok(image) => return Some(image),
                Err(why) => why,
            }
        };
        self.visitor.fault(child.start, why);
        None
    }

    fn extents(&mut self, bytes: &[u8], parent: Option<Child>, seed: InodeSeed) {
        let pba = parent.map_or(Pba(0), |child| child.block);
        let start = parent.map_or(0, |child| child.start);
        let site = Site { ino: self.ino, pba };
        let depth = parent.and_then(|child| u16::try_from(child.depth).ok());
        let view = match NodeView::parse(bytes, depth, site) {
            Ok(view) => view,
            Err(why) => return self.visitor.fault(start, why.to_string()),
        };
        let depth = view.depth();
        let block = parent.map(|child| child.block);
        self.visitor.node(&Seen { block, start, depth: depth.into(), bytes });
        match view.decode().entries {
            Entries::Leaf(extents) => extents.iter().for_each(|extent| self.extent(extent)),
            Entries::Inner(indexes) => {
                for Index { start, child } in indexes {
                    let depth = u32::from(depth.saturating_sub(1));
                    let child = Child { block: child, start, depth, seed: Some(seed) };
                    if let Some(image) = self.descend(child) {
                        self.extents(&image, Some(child), seed);
                    }
                }
            }
        }
    }

    fn extent(&mut self, extent: &Extent) {
        let Extent { start, len, pba, .. } = *extent;
        if len == 0 || extent.end() > MAX_FILE_BLOCKS || !self.volume.layout.contains(pba, len) {
            let what = format!("{len} blocks from {pba} on lie outside the volume or the file");
            return self.visitor.fault(start, what);
        }
        self.visitor.extent(*extent);
    }

    fn flush(&mut self) {
        if let Some(run) = self.run.take() {
            self.visitor.extent(run);
        }
    }

    fn pointer(&mut self, level: u32, start: u64, pointer: u32) {
        if pointer == 0 {
            return;
        }
        let pba = Pba(pointer.into());
        if level == 0 {
            return self.data(start, pba);
        }
        self.flush();
        let child = Child { block: pba, start, depth: level.saturating_sub(1), seed: None };
        let Some(image) = self.descend(child) else { return };
        self.visitor.node(&Seen { block: Some(pba), start, depth: child.depth, bytes: &image });
        let span = span(child.depth, self.volume.layout.block_size);
        let mut at = start;
        for pointer in decode(&image) {
            self.pointer(child.depth, at, pointer);
            at = at.saturating_add(span);
        }
    }

    fn data(&mut self, start: u64, pba: Pba) {
        if !self.volume.layout.contains(pba, 1) {
            return self.visitor.fault(start, format!("block {pba} lies outside the volume"));
        }
        let next = Extent { start, len: 1, pba, unwritten: false };
        if let Some(run) = self.run.as_mut().filter(|run| run.continues_with(&next)) {
            run.len = run.len.saturating_add(1);
            return;
        }
        self.flush();
        self.run = Some(next);
    }
}

/// The extents of a file, and what of its map cannot be followed.
#[derive(Default)]
pub(crate) struct Extents {
    pub(crate) extents: Vec<Extent>,
    pub(crate) faults: Vec<(u64, String)>,
}

/// Most extents and faults of one map that are kept.
const MOST_EXTENTS: usize = 1 << 22;
const MOST_FAULTS: usize = 1000;

impl Visitor for Extents {
    fn node(&mut self, _: &Seen<'_>) {}

    fn extent(&mut self, extent: Extent) {
        if self.extents.len() < MOST_EXTENTS {
            self.extents.push(extent);
        } else {
            self.fault(extent.start, "the map has too many extents".into());
        }
    }

    fn fault(&mut self, start: u64, what: String) {
        if self.faults.len() < MOST_FAULTS {
            self.faults.push((start, what));
        }
    }
}
