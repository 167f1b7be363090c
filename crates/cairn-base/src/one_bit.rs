//! Finds the one wrong bit of a block by its crc32c.
//!
//! The checksum is linear: a wrong bit changes it by an amount that depends only on the bit's
//! distance from the end, so the difference of the stored and the computed checksum names the bit.
//! In blocks of up to 64 KiB no other single bit has the same difference.

use crate::checksum::crc32c;

/// What must change for a checksum to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongBit {
    /// A bit of the stored checksum.
    Checksum,
    /// The bits of `mask` of the byte `at`.
    Byte {
        /// Index of the byte.
        at: usize,
        /// The bit.
        mask: u8,
    },
}

/// The one bit that makes the checksum of `length` bytes hold. `None` if it takes more.
#[must_use]
pub fn find(length: usize, stored: u32, computed: u32) -> Option<WrongBit> {
    let difference = stored ^ computed;
    if difference.count_ones() == 1 {
        return Some(WrongBit::Checksum);
    }
    let masks: [u8; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
    let mut effects = masks.map(|mask| crc32c(0, &[mask]));
    for at in (0..length).rev() {
        let found = effects.iter().zip(masks).find(|(effect, _)| **effect == difference);
        if let Some((_, mask)) = found {
            return Some(WrongBit::Byte { at, mask });
        }
        effects = effects.map(|effect| crc32c(effect, &[0]));
    }
    None
}

/// Corrects bytes. False if the bit is not in them.
#[must_use]
pub fn correct(bytes: &mut [u8], wrong: WrongBit) -> bool {
    match wrong {
        WrongBit::Checksum => true,
        WrongBit::Byte { at, mask } => match bytes.get_mut(at) {
            Some(byte) => {
                *byte ^= mask;
                true
            }
            None => false,
        },
    }
}

#[cfg(test)]
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::expect_used,
    reason = "a test may panic"
)]
mod tests {
    use super::*;

    #[test]
    fn any_wrong_bit_is_found() {
        let sound: Vec<u8> = (0..1024_u32).map(|at| (at * 7 % 251) as u8).collect();
        let stored = crc32c(0x1234, &sound);
        for at in [0, 1, 500, 1022, 1023] {
            for bit in 0..8 {
                let mut wrong = sound.clone();
                wrong[at] ^= 1 << bit;
                let found = find(wrong.len(), stored, crc32c(0x1234, &wrong));
                assert_eq!(found, Some(WrongBit::Byte { at, mask: 1 << bit }));
                assert!(correct(&mut wrong, found.expect("it was found")) && wrong == sound);
            }
        }
        assert_eq!(find(1024, stored ^ 0x100, stored), Some(WrongBit::Checksum));
        let mut noise = sound;
        noise[3] ^= 5;
        assert_eq!(find(1024, stored, crc32c(0x1234, &noise)), None);
    }
}
