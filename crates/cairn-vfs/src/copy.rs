//! Copies a range of one file to another or the same file by reading and writing pieces. This is
//! `copy_file_range` on a filesystem that shares no blocks.

use crate::error::{Error, Result};
use cairn_base::memory;

/// Largest piece that is held in memory.
const PIECE: usize = 1 << 20;

/// A range to copy, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct CopyRange {
    /// Size of the source.
    pub from_size: u64,
    /// Offset in the source.
    pub from: u64,
    /// Offset in the target.
    pub to: u64,
    /// Largest number of bytes to copy.
    pub len: u64,
    /// Source and target are one file.
    pub same_file: bool,
}

impl CopyRange {
    /// Copies until the range is copied, the source ends or a call fails. Returns the number of
    /// bytes copied.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the ranges overlap. The error of any `read`, or of the first `write`.
    /// A later error of `write` only ends the copy.
    pub fn run<E: From<Error>>(
        self,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
        mut write: impl FnMut(u64, &[u8]) -> Result<usize, E>,
    ) -> Result<u64, E> {
        // Bytes beyond the end of the source are not copied, so they do not count as an overlap.
        let len = self.len.min(self.from_size.saturating_sub(self.from));
        let overlap =
            self.from < self.to.saturating_add(len) && self.to < self.from.saturating_add(len);
        if self.same_file && overlap && len > 0 {
            return Err(Error::Invalid("source and target ranges overlap").into());
        }
        let mut buf = memory::zeroed("a copy", PIECE.min(usize::try_from(len).unwrap_or(PIECE)))
            .map_err(Error::from)?;
        let mut done = 0;
        while done < len {
            let want = usize::try_from(len - done).unwrap_or(usize::MAX).min(buf.len());
            let got = read(self.from + done, &mut buf[..want])?;
            if got == 0 {
                break;
            }
            match write(self.to + done, &buf[..got]) {
                Ok(written) => {
                    done += written as u64;
                    if written < got {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Copies within one vector. A write that would end beyond `room` bytes is short or fails.
    fn copy(file: &RefCell<Vec<u8>>, from: u64, to: u64, len: u64, room: usize) -> Result<u64> {
        let range =
            CopyRange { from_size: file.borrow().len() as u64, from, to, len, same_file: true };
        let at = |offset: u64| usize::try_from(offset).unwrap();
        range.run(
            |offset, buf| {
                let file = file.borrow();
                let rest = &file[at(offset).min(file.len())..];
                let len = rest.len().min(buf.len());
                buf[..len].copy_from_slice(&rest[..len]);
                Ok(len)
            },
            |offset, bytes| {
                if at(offset) >= room {
                    return Err(Error::NoSpace);
                }
                let len = bytes.len().min(room - at(offset));
                let mut file = file.borrow_mut();
                let end = file.len().max(at(offset) + len);
                file.resize(end, 0);
                file[at(offset)..at(offset) + len].copy_from_slice(&bytes[..len]);
                Ok(len)
            },
        )
    }

    #[test]
    fn what_lies_behind_the_end_is_not_copied_and_overlaps_nothing() {
        let file = RefCell::new(b"abcdef".to_vec());
        assert_eq!(copy(&file, 4, 6, 100, 1000).unwrap(), 2);
        assert_eq!(*file.borrow(), b"abcdefef");
        assert!(matches!(copy(&file, 0, 3, 4, 1000), Err(Error::Invalid(_))));
        assert_eq!(copy(&file, 9, 9, 4, 1000).unwrap(), 0);
    }

    #[test]
    fn a_failure_after_some_of_it_only_ends_the_copy() {
        let piece = PIECE as u64;
        let source: Vec<u8> = (0..3 * PIECE).map(|at| (at % 251) as u8).collect();
        for (room, done) in [(7 * PIECE, 3 * piece), (5 * PIECE, piece), (5 * PIECE + 9, piece + 9)]
        {
            let file = RefCell::new(source.clone());
            assert_eq!(copy(&file, 0, 4 * piece, u64::MAX, room).unwrap(), done);
            let file = file.borrow();
            assert!(file[4 * PIECE..] == source[..usize::try_from(done).unwrap()]);
        }
        let file = RefCell::new(source);
        assert!(matches!(copy(&file, 0, 4 * piece, u64::MAX, 0), Err(Error::NoSpace)));
    }
}
