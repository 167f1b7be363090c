//! [`WriteSource`]: the data of a write.

use std::ops::Deref;

use bytes::Bytes;

/// The data of a write: borrowed for the call, or shared and immutable. Shared data need not be
/// copied.
#[derive(Clone, Copy)]
pub struct WriteSource<'a> {
    bytes: &'a [u8],
    /// What `bytes` is a part of.
    shared: Option<&'a Bytes>,
    /// A cache above this one has the data, too.
    dontcache: bool,
}

impl<'a> WriteSource<'a> {
    /// The same data. With `dontcache`, it is dropped from the cache once it is written back.
    #[must_use]
    pub fn dontcache(self, dontcache: bool) -> Self {
        Self { dontcache, ..self }
    }

    /// The data from byte `at` on.
    #[must_use]
    pub fn after(self, at: usize) -> Self {
        Self { bytes: &self.bytes[at..], ..self }
    }

    /// The first `len` bytes, or all if there are fewer.
    #[must_use]
    pub fn first(self, len: usize) -> Self {
        Self { bytes: &self.bytes[..self.bytes.len().min(len)], ..self }
    }

    pub(crate) fn is_dontcache(&self) -> bool {
        self.dontcache
    }

    /// The data as bytes that may be kept, if they need not be copied.
    pub(crate) fn shared(&self) -> Option<Bytes> {
        self.shared.map(|all| all.slice_ref(self.bytes))
    }

    /// The data as bytes that may be kept.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.shared().unwrap_or_else(|| Bytes::copy_from_slice(self.bytes))
    }
}

impl Deref for WriteSource<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl<'a> From<&'a [u8]> for WriteSource<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, shared: None, dontcache: false }
    }
}

impl<'a> From<&'a Bytes> for WriteSource<'a> {
    fn from(shared: &'a Bytes) -> Self {
        Self { bytes: shared, shared: Some(shared), dontcache: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_shared_data_share_its_memory_and_others_are_copied() {
        let shared = Bytes::from_static(b"0123456789");
        let part = WriteSource::from(&shared).after(2).first(5);
        assert_eq!(&part[..], b"23456");
        assert_eq!(part.to_bytes().as_ptr(), shared[2..].as_ptr());
        assert_eq!(part.first(99).len(), 5);
        let borrowed = WriteSource::from(&shared[..]).after(2);
        assert!(borrowed.shared().is_none());
        assert_ne!(borrowed.to_bytes().as_ptr(), shared[2..].as_ptr());
        assert_eq!(borrowed.to_bytes(), shared.slice(2..));
    }
}
