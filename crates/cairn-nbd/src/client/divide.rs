//! Makes commands of a batch: no longer than the server takes, and only of kinds that it knows.

use std::collections::VecDeque;
use std::sync::Arc;

use cairn_block::bounds::{self, total_len};
use cairn_block::{Batch, Bytes, Error, ErrorKind, Geometry, Operation, Request, Result};

use super::command::{Draft, Kind, Target};
use super::negotiate::Agreed;
use crate::wire::{ExportFlags, Headers};

/// Longest payload of a command, even where the server takes more: answers and requests overlap.
const PAYLOAD: u64 = 1 << 20;
/// Longest range of a command without payload, if lengths may have 64 bits.
const EFFECT: u64 = 1 << 30;
/// The largest block that filesystems can be asked to respect.
const LARGEST_BLOCK: u32 = 4096;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The stages of a batch, and the buffers of its reads.
pub(super) type Divided = (VecDeque<Vec<Draft>>, Vec<Arc<Target>>);

/// What can be asked of the server.
#[derive(Clone, Debug)]
pub(super) struct Abilities {
    pub(super) geometry: Geometry,
    flush: bool,
    fua: bool,
    trim: bool,
    zeroes: bool,
    payload: u64,
    effect: u64,
}

impl Abilities {
    /// # Errors
    /// A filesystem cannot live on the export.
    pub(super) fn of(agreed: &Agreed, write: bool) -> Result<Self> {
        let can = |flag| agreed.flags.contains(flag);
        let minimum = agreed.blocks.minimum;
        let refused = |kind, detail: String| Err(Error::new(kind, "connect", detail));
        if minimum > LARGEST_BLOCK {
            let detail = format!(
                "the server takes blocks of {minimum} bytes and more, and filesystems write \
                 {LARGEST_BLOCK}: have it take smaller ones (nbdkit: --filter=blocksize)"
            );
            return refused(ErrorKind::Unsupported, detail);
        }
        if write && can(ExportFlags::READ_ONLY) {
            let detail = "the server exports it read-only: open it for reading";
            return refused(ErrorKind::ReadOnly, detail.into());
        }
        let (flush, fua) = (can(ExportFlags::SEND_FLUSH), can(ExportFlags::SEND_FUA));
        if write && !flush && !fua {
            let detail = "the server can neither flush nor force writes, so nothing that is \
                          written would be safe: open it for reading, or use another server";
            return refused(ErrorKind::Unsupported, detail.into());
        }
        let unit = u64::from(minimum);
        let maximum = u64::from(agreed.blocks.maximum);
        let payload = (maximum.min(PAYLOAD) / unit * unit).max(unit);
        let effect = match agreed.headers {
            Headers::Extended => EFFECT,
            _ => (maximum / unit * unit).max(unit).min(EFFECT),
        };
        let trim = write && can(ExportFlags::SEND_TRIM);
        let geometry = Geometry {
            // A part of a block at the end cannot be used, as in Linux.
            size: agreed.size / unit * unit,
            logical_block: minimum,
            physical_block: minimum.max(4096),
            memory_alignment: 1,
            read_only: !write,
            discard: trim,
        };
        let zeroes = can(ExportFlags::SEND_WRITE_ZEROES);
        Ok(Self { geometry, flush, fua, trim, zeroes, payload, effect })
    }

    /// True if answered writes may be lost until a flush.
    pub(super) const fn has_cache(&self) -> bool {
        self.flush
    }

    /// Longest range of a question about extents.
    pub(super) const fn longest_status(&self) -> u64 {
        self.effect
    }

    /// The stages of a flush.
    pub(super) fn flush(&self) -> VecDeque<Vec<Draft>> {
        // Without a cache all writes are forced.
        self.flush.then(|| vec![Draft::flush()]).into_iter().collect()
    }

