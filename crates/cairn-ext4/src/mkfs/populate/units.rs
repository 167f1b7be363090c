//! [`Unit`]: what a thread writes in one step.

use super::places::Places;
use super::stream::Stream;
use super::survey::Survey;
use crate::format::layout::Layout;

/// Bytes of a unit. A directory is not divided.
const UNIT_BYTES: u64 = 512 << 10;

/// A part of the volume.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    /// Blocks of a group's inode table.
    Records { group: u32, first: u32, blocks: u32 },
    /// Blocks of attributes.
    Attributes { first: u32, blocks: u32 },
    /// A value with its own inode.
    Value { number: u32, blocks: u32 },
    /// `blocks` of the stream from block `at` on. They begin with block `skip` of node `id`.
    Nodes { at: u64, blocks: u64, id: u32, skip: u64, metadata: bool },
}

/// All units, in the order of their places as far as possible.
pub(super) fn units(
    survey: &Survey,
    places: &Places,
    stream: &Stream,
    layout: &Layout,
    last_inode: u32,
) -> Vec<Unit> {
    let most = UNIT_BYTES / u64::from(layout.block_size);
    let mut units = records(layout, last_inode, most as u32);
    let shared = survey.shared.blocks.len() as u32;
    for first in (0..shared).step_by(most as usize) {
        units.push(Unit::Attributes { first, blocks: (shared - first).min(most as u32) });
    }
    for (number, value) in (0_u32..).zip(&survey.values.list) {
        units.push(Unit::Value { number, blocks: value.len.div_ceil(layout.block_size) });
    }
    for metadata in [true, false] {
        nodes(survey, places, stream, most, metadata, &mut units);
    }
    units
}

fn records(layout: &Layout, last_inode: u32, most: u32) -> Vec<Unit> {
    let per_block = layout.block_size / layout.inode_size;
    let mut units = Vec::new();
    for group in 0..last_inode.div_ceil(layout.inodes_per_group) {
        let used = (last_inode - group * layout.inodes_per_group).min(layout.inodes_per_group);
        let end = used.div_ceil(per_block);
        for first in (0..end).step_by(most as usize) {
            units.push(Unit::Records { group, first, blocks: (end - first).min(most) });
        }
    }
    units
}

fn nodes(
    survey: &Survey,
    places: &Places,
    stream: &Stream,
    most: u64,
    metadata: bool,
    units: &mut Vec<Unit>,
) {
    let mut open: Option<(u64, u64, u32, u64)> = None;
    let mut push = |(at, blocks, id, skip)| {
        units.push(Unit::Nodes { at, blocks, id, skip, metadata });
    };
    for id in 0..survey.source.count() {
        if survey.nodes[id as usize].blocks == 0 || survey.is_metadata(id) != metadata {
            continue;
        }
        let span = places.span(survey, stream, id);
        let mut skip = 0;
        while skip < span {
            let (at, blocks, first, offset) =
                open.take().unwrap_or((places.at(id) + skip, 0, id, skip));
            let room = most.saturating_sub(blocks);
            let piece = if metadata { span } else { room.min(span - skip) };
            if blocks > 0 && piece > room {
                push((at, blocks, first, offset));
                continue;
            }
            skip += piece;
            let blocks = blocks + piece;
            if blocks >= most {
                push((at, blocks, first, offset));
            } else {
                open = Some((at, blocks, first, offset));
            }
        }
    }
    if let Some(last) = open {
        push(last);
    }
}
