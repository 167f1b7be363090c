//! [`Concat`]: several devices, one behind the other, as one.

use std::sync::Arc;

use crate::IoBuf;
use crate::bounds;
use crate::device::{Batch, BlockDevice, Completion, Durability, Geometry, Request};
use crate::error::{Error, ErrorKind, Result};
use crate::join::join;
use crate::zoned::{Zone, ZoneCondition, ZoneKind, ZoneLimits, ZonedDevice};

/// One of the devices.
struct Part {
    device: Arc<dyn BlockDevice>,
    start: u64,
    len: u64,
}

/// The first bytes of each device, one device behind the other. Requests may cross from one to the
/// next; a flush flushes all. If one of them has zones the whole has: a device without is a
/// conventional one.
pub struct Concat {
    parts: Vec<Part>,
    geometry: Geometry,
    zoned: bool,
}

impl Concat {
    /// The first `len` bytes of each device.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`]: a device is smaller than that, or there is none.
    pub fn new(devices: Vec<(Arc<dyn BlockDevice>, u64)>) -> Result<Self> {
        let (mut parts, mut start) = (Vec::new(), 0_u64);
        let mut geometry: Option<Geometry> = None;
        for (device, len) in devices {
            let own = device.geometry();
            if len > own.size {
                let detail =
                    format!("device {} has {} bytes, {len} are needed", parts.len(), own.size);
                return Err(Error::new(ErrorKind::OutOfRange, "put devices together", detail));
            }
            geometry = Some(geometry.map_or(own, |all| Geometry {
                size: 0,
                logical_block: all.logical_block.max(own.logical_block),
                physical_block: all.physical_block.min(own.physical_block),
                memory_alignment: all.memory_alignment.max(own.memory_alignment),
                read_only: all.read_only || own.read_only,
                discard: all.discard || own.discard,
            }));
            parts.push(Part { device, start, len });
            start += len;
        }
        let none =
            || Error::new(ErrorKind::OutOfRange, "put devices together", "there is no device");
        let geometry = geometry.ok_or_else(none)?;
        let zoned = parts.iter().any(|part| part.device.as_zoned().is_some());
        // Zones are given up by a reset.
        let geometry = Geometry { size: start, discard: geometry.discard && !zoned, ..geometry };
        Ok(Self { parts, geometry, zoned })
    }

    /// The device that holds a byte.
    fn part(&self, offset: u64) -> usize {
        self.parts.partition_point(|part| part.start <= offset).saturating_sub(1)
    }

    /// Pieces of a range: device, first byte there, first byte of the range, bytes.
    fn pieces(&self, offset: u64, len: u64) -> Vec<(usize, u64, usize, usize)> {
        let (mut pieces, mut at) = (Vec::new(), offset);
        while at < offset + len {
            let index = self.part(at);
            let part = &self.parts[index];
            let end = (part.start + part.len).min(offset + len);
            let before = usize::try_from(at - offset).unwrap_or(usize::MAX);
            pieces.push((
                index,
                at - part.start,
                before,
                usize::try_from(end - at).unwrap_or(usize::MAX),
            ));
            at = end;
        }
        pieces
    }

