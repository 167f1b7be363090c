//! [`Passphrase`].

use std::fmt;
use std::io::{self, Read};

use zeroize::Zeroizing;

/// The largest key file that cryptsetup reads.
const MOST: u64 = 8 << 20;

/// What opens a keyslot: a passphrase, or the bytes of a key file. It is overwritten when it is
/// dropped.
#[derive(Clone)]
pub struct Passphrase(Zeroizing<Vec<u8>>);

impl Passphrase {
    /// These bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }

    /// All bytes of a key file; a newline at its end counts.
    ///
    /// # Errors
    /// It cannot be read, or has more than 8 MiB.
    pub fn read(from: impl Read) -> io::Result<Self> {
        let mut bytes = Zeroizing::new(Vec::new());
        from.take(MOST + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST {
            let why = "the key file has more than 8 MiB: give the file that holds the key alone";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Self(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_counts_whole_and_is_not_printed() {
        let key = Passphrase::read(&b"secret\n"[..]).unwrap();
        assert_eq!(key.bytes(), b"secret\n");
        assert_eq!(format!("{key:?}"), "Passphrase");
        let error = Passphrase::read(io::repeat(7)).unwrap_err().to_string();
        assert!(error.contains("more than 8 MiB"), "{error}");
    }
}
