//! [`Plan`]: which parts of a batch are transferred directly, and which through the page cache.

use std::ops::Range;

use bytes::Bytes;

use super::alignment::Alignment;
use super::job::{Memory, Transfer};
use super::written::Written;
use crate::IoBuf;
use crate::bounds::{split_off, total_len};
use crate::device::Request;
use crate::error::Result;
use crate::file::runs;
use crate::file::transfer::MAX_BUFFERS;

/// With a page cache for small transfers, a write of so many bytes is direct: a copy and pages cost
/// more than a request of its own.
const LARGE_WRITE: u64 = 64 << 10;
/// And a read of so many: its caller waits, and gains more from what the system has read ahead of
/// a smaller one.
const LARGE_READ: u64 = 1 << 20;
/// Longest transfer that is made of several requests.
const MERGED: u64 = 1 << 20;

/// What a batch is made of.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) transfers: Vec<Transfer>,
    /// Bytes of the last of them.
    last: u64,
    /// Of all reads, in their order; those that are done.
    pub(super) bufs: Vec<Option<IoBuf>>,
    pub(super) others: Vec<Other>,
    pub(super) changes: usize,
    alignment: Alignment,
}

/// A request that goes through the page cache.
#[derive(Debug)]
pub(super) struct Other {
    pub(super) request: Request,
    /// The number of a read among the reads.
    pub(super) place: usize,
    /// Whole pages that are written: what is cached of them is right afterwards.
    pub(super) leaves: Option<Range<u64>>,
}

impl Plan {
    /// Everything that the alignment allows is direct; or, with a set of pages, what is large and
    /// what these pages need.
    pub(super) fn of(
        requests: Vec<Request>,
        alignment: Alignment,
        written: Option<&Written>,
    ) -> Result<Self> {
        let mut plan = Self {
            transfers: Vec::new(),
            last: 0,
            bufs: Vec::new(),
            others: Vec::new(),
            changes: 0,
            alignment,
        };
        let lens = written.map(|_| run_lens(&requests)).unwrap_or_default();
        for (number, request) in requests.into_iter().enumerate() {
            match written {
                None => plan.direct(request)?,
                Some(written) => plan.mixed(request, lens[number], written)?,
            }
        }
        Ok(plan)
    }

    fn direct(&mut self, request: Request) -> Result<()> {
        let fits = |offset, len| self.alignment.fits(offset, len);
        match request {
            Request::Read { offset, buf } if fits(offset, buf.len() as u64) => {
                self.read(offset, buf);
                Ok(())
            }
            Request::Write { offset, bufs } if fits(offset, total_len(&bufs)) => {
                self.write(offset, bufs)
            }
            other => {
                self.other(other, None);
                Ok(())
            }
        }
    }

    /// Of a block device, all requests fit. Of a file, what does not fit is safe through the page
    /// cache.
    fn mixed(&mut self, request: Request, run: u64, written: &Written) -> Result<()> {
        let (offset, len) = match &request {
            Request::Read { offset, buf } => (*offset, buf.len() as u64),
            Request::Write { offset, bufs } => (*offset, total_len(bufs)),
            Request::WriteZeroes { offset, len } => (*offset, *len),
            // The old bytes may stay.
            Request::Discard { .. } => (0, 0),
        };
        let is_large = match request {
            Request::Read { .. } => run >= LARGE_READ,
            _ => run >= LARGE_WRITE,
        };
        let fits = self.alignment.fits(offset, len);
        if !fits || !is_large && !written.has(offset..offset + len) {
            self.other(request, None);
            return Ok(());
        }
        match request {
            Request::Read { offset, buf } => {
                self.read(offset, buf);
                Ok(())
            }
            Request::Write { offset, bufs } => self.write_mixed(offset, bufs, is_large, written),
            Request::WriteZeroes { offset, len } => self.zero_mixed(offset, len, written),
            discard @ Request::Discard { .. } => {
                self.other(discard, None);
                Ok(())
            }
        }
    }

    fn write_mixed(
        &mut self,
        offset: u64,
        mut bufs: Vec<Bytes>,
        is_large: bool,
        written: &Written,
    ) -> Result<()> {
        for Part { bytes, is_whole } in parts(offset, total_len(&bufs), written.page()) {
            let len = usize::try_from(bytes.end - bytes.start).expect("it is in memory");
            let rest = split_off(&mut bufs, len);
            let bufs = std::mem::replace(&mut bufs, rest);
            let is_direct = if is_whole { is_large } else { written.has(bytes.clone()) };
            if is_direct {
                if is_whole {
                    written.enter(bytes.clone());
                }
                self.write(bytes.start, bufs)?;
            } else {
                let write = Request::Write { offset: bytes.start, bufs };
                self.other(write, is_whole.then_some(bytes));
            }
        }
        Ok(())
    }

