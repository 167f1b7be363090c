//! From a passphrase to the key of a keyslot, within [`Limits`].

use argon2::{Algorithm, Argon2, Block, Params, Version};
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::hash::{Hash, with_hash};

/// What it may cost to try a passphrase on one keyslot. A header says what it costs, so that a
/// damaged or hostile one could ask for anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// KiB of memory of Argon2.
    pub memory_kib: u64,
    /// GiB of memory that Argon2 passes over, all its passes together.
    pub passed_gib: u64,
    /// Iterations of PBKDF2.
    pub iterations: u64,
}

impl Default for Limits {
    /// What cryptsetup makes at most (4 GiB of memory), and about five minutes of a slow processor.
    fn default() -> Self {
        Self { memory_kib: 4 << 20, passed_gib: 256, iterations: 100_000_000 }
    }
}

/// How a keyslot's key follows from a passphrase.
#[derive(Clone, Debug)]
pub(crate) enum Kdf {
    Pbkdf2 { hash: Hash, iterations: u32, salt: Vec<u8> },
    Argon2 { algorithm: Algorithm, time: u32, memory: u32, lanes: u32, salt: Vec<u8> },
}

/// PBKDF2, with the length of `key`.
pub(crate) fn pbkdf2(hash: Hash, secret: &[u8], salt: &[u8], iterations: u32, key: &mut [u8]) {
    with_hash!(hash, H => pbkdf2::pbkdf2_hmac::<H>(secret, salt, iterations, key));
}

impl Kdf {
    /// The key of `len` bytes.
    pub(crate) fn derive(
        &self,
        slot: u32,
        passphrase: &[u8],
        len: usize,
        limits: &Limits,
    ) -> Result<Zeroizing<Vec<u8>>> {
        let mut key = Zeroizing::new(vec![0; len]);
        let within = |what, wanted: u64, most: u64| {
            if wanted > most { Err(Error::Costly { slot, what, wanted, most }) } else { Ok(()) }
        };
        match self {
            Self::Pbkdf2 { hash, iterations, salt } => {
                let wanted = u64::from(*iterations);
                within("iterations of PBKDF2", wanted, limits.iterations)?;
                pbkdf2(*hash, passphrase, salt, (*iterations).max(1), &mut key);
            }
            Self::Argon2 { algorithm, time, memory, lanes, salt } => {
                let kib = u64::from(*memory);
                within("KiB of memory", kib, limits.memory_kib)?;
                let passed = kib.saturating_mul(u64::from(*time)) >> 20;
                within("GiB to pass over", passed, limits.passed_gib)?;
                let wrong =
                    |_| Error::damaged("kdf", slot, "a keyslot with parameters that cannot be");
                // The library multiplies without a look at the result.
                if lanes.checked_mul(8).is_none_or(|least| least > *memory) {
                    return Err(wrong(argon2::Error::ThreadsTooMany));
                }
                let params = Params::new(*memory, *time, *lanes, Some(len)).map_err(wrong)?;
                let mut blocks = Vec::new();
                let no_memory = |_| Error::NoMemory { slot, kib };
                blocks.try_reserve_exact(params.block_count()).map_err(no_memory)?;
                blocks.resize(params.block_count(), Block::default());
                let argon2 = Argon2::new(*algorithm, Version::V0x13, params);
                argon2
                    .hash_password_into_with_memory(passphrase, salt, &mut key, &mut blocks)
                    .map_err(wrong)?;
            }
        }
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_too_much_is_refused_with_the_value() {
        let limits = Limits::default();
        let salt = vec![1; 32];
        let argon2 = |memory, time| Kdf::Argon2 {
            algorithm: Algorithm::Argon2id,
            time,
            memory,
            lanes: 1,
            salt: salt.clone(),
        };
        let wide = |lanes| match argon2(1 << 20, 1) {
            Kdf::Argon2 { algorithm, time, memory, salt, .. } => {
                Kdf::Argon2 { algorithm, time, memory, lanes, salt }
            }
            kdf @ Kdf::Pbkdf2 { .. } => kdf,
        };
        let refused = |kdf: Kdf| kdf.derive(3, b"x", 64, &limits).unwrap_err().to_string();
        let text = refused(argon2(u32::MAX, 4));
        assert!(text.contains("keyslot 3") && text.contains("4294967295 KiB of memory"), "{text}");
        assert!(refused(argon2(1 << 20, 1000)).contains("1000 GiB to pass over"));
        let pbkdf2 = Kdf::Pbkdf2 { hash: Hash::Sha256, iterations: u32::MAX, salt: salt.clone() };
        assert!(refused(pbkdf2).contains("4294967295 iterations"));
        assert!(refused(argon2(0, 0)).contains("cannot be"));
        for lanes in [1 << 18, 1 << 29, u32::MAX] {
            assert!(refused(wide(lanes)).contains("cannot be"));
        }
        assert_eq!(argon2(32, 1).derive(0, b"x", 64, &limits).unwrap().len(), 64);
    }

    /// RFC 6070 and RFC 9106 have other salts; these are of `hashlib.pbkdf2_hmac`.
    #[test]
    fn pbkdf2_gives_what_others_get() {
        let mut key = [0; 20];
        pbkdf2(Hash::Sha1, b"password", b"salt", 2, &mut key);
        assert_eq!(key[..4], [0xea, 0x6c, 0x01, 0x4d]);
    }
}
