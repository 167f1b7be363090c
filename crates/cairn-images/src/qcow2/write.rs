//! Writing the disk: in place where a cluster is ours alone, else into clusters that are allocated.

use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cairn_block::{Durability, Request};

use super::error::{Damage, Result, What};
use super::format::entry::{COPIED, Cluster};
use super::host::index;
use super::image::{Image, Writer};
use super::plan::Segment;
use super::tables::{Piece, Writable};

/// Zeros around data are a request of their own from this length on: the host makes holes of them.
const LARGE: u64 = 64 << 10;

/// A cluster of the disk with its new place, until the map says so.
struct Placed {
    number: u64,
    host: u64,
    /// Where it was.
    old: Cluster,
    /// The place was allocated for it, and not kept before.
    allocated: bool,
}

/// What a batch of writes does.
#[derive(Default)]
struct Plan {
    requests: Vec<Request>,
    /// Into clusters that other requests of the batch fill up.
    later: Vec<Request>,
    placed: Vec<Placed>,
}

impl Image {
    /// Writes bytes at offsets of the disk; with `fua` they are on the medium afterwards.
    pub(super) fn write(&self, writes: Vec<(u64, Vec<Bytes>)>, fua: bool) -> Result<()> {
        let segments = Segment::of(writes);
        let clusters = self.clusters.read();
        if let Some(requests) = self.in_place(&segments)? {
            // Of a map that is not on the medium, the medium's copy of the data is worth nothing.
            let direct = fua && !self.pending.load(Ordering::Acquire);
            let durability = Durability { preflush: false, fua: direct };
            self.host.submit_durable(requests, durability)?;
            drop(clusters);
            return if fua && !direct { self.flush() } else { Ok(()) };
        }
        drop(clusters);
        let mut writer = self.writer()?;
        self.make_room(&mut writer)?;
        self.write_allocating(&mut writer, &segments)?;
        if fua { self.flush_as(&mut writer) } else { Ok(()) }
    }

    /// The requests, if every cluster can be overwritten.
    fn in_place(&self, segments: &[Segment]) -> Result<Option<Vec<Request>>> {
        let mut requests = Vec::with_capacity(segments.len());
        for segment in segments {
            for piece in self.pieces(segment.offset..segment.offset + segment.len)? {
                let Cluster::Data { host, copied: true } = piece.place else { return Ok(None) };
                requests.push(self.overwrite(segment, &piece, host)?);
            }
        }
        Ok(Some(requests))
    }

    fn overwrite(&self, segment: &Segment, piece: &Piece, host: u64) -> Result<Request> {
        let cluster = self.cluster();
        let mut clusters = host / cluster..(host + piece.len).div_ceil(cluster);
        if let Some(one) = clusters.find(|one| self.metadata.contains(*one)) {
            return Err(Damage::Overlap { what: What::Data, offset: one * cluster }.into());
        }
        self.host.ensure(host + piece.len)?;
        Ok(Request::Write { offset: host, bufs: segment.slice(piece.guest, piece.len) })
    }

    /// Writes what is in memory if no more fits.
    pub(super) fn make_room(&self, writer: &mut Writer) -> Result<()> {
        if writer.refcounts.is_full() || self.tables.lock().is_full() {
            self.flush_as(writer)?;
        }
        Ok(())
    }

    fn write_allocating(&self, writer: &mut Writer, segments: &[Segment]) -> Result<()> {
        let mut plan = Plan::default();
        let mut planned = segments.iter().try_for_each(|one| self.plan(writer, one, &mut plan));
        if planned.is_ok() {
            let written = self.host.submit(std::mem::take(&mut plan.requests));
            let written = written.and_then(|_| self.host.submit(std::mem::take(&mut plan.later)));
            planned = written.map(drop).map_err(Into::into);
        }
        if let Err(error) = planned {
            // Nothing leads to these clusters.
            let allocated = plan.placed.iter().filter(|one| one.allocated);
            for one in allocated {
                writer.refcounts.release(one.host / self.cluster())?;
            }
            return Err(error);
        }
        self.publish(writer, plan.placed)
    }

    /// From now on the clusters are where they were written.
    fn publish(&self, writer: &mut Writer, placed: Vec<Placed>) -> Result<()> {
        let mut tables = self.tables.lock();
        if !placed.is_empty() {
            self.pending.store(true, Ordering::Release);
        }
        for one in placed {
            tables.set(one.number, one.host | COPIED)?;
            if one.allocated {
                self.free(writer, one.old);
            }
        }
        Ok(())
    }

    /// Notes what is not in use any more once the map is on the medium.
    pub(super) fn free(&self, writer: &mut Writer, old: Cluster) {
        match old {
            Cluster::Unallocated | Cluster::Zero { kept: None } => {}
            Cluster::Data { host, .. } | Cluster::Zero { kept: Some((host, _)) } => {
                writer.freed.push(host / self.cluster());
            }
            Cluster::Compressed { host, len } => {
                let last = (host + len - 1) / self.cluster();
                writer.freed.extend(host / self.cluster()..=last);
            }
        }
    }