    /// Zeros of whole pages are the system's: it drops what is cached of them.
    fn zero_mixed(&mut self, offset: u64, len: u64, written: &Written) -> Result<()> {
        for Part { bytes, is_whole } in parts(offset, len, written.page()) {
            let len = bytes.end - bytes.start;
            if !is_whole && written.has(bytes.clone()) {
                let zeros = IoBuf::try_zeroed(usize::try_from(len).expect("less than a page"))?;
                self.write(bytes.start, vec![zeros.into_bytes()])?;
            } else {
                self.other(Request::WriteZeroes { offset: bytes.start, len }, None);
            }
        }
        Ok(())
    }

    fn read(&mut self, offset: u64, buf: IoBuf) {
        let (place, len) = (self.bufs.len(), buf.len() as u64);
        self.bufs.push(None);
        let merged = self.last + len;
        if let Some(Transfer { offset: start, memory: Memory::Read(bufs), place: first, .. }) =
            self.transfers.last_mut()
            && *start + self.last == offset
            && *first + bufs.len() == place
            && merged <= MERGED
            && bufs.len() < MAX_BUFFERS
        {
            bufs.push(buf);
            self.last = merged;
            return;
        }
        self.push(offset, Memory::Read(vec![buf]), len, place);
    }

    fn write(&mut self, offset: u64, bufs: Vec<Bytes>) -> Result<()> {
        self.changes += 1;
        let mut bufs = self.alignment.aligned(bufs)?;
        let len = total_len(&bufs);
        let merged = self.last + len;
        if let Some(Transfer { offset: start, memory: Memory::Write(all), .. }) =
            self.transfers.last_mut()
            && *start + self.last == offset
            && merged <= MERGED
            && all.len() + bufs.len() <= MAX_BUFFERS
        {
            all.append(&mut bufs);
            self.last = merged;
            return Ok(());
        }
        self.push(offset, Memory::Write(bufs), len, self.bufs.len());
        Ok(())
    }

    fn push(&mut self, offset: u64, memory: Memory, len: u64, place: usize) {
        let unit = self.alignment.offset;
        self.transfers.push(Transfer { offset, memory, unit, place });
        self.last = len;
    }

    fn other(&mut self, request: Request, leaves: Option<Range<u64>>) {
        let place = self.bufs.len();
        match &request {
            Request::Read { .. } => self.bufs.push(None),
            _ => self.changes += 1,
        }
        self.others.push(Other { request, place, leaves });
    }
}

/// For each request, the bytes of its run.
fn run_lens(requests: &[Request]) -> Vec<u64> {
    let mut lens = Vec::with_capacity(requests.len());
    for run in runs::of(requests) {
        let bytes = runs::bytes(run);
        lens.extend(std::iter::repeat_n(bytes.end - bytes.start, run.len()));
    }
    lens
}

/// Bytes that are whole pages, or lie in one page.
struct Part {
    bytes: Range<u64>,
    is_whole: bool,
}