    /// The stages of a batch, and the buffers of its reads.
    ///
    /// # Errors
    /// A request is out of range or unsupported.
    pub(super) fn divide(&self, batch: Batch) -> Result<Divided> {
        batch.requests.iter().try_for_each(|request| bounds::check(&self.geometry, request))?;
        let (mut commands, mut targets) = (Vec::new(), Vec::new());
        let changes = batch.requests.iter().any(|request| !matches!(request, Request::Read { .. }));
        let force = changes && (batch.durability.fua || !self.flush);
        for request in batch.requests {
            let group = commands.last().map_or(0, |last: &Draft| last.group + 1);
            let mut parts = Parts { into: &mut commands, fua: force && self.fua, group };
            match request {
                Request::Read { offset, buf } => {
                    let len = buf.len() as u64;
                    let target = Target::new(buf);
                    parts.read(offset, len, self.payload, &target);
                    targets.push(target);
                }
                Request::Write { offset, bufs } => parts.write(offset, &bufs, self.payload),
                Request::Discard { offset, len } if self.trim => {
                    parts.ranges(offset, len, self.effect, &Kind::Trim);
                }
                Request::Discard { offset, len } => {
                    let detail = "the server cannot discard";
                    let error = Error::new(ErrorKind::Unsupported, Operation::Discard, detail);
                    return Err(error.at(offset, len));
                }
                Request::WriteZeroes { offset, len } if self.zeroes => {
                    parts.ranges(offset, len, self.effect, &Kind::Zeroes);
                }
                Request::WriteZeroes { offset, len } => parts.zeros(offset, len, self.payload),
            }
        }
        let mut stages = VecDeque::new();
        if batch.durability.preflush {
            stages.extend(self.flush());
        }
        stages.extend((!commands.is_empty()).then_some(commands));
        if force && !self.fua {
            stages.extend(self.flush());
        }
        Ok((stages, targets))
    }
}

/// The commands of one request.
struct Parts<'a> {
    into: &'a mut Vec<Draft>,
    fua: bool,
    group: usize,
}

impl Parts<'_> {
    fn push(&mut self, kind: Kind, offset: u64, len: u64) {
        let fua = self.fua && kind.changes();
        self.into.push(Draft { kind, offset, len, fua, group: self.group });
    }

    /// All parts go into one buffer, so they are one group.
    fn read(&mut self, offset: u64, len: u64, most: u64, target: &Arc<Target>) {
        for (at, part) in pieces(len, most) {
            let within = usize::try_from(at).expect("a buffer is in memory");
            self.push(Kind::Read(target.clone(), within), offset + at, part);
        }
    }

    fn ranges(&mut self, offset: u64, len: u64, most: u64, kind: &Kind) {
        for (at, part) in pieces(len, most) {
            self.push(kind.clone(), offset + at, part);
            self.group += 1;
        }
    }

    fn zeros(&mut self, offset: u64, len: u64, most: u64) {
        for (at, part) in pieces(len, most) {
            let zeros = pieces(part, ZEROS.len() as u64)
                .map(|(_, len)| Bytes::from_static(&ZEROS[..to_usize(len)]));
            self.push(Kind::Write(zeros.collect()), offset + at, part);
            self.group += 1;
        }
    }

    fn write(&mut self, offset: u64, bufs: &[Bytes], most: u64) {
        let whole = total_len(bufs);
        if (1..=most).contains(&whole) {
            let full = bufs.iter().filter(|buf| !buf.is_empty()).cloned();
            return self.push(Kind::Write(full.collect()), offset, whole);
        }
        let mut left = bufs.iter().cloned();
        let mut rest = Bytes::new();
        for (at, part) in pieces(whole, most) {
            let mut missing = to_usize(part);
            let mut data = Vec::new();
            while missing > 0 {
                if rest.is_empty() {
                    rest = left.next().expect("the buffers hold what they are long");
                }
                let piece = rest.split_to(rest.len().min(missing));
                missing -= piece.len();
                data.extend((!piece.is_empty()).then_some(piece));
            }
            self.push(Kind::Write(data.into()), offset + at, part);
            self.group += 1;
        }
    }
}

/// Parts of at most `most` bytes, by place and length.
fn pieces(len: u64, most: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..len.div_ceil(most)).map(move |number| {
        let at = number * most;
        (at, (len - at).min(most))
    })
}

fn to_usize(len: u64) -> usize {
    usize::try_from(len).expect("a part is short")
}

#[cfg(test)]
mod tests {
    use cairn_block::{Durability, IoBuf};

    use super::*;
    use crate::wire::BlockSizes;

