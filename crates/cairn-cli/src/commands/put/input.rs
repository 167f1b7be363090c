//! Standard input. Its beginning is read before the image is opened: the program that writes into
//! the pipe may be another `cairn` that still reads this image.

use std::io::{self, Cursor, Read};
use std::sync::{Mutex, PoisonError};

use crate::failure::{Failure, Outcome};

/// Bytes that are read before the image is opened. The rest of a longer input is read afterwards.
const AHEAD: u64 = 64 << 20;

/// Standard input with its beginning in memory.
#[derive(Debug, Default)]
pub struct Input(Mutex<Vec<u8>>);

impl Input {
    /// Reads the beginning.
    ///
    /// # Errors
    /// Standard input cannot be read.
    pub(super) fn read_ahead(&self) -> Outcome {
        let mut bytes = Vec::new();
        let read = io::stdin().lock().take(AHEAD).read_to_end(&mut bytes);
        read.map_err(|error| Failure::host("standard input", &error))?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
        Ok(())
    }

    /// Reads the beginning from memory, then the rest. The beginning is given once.
    pub(super) fn reader(&self) -> impl Read + use<> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Cursor::new(bytes).chain(io::stdin().lock())
    }
}