/// The part of the first page, the whole pages, the part of the last: those that are there.
fn parts(offset: u64, len: u64, page: u64) -> impl Iterator<Item = Part> {
    let end = offset + len;
    let first = offset.next_multiple_of(page).min(end);
    let last = (end / page * page).max(first);
    let parts = [(offset..first, false), (first..last, true), (last..end, false)];
    let parts = parts.map(|(bytes, is_whole)| Part { bytes, is_whole });
    parts.into_iter().filter(|part| !part.bytes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIGNMENT: Alignment = Alignment { offset: 512, memory: 512 };
    const KIB: u64 = 1 << 10;

    fn write(offset: u64, len: u64) -> Request {
        Request::Write { offset, bufs: vec![IoBuf::zeroed(len as usize).into_bytes()] }
    }

    fn read(offset: u64, len: u64) -> Request {
        Request::Read { offset, buf: IoBuf::zeroed(len as usize) }
    }

    /// Places and lengths.
    type Pieces = Vec<(u64, u64)>;

    /// What is direct, and what is not.
    fn ways(requests: Vec<Request>, written: &Written) -> (Pieces, Pieces) {
        let plan = Plan::of(requests, ALIGNMENT, Some(written)).unwrap();
        let direct = plan.transfers.iter().map(|transfer| (transfer.offset, transfer.len()));
        let other = plan.others.iter().map(|other| match &other.request {
            Request::Read { offset, buf } => (*offset, buf.len() as u64),
            Request::Write { offset, bufs } => (*offset, total_len(bufs)),
            Request::WriteZeroes { offset, len } | Request::Discard { offset, len } => {
                (*offset, *len)
            }
        });
        let leave = plan.others.iter().filter_map(|other| other.leaves.clone());
        leave.for_each(|bytes| written.leave(bytes));
        (direct.collect(), other.collect())
    }

    #[test]
    fn large_runs_are_direct_in_whole_pages() {
        let written = Written::new(1 << 30, 4096);
        assert_eq!(ways(vec![write(0, 60 * KIB)], &written), (vec![], vec![(0, 60 * KIB)]));
        assert_eq!(ways(vec![read(512, 960 * KIB)], &written).0, []);
        assert_eq!(ways(vec![read(512, 1 << 20)], &written), (vec![(512, 1 << 20)], vec![]));
        // The ends of pages that others may have the rest of.
        let (direct, other) = ways(vec![write(1024, 128 * KIB)], &written);
        assert_eq!(direct, [(4096, 124 * KIB)]);
        assert_eq!(other, [(1024, 3 * KIB), (128 * KIB, KIB)]);
        // Neighbours count together, and are transferred together.
        let run = (16..32).map(|block| write(block << 20 >> 8, 4 * KIB)).collect();
        assert_eq!(ways(run, &written), (vec![(64 * KIB, 64 * KIB)], vec![]));
        let run = (512..1024).map(|block| read(block * 4 * KIB, 4 * KIB)).collect();
        let halves = vec![(2 << 20, 1 << 20), (3 << 20, 1 << 20)];
        assert_eq!(ways(run, &written), (halves, vec![]));
        let apart = (0..512).map(|block| read((1 << 20) + block * 8 * KIB, 4 * KIB)).collect();
        assert_eq!(ways(apart, &written).0, []);
    }

    #[test]
    fn what_was_written_directly_is_used_directly() {
        let written = Written::new(1 << 30, 4096);
        ways(vec![write(1 << 20, 64 * KIB)], &written);
        let at = |kib: u64| (1 << 20) + kib * KIB;
        assert_eq!(ways(vec![read(at(8), KIB)], &written), (vec![(at(8), KIB)], vec![]));
        assert_eq!(ways(vec![read(at(64), KIB)], &written), (vec![], vec![(at(64), KIB)]));
        // A part of a page, and zeros of one.
        assert_eq!(ways(vec![write(at(9), KIB)], &written), (vec![(at(9), KIB)], vec![]));
        let zeros = Request::WriteZeroes { offset: at(60) + 512, len: 8 * KIB };
        let (direct, other) = ways(vec![zeros], &written);
        assert_eq!(direct, [(at(60) + 512, 4 * KIB - 512)]);
        assert_eq!(other, [(at(64), 4 * KIB), (at(68), 512)]);
        // Whole pages come back to the page cache, and their ends do not.
        let (direct, other) = ways(vec![write(at(15), 14 * KIB)], &written);
        assert_eq!(direct, [(at(15), KIB), (at(28), KIB)]);
        assert_eq!(other, [(at(16), 12 * KIB)]);
        assert_eq!(ways(vec![read(at(16), 12 * KIB)], &written).0, []);
        assert_eq!(ways(vec![read(at(16), 13 * KIB)], &written).0, [(at(16), 13 * KIB)]);
        assert_eq!(ways(vec![read(at(12), 5 * KIB)], &written).0, [(at(12), 5 * KIB)]);
    }

    #[test]
    fn every_byte_is_in_one_part() {
        for offset in (0..9000).step_by(512) {
            for len in (0..20_000).step_by(512) {
                let mut at = offset;
                for Part { bytes, is_whole } in parts(offset, len, 4096) {
                    assert_eq!(bytes.start, at);
                    at = bytes.end;
                    let in_one = bytes.start / 4096 == (bytes.end - 1) / 4096;
                    let whole = bytes.start % 4096 == 0 && bytes.end % 4096 == 0;
                    assert!(if is_whole { whole } else { in_one && !whole }, "{offset} {len}");
                }
                assert_eq!(at, offset + len);
            }
        }
    }
}