    fn agreed(flags: ExportFlags) -> Agreed {
        let blocks = BlockSizes { minimum: 512, preferred: 4096, maximum: 1 << 16 };
        let flags = flags | ExportFlags::HAS_FLAGS;
        Agreed { size: 1 << 20, flags, blocks, headers: Headers::Structured, allocation: None }
    }

    fn stages(
        flags: ExportFlags,
        requests: Vec<Request>,
        preflush: bool,
        fua: bool,
    ) -> Vec<String> {
        let abilities = Abilities::of(&agreed(flags), true).unwrap();
        let batch = Batch { requests, durability: Durability { preflush, fua } };
        let name = |draft: &Draft| {
            let kind = draft.kind.operation().to_string();
            format!("{kind}{}", if draft.fua { "!" } else { "" })
        };
        let (stages, _) = abilities.divide(batch).unwrap();
        stages.iter().map(|stage| stage.iter().map(name).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn barriers_become_stages() {
        let write = || vec![Request::Write { offset: 0, bufs: vec![vec![0; 512].into()] }];
        let (flush, fua) = (ExportFlags::SEND_FLUSH, ExportFlags::SEND_FUA);
        assert_eq!(stages(flush | fua, write(), true, true), ["flush", "write!"]);
        assert_eq!(stages(flush, write(), true, true), ["flush", "write", "flush"]);
        assert_eq!(stages(flush, write(), false, false), ["write"]);
        // Without a flush each write is forced.
        assert_eq!(stages(fua, write(), true, false), ["write!"]);
        assert_eq!(stages(flush | fua, vec![], true, true), ["flush"]);
        let read = vec![Request::Read { offset: 0, buf: IoBuf::zeroed(512) }];
        assert_eq!(stages(flush, read, false, true), ["read"]);
    }

    #[test]
    fn long_requests_are_divided() {
        let abilities = Abilities::of(&agreed(ExportFlags::SEND_FLUSH), true).unwrap();
        let bytes: Vec<u8> = (0..200_192).map(|at: u32| (at % 251) as u8).collect();
        let cut = |range: std::ops::Range<usize>| Bytes::copy_from_slice(&bytes[range]);
        let bufs = vec![cut(0..100), cut(100..100), cut(100..150_000), cut(150_000..200_192)];
        let requests = vec![
            Request::Write { offset: 512, bufs },
            Request::Read { offset: 0, buf: IoBuf::zeroed(1 << 17) },
            Request::WriteZeroes { offset: 0, len: 70_144 },
        ];
        let durability = Durability::default();
        let (stages, targets) = abilities.divide(Batch { requests, durability }).unwrap();
        assert_eq!((stages.len(), targets.len()), (1, 1));
        let mut written = Vec::new();
        for draft in &stages[0] {
            assert!(draft.len <= 1 << 16);
            if let Kind::Write(data) = &draft.kind {
                assert_eq!(total_len(data), draft.len);
                if written.len() < bytes.len() {
                    assert_eq!(draft.offset, 512 + written.len() as u64);
                    data.iter().for_each(|piece| written.extend_from_slice(piece));
                }
            }
        }
        assert_eq!(written, bytes);
        let lens: Vec<u64> = stages[0].iter().map(|draft| draft.len).collect();
        assert_eq!(lens, [65536, 65536, 65536, 3584, 65536, 65536, 65536, 4608]);
        let groups: Vec<usize> = stages[0].iter().map(|draft| draft.group).collect();
        assert_eq!(groups, [0, 1, 2, 3, 4, 4, 5, 6]);
    }

    #[test]
    fn what_no_filesystem_can_use_is_refused() {
        let kind = |agreed: &Agreed, write| Abilities::of(agreed, write).unwrap_err().kind;
        let flush = ExportFlags::SEND_FLUSH;
        assert_eq!(kind(&agreed(flush | ExportFlags::READ_ONLY), true), ErrorKind::ReadOnly);
        assert_eq!(kind(&agreed(ExportFlags::empty()), true), ErrorKind::Unsupported);
        assert!(Abilities::of(&agreed(ExportFlags::empty()), false).unwrap().geometry.read_only);
        let mut large = agreed(flush);
        large.blocks.minimum = 8192;
        assert_eq!(kind(&large, false), ErrorKind::Unsupported);
    }
}
