//! [`Luks`]: the disk behind a header.

use std::sync::Arc;

use cairn_block::{
    Batch, BlockDevice, Bytes, Completion, Durability, ErrorKind, Geometry, IoBuf, Request, bounds,
};

use crate::cipher::Cipher;
use crate::error::Result;
use crate::header;
use crate::kdf::Limits;
use crate::passphrase::Passphrase;
use crate::unlock::Segment;
use crate::xts::Way;

/// Zeros are encrypted and written in pieces of this size.
const PIECE: u64 = 1 << 20;
/// The cipher counts sectors in these units.
const UNIT: u64 = 512;

/// How to open a disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// To write it, too.
    pub write: bool,
    /// What it may cost to try a passphrase.
    pub limits: Limits,
}

/// An encrypted disk, opened. Sectors are encrypted and decrypted by the thread that transfers
/// them. A discard does nothing: what was discarded would read as neither zeros nor the old bytes,
/// and show what is free.
pub struct Luks {
    device: Arc<dyn BlockDevice>,
    segment: Segment,
    cipher: Cipher,
    geometry: Geometry,
}

impl std::fmt::Debug for Luks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Luks").field("segment", &self.segment).finish_non_exhaustive()
    }
}

impl Luks {
    /// Opens the disk whose header is on `device`.
    ///
    /// # Errors
    /// As [`inspect`](crate::inspect); [`Error::WrongPassphrase`](crate::Error::WrongPassphrase),
    /// [`Error::Costly`](crate::Error::Costly), [`Error::NoMemory`](crate::Error::NoMemory).
    pub fn open(
        device: Arc<dyn BlockDevice>,
        passphrase: &Passphrase,
        options: &Options,
    ) -> Result<Self> {
        let volume = header::volume(&*device)?;
        let mut geometry = device.geometry();
        if options.write && geometry.read_only {
            let why = "the device of the encrypted disk is read-only: open the disk read-only";
            return Err(cairn_block::Error::new(ErrorKind::ReadOnly, "open", why).into());
        }
        let key = volume.unlock(&*device, passphrase, &options.limits)?;
        let cipher = volume.segment.cipher.with_key(&key)?;
        let segment = volume.segment;
        geometry.logical_block = geometry.logical_block.max(segment.sector_size);
        geometry.size =
            segment.len / u64::from(geometry.logical_block) * u64::from(geometry.logical_block);
        geometry.read_only = !options.write;
        geometry.discard = false;
        Ok(Self { device, segment, cipher, geometry })
    }

    fn code(&self, offset: u64, data: &mut [u8], way: Way) {
        let first = self.segment.first_sector.wrapping_add(offset / UNIT);
        self.cipher.sectors(first, self.segment.sector_size as usize, data, way);
    }

    /// What goes to the device for a request, with the offsets of reads.
    fn translate(&self, request: Request, reads: &mut Vec<u64>, to: &mut Vec<Request>) {
        match request {
            Request::Read { offset, buf } => {
                reads.push(offset);
                to.push(Request::Read { offset: self.segment.offset + offset, buf });
            }
            Request::Write { offset, bufs } => {
                let len = bufs.iter().map(Bytes::len).sum();
                let mut data = IoBuf::zeroed(len);
                let mut at = 0;
                for buf in bufs {
                    data[at..at + buf.len()].copy_from_slice(&buf);
                    at += buf.len();
                }
                self.push(offset, data, to);
            }
            Request::WriteZeroes { offset, len } => {
                self.push(offset, IoBuf::zeroed(len as usize), to);
            }
            Request::Discard { .. } => {}
        }
    }

    fn push(&self, offset: u64, mut data: IoBuf, to: &mut Vec<Request>) {
        self.code(offset, &mut data, Way::Encrypt);
        let offset = self.segment.offset + offset;
        to.push(Request::Write { offset, bufs: vec![data.into_bytes()] });
    }

    fn run(&self, batch: Batch) -> cairn_block::Result<Vec<IoBuf>> {
        batch.requests.iter().try_for_each(|one| bounds::check(&self.geometry, one))?;
        let (mut reads, mut requests) = (Vec::new(), Vec::new());
        let mut durability = batch.durability;
        for request in batch.requests {
            match request {
                // Not a whole disk in memory.
                Request::WriteZeroes { offset, len } if len > PIECE => {
                    self.zero(offset, len, durability)?;
                    durability.preflush = false;
                }
                request => self.translate(request, &mut reads, &mut requests),
            }
        }
        let failed = |error| self.rebased(error);
        let done = self.device.submit(Batch { requests, durability }).wait().map_err(failed)?;
        let decrypted = done.into_iter().zip(reads).map(|(mut buf, offset)| {
            self.code(offset, &mut buf, Way::Decrypt);
            buf
        });
        Ok(decrypted.collect())
    }

    /// Writes many zeros, one piece after the other.
    fn zero(&self, offset: u64, len: u64, mut durability: Durability) -> cairn_block::Result<()> {
        let mut at = offset;
        while at < offset + len {
            let piece = PIECE.min(offset + len - at);
            let mut requests = Vec::new();
            self.push(at, IoBuf::zeroed(piece as usize), &mut requests);
            let batch = Batch { requests, durability };
            self.device.submit(batch).wait().map_err(|error| self.rebased(error))?;
            durability.preflush = false;
            at += piece;
        }
        Ok(())
    }

    /// The caller counts from the disk's start.
    fn rebased(&self, error: cairn_block::Error) -> cairn_block::Error {
        let start = self.segment.offset;
        let range = error.range.map(|(offset, len)| (offset.saturating_sub(start), len));
        cairn_block::Error { range, ..error }
    }
}

impl BlockDevice for Luks {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: Batch) -> Completion {
        Completion::ready(self.run(batch))
    }

    fn flush(&self) -> cairn_block::Result<()> {
        self.device.flush()
    }
}
