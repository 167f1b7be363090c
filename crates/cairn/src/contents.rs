//! Finds out what mkfs would overwrite. Writes nothing.

use std::ops::Range;

use cairn_base::names::Escaped;
use cairn_block::BlockDevice;

use crate::bytes::read_bytes;
use crate::device::open_or_raw;
use crate::error::{Cause, Error, Hint, Result};
use crate::format;
use crate::image::{ImageSpec, Location, Part};
use crate::objects;
use crate::partition;
use crate::recognise::recognise;

/// Bytes that are examined at the start and before the end. Every format that a disk can hold has
/// something there: F2FS a checkpoint at 2 MiB, if its superblocks are gone.
const WINDOW: u64 = 4 << 20;
/// Bytes that are examined between them, of those that may not be zeros: a filesystem may begin
/// there, which its address has to say.
const MIDDLE: u64 = 64 << 20;
/// Bytes that are read at a time.
const PIECE: u64 = 1 << 16;

/// What Cairn can neither open nor rescue, and mkfs would destroy.
const WITHOUT_SUPERBLOCKS: Hint = Hint {
    what: "an F2FS volume without its two superblocks",
    advice: "its files are still there: do not make another filesystem in it, copy it, and write \
             over the first 8192 bytes of the copy those of a backup of this volume (a superblock \
             of another one has another UUID, which checksums depend on)",
};

/// The contents of the image in a few words ("an ext4 volume labelled root"). `None` if it does not
/// exist or is empty, or if the examined bytes are all zeros.
///
/// # Errors
/// The image cannot be opened or read, or is in use.
pub fn contents(image: &ImageSpec) -> Result<Option<String>> {
    // A dangling link counts as an image that does not exist yet.
    if image.part == Part::Whole && !exists(image)? {
        return Ok(None);
    }
    let device = open_or_raw(image, false)?;
    describe(&*device).map_err(|cause| Error::new(image, cause))
}

fn exists(image: &ImageSpec) -> Result<bool> {
    let path = match &image.location {
        Location::File(path) => path,
        // It is there, or cannot be opened.
        Location::Nbd(_) => return Ok(true),
        Location::Objects(volume) => return Ok(objects::size(image, volume)?.is_some()),
    };
    path.try_exists().map_err(|error| {
        let operation = format!("open {}", path.escaped());
        Error::new(image, Cause::Open(cairn_block::Error::from_io(operation, error)))
    })
}

fn describe(device: &dyn BlockDevice) -> Result<Option<String>, Cause> {
    if let Some(volume) = volume(device)? {
        return Ok(Some(volume));
    }
    match partition::read(device) {
        Ok(Some(table)) if table.partitions.len() == 1 => {
            return Ok(Some(format!(
                "a disk with a {} partition table and one partition",
                table.kind
            )));
        }
        Ok(Some(table)) => {
            return Ok(Some(format!(
                "a disk with a {} partition table and {} partitions",
                table.kind,
                table.partitions.len()
            )));
        }
        Err(Cause::PartitionTable { table, .. }) => {
            return Ok(Some(format!("a damaged {table} partition table")));
        }
        Err(other) => return Err(other),
        Ok(None) => {}
    }
    if let Some(hint) = recognise(device) {
        return Ok(Some(hint.what.into()));
    }
    if format::f2fs::has_checkpoint(device) {
        return Ok(Some(WITHOUT_SUPERBLOCKS.what.into()));
    }
    Ok(something(device)?.map(|bytes| if is_text(&bytes) { "text" } else { "data" }.into()))
}

/// A hint for a device with unknown contents.
pub(crate) fn unknown(device: &dyn BlockDevice) -> Option<Hint> {
    const MAKE: &str = "make a filesystem in it; if one begins elsewhere, name it: \
        'IMAGE?offset=BYTES'";
    if device.geometry().size == 0 {
        return Some(Hint {
            what: "an empty file",
            advice: "give it a size, and make a filesystem in it",
        });
    }
    if format::f2fs::has_checkpoint(device) {
        return Some(WITHOUT_SUPERBLOCKS);
    }
    match something(device).ok()? {
        None => Some(Hint { what: "nothing but zeros", advice: MAKE }),
        Some(bytes) if is_text(&bytes) => {
            Some(Hint { what: "text", advice: "give the image itself" })
        }
        Some(_) => None,
    }
}

/// A damaged one counts, too.
fn volume(device: &dyn BlockDevice) -> Result<Option<String>, Cause> {
    match format::probe(device) {
        Ok(None) => Ok(None),
        Ok(Some(format)) => {
            let label = format::label(format, device);
            let label = label
                .filter(|label| !label.is_empty())
                .map_or(String::new(), |label| format!(" labelled {label}"));
            Ok(Some(format!("an {format} volume{label}")))
        }
        Err(Cause::Device(error)) => Err(Cause::Device(error)),
        Err(_) => Ok(Some("a damaged volume".into())),
    }
}

/// The first piece that is not all zeros, of those that are examined.
fn something(device: &dyn BlockDevice) -> Result<Option<Vec<u8>>, Cause> {
    let size = device.geometry().size;
    let (start, end) = (size.min(WINDOW), size.saturating_sub(WINDOW).max(WINDOW));
    for window in [0..start, end..size] {
        if let Some(found) = not_zeros(device, window)? {
            return Ok(Some(found));
        }
    }
    let (mut at, mut left) = (start, MIDDLE);
    while at < end && left > 0 {
        let extents = device.extents(at..end)?;
        let Some(last) = extents.last() else { break };
        let next = last.offset.saturating_add(last.len);
        for extent in extents.iter().filter(|extent| !extent.zero) {
            let from = extent.offset.max(at);
            let to = extent.offset.saturating_add(extent.len).min(end).min(from + left);
            left -= to.saturating_sub(from);
            if let Some(found) = not_zeros(device, from..to)? {
                return Ok(Some(found));
            }
        }
        at = next.max(at + 1);
    }
    Ok(None)
}

/// The first piece of the range that is not all zeros.
fn not_zeros(device: &dyn BlockDevice, range: Range<u64>) -> Result<Option<Vec<u8>>, Cause> {
    let mut at = range.start;
    while at < range.end {
        let len = PIECE.min(range.end - at);
        let bytes = read_bytes(device, at, usize::try_from(len).unwrap_or(usize::MAX))?;
        if let Some(bytes) = bytes.filter(|bytes| bytes.iter().any(|byte| *byte != 0)) {
            return Ok(Some(bytes));
        }
        at += len;
    }
    Ok(None)
}

fn is_text(bytes: &[u8]) -> bool {
    // The last character may be incomplete.
    let text = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    text.len() + 4 > bytes.len()
        && !text.contains(|letter: char| letter.is_control() && !letter.is_whitespace())
}
