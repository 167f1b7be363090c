//! What a log has: its records in order, and whether its end is one.

use cairn_base::memory;
use cairn_block::{Error, ErrorKind, Result};

use super::Log;
use super::contents::{Contents, Record};
use crate::format::local_log::{BLOCK, FRAME, Frame, Header};

/// Bytes that are searched at a time behind the last record.
const PIECE: u64 = 1 << 20;

impl Log {
    /// Reads and verifies all records.
    ///
    /// A record is written when the one before it is durable. So the one that a power cut has torn
    /// is the last. One that is not whole, and has a later one behind it, is damaged.
    pub(crate) fn contents(&self) -> Result<Contents> {
        let size = self.medium.size().map_err(self.failed("read"))?;
        if size == 0 {
            return Ok(Contents::default());
        }
        let mut block = vec![0; size.min(BLOCK) as usize];
        self.medium.read(0, &mut block).map_err(self.failed("read"))?;
        let header = match Header::decode(self.name(), &block) {
            Ok(Some(header)) => header,
            // The power was cut before the header came. It is there before any record.
            Ok(None) if size <= BLOCK && block.iter().all(|byte| *byte == 0) => {
                return Ok(Contents::default());
            }
            Ok(None) => return Err(self.stranger()),
            Err(corrupt) if corrupt.newer => return Err(self.refused(&corrupt.to_string())),
            Err(_) => {
                let damage = Some(self.refused("its first block is damaged"));
                return Ok(Contents { damage, ..Contents::default() });
            }
        };
        let mut records: Vec<Record> = Vec::new();
        let (mut offset, mut number) = (BLOCK, header.first);
        while let Some(record) = self.record(&header, (offset, size), number)? {
            (offset, number) = (offset + record.frame.space(), number + 1);
            records.push(record);
        }
        let later = self.later(&header, offset..size, number)?;
        let damage = later.map(|later| {
            self.refused(&format!("its record {number} is damaged, and record {later} follows"))
        });
        Ok(Contents { header: Some(header), records, damage })
    }

    /// The record of this number at this offset, if it is whole.
    fn record(
        &self,
        header: &Header,
        (offset, size): (u64, u64),
        number: u64,
    ) -> Result<Option<Record>> {
        if offset.saturating_add(FRAME as u64) > size {
            return Ok(None);
        }
        let mut bytes = [0; FRAME];
        self.medium.read(offset, &mut bytes).map_err(self.failed("read"))?;
        let frame = header.decode_frame(&bytes).filter(|frame| frame.number == number);
        let fits = |frame: &Frame| frame.space() <= size - offset;
        let Some(frame) = frame.filter(fits) else { return Ok(None) };
        match self.object(header, offset, frame) {
            Ok((index, _)) => Ok(Some(Record { offset, frame, stable: index.stable })),
            // The system's error is not the log's end.
            Err(error) if error.source.is_some() || error.kind == ErrorKind::NoMemory => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// The number of a later record in a range.
    fn later(
        &self,
        header: &Header,
        range: std::ops::Range<u64>,
        number: u64,
    ) -> Result<Option<u64>> {
        let mut at = range.start;
        while at < range.end {
            let len = PIECE.min(range.end - at);
            let mut bytes = memory::zeroed("a part of a log", len as usize)?;
            self.medium.read(at, &mut bytes).map_err(self.failed("read"))?;
            let mut frames = bytes.chunks(BLOCK as usize).filter_map(|at| header.decode_frame(at));
            if let Some(frame) = frames.find(|frame| frame.number > number) {
                return Ok(Some(frame.number));
            }
            at += len;
        }
        Ok(None)
    }

    fn stranger(&self) -> Error {
        let detail = format!(
            "the file {} is no log of an object volume: name another, or one that is not there",
            self.name()
        );
        Error::new(ErrorKind::Unsupported, "open", detail)
    }

    /// Flushes of this log are not written into the volume, for a reason.
    pub(crate) fn refused(&self, reason: &str) -> Error {
        let detail = format!(
            "the log {} may have flushed writes that the store lacks, and {reason}: open it with \
             ?export-log=FILE to write the blocks of its whole records into a new file, or with \
             ?discard-log to drop them",
            self.name()
        );
        Error::new(ErrorKind::Io, "open", detail)
    }
}
