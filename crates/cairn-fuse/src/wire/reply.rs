//! An answer, sent once.

use std::io::IoSlice;
use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use super::abi::OutHeader;
use super::device::Device;

/// The right to answer a request. Dropped unused (an operation that panicked), it answers EIO, so
/// that no caller waits for ever.
pub(crate) struct Reply {
    device: Arc<Device>,
    unique: u64,
    owed: bool,
}

impl Reply {
    pub(crate) fn new(device: Arc<Device>, unique: u64) -> Self {
        Self { device, unique, owed: true }
    }

    /// A request that wants no answer.
    pub(crate) fn none(mut self) {
        self.owed = false;
    }

    /// A structure, or the error.
    pub(crate) fn send<T: IntoBytes + Immutable>(self, result: &Result<T, Errno>) {
        match result {
            Ok(value) => self.data(&[value.as_bytes()]),
            Err(error) => self.error(*error),
        }
    }

    /// Plain bytes, or the error.
    pub(crate) fn send_bytes(self, result: Result<&[u8], Errno>) {
        match result {
            Ok(bytes) => self.data(&[bytes]),
            Err(error) => self.error(error),
        }
    }

    pub(crate) fn error(mut self, error: Errno) {
        self.write(Some(error), &[]);
    }

    /// Bytes in pieces, in order.
    pub(crate) fn data(mut self, pieces: &[&[u8]]) {
        self.write(None, pieces);
    }

    fn write(&mut self, error: Option<Errno>, pieces: &[&[u8]]) {
        self.owed = false;
        let len = size_of::<OutHeader>() + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let error = error.map_or(0, |error| -error.raw_os_error());
        // The largest answer is a read of MAX_WRITE bytes.
        let header = OutHeader { len: len as u32, error, unique: self.unique };
        let mut slices = Vec::with_capacity(1 + pieces.len());
        slices.push(IoSlice::new(header.as_bytes()));
        slices.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
        if let Err(error) = self.device.write(&slices) {
            // The caller was killed, or the connection has ended.
            tracing::debug!("the kernel did not accept an answer: {error}");
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.owed {
            self.write(Some(Errno::IO), &[]);
        }
    }
}
