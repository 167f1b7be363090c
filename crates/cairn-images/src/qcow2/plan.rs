//! [`Segment`]: the writes of a batch as runs of bytes without gaps, so that clusters are allocated
//! in as long runs as can be.

use bytes::Bytes;

use super::host::index;

/// Bytes for one range of the disk.
pub(super) struct Segment {
    pub(super) offset: u64,
    pub(super) len: u64,
    bufs: Vec<Bytes>,
}

impl Segment {
    /// The writes, sorted and joined.
    pub(super) fn of(mut writes: Vec<(u64, Vec<Bytes>)>) -> Vec<Self> {
        writes.sort_by_key(|(offset, _)| *offset);
        let mut segments: Vec<Self> = Vec::new();
        for (offset, bufs) in writes {
            let len = bufs.iter().map(|buf| buf.len() as u64).sum();
            match segments.last_mut() {
                Some(last) if last.offset + last.len == offset => {
                    last.len += len;
                    last.bufs.extend(bufs);
                }
                _ if len > 0 => segments.push(Self { offset, len, bufs }),
                _ => {}
            }
        }
        segments
    }

    /// The bytes for `len` bytes of the disk at `offset`, without copying.
    pub(super) fn slice(&self, offset: u64, len: u64) -> Vec<Bytes> {
        let (mut skip, mut left) = (index(offset - self.offset), index(len));
        let mut parts = Vec::new();
        for buf in &self.bufs {
            if left == 0 {
                break;
            }
            if skip >= buf.len() {
                skip -= buf.len();
                continue;
            }
            let part = buf.slice(skip..buf.len().min(skip + left));
            skip = 0;
            left -= part.len();
            parts.push(part);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined_and_cut_without_copying() {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let writes = vec![
            (20, vec![bytes("xyz")]),
            (3, vec![bytes("def"), bytes("gh")]),
            (0, vec![bytes("abc")]),
            (9, vec![]),
        ];
        let segments = Segment::of(writes);
        let shape: Vec<_> = segments.iter().map(|one| (one.offset, one.len)).collect();
        assert_eq!(shape, [(0, 8), (20, 3)]);
        assert_eq!(segments[0].slice(2, 5).concat(), b"cdefg");
        assert_eq!(segments[1].slice(21, 1).concat(), b"y");
    }
}
