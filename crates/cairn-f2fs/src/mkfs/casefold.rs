//! [`Encoding`]: how names are compared in directories that ignore case.

use super::error::Error;
use crate::format::superblock::{STRICT, UTF8};

/// What the superblock says of names without case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Encoding {
    pub(super) encoding: u16,
    pub(super) flags: u16,
}

impl Encoding {
    /// The only encoding that there is. Linux mounts no volume with the feature and without one.
    pub(super) const UTF8: Self = Self { encoding: UTF8, flags: 0 };

    /// Reads `utf8`, or `utf8:` and flags with commas between them.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let (name, flags) = text.split_once(':').unwrap_or((text, ""));
        if name != "utf8" {
            return Err(Error::Option(format!(
                "the encoding `{name}` is not known: there is utf8, and utf8:strict"
            )));
        }
        let mut encoding = Self::UTF8;
        for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
            match flag {
                "strict" => encoding.flags |= STRICT,
                "nostrict" => encoding.flags &= !STRICT,
                _ => {
                    return Err(Error::Option(format!(
                        "the flag `{flag}` of an encoding is not known: there are strict and \
                         nostrict"
                    )));
                }
            }
        }
        Ok(encoding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_encodings() {
        let parsed = |text| Encoding::parse(text).map(|encoding| encoding.flags).ok();
        assert_eq!(parsed("utf8"), Some(0));
        assert_eq!(parsed("utf8:strict"), Some(STRICT));
        assert_eq!(parsed("utf8:strict,nostrict"), Some(0));
        assert_eq!((parsed("ascii"), parsed("utf8:loose"), parsed("")), (None, None, None));
    }
}
