//! Discarding and zeroing parts of the disk.

use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::error::Result;
use super::format::entry::{Cluster, ZERO};
use super::host::index;
use super::image::{Image, Writer};
use super::tables::Piece;

/// Zeros that are written as data go out in pieces of this size.
const PIECE: u64 = 8 << 20;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What later reads give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clearing {
    /// Zeros or the old bytes; whole clusters are given back.
    Discard,
    /// Zeros.
    Zero,
}

impl Image {
    /// Clears a range of the disk.
    pub(super) fn clear(&self, range: Range<u64>, how: Clearing) -> Result<()> {
        let cluster = self.cluster();
        // The last cluster may reach over the end of the disk.
        let end = if range.end == self.header.size {
            range.end.next_multiple_of(cluster)
        } else {
            range.end
        };
        let whole = range.start.next_multiple_of(cluster)..end / cluster * cluster;
        if whole.start >= whole.end {
            return self.clear_part(range, how);
        }
        self.clear_part(range.start..whole.start, how)?;
        let tail = whole.end..range.end;
        let table = cluster * cluster / 8;
        let mut at = whole.start;
        while at < whole.end {
            let stop = (at / table * table + table).min(whole.end);
            let written = self.clear_clusters(at..stop, how)?;
            for piece in written {
                self.write_zeros(piece)?;
            }
            at = stop;
        }
        self.clear_part(tail, how)
    }

    /// Less than a cluster: discarding leaves it as it is.
    fn clear_part(&self, range: Range<u64>, how: Clearing) -> Result<()> {
        if how == Clearing::Discard || range.is_empty() {
            return Ok(());
        }
        for piece in self.pieces(range)? {
            let is_zero = match piece.place {
                Cluster::Unallocated => self.backing.is_none(),
                Cluster::Zero { .. } => true,
                _ => false,
            };
            if !is_zero {
                self.write_zeros(piece.guest..piece.guest + piece.len)?;
            }
        }
        Ok(())
    }

    fn write_zeros(&self, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let stop = (at + PIECE).min(range.end);
            let mut bufs = Vec::new();
            let mut left = index(stop - at);
            while left > 0 {
                let len = left.min(ZEROS.len());
                bufs.push(Bytes::from_static(&ZEROS[..len]));
                left -= len;
            }
            self.write(vec![(at, bufs)], false)?;
            at = stop;
        }
        Ok(())
    }

    /// Whole clusters that one L2 table leads to. Gives what must be written as data, since version
    /// 2 has no mark for zeros.
    fn clear_clusters(&self, range: Range<u64>, how: Clearing) -> Result<Vec<Range<u64>>> {
        let mut writer = self.writer()?;
        self.make_room(&mut writer)?;
        let mut as_data = Vec::new();
        for piece in self.pieces(range)? {
            let Some(entry) = self.cleared(&piece, how) else { continue };
            let Some(entry) = entry else {
                if how == Clearing::Zero {
                    as_data.push(piece.guest..piece.guest + piece.len);
                }
                continue;
            };
            self.clear_piece(&mut writer, &piece, entry)?;
        }
        Ok(as_data)
    }

    /// The new entry of the clusters of a piece: none if nothing changes, and none within if no
    /// entry says it.
    fn cleared(&self, piece: &Piece, how: Clearing) -> Option<Option<u64>> {
        let zeros = match (self.backing.is_none(), self.header.version) {
            (_, 3..) => Some(ZERO),
            (true, _) => Some(0),
            (false, _) => None,
        };
        match piece.place {
            Cluster::Unallocated if how == Clearing::Zero && self.backing.is_some() => Some(zeros),
            Cluster::Zero { kept: Some(_) } if how == Clearing::Discard => Some(zeros),
            Cluster::Unallocated | Cluster::Zero { .. } => None,
            Cluster::Data { .. } | Cluster::Compressed { .. } if self.backing.is_none() => {
                Some(Some(0))
            }
            Cluster::Data { .. } | Cluster::Compressed { .. } => Some(zeros),
        }
    }

    fn clear_piece(&self, writer: &mut Writer, piece: &Piece, entry: u64) -> Result<()> {
        let cluster = self.cluster();
        let numbers = piece.guest / cluster..(piece.guest + piece.len).div_ceil(cluster);
        self.make_writable(writer, numbers.start >> (self.header.cluster_bits - 3))?;
        self.pending.store(true, Ordering::Release);
        let mut tables = self.tables.lock();
        for number in numbers.clone() {
            tables.set(number, entry)?;
            let old = match piece.place {
                Cluster::Data { host, copied } => {
                    Cluster::Data { host: host + (number - numbers.start) * cluster, copied }
                }
                other => other,
            };
            self.free(writer, old);
        }
        Ok(())
    }
}