    fn spread(&self, batch: Batch) -> Result<Completion> {
        batch.requests.iter().try_for_each(|request| bounds::check(&self.geometry, request))?;
        if batch.durability.preflush {
            self.flush()?;
        }
        let mut requests: Vec<Vec<Request>> = self.parts.iter().map(|_| Vec::new()).collect();
        // For every buffer that comes back: which read it belongs to, and where.
        let mut reads: Vec<Vec<(usize, usize)>> = self.parts.iter().map(|_| Vec::new()).collect();
        // The buffers of reads that lie on several devices; the others are lent to theirs.
        let mut whole: Vec<Option<IoBuf>> = Vec::new();
        for request in batch.requests {
            match request {
                Request::Read { offset, buf } => {
                    let pieces = self.pieces(offset, buf.len() as u64);
                    pieces
                        .iter()
                        .for_each(|(part, _, before, _)| reads[*part].push((whole.len(), *before)));
                    if let [(part, offset, ..)] = pieces[..] {
                        requests[part].push(Request::Read { offset, buf });
                        whole.push(None);
                        continue;
                    }
                    for (part, offset, _, len) in pieces {
                        requests[part].push(Request::Read { offset, buf: IoBuf::zeroed(len) });
                    }
                    whole.push(Some(buf));
                }
                Request::Write { offset, bufs } => {
                    for (part, from, before, len) in self.pieces(offset, bounds::total_len(&bufs)) {
                        let bufs = slice(&bufs, before, len);
                        requests[part].push(Request::Write { offset: from, bufs });
                    }
                }
                Request::Discard { offset, len } => {
                    for (part, offset, _, len) in self.pieces(offset, len) {
                        requests[part].push(Request::Discard { offset, len: len as u64 });
                    }
                }
                Request::WriteZeroes { offset, len } => {
                    for (part, offset, _, len) in self.pieces(offset, len) {
                        requests[part].push(Request::WriteZeroes { offset, len: len as u64 });
                    }
                }
            }
        }
        let durability = Durability { preflush: false, fua: batch.durability.fua };
        let parts =
            requests.into_iter().zip(&self.parts).filter(|(requests, _)| !requests.is_empty());
        let parts = parts.map(|(requests, part)| {
            let start = part.start;
            part.device.submit(Batch { requests, durability }).map(move |outcome| {
                // The caller counts from the first device's start.
                let at = |(offset, len)| (offset + start, len);
                outcome.map_err(|error| Error { range: error.range.map(at), ..error })
            })
        });
        let places: Vec<(usize, usize)> = reads.into_iter().flatten().collect();
        Ok(join(parts.collect()).map(move |outcome| {
            let pieces = outcome?;
            for (piece, (index, before)) in pieces.into_iter().zip(places) {
                match &mut whole[index] {
                    Some(buf) => buf[before..before + piece.len()].copy_from_slice(&piece),
                    lent => *lent = Some(piece),
                }
            }
            Ok(whole
                .into_iter()
                .map(|buf| buf.expect("a read request gives its buffer back"))
                .collect())
        }))
    }

    /// The device with a zone's start, and the start there.
    fn zoned_part(&self, operation: &str, start: u64) -> Result<(&dyn ZonedDevice, u64)> {
        let part = &self.parts[self.part(start)];
        let zoned = part.device.as_zoned().filter(|_| start < self.geometry.size);
        let none = || {
            Error::new(ErrorKind::Unsupported, operation, "the device there has no zones")
                .at(start, 0)
        };
        zoned.map(|zoned| (zoned, start - part.start)).ok_or_else(none)
    }
}

/// Bytes `from..from + len` of buffers that follow each other.
fn slice(bufs: &[bytes::Bytes], from: usize, len: usize) -> Vec<bytes::Bytes> {
    let (mut at, mut found) = (0, Vec::new());
    for buf in bufs {
        let (start, end) = (from.max(at), (from + len).min(at + buf.len()));
        if start < end {
            found.push(buf.slice(start - at..end - at));
        }
        at += buf.len();
    }
    found
}

impl BlockDevice for Concat {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: Batch) -> Completion {
        self.spread(batch).unwrap_or_else(|error| Completion::ready(Err(error)))
    }

    fn flush(&self) -> Result<()> {
        self.parts.iter().try_for_each(|part| part.device.flush())
    }

    fn as_zoned(&self) -> Option<&dyn ZonedDevice> {
        self.zoned.then_some(self)
    }
}

impl ZonedDevice for Concat {
    fn limits(&self) -> ZoneLimits {
        let limits =
            self.parts.iter().filter_map(|part| part.device.as_zoned()).map(ZonedDevice::limits);
        let tighter = |a: u32, b: u32| if a == 0 || b == 0 { a.max(b) } else { a.min(b) };
        limits
            .reduce(|all, own| ZoneLimits {
                zone_size: all.zone_size.max(own.zone_size),
                max_open: tighter(all.max_open, own.max_open),
                max_active: tighter(all.max_active, own.max_active),
            })
            .unwrap_or_default()
    }

    fn report(&self, offset: u64, most: usize) -> Result<Vec<Zone>> {
        let mut zones = Vec::new();
        for part in self.parts.iter().filter(|part| part.start + part.len > offset) {
            let left = most - zones.len();
            if left == 0 {
                break;
            }
            let from = offset.saturating_sub(part.start);
            match part.device.as_zoned() {
                Some(zoned) => {
                    let own =
                        zoned.report(from, left)?.into_iter().filter(|zone| zone.start < part.len);
                    zones.extend(own.map(|zone| Zone {
                        start: zone.start + part.start,
                        write_pointer: zone.write_pointer + part.start,
                        ..zone
                    }));
                }
                None => zones.push(Zone {
                    start: part.start,
                    len: part.len,
                    capacity: part.len,
                    write_pointer: part.start + part.len,
                    kind: ZoneKind::Conventional,
                    condition: ZoneCondition::NotWritePointer,
                }),
            }
        }
        Ok(zones)
    }

