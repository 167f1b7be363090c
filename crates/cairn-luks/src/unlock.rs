//! [`Volume`]: what either header says, and how a passphrase gives the key of the disk.

use cairn_block::BlockDevice;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::af;
use crate::cipher::CipherName;
use crate::error::{Error, Result};
use crate::hash::Hash;
use crate::kdf::{self, Kdf, Limits};
use crate::passphrase::Passphrase;
use crate::read;
use crate::xts::Way;

/// Key material is encrypted in sectors of this size.
const SECTOR: u64 = 512;

/// Where the data is, and how it is encrypted.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// On the device, in bytes.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// The number that the first sector has for the cipher, in units of 512 bytes.
    pub(crate) first_sector: u64,
    pub(crate) sector_size: u32,
    pub(crate) cipher: CipherName,
}

/// A keyslot that leads to the key of the segment.
#[derive(Clone, Debug)]
pub(crate) struct Keyslot {
    pub(crate) number: u32,
    /// Bytes of the key of the disk.
    pub(crate) key_len: u32,
    pub(crate) stripes: u32,
    pub(crate) af_hash: Hash,
    /// Where its key material begins, in bytes.
    pub(crate) area: u64,
    pub(crate) area_cipher: CipherName,
    pub(crate) area_key_len: u32,
    pub(crate) kdf: Kdf,
}

/// What tells whether a key is the right one.
#[derive(Clone, Debug)]
pub(crate) struct Digest {
    pub(crate) hash: Hash,
    pub(crate) iterations: u32,
    pub(crate) salt: Vec<u8>,
    pub(crate) digest: Vec<u8>,
}

/// A validated header.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) version: u32,
    pub(crate) uuid: String,
    pub(crate) label: String,
    pub(crate) segment: Segment,
    /// In the order in which a passphrase is tried.
    pub(crate) keyslots: Vec<Keyslot>,
    pub(crate) digest: Digest,
}

impl Volume {
    /// The key of the disk, by the first keyslot that the passphrase opens. A keyslot that cannot
    /// be tried does not keep the others from being tried.
    pub(crate) fn unlock(
        &self,
        device: &dyn BlockDevice,
        passphrase: &Passphrase,
        limits: &Limits,
    ) -> Result<Zeroizing<Vec<u8>>> {
        let wanted = u64::from(self.digest.iterations);
        if wanted > limits.iterations {
            let (what, most) = ("iterations for the digest of the key", limits.iterations);
            return Err(Error::Costly { slot: 0, what, wanted, most });
        }
        let mut failed = None;
        for slot in &self.keyslots {
            match slot.open(device, passphrase, limits) {
                Ok(key) if self.is_key(&key) => return Ok(key),
                Ok(_) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.unwrap_or(Error::WrongPassphrase(self.keyslots.len())))
    }

    fn is_key(&self, key: &[u8]) -> bool {
        let Digest { hash, iterations, salt, digest } = &self.digest;
        let mut computed = Zeroizing::new(vec![0; digest.len()]);
        kdf::pbkdf2(*hash, key, salt, (*iterations).max(1), &mut computed);
        computed.ct_eq(digest).into()
    }
}

impl Keyslot {
    /// The key that this slot gives for a passphrase, right or wrong.
    fn open(
        &self,
        device: &dyn BlockDevice,
        passphrase: &Passphrase,
        limits: &Limits,
    ) -> Result<Zeroizing<Vec<u8>>> {
        let len = u64::from(self.key_len) * u64::from(self.stripes);
        let sectors = len.next_multiple_of(SECTOR);
        let material = read::bytes(device, "area of a keyslot", self.area, sectors)?;
        let mut material = Zeroizing::new(material);
        let area_len = self.area_key_len as usize;
        let key = self.kdf.derive(self.number, passphrase.bytes(), area_len, limits)?;
        let cipher = self.area_cipher.with_key(&key)?;
        cipher.sectors(0, SECTOR as usize, &mut material, Way::Decrypt);
        Ok(af::merge(&material[..len as usize], self.key_len as usize, self.af_hash))
    }
}
