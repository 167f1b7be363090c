//! Mutations that know the form of an input: whole records are added, removed, doubled and
//! exchanged; fields get numbers that a volume uses. The fuzzer's own mutations come between.

use crate::records::{HEADER, RECORD};

/// Mutates `data[..len]` to at most `most` bytes and returns the new length. `native` is the
/// fuzzer's own mutation: of the first bytes of a slice, up to a length.
pub fn mutate(
    data: &mut [u8],
    len: usize,
    most: usize,
    seed: u32,
    native: &mut dyn FnMut(&mut [u8], usize, usize) -> usize,
) -> usize {
    let mut random = fastrand::Rng::with_seed(seed.into());
    let records = len.saturating_sub(HEADER) / RECORD;
    let (len, most) = (len.min(data.len()), most.min(data.len()));
    let any = |random: &mut fastrand::Rng| HEADER + random.usize(..records.max(1)) * RECORD;
    match random.u8(..16) {
        // The fuzzer's own, of everything.
        0..3 => native(data, len, most),
        // Of one record, which keeps its length.
        3..7 if records > 0 => {
            let at = any(&mut random);
            native(&mut data[at..at + RECORD], RECORD, RECORD);
            len
        }
        7..9 if records > 0 => {
            let at = any(&mut random);
            field(&mut data[at..at + RECORD], &mut random);
            len
        }
        9 => {
            let end = len.min(HEADER);
            if end > 0 {
                data[random.usize(..end)] = random.u8(..);
            }
            len
        }
        10 if records > 1 => {
            let at = any(&mut random);
            data.copy_within(at + RECORD..len, at);
            len - RECORD
        }
        11 if records > 1 => {
            let (one, other) = (any(&mut random), any(&mut random));
            let kept: [u8; RECORD] = std::array::from_fn(|index| data[one + index]);
            data.copy_within(other..other + RECORD, one);
            data[other..other + RECORD].copy_from_slice(&kept);
            len
        }
        12 if records > 0 && len + RECORD <= most => {
            let at = any(&mut random);
            data.copy_within(at..at + RECORD, len);
            field(&mut data[len..len + RECORD], &mut random);
            len + RECORD
        }
        13.. if len >= HEADER && len + RECORD <= most => {
            let end = HEADER + records * RECORD;
            data[end..end + RECORD].fill_with(|| random.u8(..));
            field(&mut data[end..end + RECORD], &mut random);
            end + RECORD
        }
        _ => native(data, len, most),
    }
}

/// Gives a part of a record a value that means something more often than any number.
fn field(record: &mut [u8], random: &mut fastrand::Rng) {
    const VALUES: [u64; 14] = [
        0,
        1,
        2,
        7,
        0x7f,
        0xff,
        0x7fff,
        0xffff,
        0xf30a,
        0x7fff_ffff,
        0xffff_ffff,
        0x8000_0000,
        u64::MAX,
        1 << 32,
    ];
    match random.u8(..6) {
        0 => record[0] = random.u8(..),
        1 => record[1] = random.u8(..),
        2 => record[2..4].copy_from_slice(&random.u16(..600).to_le_bytes()),
        3 => record[4..6].copy_from_slice(&(random.u16(..1024) * 2).to_le_bytes()),
        4 => {
            let value = VALUES[random.usize(..VALUES.len())];
            record[8..16].copy_from_slice(&value.to_le_bytes());
        }
        _ => record[8..16].copy_from_slice(&random.u64(..5000).to_le_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_stay_within_their_bounds() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut longer = 0;
        for seed in 0..20_000 {
            let (len, most) = (random.usize(..200), random.usize(1..200));
            let mut data = vec![5; len.max(most)];
            let new = mutate(&mut data, len, most, seed, &mut |piece, len, most| {
                assert!(len <= piece.len() && most <= piece.len());
                len.min(most)
            });
            assert!(new <= data.len());
            longer += usize::from(new > len);
        }
        assert!(longer > 1000, "{longer}");
    }
}
