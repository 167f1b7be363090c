//! [`IoBuf`]: memory that any device can read into, direct I/O included.

use std::fmt;
use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// Alignment of every [`IoBuf`], in bytes.
pub const ALIGNMENT: usize = 4096;

#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; ALIGNMENT]);

/// An owned, mutable buffer, aligned to 4096 bytes; its memory is whole pages, its length is exactly what was asked for.
pub struct IoBuf {
    pages: Vec<Page>,
    len: usize,
}

impl IoBuf {
    /// `len` zero bytes.
    ///
    /// # Panics
    /// If there is no memory, as every allocation: bound lengths that come from a disk first.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let pages = Page::new_vec_zeroed(len.div_ceil(ALIGNMENT)).expect("memory for a buffer");
        Self { pages, len }
    }

    /// A copy of `data`.
    #[must_use]
    pub fn copy_from(data: &[u8]) -> Self {
        let mut buf = Self::zeroed(data.len());
        buf.copy_from_slice(data);
        buf
    }

    /// Freezes the buffer without copying it.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for IoBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages.as_bytes()[..self.len]
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_bytes()[..self.len]
    }
}

impl AsRef<[u8]> for IoBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for IoBuf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl From<IoBuf> for Bytes {
    fn from(buf: IoBuf) -> Self {
        buf.into_bytes()
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_aligned_zeroed_and_kept() {
        for len in [0, 1, 512, 4095, 4096, 4097, 1 << 20] {
            let mut buf = IoBuf::zeroed(len);
            assert_eq!((buf.len(), buf.as_ptr().addr() % ALIGNMENT), (len, 0));
            assert!(buf.iter().all(|byte| *byte == 0));
            buf.fill(7);
            assert_eq!(buf.into_bytes(), vec![7; len]);
        }
    }

    #[test]
    fn freezing_does_not_copy() {
        let buf = IoBuf::copy_from(b"abc");
        let address = buf.as_ptr();
        assert_eq!(buf.into_bytes().as_ptr(), address);
    }
}
