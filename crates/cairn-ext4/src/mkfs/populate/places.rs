//! [`Places`]: the place of each node in the stream of free blocks.
//!
//! Blocks of attributes come first, then values with their own inodes, then directories and links,
//! then files; each in the order of ids. The blocks of a file's extent tree follow its data. A file
//! that shares the blocks of another has only those of its tree.

use cairn_vfs::new_tree::{Kind, segments};

use super::attributes::NONE;
use super::regular::{extents, tree_blocks};
use super::stream::Stream;
use super::survey::Survey;
use crate::format::extent::{Extent, MAX_WRITTEN, ROOT_CAPACITY};

/// Where the nodes are.
pub(super) struct Places {
    /// For each node its first block in the stream.
    at: Vec<u64>,
    /// For each value with its own inode.
    values: Vec<u64>,
    /// Blocks in use.
    end: u64,
}

impl Places {
    /// Places all nodes. The second result is the number of blocks that are needed if the stream
    /// is too short.
    pub(super) fn new(survey: &Survey, stream: &Stream) -> Result<Self, u64> {
        let data = survey.data_blocks();
        let mut end = survey.shared.blocks.len() as u64;
        let values = survey.values.list.iter().map(|value| {
            let at = end;
            end += u64::from(value.len.div_ceil(survey.settings.block_size as u32));
            at
        });
        let values = values.collect();
        // Trees have more blocks than are counted here only if the volume is nearly full.
        let needed = end + data;
        if needed > stream.blocks() {
            return Err(needed);
        }
        let mut at = vec![0; survey.nodes.len()];
        for metadata in [true, false] {
            for (id, need) in (0_u32..).zip(&survey.nodes) {
                if need.blocks == 0 || survey.is_metadata(id) != metadata {
                    continue;
                }
                at[id as usize] = end;
                let own = survey.own_blocks(id);
                if end + own > stream.blocks() {
                    return Err(needed.max(stream.blocks()) + 1);
                }
                end += own;
                if !metadata {
                    end += tree_of(survey, stream, id, at[survey.holder(id) as usize]);
                }
            }
        }
        if end > stream.blocks() { Err(end) } else { Ok(Self { at, values, end }) }
    }

    /// The first block of a node in the stream: of its contents or, if it shares those of another
    /// file, of its extent tree.
    pub(super) fn at(&self, id: u32) -> u64 {
        self.at[id as usize]
    }

    /// The first block of a node's extent tree.
    pub(super) fn tree_at(&self, survey: &Survey, id: u32) -> u64 {
        self.at(id) + survey.own_blocks(id)
    }

    /// The first block of a value.
    pub(super) fn value(&self, number: u32) -> u64 {
        self.values[number as usize]
    }

    /// Blocks of the stream in use.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Blocks of a node with its extent tree.
    pub(super) fn span(&self, survey: &Survey, stream: &Stream, id: u32) -> u64 {
        match survey.nodes[id as usize].blocks {
            0 => 0,
            blocks if survey.is_metadata(id) => blocks.into(),
            _ => {
                let contents = self.at(survey.holder(id));
                survey.own_blocks(id) + tree_of(survey, stream, id, contents)
            }
        }
    }

    /// The extents of a node.
    pub(super) fn extents(&self, survey: &Survey, stream: &Stream, id: u32) -> Vec<Extent> {
        extents_at(survey, stream, id, self.at(survey.holder(id)))
    }
}

fn extents_at(survey: &Survey, stream: &Stream, id: u32, at: u64) -> Vec<Extent> {
    match survey.source.node(id).kind {
        Kind::Regular { data, .. } => {
            extents(segments(data, survey.settings.block_size as u64), at, stream)
        }
        _ => {
            let blocks = u64::from(survey.nodes[id as usize].blocks);
            extents(std::iter::once(0..blocks), at, stream)
        }
    }
}

/// Blocks of the extent tree of a file at block `at` of the stream.
fn tree_of(survey: &Survey, stream: &Stream, id: u32, at: u64) -> u64 {
    let blocks = u64::from(survey.nodes[id as usize].blocks);
    let Kind::Regular { data, .. } = survey.source.node(id).kind else { return 0 };
    let whole = data.len() == 1 && stream.run(at, blocks).1 == blocks;
    if whole && blocks <= ROOT_CAPACITY as u64 * MAX_WRITTEN {
        return 0;
    }
    let count = extents_at(survey, stream, id, at).len();
    tree_blocks(count, survey.settings.block_size as u32)
}

/// True if a node has a block of attributes.
pub(super) fn has_attribute_block(survey: &Survey, id: u32) -> bool {
    survey.nodes[id as usize].xattrs != NONE
}
