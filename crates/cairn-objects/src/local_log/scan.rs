//! What a log has: its records in order, and whether its end is one.

use cairn_base::memory;
use cairn_block::{Error, ErrorKind, Result};

use super::Log;
use super::contents::{Contents, Record};
use crate::format::local_log::{BLOCK, FRAME, Frame, Header, is_part, mark_place, records_end};

/// Bytes that are searched at a time behind the last record.
const PIECE: u64 = 1 << 20;

impl Log {
    /// Reads and verifies all records.
    ///
    /// A record is written when the one before it is durable, and a mark says so then. So the one
    /// that a power cut has torn is the last, and of the marks the higher one has its number or
    /// that of the record before. Everything else is damage.
    pub(crate) fn contents(&self) -> Result<Contents> {
        let size = self.medium.size().map_err(self.failed("read"))?;
        let block = self.block(0, size)?;
        let header = match Header::decode(self.name(), &block) {
            Ok(Some(header)) => header,
            // The power was cut before the header came. It is there before any record.
            Ok(None) if size <= BLOCK && block.iter().all(|byte| *byte == 0) => {
                return Ok(Contents::default());
            }
            Ok(None) if !self.has_parts(size)? => return Err(self.stranger()),
            Err(corrupt) if corrupt.newer => {
                let detail = format!("the log {} {}", self.name(), corrupt.detail);
                return Err(Error::new(ErrorKind::Unsupported, "open", detail));
            }
            Ok(None) | Err(_) => {
                let damage = Some("its first block is not what was written".to_owned());
                return Ok(Contents { damage, ..Contents::default() });
            }
        };
        let mut records: Vec<Record> = Vec::new();
        let room = if header.end == 0 { size } else { records_end(header.end).min(size) };
        let (mut offset, mut number) = (BLOCK, header.first);
        while let Some(record) = self.record(&header, (offset, room), number)? {
            (offset, number) = (offset + record.frame.space(), number + 1);
            records.push(record);
        }
        let damage = match header.end {
            0 => {
                let later = self.later(&header, offset..size, number)?;
                later.map(|later| format!("record {number} is not whole, and {later} is there"))
            }
            end => self.cut_short(&header, (size, end), number)?,
        };
        Ok(Contents { header: Some(header), records, damage })
    }

    /// The block at this offset, as far as the log has it.
    fn block(&self, offset: u64, size: u64) -> Result<Vec<u8>> {
        let mut block = vec![0; size.saturating_sub(offset).min(BLOCK) as usize];
        if !block.is_empty() {
            self.medium.read(offset, &mut block).map_err(self.failed("read"))?;
        }
        Ok(block)
    }

    /// True if something of a log is where a record or a mark comes.
    fn has_parts(&self, size: u64) -> Result<bool> {
        for offset in [BLOCK, mark_place(size, 1), mark_place(size, 2)] {
            if is_part(&self.block(offset, size)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What shows that the log lacks something behind the records before `number`.
    fn cut_short(
        &self,
        header: &Header,
        (size, end): (u64, u64),
        number: u64,
    ) -> Result<Option<String>> {
        if size < end {
            return Ok(Some(format!("it has {size} bytes, and had {end}")));
        }
        let mut last = None;
        for which in [1, 2] {
            let block = self.block(mark_place(end, which), size)?;
            last = last.max(header.decode_mark(&block));
        }
        Ok(match last {
            None => Some("the marks at its end are missing".to_owned()),
            Some(last) => (last > number)
                .then(|| format!("record {number} is not whole, and {} was durable", last - 1)),
        })
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

    /// The number of a later record in a range, for a log without marks.
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
            "the file {} is no log of an object volume: name another; if it was one, what only it \
             had is lost: move it away, and open the volume with ?discard-log to go on without it",
            self.name()
        );
        Error::new(ErrorKind::Unsupported, "open", detail)
    }

    /// Flushes of this log are not whole. If nobody can know whose it was, it is given up by the
    /// name that its writer gave it.
    pub(crate) fn damaged(&self, what: &str, writers_name: Option<&str>) -> Error {
        let way = match writers_name {
            None => "open it with ?discard-log to go on with those before the damage, or with \
                     ?export-log=FILE to write their blocks into a new file and drop them"
                .to_owned(),
            Some(name) => format!(
                "open the volume with ?log={name}&discard-log, as its writer named the log, to go \
                 on without them"
            ),
        };
        let detail = format!(
            "the log {} is damaged: {what}: put a whole copy of it in its place; if there is none, \
             flushes are lost: {way}",
            self.name()
        );
        Error::new(ErrorKind::Io, "open", detail)
    }

    /// The store knows of records that this log lacks, so it is not the last state of the file.
    pub(crate) fn outdated(&self, what: &str) -> Error {
        let detail = format!(
            "the log {} is an older copy: {what}: put the newest one in its place; if there is \
             none, flushes may be lost: open it with ?discard-log to go on with what the store has",
            self.name()
        );
        Error::new(ErrorKind::Io, "open", detail)
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
