//! What the disk is made of, as its tables say.

use std::ops::Range;

use cairn_block::Extent;
use cairn_block::extent::MAX_EXTENTS;

use super::error::Result;
use super::format::entry::Cluster;
use super::image::Image;
use super::tables::Piece;

/// L2 tables that one question may lead to.
const MOST_TABLES: usize = 1 << 14;

impl Image {
    /// The extents of a range, from its start on.
    pub(super) fn extents(&self, range: Range<u64>) -> Result<Vec<Extent>> {
        let end = range.end.min(self.header.size);
        let table = self.cluster() * self.cluster() / 8;
        let (mut extents, mut at) = (Vec::new(), range.start);
        for _ in 0..MOST_TABLES {
            if at >= end || extents.len() >= MAX_EXTENTS {
                break;
            }
            let stop = (at / table * table).saturating_add(table).min(end);
            for piece in self.pieces(at..stop)? {
                self.tell(&piece, &mut extents)?;
            }
            at = stop;
        }
        Ok(extents)
    }

    fn tell(&self, piece: &Piece, extents: &mut Vec<Extent>) -> Result<()> {
        let range = piece.guest..piece.guest + piece.len;
        match (piece.place, &self.backing) {
            (Cluster::Unallocated, Some(backing)) => {
                let below = backing.geometry().size;
                let inside = range.start.min(below)..range.end.min(below);
                let mut at = inside.start;
                for extent in backing.extents(inside.clone())? {
                    Extent { len: extent.end().min(inside.end) - at, ..extent }.push(extents);
                    at = extent.end().min(inside.end);
                }
                // What it has not told, for there is too much of it.
                Extent::data(at..inside.end).push(extents);
                Extent::hole(range.start.max(below)..range.end.max(below)).push(extents);
            }
            (Cluster::Unallocated | Cluster::Zero { kept: None }, _) => {
                Extent::hole(range).push(extents);
            }
            (Cluster::Zero { .. }, _) => {
                Extent { zero: true, ..Extent::data(range) }.push(extents);
            }
            (Cluster::Data { .. } | Cluster::Compressed { .. }, _) => {
                Extent::data(range).push(extents);
            }
        }
        Ok(())
    }
}
