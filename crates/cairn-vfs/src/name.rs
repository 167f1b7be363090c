//! Names of directory entries.
//!
//! Bytes from any source (a volume, a log, a caller) become a [`Name`] or a [`NameBuf`] before they
//! are listed, stored or made part of a path. Invariant: 1 to 255 bytes, no NUL and no slash. `.`
//! and `..` are names, because listings contain them; [`crate::namespace::check_name`] refuses them
//! where an entry is created or removed.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use crate::error::Error;

/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;

/// A checked name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a [u8]);

/// A checked name that owns its bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameBuf(Vec<u8>);

/// Why bytes are not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// The name is empty.
    #[error("the name is empty")]
    Empty,
    /// The name has this many bytes.
    #[error("the name is longer than 255 bytes")]
    TooLong(usize),
    /// The name contains this byte: NUL or a slash.
    #[error("the name contains NUL or a slash")]
    Byte(u8),
}

impl BadName {
    /// The invalid value: the length or the byte.
    #[must_use]
    pub const fn value(self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::TooLong(len) => len as u64,
            Self::Byte(byte) => byte as u64,
        }
    }

    /// A description for error messages that name the place themselves.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::Empty => "the name is empty",
            Self::TooLong(_) => "the name is longer than 255 bytes",
            Self::Byte(_) => "the name contains NUL or a slash",
        }
    }
}

/// The error of a system call with such a name.
impl From<BadName> for Error {
    fn from(bad: BadName) -> Self {
        match bad {
            BadName::Empty => Self::NotFound,
            BadName::TooLong(_) => Self::NameTooLong,
            BadName::Byte(_) => Self::Invalid("a name holds neither NUL nor slash"),
        }
    }
}

impl<'a> Name<'a> {
    /// A directory's name for itself.
    pub const DOT: Self = Self(b".");
    /// A directory's name for its parent.
    pub const DOT_DOT: Self = Self(b"..");

    /// Validates a name.
    ///
    /// # Errors
    /// The bytes are empty, too long, or contain NUL or a slash.
    pub fn check(bytes: &'a [u8]) -> Result<Self, BadName> {
        match bytes.len() {
            0 => return Err(BadName::Empty),
            len if len > NAME_MAX => return Err(BadName::TooLong(len)),
            _ => {}
        }
        match bytes.iter().find(|byte| matches!(byte, 0 | b'/')) {
            Some(byte) => Err(BadName::Byte(*byte)),
            None => Ok(Self(bytes)),
        }
    }

    /// The bytes of the name, with the lifetime of the source.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// True for `.` and `..`.
    #[must_use]
    pub fn is_dots(self) -> bool {
        matches!(self.0, b"." | b"..")
    }

    /// A copy that owns its bytes.
    #[must_use]
    pub fn to_buf(self) -> NameBuf {
        NameBuf(self.0.to_vec())
    }
}

impl NameBuf {
    /// The name, borrowed.
    #[must_use]
    pub fn name(&self) -> Name<'_> {
        Name(&self.0)
    }

    /// The bytes of the name.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl TryFrom<Vec<u8>> for NameBuf {
    type Error = BadName;

    fn try_from(bytes: Vec<u8>) -> Result<Self, BadName> {
        Name::check(&bytes)?;
        Ok(Self(bytes))
    }
}

impl From<Name<'_>> for NameBuf {
    fn from(name: Name<'_>) -> Self {
        name.to_buf()
    }
}

impl Deref for Name<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl Deref for NameBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// A map of names can be searched by bytes: both are ordered and hashed alike.
impl Borrow<[u8]> for NameBuf {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for NameBuf {
    fn eq(&self, other: &&[u8; N]) -> bool {
        self.0 == *other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Name<'_> {
    fn eq(&self, other: &&[u8; N]) -> bool {
        self.0 == *other
    }
}

impl<const N: usize> PartialEq<[u8; N]> for NameBuf {
    fn eq(&self, other: &[u8; N]) -> bool {
        self.0 == other
    }
}

impl PartialEq<[u8]> for Name<'_> {
    fn eq(&self, other: &[u8]) -> bool {
        self.0 == other
    }
}

impl PartialEq<[u8]> for NameBuf {
    fn eq(&self, other: &[u8]) -> bool {
        self.0 == other
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Debug for NameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_become_a_name_that_could_lead_elsewhere() {
        for good in [&b"a"[..], b"..a", b"a b", b"\xff\xfe", &[b'x'; NAME_MAX]] {
            assert_eq!(Name::check(good).unwrap().bytes(), good);
            assert_eq!(NameBuf::try_from(good.to_vec()).unwrap().into_bytes(), good);
        }
        for (bad, why) in [
            (&b""[..], BadName::Empty),
            (b"/", BadName::Byte(b'/')),
            (b"../../etc/passwd", BadName::Byte(b'/')),
            (b"a\0b", BadName::Byte(0)),
            (&[b'x'; NAME_MAX + 1], BadName::TooLong(NAME_MAX + 1)),
        ] {
            assert_eq!(Name::check(bad), Err(why));
            assert_eq!(NameBuf::try_from(bad.to_vec()), Err(why));
        }
        assert!(
            Name::DOT.is_dots()
                && Name::DOT_DOT.is_dots()
                && !Name::check(b"...").unwrap().is_dots()
        );
    }
}
