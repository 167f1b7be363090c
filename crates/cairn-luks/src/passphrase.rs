//! [`Passphrase`].

use std::fmt;
use std::io::{self, Read};

use zeroize::Zeroizing;

/// The largest key file that cryptsetup reads.
const MOST: usize = 8 << 20;
/// Bytes that are read at first.
const FIRST: usize = 4096;

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
        let mut from = from;
        let mut bytes = Zeroizing::new(vec![0; FIRST]);
        let mut len = 0;
        loop {
            // A vector that grows by itself leaves what it held behind.
            if len == bytes.len() {
                let mut larger = Zeroizing::new(vec![0; len * 4]);
                larger[..len].copy_from_slice(&bytes);
                bytes = larger;
            }
            match from.read(&mut bytes[len..]) {
                Ok(0) => break,
                Ok(count) => len += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if len > MOST {
                let why = "the key file has more than 8 MiB: give the file that holds the key \
                           alone";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        }
        bytes.truncate(len);
        Ok(Self(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// True if it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
        let long: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        assert!(Passphrase::read(&long[..]).unwrap().bytes() == long);
        let error = Passphrase::read(io::repeat(7)).unwrap_err().to_string();
        assert!(error.contains("more than 8 MiB"), "{error}");
    }
}
