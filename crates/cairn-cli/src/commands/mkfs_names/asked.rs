//! What a command line of another maker asks for.

use std::ffi::{OsStr, OsString};

use cairn::MkfsOptions;

/// What a command line asks for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) options: MkfsOptions,
    /// A tree to fill the volume with.
    pub(super) tree: Option<OsString>,
    pub(super) device: OsString,
    /// The maker asks before it overwrites a filesystem, but only on a terminal.
    pub(super) asks: bool,
}

/// The answer to a command line.
pub(super) enum Answer {
    Make(Box<Asked>),
    /// Help or a version.
    Text(String),
}

/// A size with the letters of mke2fs; without one, in `unit` bytes.
pub(super) fn size(text: &OsStr, unit: u64) -> Option<u64> {
    let text = text.to_str()?;
    let (digits, unit) = match text.as_bytes().last()?.to_ascii_lowercase() {
        b's' => (text.get(..text.len() - 1)?, 512),
        b'k' => (text.get(..text.len() - 1)?, 1 << 10),
        b'm' => (text.get(..text.len() - 1)?, 1 << 20),
        b'g' => (text.get(..text.len() - 1)?, 1 << 30),
        b't' => (text.get(..text.len() - 1)?, 1 << 40),
        _ => (text, unit),
    };
    let number: u64 = digits.parse().ok().filter(|_| !digits.starts_with('+'))?;
    number.checked_mul(unit).filter(|size| *size > 0)
}
