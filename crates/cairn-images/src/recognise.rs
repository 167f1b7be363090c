//! [`recognise`]: which format a file has, by its first bytes.

use std::fmt;

use cairn_block::{BlockDevice, BlockDeviceExt};

/// A format of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// [`crate::qcow2`].
    Qcow2,
    /// [`crate::zst`].
    Zstd,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Qcow2 => "qcow2",
            Self::Zstd => "zstd",
        })
    }
}

/// The format of what a device holds. `None` if it is none of this crate's, or if the first bytes
/// cannot be read: whoever reads them next learns why.
#[must_use]
pub fn recognise(device: &dyn BlockDevice) -> Option<Kind> {
    let head = device.read_bytes(0, 4).ok()?;
    match head.first_chunk::<4>()? {
        b"QFI\xfb" => Some(Kind::Qcow2),
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Some(Kind::Zstd),
        _ => None,
    }
}
