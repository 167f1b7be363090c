//! [`Cipher`]: what encrypts sectors, by its name as the kernel and headers have it.

use aes::Block;

use crate::error::{Error, Result};
use crate::hash::Hash;
use crate::xts::{Aes, Way, Xts};

const BLOCK: usize = 16;
/// The number of a sector counts in these units, however large a sector is.
const UNIT: u64 = 512;

/// How the initialisation vector of a sector follows from its number.
enum Iv {
    /// The number, of 64 bits.
    Plain64,
    /// Its lower 32 bits.
    Plain,
    /// The number, encrypted with the digest of the key.
    Essiv(Aes),
}

enum Mode {
    Xts(Box<Xts>),
    Cbc(Aes),
}

/// A cipher with its key.
pub(crate) struct Cipher {
    mode: Mode,
    iv: Iv,
}

/// A name such as `aes-xts-plain64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CipherName(pub(crate) String);

impl CipherName {
    /// The cipher with this key.
    ///
    /// # Errors
    /// The name is not known, or the key has another length.
    pub(crate) fn with_key(&self, key: &[u8]) -> Result<Cipher> {
        let unknown = || Error::unsupported(format!("the cipher {}", self.0));
        let (mode, iv) = match self.0.strip_prefix("aes-").ok_or_else(unknown)? {
            "xts-plain64" => (true, "plain64"),
            "xts-plain" => (true, "plain"),
            "cbc-plain64" => (false, "plain64"),
            "cbc-plain" => (false, "plain"),
            "cbc-essiv:sha256" => (false, "essiv"),
            _ => return Err(unknown()),
        };
        let length = || {
            Error::unsupported(format!(
                "the cipher {} with a key of {} bits",
                self.0,
                key.len() * 8
            ))
        };
        let mode = if mode {
            Mode::Xts(Box::new(Xts::new(key).ok_or_else(length)?))
        } else {
            Mode::Cbc(Aes::new(key).ok_or_else(length)?)
        };
        let iv = match iv {
            "plain64" => Iv::Plain64,
            "plain" => Iv::Plain,
            _ => Iv::Essiv(Aes::new(&Hash::Sha256.digest(&[key])).ok_or_else(length)?),
        };
        Ok(Cipher { mode, iv })
    }
}

impl Cipher {
    /// Encrypts or decrypts sectors of `size` bytes; the first has the number `first`, counted in
    /// units of 512 bytes.
    pub(crate) fn sectors(&self, first: u64, size: usize, data: &mut [u8], way: Way) {
        let mut number = first;
        for sector in data.chunks_exact_mut(size) {
            match &self.mode {
                Mode::Xts(xts) => xts.sector(self.iv(number), sector, way),
                Mode::Cbc(aes) => cbc(aes, self.iv(number), sector, way),
            }
            number = number.wrapping_add(size as u64 / UNIT);
        }
    }

    fn iv(&self, number: u64) -> u128 {
        match &self.iv {
            Iv::Plain64 => u128::from(number),
            Iv::Plain => u128::from(number & u64::from(u32::MAX)),
            Iv::Essiv(aes) => {
                let mut block = [Block::from(u128::from(number).to_le_bytes())];
                aes.encrypt(&mut block);
                u128::from_le_bytes(block[0].into())
            }
        }
    }
}

fn cbc(aes: &Aes, iv: u128, sector: &mut [u8], way: Way) {
    let mut before = iv;
    for bytes in sector.as_chunks_mut::<BLOCK>().0 {
        let this = u128::from_le_bytes(*bytes);
        if way == Way::Encrypt {
            let mut block = [Block::from((this ^ before).to_le_bytes())];
            aes.encrypt(&mut block);
            before = u128::from_le_bytes(block[0].into());
            *bytes = before.to_le_bytes();
        } else {
            let mut block = [Block::from(*bytes)];
            aes.decrypt(&mut block);
            *bytes = (u128::from_le_bytes(block[0].into()) ^ before).to_le_bytes();
            before = this;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cipher_returns_what_it_was_given() {
        let names = [
            ("aes-xts-plain64", 64),
            ("aes-xts-plain", 32),
            ("aes-cbc-essiv:sha256", 32),
            ("aes-cbc-plain64", 16),
        ];
        for (name, len) in names {
            let cipher = CipherName(name.to_owned()).with_key(&vec![7; len]).unwrap();
            let mut data = vec![1; 8192];
            cipher.sectors(1 << 33, 4096, &mut data, Way::Encrypt);
            assert_ne!(data[..4096], data[4096..], "{name}");
            cipher.sectors(1 << 33, 4096, &mut data, Way::Decrypt);
            assert_eq!(data, [1; 8192], "{name}");
        }
    }

    #[test]
    fn what_is_not_done_is_named() {
        let refused = |name: &str, len: usize| {
            let made = CipherName(name.to_owned()).with_key(&vec![0; len]);
            made.map(drop).unwrap_err().to_string()
        };
        assert!(refused("serpent-xts-plain64", 64).contains("the cipher serpent-xts-plain64"));
        assert!(refused("aes-xts-plain64", 48).contains("a key of 384 bits"));
        assert!(refused("aes-adiantum", 32).contains("aes-adiantum"));
    }
}
