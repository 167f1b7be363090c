//! [`recognise`] and [`inspect`]: what a header says without a passphrase.

use cairn_block::BlockDevice;

use crate::error::{Error, Result};
use crate::unlock::Volume;
use crate::{luks1, luks2, read};

const MAGIC: &[u8] = b"LUKS\xba\xbe";

/// What a header says of its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Version of the format: 1 or 2.
    pub version: u32,
    /// Its UUID, as it stands there.
    pub uuid: String,
    /// Its label, empty if it has none.
    pub label: String,
    /// The cipher, as the kernel names it (`aes-xts-plain64`).
    pub cipher: String,
    /// Bytes that are encrypted together.
    pub sector_size: u32,
    /// Where the data begins on the device.
    pub offset: u64,
    /// Bytes of the disk.
    pub size: u64,
    /// Keyslots that a passphrase may open.
    pub keyslots: usize,
}

/// True if the device begins with a LUKS header. A device that cannot be read has none here;
/// whoever reads it next learns why.
#[must_use]
pub fn recognise(device: &dyn BlockDevice) -> bool {
    read::bytes(device, "header", 0, 6).is_ok_and(|bytes| bytes == MAGIC)
}

/// Reads the header.
///
/// # Errors
/// [`Error::NotLuks`], [`Error::Damaged`], [`Error::Unsupported`], [`Error::Device`].
pub fn inspect(device: &dyn BlockDevice) -> Result<Info> {
    let volume = volume(device)?;
    Ok(Info {
        version: volume.version,
        uuid: volume.uuid,
        label: volume.label,
        cipher: volume.segment.cipher.0,
        sector_size: volume.segment.sector_size,
        offset: volume.segment.offset,
        size: volume.segment.len,
        keyslots: volume.keyslots.len(),
    })
}

/// The header of either version. One of version 2 is found by its second copy, too.
pub(crate) fn volume(device: &dyn BlockDevice) -> Result<Volume> {
    let head = read::bytes(device, "header", 0, 8).map_err(|error| match error {
        Error::Damaged { .. } => Error::NotLuks,
        other => other,
    })?;
    if head.starts_with(MAGIC) && head[6..] == [0, 1] {
        return luks1::read(device);
    }
    luks2::read(device)
}
