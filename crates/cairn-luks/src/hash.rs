//! [`Hash`]: the hash functions that headers name.

use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use crate::error::{Error, Result};

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// Calls a generic function with the type of a hash function.
macro_rules! with_hash {
    ($hash:expr, $type:ident => $work:expr) => {
        match $hash {
            $crate::hash::Hash::Sha1 => {
                type $type = sha1::Sha1;
                $work
            }
            $crate::hash::Hash::Sha224 => {
                type $type = sha2::Sha224;
                $work
            }
            $crate::hash::Hash::Sha256 => {
                type $type = sha2::Sha256;
                $work
            }
            $crate::hash::Hash::Sha384 => {
                type $type = sha2::Sha384;
                $work
            }
            $crate::hash::Hash::Sha512 => {
                type $type = sha2::Sha512;
                $work
            }
        }
    };
}

pub(crate) use with_hash;

impl Hash {
    pub(crate) fn named(name: &str) -> Result<Self> {
        match name.to_ascii_lowercase().as_str() {
            "sha1" => Ok(Self::Sha1),
            "sha224" => Ok(Self::Sha224),
            "sha256" => Ok(Self::Sha256),
            "sha384" => Ok(Self::Sha384),
            "sha512" => Ok(Self::Sha512),
            _ => Err(Error::unsupported(format!("the hash function {name:?}"))),
        }
    }

    /// Bytes of a digest.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Sha1 => Sha1::output_size(),
            Self::Sha224 => Sha224::output_size(),
            Self::Sha256 => Sha256::output_size(),
            Self::Sha384 => Sha384::output_size(),
            Self::Sha512 => Sha512::output_size(),
        }
    }

    /// The digest of the parts, one after the other.
    pub(crate) fn digest(self, parts: &[&[u8]]) -> Vec<u8> {
        with_hash!(self, H => {
            let mut state = H::new();
            parts.iter().for_each(|part| state.update(part));
            state.finalize().to_vec()
        })
    }
}