    fn reset(&self, start: u64) -> Result<()> {
        let (zoned, start) = self.zoned_part("reset zone", start)?;
        zoned.reset(start)
    }

    fn finish(&self, start: u64) -> Result<()> {
        let (zoned, start) = self.zoned_part("finish zone", start)?;
        zoned.finish(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::BlockDeviceExt;
    use crate::memory::MemoryDevice;
    use crate::zoned::{Emulated, ZoneLayout};

    fn memory(size: u64) -> Arc<dyn BlockDevice> {
        Arc::new(MemoryDevice::new(size))
    }

    #[test]
    fn requests_cross_from_device_to_device() {
        let (first, second, third) = (memory(10_000), memory(4096), memory(100_000));
        let all = Concat::new(vec![
            (first.clone(), 8192),
            (second.clone(), 4096),
            (third.clone(), 50_000),
        ])
        .unwrap();
        assert_eq!(all.geometry().size, 62_288);
        let data: Vec<u8> = (0..20_000_u32).map(|n| n as u8).collect();
        let bufs = vec![data[..7000].to_vec().into(), data[7000..].to_vec().into()];
        let write = Request::Write { offset: 5000, bufs };
        let durability = Durability { preflush: true, fua: true };
        all.submit(Batch { requests: vec![write], durability }).wait().unwrap();
        assert_eq!(first.read_at(5000, 3192).unwrap()[..], data[..3192]);
        assert_eq!(second.read_at(0, 4096).unwrap()[..], data[3192..7288]);
        assert_eq!(third.read_at(0, 12_712).unwrap()[..], data[7288..]);
        let reads = [(8000, 300), (5000, 20_000), (0, 10)];
        let requests =
            reads.map(|(offset, len)| Request::Read { offset, buf: IoBuf::zeroed(len) }).into();
        let bufs = all.submit(Batch { requests, ..Batch::default() }).wait().unwrap();
        assert_eq!(
            (&bufs[0][..], &bufs[1][..], &bufs[2][..]),
            (&data[3000..3300], &data[..], &[0; 10][..])
        );
        all.discard(8192, 4096).unwrap();
        all.write_zeroes(8000, 8192).unwrap();
        assert!(all.read_at(8000, 8192).unwrap().iter().all(|byte| *byte == 0));
        assert_eq!(all.write_at(62_000, vec![0; 289]).unwrap_err().kind, ErrorKind::OutOfRange);
        assert!(Concat::new(vec![(first, 10_001)]).is_err() && Concat::new(Vec::new()).is_err());
    }

    #[test]
    fn errors_name_places_of_the_whole() {
        let zoned = Emulated::new(memory(1 << 20), ZoneLayout::new(1 << 16, 0, 16)).unwrap();
        let all = Concat::new(vec![(memory(4096), 4096), (Arc::new(zoned), 1 << 20)]).unwrap();
        let error = all.write_at(4096 + (1 << 16) + 8192, vec![0; 4096]).unwrap_err();
        assert_eq!(error.range, Some((4096 + (1 << 16) + 8192, 4096)));
        assert!(matches!(error.kind, ErrorKind::ZoneRule(_)));
    }

    #[test]
    fn zones_of_a_part_are_zones_of_the_whole() {
        let mut layout = ZoneLayout::new(1 << 16, 1, 16);
        layout.max_active = 3;
        let zoned: Arc<dyn BlockDevice> = Arc::new(Emulated::new(memory(1 << 20), layout).unwrap());
        let all = Concat::new(vec![(memory(12_288), 12_288), (zoned, 4 << 16)]).unwrap();
        let view = all.as_zoned().unwrap();
        assert_eq!((view.limits().zone_size, view.limits().max_active), (1 << 16, 3));
        let start = 12_288 + (2 << 16);
        all.write_at(start, vec![1; 4096]).unwrap();
        let zones = view.report(0, 99).unwrap();
        assert_eq!(zones.len(), 5);
        assert_eq!((zones[0].kind, zones[0].len), (ZoneKind::Conventional, 12_288));
        assert_eq!((zones[3].start, zones[3].write_pointer), (start, start + 4096));
        assert_eq!(view.report(start + 5, 1).unwrap(), [zones[3]]);
        view.reset(start).unwrap();
        assert_eq!(view.report(start, 1).unwrap()[0].write_pointer, start);
        assert_eq!(view.reset(0).unwrap_err().kind, ErrorKind::Unsupported);
        assert!(Concat::new(vec![(memory(1), 1)]).unwrap().as_zoned().is_none());
    }
}
