//! Reading the disk.

use cairn_block::{BlockDeviceExt, IoBuf, Request};

use super::error::{Damage, Error, Result, What};
use super::format::entry::Cluster;
use super::host::index;
use super::image::Image;
use super::tables::Piece;

/// Where the bytes of a transfer go.
enum Target {
    /// The buffer itself was filled: that of this read.
    Whole(usize),
    /// To this place of the buffer of this read.
    Part(usize, usize),
}

/// Transfers from the file, and what becomes of them.
#[derive(Default)]
struct Transfers {
    requests: Vec<Request>,
    targets: Vec<Target>,
}

impl Image {
    /// Fills the buffers from these offsets of the disk. The caller shares the clusters, or is the
    /// writer.
    pub(super) fn read(&self, reads: Vec<(u64, IoBuf)>) -> Result<Vec<IoBuf>> {
        let mut transfers = Transfers::default();
        let mut bufs: Vec<Option<IoBuf>> = Vec::with_capacity(reads.len());
        for (number, (offset, mut buf)) in reads.into_iter().enumerate() {
            let pieces = self.pieces(offset..offset + buf.len() as u64)?;
            if let [Piece { place: Cluster::Data { host, .. }, len, .. }] = pieces[..]
                && host + len <= self.host.len()
            {
                transfers.requests.push(Request::Read { offset: host, buf });
                transfers.targets.push(Target::Whole(number));
                bufs.push(None);
                continue;
            }
            for piece in &pieces {
                let start = index(piece.guest - offset);
                let part = &mut buf[start..start + index(piece.len)];
                if let Some(request) = self.read_piece(piece, part)? {
                    transfers.requests.push(request);
                    transfers.targets.push(Target::Part(number, start));
                }
            }
            bufs.push(Some(buf));
        }
        let done = self.host.submit(transfers.requests)?;
        for (target, read) in transfers.targets.into_iter().zip(done) {
            match target {
                Target::Whole(number) => bufs[number] = Some(read),
                Target::Part(number, start) => {
                    let buf = bufs[number].as_mut().expect("it waits for its parts");
                    buf[start..start + read.len()].copy_from_slice(&read);
                }
            }
        }
        Ok(bufs.into_iter().map(|buf| buf.expect("every read was answered")).collect())
    }

    /// Fills a part, or says what must be read from the file for it.
    fn read_piece(&self, piece: &Piece, part: &mut [u8]) -> Result<Option<Request>> {
        match piece.place {
            Cluster::Unallocated => self.read_backing(piece.guest, part)?,
            Cluster::Zero { .. } => part.fill(0),
            Cluster::Compressed { host, len } => {
                let cluster = self.decode(host, len)?;
                let from = index(piece.guest & (self.cluster() - 1));
                part.copy_from_slice(&cluster[from..from + part.len()]);
            }
            Cluster::Data { host, .. } => {
                let end = self.host.len();
                if host >= end {
                    let len = piece.len;
                    return Err(Damage::Beyond { what: What::Data, offset: host, len, end }.into());
                }
                // The file may end within its last cluster.
                if host + piece.len > end {
                    part.copy_from_slice(&self.host.read(host, piece.len)?);
                } else {
                    let buf = IoBuf::try_zeroed(part.len()).map_err(cairn_block::Error::from)?;
                    return Ok(Some(Request::Read { offset: host, buf }));
                }
            }
        }
        Ok(None)
    }

    /// What lies below, which ends where the backing file does.
    fn read_backing(&self, guest: u64, part: &mut [u8]) -> Result<()> {
        let Some(backing) = &self.backing else {
            part.fill(0);
            return Ok(());
        };
        let there = backing.geometry().size.saturating_sub(guest).min(part.len() as u64);
        let there = index(there);
        if there > 0 {
            let name = self.header.backing.as_ref().map_or("", |(name, _)| name);
            let read = backing.read_at(guest, there);
            part[..there].copy_from_slice(&read.map_err(|error| Error::backing(name, error))?);
        }
        part[there..].fill(0);
        Ok(())
    }

    /// A range of the disk; what lies beyond its end is zeros.
    pub(super) fn read_range(&self, offset: u64, len: u64) -> Result<IoBuf> {
        let mut buf = IoBuf::try_zeroed(index(len)).map_err(cairn_block::Error::from)?;
        let there = self.header.size.saturating_sub(offset).min(len);
        if there == len {
            let read = self.read(vec![(offset, buf)])?;
            return Ok(read.into_iter().next().expect("one read, one answer"));
        }
        if there > 0 {
            let part = IoBuf::try_zeroed(index(there)).map_err(cairn_block::Error::from)?;
            let read = self.read(vec![(offset, part)])?;
            buf[..index(there)].copy_from_slice(&read[0]);
        }
        Ok(buf)
    }
}
