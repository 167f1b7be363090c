//! [`Image`]: the bytes of one block.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use cairn_block::IoBuf;

/// Blocks of this size and more fill pages.
const PAGE: usize = 4096;

/// The bytes of one block. They are immutable while they are shared.
///
/// A block of 4096 bytes is a page of its own, apart from the counter of references.
#[derive(Clone)]
pub struct Image(Arc<Memory>);

enum Memory {
    /// Whole pages.
    Pages(IoBuf),
    /// Smaller blocks.
    Bytes(Box<[u8]>),
}

/// Memory that a cached block of `bytes` takes with its descriptors. The allocator has four sizes
/// between two powers of two.
#[must_use]
pub const fn image_bytes(bytes: u64) -> u64 {
    /// A descriptor, its place in an index, and the reference counter of the image.
    const DESCRIPTORS: u64 = 192 + (size_of::<Memory>() + 2 * size_of::<usize>()) as u64;
    let step = if bytes < 64 { 8 } else { bytes.next_power_of_two() / 8 };
    bytes.next_multiple_of(step).saturating_add(DESCRIPTORS)
}

impl Image {
    /// `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self(Arc::new(if len >= PAGE {
            Memory::Pages(IoBuf::zeroed(len))
        } else {
            Memory::Bytes(vec![0; len].into())
        }))
    }

    /// The bytes for changing. They are copied first if another holder has them.
    pub fn make_mut(&mut self) -> &mut [u8] {
        if Arc::get_mut(&mut self.0).is_none() {
            *self = Self::from(&**self);
        }
        match Arc::get_mut(&mut self.0) {
            Some(Memory::Pages(pages)) => pages,
            Some(Memory::Bytes(bytes)) => bytes,
            None => unreachable!("a copy has one holder"),
        }
    }
}

impl Deref for Image {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.0 {
            Memory::Pages(pages) => pages,
            Memory::Bytes(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Image {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<IoBuf> for Image {
    /// Keeps the buffer, unless most of its pages would be empty.
    fn from(buf: IoBuf) -> Self {
        if buf.capacity() > buf.len() {
            return Self::from(&*buf);
        }
        Self(Arc::new(Memory::Pages(buf)))
    }
}

impl From<Vec<u8>> for Image {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(&*bytes)
    }
}

impl From<&[u8]> for Image {
    fn from(bytes: &[u8]) -> Self {
        Self(Arc::new(if bytes.len() >= PAGE {
            Memory::Pages(IoBuf::copy_from(bytes))
        } else {
            Memory::Bytes(bytes.into())
        }))
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_its_size_and_less_than_320_bytes_more() {
        for bytes in [1024, 4096, 65_536] {
            assert!((192..320).contains(&(image_bytes(bytes) - bytes)));
        }
        assert!(image_bytes(4100) > 5120);
    }

    #[test]
    fn what_a_device_has_filled_is_kept_where_it_is_if_it_fills_its_pages() {
        for (len, kept) in [(4096, true), (65_536, true), (1024, false)] {
            let mut buf = IoBuf::zeroed(len);
            buf.fill(7);
            let address = buf.as_ptr();
            let mut image = Image::from(buf);
            assert_eq!((&*image, image.as_ptr() == address), (&*vec![7; len], kept));
            image.make_mut()[1] = 8;
            assert_eq!((image[0], image[1], image.as_ptr() == address), (7, 8, kept));
        }
    }

    #[test]
    fn a_shared_image_is_copied_before_it_changes() {
        for first in [Image::zeroed(4096), Image::from(IoBuf::zeroed(4096))] {
            let mut second = first.clone();
            assert_eq!(first.as_ptr(), second.as_ptr());
            second.make_mut()[0] = 1;
            assert_eq!((first[0], second[0]), (0, 1));
            let address = second.as_ptr();
            second.make_mut()[1] = 1;
            assert_eq!(second.as_ptr(), address, "it has one holder");
        }
    }
}
