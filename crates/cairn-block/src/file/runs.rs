//! Neighbours in a batch: requests of a kind, each of which begins where the one before ends.

use std::ops::Range;

use crate::bounds::total_len;
use crate::device::Request;

/// The runs of reads and of writes, in the order of the batch. Any other request is a run.
pub(super) fn of(requests: &[Request]) -> impl Iterator<Item = &[Request]> {
    requests.chunk_by(|one, next| {
        let is_same_kind = matches!(
            (one, next),
            (Request::Read { .. }, Request::Read { .. })
                | (Request::Write { .. }, Request::Write { .. })
        );
        is_same_kind && transferred(one).end == transferred(next).start
    })
}

/// The bytes of a run that are read or written.
pub(super) fn bytes(run: &[Request]) -> Range<u64> {
    match run {
        [] => 0..0,
        [first, ..] => transferred(first).start..transferred(&run[run.len() - 1]).end,
    }
}

fn transferred(request: &Request) -> Range<u64> {
    match request {
        Request::Read { offset, buf } => *offset..offset + buf.len() as u64,
        Request::Write { offset, bufs } => *offset..offset + total_len(bufs),
        Request::Discard { .. } | Request::WriteZeroes { .. } => 0..0,
    }
}
