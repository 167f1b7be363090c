//! [`scan`]: finds the frames of a file without a table.

use std::io::{self, Read};
use std::sync::Arc;

use cairn_block::BlockDevice;

use super::index::{Error, Index, MOST_CONTENTS, Result, damaged, read, word};
use crate::zstd_frame::{self, WINDOW_LOG_MAX};

const FRAME: u32 = 0xfd2f_b528;
const SKIPPED: std::ops::RangeInclusive<u32> = 0x184d_2a50..=0x184d_2a5f;
/// The longest head of a frame.
const MOST_HEAD: u64 = 18;

/// What the head of a frame says.
struct Head {
    len: u64,
    contents: Option<u64>,
    has_checksum: bool,
}

fn head(bytes: &[u8], offset: u64) -> Result<Head> {
    let short = || damaged(offset, "the head of a frame ends too early");
    let flags = *bytes.get(4).ok_or_else(short)?;
    let single = flags & 0x20 != 0;
    let dictionary = [0, 1, 2, 4][usize::from(flags & 3)];
    let width = match (flags >> 6, single) {
        (0, false) => 0,
        (0, true) => 1,
        (1, _) => 2,
        (2, _) => 4,
        _ => 8,
    };
    let at = 5 + usize::from(!single) + dictionary;
    let field = bytes.get(at..at + width).ok_or_else(short)?;
    let value = field.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
    // Two bytes count from 256.
    let value = value.saturating_add(if width == 2 { 256 } else { 0 });
    Ok(Head {
        len: (at + width) as u64,
        contents: (width > 0).then_some(value),
        has_checksum: flags & 4 != 0,
    })
}

/// All frames, by their heads and those of their blocks.
pub(super) fn scan(device: &Arc<dyn BlockDevice>) -> Result<Index> {
    let end = device.geometry().size;
    let (mut index, mut at) = (Index::default(), 0);
    while at < end {
        let bytes = read(&**device, at, MOST_HEAD.min(end - at))?;
        let magic = word(&bytes);
        if SKIPPED.contains(&magic) && bytes.len() >= 8 {
            at += 8 + u64::from(word(&bytes[4..]));
            if at > end {
                return Err(damaged(end, "a frame to skip ends beyond the end"));
            }
            continue;
        }
        if magic != FRAME {
            return Err(damaged(at, "no frame begins here"));
        }
        let head = head(&bytes, at)?;
        if head.contents.is_some_and(|contents| contents > MOST_CONTENTS) {
            return Err(Error::LargeFrame { offset: at, contents: head.contents });
        }
        let len = frame_len(device, at, &head)?;
        let contents = match head.contents {
            Some(contents) => contents,
            None => count(device, at, len)?,
        };
        index.push(at, len, contents)?;
        at += len;
    }
    Ok(index)
}

/// Bytes of the frame at `offset` in the file.
fn frame_len(device: &Arc<dyn BlockDevice>, offset: u64, head: &Head) -> Result<u64> {
    let mut len = head.len;
    loop {
        let block = word(&[&read(&**device, offset + len, 3)?[..], &[0]].concat());
        let size = match block >> 1 & 3 {
            // One byte that is repeated.
            1 => 1,
            3 => return Err(damaged(offset + len, "a block has a reserved type")),
            _ => u64::from(block >> 3),
        };
        len += 3 + size;
        if len > 2 * MOST_CONTENTS {
            return Err(Error::LargeFrame { offset, contents: head.contents });
        }
        if block & 1 == 1 {
            return Ok(len + if head.has_checksum { 4 } else { 0 });
        }
    }
}

/// Reads a part of the file.
struct Part<'a> {
    device: &'a dyn BlockDevice,
    at: u64,
    end: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = (self.end - self.at).min(buffer.len() as u64);
        let bytes = read(self.device, self.at, len).map_err(io::Error::other)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.at += len;
        Ok(bytes.len())
    }
}

/// Counts the contents of a frame that does not say how many it has.
fn count(device: &Arc<dyn BlockDevice>, offset: u64, len: u64) -> Result<u64> {
    let part = Part { device: &**device, at: offset, end: offset + len };
    let part = io::BufReader::with_capacity(1 << 16, part);
    let failed = |error: &dyn std::fmt::Display| damaged(offset, error.to_string());
    let decoder = zstd_frame::decoder(part, WINDOW_LOG_MAX);
    let mut decoder = decoder.map_err(|error| failed(&error))?;
    let (mut buffer, mut contents) = (vec![0; 1 << 16], 0);
    loop {
        match decoder.read(&mut buffer).map_err(|error| failed(&error))? {
            0 => return Ok(contents),
            some => contents += some as u64,
        }
        if contents > MOST_CONTENTS {
            return Err(Error::LargeFrame { offset, contents: None });
        }
    }
}
