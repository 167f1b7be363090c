//! [`IoBuf`]: memory that any device can read into, direct I/O included.

use std::ops::{Deref, DerefMut};
use std::{fmt, io};

use bytes::Bytes;
use cairn_base::memory::{self, NoMemory};
use memmap2::{Advice, MmapMut};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::pages;
use crate::reserve;

/// Alignment of every [`IoBuf`], in bytes.
pub(crate) const ALIGNMENT: usize = pages::SIZE;

#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; ALIGNMENT]);

/// Buffers of this many bytes and more are mappings of their own. The allocator would keep what is
/// freed, and for one aligned buffer spend the memory of two: the process would outgrow a budget
/// that counts buffers.
const MAPPED: usize = 128 << 10;
/// Buffers of multiples of this are huge pages, where the system has them: one fault instead of 512
/// when touched first.
const HUGE: usize = 2 << 20;

enum Memory {
    /// Up to a page.
    Single(pages::Page),
    Pages(Vec<Page>),
    Mapped(MmapMut),
}

/// An owned, mutable buffer, aligned to 4096 bytes; its memory is whole pages, its length is
/// exactly what was asked for.
pub struct IoBuf {
    memory: Memory,
    len: usize,
}

impl IoBuf {
    /// `len` zero bytes, from the [reserve] if necessary, for work that must continue. Where an
    /// image, a request or a budget decides the length, use [`IoBuf::try_zeroed`].
    ///
    /// # Panics
    /// If there is no memory, as every allocation.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        reserve::insist(|| Self::allocate(len)).expect("memory for a buffer")
    }

    /// `len` zero bytes.
    ///
    /// # Errors
    /// The system has no memory for them.
    pub fn try_zeroed(len: usize) -> Result<Self, NoMemory> {
        memory::fallibly("a buffer", len as u64, || Self::allocate(len))
    }

    fn allocate(len: usize) -> Option<Self> {
        let memory = if (1..=ALIGNMENT).contains(&len) {
            Memory::Single(pages::Page::zeroed()?)
        } else if len < MAPPED {
            Memory::Pages(Page::new_vec_zeroed(len.div_ceil(ALIGNMENT)).ok()?)
        } else {
            Memory::Mapped(mapping(len).ok()?)
        };
        Some(Self { memory, len })
    }

    /// Bytes that it can be long.
    #[must_use]
    pub fn capacity(&self) -> usize {
        match &self.memory {
            Memory::Single(_) => ALIGNMENT,
            Memory::Pages(pages) => pages.len() * ALIGNMENT,
            Memory::Mapped(pages) => pages.len(),
        }
    }

    /// Makes it `len` bytes long, where it is. Bytes that come into view are what they were when it
    /// was as long as that last.
    ///
    /// # Panics
    /// Its memory is shorter.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes in a buffer of {}", self.capacity());
        self.len = len;
    }

    /// A copy of `data`.
    #[must_use]
    pub fn copy_from(data: &[u8]) -> Self {
        if data.len() == ALIGNMENT
            && let Some(mut page) = reserve::insist(pages::Page::arbitrary)
        {
            page.copy_from_slice(data);
            return Self { memory: Memory::Single(page), len: data.len() };
        }
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

fn mapping(len: usize) -> io::Result<MmapMut> {
    let pages = MmapMut::map_anon(len.next_multiple_of(ALIGNMENT))?;
    if len.is_multiple_of(HUGE) {
        // Where it is refused, small pages will do.
        let _ = pages.advise(Advice::HugePage);
    }
    Ok(pages)
}

impl Deref for IoBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Single(page) => &page[..self.len],
            Memory::Pages(pages) => &pages.as_bytes()[..self.len],
            Memory::Mapped(pages) => &pages[..self.len],
        }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Single(page) => &mut page[..self.len],
            Memory::Pages(pages) => &mut pages.as_mut_bytes()[..self.len],
            Memory::Mapped(pages) => &mut pages[..self.len],
        }
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
        for len in [
            0,
            1,
            512,
            4095,
            4096,
            4097,
            MAPPED - 1,
            MAPPED,
            MAPPED + 1,
            1 << 20,
            HUGE,
            HUGE + 1,
            2 * HUGE,
        ] {
            let mut buf = IoBuf::zeroed(len);
            assert_eq!((buf.len(), buf.as_ptr().addr() % ALIGNMENT), (len, 0));
            assert!(buf.iter().all(|byte| *byte == 0));
            buf.fill(7);
            assert_eq!(buf.into_bytes(), vec![7; len]);
        }
    }

    #[test]
    fn what_no_system_has_is_an_error() {
        let len = usize::MAX / 2 / ALIGNMENT * ALIGNMENT;
        assert_eq!(IoBuf::try_zeroed(len).unwrap_err().bytes, len as u64);
    }

    #[test]
    fn a_buffer_is_used_again_at_other_lengths() {
        for len in [5000, MAPPED + 5000] {
            let mut buf = IoBuf::zeroed(len);
            let whole = buf.capacity();
            assert!(whole >= len && whole.is_multiple_of(ALIGNMENT));
            buf.fill(7);
            buf.set_len(4096);
            assert_eq!((buf.len(), buf.capacity()), (4096, whole));
            buf.set_len(whole);
            assert!(
                buf[..len].iter().all(|byte| *byte == 7)
                    && buf[len..].iter().all(|byte| *byte == 0)
            );
        }
    }

    #[test]
    #[should_panic(expected = "8193 bytes in a buffer of 8192")]
    fn a_buffer_does_not_grow() {
        IoBuf::zeroed(5000).set_len(8193);
    }

    #[test]
    fn freezing_does_not_copy() {
        let buf = IoBuf::copy_from(b"abc");
        let address = buf.as_ptr();
        assert_eq!(buf.into_bytes().as_ptr(), address);
    }
}
