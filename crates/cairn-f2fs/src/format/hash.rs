//! The hash of a name in a directory: TEA over pieces of 16 bytes, as in ext3.

/// First state of the hash (that of MD4).
const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
const DELTA: u32 = 0x9e37_79b9;
const PIECE: usize = 16;

/// The hash of a name in a case-sensitive directory. `.` and `..` have 0.
#[must_use]
pub(crate) fn name_hash(name: &[u8]) -> u32 {
    if matches!(name, b"." | b"..") {
        return 0;
    }
    let [first, second, ..] = START;
    let mut state = [first, second];
    let mut rest = name;
    // The last piece is never empty.
    while let Some((piece, more)) =
        rest.split_at_checked(PIECE).filter(|(_, more)| !more.is_empty())
    {
        state = tea(state, pack(piece, rest.len()));
        rest = more;
    }
    let [hash, _] = tea(state, pack(rest, rest.len()));
    hash
}

/// Four big-endian words of up to 16 bytes, filled up with the length of the rest of the name.
fn pack(piece: &[u8], remaining: usize) -> [u32; 4] {
    // Names have at most 255 bytes; the pattern is the low byte in all four places.
    let fill = u32::from_ne_bytes([remaining.to_le_bytes()[0]; 4]);
    let mut words = [fill; 4];
    for (word, bytes) in words.iter_mut().zip(piece.chunks(4)) {
        *word = bytes.iter().fold(fill, |value, byte| value << 8 | u32::from(*byte));
    }
    words
}

fn tea(state: [u32; 2], key: [u32; 4]) -> [u32; 2] {
    let [mut first, mut second] = state;
    let mut sum = 0_u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        first = first.wrapping_add(round(second, sum, key[0], key[1]));
        second = second.wrapping_add(round(first, sum, key[2], key[3]));
    }
    [state[0].wrapping_add(first), state[1].wrapping_add(second)]
}

fn round(half: u32, sum: u32, left: u32, right: u32) -> u32 {
    (half << 4).wrapping_add(left) ^ half.wrapping_add(sum) ^ (half >> 5).wrapping_add(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first two are taken from images, the rest from a verified computation.
    #[test]
    fn vectors() {
        let long = [b'x'; 255];
        let vectors: [(&[u8], u32); 9] = [
            (b"lost+found", 0x2dbf_9e80),
            (b"file_with_a_name_355", 0x2bd1_75f7),
            (b"a", 0x6d0e_a4c1),
            (b"hello", 0x6f5b_b1a8),
            (b"0123456789abcdef", 0x5a07_88b2),
            (b"0123456789abcdefg", 0xfb1a_23ec),
            (&long, 0x6c4c_00ee),
            (b".", 0),
            (b"..", 0),
        ];
        for (name, hash) in vectors {
            assert_eq!(name_hash(name), hash, "{}", String::from_utf8_lossy(name));
        }
    }
}
