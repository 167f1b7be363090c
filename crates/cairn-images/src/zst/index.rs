//! [`Index`]: where the frames are, in the file and on the disk.

use cairn_block::{BlockDevice, BlockDeviceExt, ErrorKind};

/// Result of this format.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Contents of a larger frame cost too much to read a part of it.
pub(super) const MOST_CONTENTS: u64 = 64 << 20;
/// Frames that an index may have.
const MOST_FRAMES: usize = 1 << 23;
const FOOTER: u64 = 9;
const FOOTER_MAGIC: u32 = 0x8f92_eab1;
const TABLE_MAGIC: u32 = 0x184d_2a5e;

/// Why a file cannot be read as a disk.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device that holds it failed.
    #[error(transparent)]
    Device(#[from] cairn_block::Error),
    /// A frame that is too large to be decoded for each read.
    #[error(
        "the zstd frame at offset {offset} has {} of contents, more than 64 MiB: decompress the \
         image with zstd -d, or compress it in small frames with t2sz or pzstd",
        bytes(*contents)
    )]
    LargeFrame {
        /// Where it begins in the file.
        offset: u64,
        /// Bytes of its contents, if they are known.
        contents: Option<u64>,
    },
    /// It is damaged.
    #[error("the zstd file is damaged at offset {offset}: {reason}: make it anew")]
    Damaged {
        /// Where in the file.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
}

fn bytes(count: Option<u64>) -> String {
    count.map_or("an unknown number".to_owned(), |count| format!("{count} bytes"))
}

impl From<Error> for cairn_block::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Device(device) => return device.clone(),
            Error::LargeFrame { .. } => ErrorKind::UnsupportedFeature,
            Error::Damaged { .. } => ErrorKind::Io,
        };
        Self::new(kind, "compressed disk", error.to_string())
    }
}

pub(super) fn damaged(offset: u64, reason: impl Into<String>) -> Error {
    Error::Damaged { offset, reason: reason.into() }
}

/// One frame with contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Its offset in the file.
    pub(super) offset: u64,
    /// Bytes in the file.
    pub(super) len: u64,
    /// The offset of its contents on the disk.
    pub(super) at: u64,
    /// Bytes of contents.
    pub(super) contents: u64,
}

/// All frames, in order.
#[derive(Debug, Default)]
pub(super) struct Index {
    frames: Vec<Frame>,
}

impl Index {
    /// Bytes of the disk.
    pub(super) fn size(&self) -> u64 {
        self.frames.last().map_or(0, |last| last.at + last.contents)
    }

    /// Adds the next frame.
    pub(super) fn push(&mut self, offset: u64, len: u64, contents: u64) -> Result<()> {
        // Incompressible data grows by a few bytes of each 128 KiB.
        if contents > MOST_CONTENTS || len > 2 * MOST_CONTENTS {
            return Err(Error::LargeFrame { offset, contents: Some(contents) });
        }
        if self.frames.len() >= MOST_FRAMES {
            return Err(damaged(offset, format!("it has more than {MOST_FRAMES} frames")));
        }
        if contents > 0 {
            let at = self.size();
            self.frames.push(Frame { offset, len, at, contents });
        }
        Ok(())
    }

    /// The frame with a byte of the disk, and its number.
    pub(super) fn at(&self, offset: u64) -> Option<(usize, Frame)> {
        let after = self.frames.partition_point(|frame| frame.at <= offset);
        let number = after.checked_sub(1)?;
        let frame = *self.frames.get(number)?;
        (offset < frame.at + frame.contents).then_some((number, frame))
    }

    pub(super) fn first(&self) -> Option<Frame> {
        self.frames.first().copied()
    }
}

/// Bytes of the file.
pub(super) fn read(device: &dyn BlockDevice, offset: u64, len: u64) -> Result<Vec<u8>> {
    let size = device.geometry().size;
    let fits = offset.checked_add(len).is_some_and(|end| end <= size);
    let len = usize::try_from(len).ok().filter(|_| fits);
    let len = len.ok_or_else(|| damaged(offset.min(size), "it ends too early"))?;
    Ok(device.read_bytes(offset, len)?.to_vec())
}

pub(super) fn word(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

/// The table of frames at the end of the file, if it has one.
pub(super) fn table(device: &dyn BlockDevice) -> Result<Option<Index>> {
    let end = device.geometry().size;
    let Some(at) = end.checked_sub(FOOTER) else { return Ok(None) };
    let footer = read(device, at, FOOTER)?;
    if word(&footer[5..]) != FOOTER_MAGIC {
        return Ok(None);
    }
    let (count, descriptor) = (u64::from(word(&footer)), footer[4]);
    if descriptor & 0x7c != 0 {
        return Err(damaged(at, format!("the table of frames has the flags {descriptor:#x}")));
    }
    let width = if descriptor & 0x80 == 0 { 8 } else { 12 };
    let len = count * width + FOOTER;
    let start = end.checked_sub(len + 8).filter(|_| count <= MOST_FRAMES as u64);
    let Some(start) = start else {
        return Err(damaged(at, format!("the table of frames has {count} of them")));
    };
    let whole = read(device, start, len + 8)?;
    if word(&whole) != TABLE_MAGIC || u64::from(word(&whole[4..])) != len {
        return Err(damaged(start, "the table of frames does not begin here, as its end says"));
    }
    let (mut index, mut offset) = (Index::default(), 0);
    for entry in whole[8..whole.len() - 9].chunks_exact(width as usize) {
        let (len, contents) = (u64::from(word(entry)), u64::from(word(&entry[4..])));
        if offset + len > start {
            return Err(damaged(start, "the table has frames beyond the end of the others"));
        }
        index.push(offset, len, contents)?;
        offset += len;
    }
    Ok(Some(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_by_the_bytes_of_the_disk() {
        let mut index = Index::default();
        index.push(0, 10, 100).unwrap();
        index.push(10, 5, 0).unwrap();
        index.push(15, 20, 50).unwrap();
        assert_eq!(index.size(), 150);
        assert_eq!(index.at(99).unwrap().1.offset, 0);
        assert_eq!(
            index.at(100).unwrap(),
            (1, Frame { offset: 15, len: 20, at: 100, contents: 50 })
        );
        assert!(index.at(150).is_none());
        let large = index.push(35, 10, MOST_CONTENTS + 1).unwrap_err().to_string();
        assert!(large.contains("67108865 bytes") && large.contains("zstd -d"), "{large}");
    }
}
