//! XTS-AES (IEEE 1619) over whole blocks.

use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit};
use aes::{Aes128, Aes256, Block};

const BLOCK: usize = 16;
/// Blocks that the processor works on at once, several times over.
const AT_ONCE: usize = 32;

/// AES with a key of either length.
pub(crate) enum Aes {
    Short(Box<Aes128>),
    Long(Box<Aes256>),
}

impl Aes {
    /// With a key of 16 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        match key.len() {
            16 => Some(Self::Short(Box::new(Aes128::new(GenericArray::from_slice(key))))),
            32 => Some(Self::Long(Box::new(Aes256::new(GenericArray::from_slice(key))))),
            _ => None,
        }
    }

    pub(crate) fn encrypt(&self, blocks: &mut [Block]) {
        match self {
            Self::Short(aes) => aes.encrypt_blocks(blocks),
            Self::Long(aes) => aes.encrypt_blocks(blocks),
        }
    }

    pub(crate) fn decrypt(&self, blocks: &mut [Block]) {
        match self {
            Self::Short(aes) => aes.decrypt_blocks(blocks),
            Self::Long(aes) => aes.decrypt_blocks(blocks),
        }
    }
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Encrypt,
    Decrypt,
}

/// XTS with both its keys.
pub(crate) struct Xts {
    data: Aes,
    tweak: Aes,
}

impl Xts {
    /// With a key of 32 or 64 bytes, half of it for each.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let (data, tweak) = key.split_at(key.len() / 2);
        Some(Self { data: Aes::new(data)?, tweak: Aes::new(tweak)? })
    }

    /// One sector, a multiple of 16 bytes, in place.
    pub(crate) fn sector(&self, iv: u128, sector: &mut [u8], way: Way) {
        let mut first = [Block::from(iv.to_le_bytes())];
        self.tweak.encrypt(&mut first);
        let mut tweak = u128::from_le_bytes(first[0].into());
        let mut tweaks = [0_u128; AT_ONCE];
        let mut blocks = [Block::default(); AT_ONCE];
        for part in sector.chunks_mut(AT_ONCE * BLOCK) {
            let count = part.len() / BLOCK;
            let (bytes, _) = part.as_chunks_mut::<BLOCK>();
            for ((block, bytes), kept) in blocks.iter_mut().zip(&*bytes).zip(&mut tweaks) {
                *kept = tweak;
                *block = (u128::from_le_bytes(*bytes) ^ tweak).to_le_bytes().into();
                tweak = double(tweak);
            }
            match way {
                Way::Encrypt => self.data.encrypt(&mut blocks[..count]),
                Way::Decrypt => self.data.decrypt(&mut blocks[..count]),
            }
            for ((block, bytes), kept) in blocks.iter().zip(bytes).zip(&tweaks) {
                *bytes = (u128::from_le_bytes((*block).into()) ^ kept).to_le_bytes();
            }
        }
    }
}

/// Times x in the field of the standard.
fn double(tweak: u128) -> u128 {
    tweak << 1 ^ if tweak >> 127 == 1 { 0x87 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors 1 and 2 of IEEE 1619.
    #[test]
    fn the_vectors_of_the_standard() {
        let mut data = [0; 32];
        Xts::new(&[0; 32]).unwrap().sector(0, &mut data, Way::Encrypt);
        assert_eq!(data[..8], [0x91, 0x7c, 0xf6, 0x9e, 0xbd, 0x68, 0xb2, 0xec]);
        assert_eq!(data[24..], [0x8c, 0x02, 0xc2, 0x65, 0x2f, 0xbf, 0x92, 0x2e]);
        let key: Vec<u8> = [[0x11; 16], [0x22; 16]].concat();
        let mut data = [0x44; 32];
        Xts::new(&key).unwrap().sector(0x33_3333_3333, &mut data, Way::Encrypt);
        assert_eq!(data[..8], [0xc4, 0x54, 0x18, 0x5e, 0x6a, 0x16, 0x93, 0x6e]);
    }

    #[test]
    fn both_ways_for_every_length() {
        for (key, len) in [(32, 16), (32, 512), (64, 4096), (64, 512 + 16)] {
            let key: Vec<u8> = (0..key).map(|at| at as u8 * 3).collect();
            let xts = Xts::new(&key).unwrap();
            let plain: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mut data = plain.clone();
            xts.sector(u128::MAX / 3, &mut data, Way::Encrypt);
            assert_ne!(data, plain);
            xts.sector(u128::MAX / 3, &mut data, Way::Decrypt);
            assert_eq!(data, plain);
        }
        assert!(Xts::new(&[0; 48]).is_none());
    }
}
