//! [`Corrupt`]: an object with contents that no volume writes.

use std::fmt;

use cairn_block::{Error, ErrorKind};

/// Where, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt {
    /// The object.
    pub(crate) object: String,
    /// What is there, and what should be.
    pub(crate) detail: String,
    /// A newer program wrote it.
    pub(crate) newer: bool,
}

pub(crate) type Result<T> = std::result::Result<T, Corrupt>;

/// How many versions a newer program may be ahead. What is beyond is damage.
const AHEAD: u32 = 100;

impl Corrupt {
    pub(crate) fn new(object: impl fmt::Display, detail: impl Into<String>) -> Self {
        Self { object: object.to_string(), detail: detail.into(), newer: false }
    }

    /// A field of a layout that this program does not know.
    pub(crate) fn newer(object: impl fmt::Display, version: u64, newest: u32) -> Self {
        let detail = format!(
            "has version {version} of the layout, and this Cairn knows version {newest}: use a \
             newer Cairn"
        );
        Self { object: object.to_string(), detail, newer: true }
    }

    /// Checks the version that an object says. The `newest` is the last one that is known.
    pub(crate) fn version(object: impl fmt::Display, version: u32, newest: u32) -> Result<()> {
        match version {
            0 => Err(Self::new(object, "has version 0 of the layout, and 1 is the first")),
            version if version > newest.saturating_add(AHEAD) => {
                Err(Self::new(object, format!("has {version} where the version of its layout is")))
            }
            version if version > newest => Err(Self::newer(object, version.into(), newest)),
            _ => Ok(()),
        }
    }

    /// Compares a checksum.
    pub(crate) fn checksum(object: impl fmt::Display, stored: u32, computed: u32) -> Result<()> {
        if stored == computed {
            return Ok(());
        }
        let detail =
            format!("has the checksum {stored:#010x}, and its bytes give {computed:#010x}");
        Err(Self::new(object, detail))
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, detail, newer } = self;
        write!(f, "the object {object} {detail}")?;
        if *newer {
            return Ok(());
        }
        f.write_str("; restore it from a copy of the store, or use a snapshot")
    }
}

impl From<Corrupt> for Error {
    fn from(corrupt: Corrupt) -> Self {
        let kind = if corrupt.newer { ErrorKind::Unsupported } else { ErrorKind::Io };
        Self::new(kind, "read the store", corrupt.to_string())
    }
}