    /// Plans one segment.
    fn plan(&self, writer: &mut Writer, segment: &Segment, plan: &mut Plan) -> Result<()> {
        let mut start = segment.offset;
        let end = start + segment.len;
        // The segment before may have begun this cluster.
        if let Some(last) = plan.placed.last()
            && last.number == start / self.cluster()
        {
            let within = start % self.cluster();
            let len = (self.cluster() - within).min(segment.len);
            let bufs = segment.slice(start, len);
            plan.later.push(Request::Write { offset: last.host + within, bufs });
            start += len;
        }
        for piece in self.pieces(start..end)? {
            match piece.place {
                Cluster::Data { host, copied: true } => {
                    plan.requests.push(self.overwrite(segment, &piece, host)?);
                }
                place => self.place(writer, segment, &piece, place, plan)?,
            }
        }
        Ok(())
    }

    /// Gives the clusters of a piece new places, and plans to fill them.
    fn place(
        &self,
        writer: &mut Writer,
        segment: &Segment,
        piece: &Piece,
        old: Cluster,
        plan: &mut Plan,
    ) -> Result<()> {
        let cluster = self.cluster();
        let mut numbers = piece.guest / cluster..(piece.guest + piece.len).div_ceil(cluster);
        let l1 = |number: u64| number >> (self.header.cluster_bits - 3);
        for l1_index in l1(numbers.start)..=l1(numbers.end - 1) {
            self.make_writable(writer, l1_index)?;
        }
        while !numbers.is_empty() {
            let (first, count, fresh) = match old {
                Cluster::Zero { kept: Some((host, true)) } => (host / cluster, 1, false),
                _ => {
                    let found = writer.refcounts.allocate(numbers.end - numbers.start)?;
                    let count = found.clusters.end - found.clusters.start;
                    (found.clusters.start, count, found.fresh)
                }
            };
            let run = numbers.start..numbers.start + count;
            numbers.start = run.end;
            for number in run.clone() {
                let host = (first + number - run.start) * cluster;
                let old = match old {
                    Cluster::Data { host, copied } => {
                        let begin = host - piece.guest % cluster;
                        let before = (number - piece.guest / cluster) * cluster;
                        Cluster::Data { host: begin + before, copied }
                    }
                    other => other,
                };
                let allocated = !matches!(old, Cluster::Zero { kept: Some((_, true)) });
                if !allocated && self.metadata.contains(host / cluster) {
                    return Err(Damage::Overlap { what: What::Data, offset: host }.into());
                }
                plan.placed.push(Placed { number, host, old, allocated });
            }
            if !fresh {
                self.host.ensure((first + count) * cluster)?;
            }
            self.fill(segment, piece, run, first * cluster, fresh, plan)?;
        }
        Ok(())
    }

    /// Plans to write a run of clusters whole: the segment's bytes, and around them what the disk
    /// has there.
    fn fill(
        &self,
        segment: &Segment,
        piece: &Piece,
        run: Range<u64>,
        host: u64,
        fresh: bool,
        plan: &mut Plan,
    ) -> Result<()> {
        let cluster = self.cluster();
        let whole = run.start * cluster..run.end * cluster;
        let start = whole.start.max(piece.guest);
        let end = whole.end.min(piece.guest + piece.len);
        let mut offset = host + (start - whole.start);
        let mut bufs = segment.slice(start, end - start);
        let is_zero = match piece.place {
            Cluster::Zero { .. } => true,
            Cluster::Unallocated => self.backing.is_none(),
            _ => false,
        };
        for (pad, is_head) in [(whole.start..start, true), (end..whole.end, false)] {
            let len = pad.end - pad.start;
            if len == 0 || (is_zero && fresh) {
                continue;
            }
            if is_zero && len >= LARGE {
                let offset = host + (pad.start - whole.start);
                plan.requests.push(Request::WriteZeroes { offset, len });
                continue;
            }
            let bytes = if is_zero {
                Bytes::from(vec![0; index(len)])
            } else {
                self.read_range(pad.start, len)?.into_bytes()
            };
            if is_head {
                offset -= len;
                bufs.insert(0, bytes);
            } else {
                bufs.push(bytes);
            }
        }
        plan.requests.push(Request::Write { offset, bufs });
        Ok(())
    }

    /// Makes the L2 table of an L1 entry one that can be changed.
    pub(super) fn make_writable(&self, writer: &mut Writer, l1_index: u64) -> Result<()> {
        let state = self.tables.lock().writable(l1_index)?;
        let (bytes, shared) = match state {
            Writable::Yes => return Ok(()),
            Writable::Absent => (vec![0; index(self.cluster())], None),
            Writable::Shared(offset, bytes) => (bytes, Some(offset)),
        };
        let place = writer.refcounts.allocate(1)?.clusters.start;
        let offset = place * self.cluster();
        // Written at once, so that no flush finds the host full.
        if let Err(error) = self.host.write(offset, Bytes::from(bytes.clone())) {
            writer.refcounts.release(place)?;
            return Err(error.into());
        }
        self.metadata.add(place..place + 1);
        self.pending.store(true, Ordering::Release);
        self.tables.lock().adopt(l1_index, offset, bytes);
        writer.freed.extend(shared.map(|old| old / self.cluster()));
        Ok(())
    }
}
