//! Standard input. Its beginning is read before the image is opened: the program that writes into
//! the pipe may be another `cairn` that still reads this image.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use cairn_vfs::{Error, NewInode, SetAttributes};

use super::Copy;
use crate::commands::destination::Place;
use crate::failure::{Failure, Outcome};

/// Bytes that are read before the image is opened. Of a longer input the rest is read afterwards.
const AHEAD: u64 = 64 << 20;

/// See the module.
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

    /// What was read, once, and then the rest.
    pub(super) fn reader(&self) -> impl Read + use<> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Cursor::new(bytes).chain(io::stdin().lock())
    }
}

impl Copy<'_> {
    /// Standard input, as a regular file.
    pub(super) fn standard_input(&mut self, place: &Place) -> Outcome {
        const NAME: &str = "standard input";
        let stdin = io::stdin();
        let is_file =
            stdin.as_fd().try_clone_to_owned().and_then(|file| File::from(file).metadata());
        is_file.map_or(Ok(()), |metadata| self.check_own(Path::new(NAME), &metadata))?;
        place.fill(self.fs, 0, |name| {
            let failed = |error: Error| place.failed(&error);
            let ino = self.create(place.parent, name, NewInode::Regular).map_err(failed)?;
            self.stream(Path::new(NAME), &mut self.input.reader(), place, ino)?;
            let owner = self.owner.map_or((None, None), |owner| (owner.uid, owner.gid));
            let set = SetAttributes {
                permissions: Some(0o644),
                uid: owner.0,
                gid: owner.1,
                ..Default::default()
            };
            self.fs.setattr(ino, &set).map(drop).map_err(failed)
        })?;
        self.progress.entry();
        Ok(())
    }
}
