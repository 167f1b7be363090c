//! The record of an inode, with its bytes.

use cairn_base::Ino;

use crate::error::{Error, Result};
use crate::format::inode::Inode as Record;
use crate::raw::RawVolume;

/// The record of an inode whose table can be read.
pub(super) fn record(volume: &RawVolume, ino: Ino) -> Result<(Vec<u8>, Record)> {
    let bytes = volume.record_bytes(ino);
    let found = bytes.and_then(|bytes| {
        let record = Record::decode_unchecked(&bytes, &volume.layout)?;
        Some((bytes, record))
    });
    found.ok_or_else(|| {
        Error::Option(format!(
            "inode {ino}: its table cannot be read: look at its group with `groups`"
        ))
    })
}
