//! Errors that the superblock records until the next e2fsck: the first, the last, and how many.
//!
//! `EXT4_ERROR_FS` in `s_state` makes e2fsck check the whole volume, which clears the record.

use zerocopy::little_endian::U32;

use super::superblock::{STATE_ERROR, Superblock};

/// What went wrong, as a number of the format (`s_first_error_errcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    /// The device or the journal failed.
    Io,
    /// The system had no memory.
    NoMemory,
    /// A checksum was wrong (EFSBADCRC).
    Checksum,
    /// The contents were invalid (EFSCORRUPTED).
    Corrupted,
    /// There was no space.
    NoSpace,
    /// The device accepts no writes.
    ReadOnly,
}

impl ErrorCode {
    const fn number(self) -> u8 {
        match self {
            Self::Io => 2,
            Self::NoMemory => 3,
            Self::Checksum => 4,
            Self::Corrupted => 5,
            Self::NoSpace => 6,
            Self::ReadOnly => 8,
        }
    }
}

/// An error to be recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundError {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Inode; 0 if none or unknown.
    pub ino: u32,
    /// Block; 0 if unknown.
    pub block: u64,
    /// The error's number.
    pub code: ErrorCode,
    /// The part of Cairn that found it. Linux names a function here.
    pub part: &'static str,
}

/// Bytes of `s_first_error_func`.
const FUNC: usize = 32;

impl FoundError {
    /// The time in the format's 32 + 8 bits.
    fn time(&self) -> (U32, u8) {
        let [low @ .., h0, _, _, _] = self.seconds.max(0).to_le_bytes();
        (U32::from_bytes(low), h0)
    }

    /// "cairn: " and the part, filled up with zeros. It ends with a zero.
    fn func(&self) -> [u8; FUNC] {
        let mut func = [0; FUNC];
        let name = b"cairn: ".iter().chain(self.part.as_bytes());
        func.iter_mut().take(FUNC - 1).zip(name).for_each(|(place, byte)| *place = *byte);
        func
    }
}

impl Superblock {
    /// Records an error.
    pub(crate) fn note_error(&mut self, found: &FoundError) {
        let raw = &mut self.raw;
        let (time, time_hi) = found.time();
        raw.s_state = (raw.s_state.get() | STATE_ERROR).into();
        if raw.s_first_error_time.get() == 0 && raw.s_first_error_time_hi == 0 {
            (raw.s_first_error_time, raw.s_first_error_time_hi) = (time, time_hi);
            raw.s_first_error_ino = found.ino.into();
            raw.s_first_error_block = found.block.into();
            (raw.s_first_error_func, raw.s_first_error_line) = (found.func(), 0.into());
            raw.s_first_error_errcode = found.code.number();
        }
        (raw.s_last_error_time, raw.s_last_error_time_hi) = (time, time_hi);
        (raw.s_last_error_ino, raw.s_last_error_block) = (found.ino.into(), found.block.into());
        (raw.s_last_error_func, raw.s_last_error_line) = (found.func(), 0.into());
        raw.s_last_error_errcode = found.code.number();
        raw.s_error_count = raw.s_error_count.get().saturating_add(1).into();
    }

    /// Does it record errors?
    pub(crate) fn has_errors(&self) -> bool {
        self.raw.s_error_count.get() > 0 || self.raw.s_state.get() & STATE_ERROR != 0
    }

    /// Removes the record.
    pub(crate) fn forget_errors(&mut self) {
        let raw = &mut self.raw;
        raw.s_state = (raw.s_state.get() & !STATE_ERROR).into();
        raw.s_error_count = 0.into();
        (raw.s_first_error_time, raw.s_first_error_time_hi) = (0.into(), 0);
        (raw.s_first_error_ino, raw.s_first_error_block) = (0.into(), 0.into());
        (raw.s_first_error_func, raw.s_first_error_line) = ([0; FUNC], 0.into());
        (raw.s_last_error_time, raw.s_last_error_time_hi) = (0.into(), 0);
        (raw.s_last_error_ino, raw.s_last_error_block) = (0.into(), 0.into());
        (raw.s_last_error_func, raw.s_last_error_line) = ([0; FUNC], 0.into());
        (raw.s_first_error_errcode, raw.s_last_error_errcode) = (0, 0);
    }

    /// Takes the record of another version of this superblock, unless its own has more errors.
    /// True if that changes anything.
    pub(crate) fn merge_errors(&mut self, other: &Self) -> bool {
        let (raw, other) = (&mut self.raw, &other.raw);
        let marked = raw.s_state.get() | other.s_state.get() & STATE_ERROR;
        let newer = other.s_error_count.get() > raw.s_error_count.get();
        let changed = newer || marked != raw.s_state.get();
        raw.s_state = marked.into();
        if newer {
            raw.s_error_count = other.s_error_count;
            raw.s_first_error_time = other.s_first_error_time;
            raw.s_first_error_time_hi = other.s_first_error_time_hi;
            raw.s_first_error_ino = other.s_first_error_ino;
            raw.s_first_error_block = other.s_first_error_block;
            raw.s_first_error_func = other.s_first_error_func;
            raw.s_first_error_line = other.s_first_error_line;
            raw.s_first_error_errcode = other.s_first_error_errcode;
            raw.s_last_error_time = other.s_last_error_time;
            raw.s_last_error_time_hi = other.s_last_error_time_hi;
            raw.s_last_error_ino = other.s_last_error_ino;
            raw.s_last_error_block = other.s_last_error_block;
            raw.s_last_error_func = other.s_last_error_func;
            raw.s_last_error_line = other.s_last_error_line;
            raw.s_last_error_errcode = other.s_last_error_errcode;
        }
        changed
    }
}
