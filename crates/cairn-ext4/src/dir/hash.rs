//! The name hashes that order an indexed directory. Source: "Hash Tree Directories" in the kernel's
//! ext4 documentation. The compression functions are half of MD4 (RFC 1320) and TEA (Wheeler and
//! Needham).
//!
//! Each algorithm exists twice: the bytes of a name are sign-extended or not, as on the machine
//! that created the volume. Flags of the superblock tell which.

use std::ops::RangeInclusive;

/// How a volume hashes names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashSettings {
    /// `s_def_hash_version`: the algorithm of newly indexed directories.
    pub default_version: u8,
    /// Bytes of names are not sign-extended (`EXT2_FLAGS_UNSIGNED_HASH`).
    pub unsigned: bool,
    /// `s_hash_seed`. If it is zero, MD4's initial state is used.
    pub seed: [u32; 4],
}

/// The hash of a name. `major` orders the index, `minor` orders names of the same major hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NameHash {
    /// It is even: in index entries the lowest bit means "continued".
    pub major: u32,
    /// 0 for the legacy hash.
    pub minor: u32,
}

/// The hashes of the names in a leaf: `from` is its entry's hash, `next` that of the entry behind
/// it. If that one continues the same value, the leaf may have it, too.
#[must_use]
pub(crate) const fn leaf_hashes(from: u32, next: Option<u32>) -> RangeInclusive<u32> {
    let to = match next {
        None => u32::MAX,
        Some(next) if next & 1 == 1 => next,
        Some(next) => next.saturating_sub(1),
    };
    (from & !1)..=to
}

/// `EXT4_DX_HASH_LEGACY`.
pub(crate) const LEGACY: u8 = 0;
/// `EXT4_DX_HASH_HALF_MD4`.
pub(crate) const HALF_MD4: u8 = 1;
/// `EXT4_DX_HASH_TEA`.
pub(crate) const TEA: u8 = 2;
/// `EXT4_DX_HASH_LEGACY_UNSIGNED`, the first of the three unsigned versions.
pub(crate) const LEGACY_UNSIGNED: u8 = 3;
const TEA_UNSIGNED: u8 = 5;

/// Reserved for the end of a directory. No name has this hash.
const END_OF_HASHES: u32 = 0x7fff_ffff << 1;

impl HashSettings {
    /// Hashes `name` with the algorithm `version`. `None` if it is unknown.
    #[must_use]
    pub(crate) fn hash(&self, version: u8, name: &[u8]) -> Option<NameHash> {
        let (algorithm, unsigned) = match version {
            LEGACY..=TEA => (version, self.unsigned),
            LEGACY_UNSIGNED..=TEA_UNSIGNED => (version.saturating_sub(LEGACY_UNSIGNED), true),
            _ => return None,
        };
        let (major, minor) = match algorithm {
            LEGACY => (legacy(name, unsigned), 0),
            HALF_MD4 => half_md4(self.state(), name, unsigned),
            _ => tea(self.state(), name, unsigned),
        };
        let major = major & !1;
        Some(NameHash {
            major: if major == END_OF_HASHES { END_OF_HASHES - 2 } else { major },
            minor,
        })
    }

    fn state(&self) -> [u32; 4] {
        if self.seed == [0; 4] {
            [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476]
        } else {
            self.seed
        }
    }
}

fn widen(byte: u8, unsigned: bool) -> u32 {
    if unsigned { u32::from(byte) } else { i32::from(byte.cast_signed()).cast_unsigned() }
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut newer, mut older) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for byte in name {
        let mut next = older.wrapping_add(newer ^ widen(*byte, unsigned).wrapping_mul(7_152_373));
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7fff_ffff);
        }
        (older, newer) = (newer, next);
    }
    newer << 1
}

/// The next `N` words of input: bytes of the name, most significant first, padded with the
/// remaining length.
fn words<const N: usize>(rest: &[u8], unsigned: bool) -> [u32; N] {
    let [length, ..] = rest.len().to_le_bytes();
    let pad = u32::from_le_bytes([length; 4]);
    let mut chunks = rest.chunks(4);
    std::array::from_fn(|_| {
        let chunk = chunks.next().unwrap_or(&[]);
        chunk.iter().fold(pad, |word, byte| widen(*byte, unsigned).wrapping_add(word << 8))
    })
}

fn half_md4(mut state: [u32; 4], name: &[u8], unsigned: bool) -> (u32, u32) {
    let mut rest = name;
    while !rest.is_empty() {
        half_md4_block(&mut state, &words(rest, unsigned));
        rest = rest.get(32..).unwrap_or(&[]);
    }
    (state[1], state[2])
}

/// Three rounds of eight steps: MD4 with eight words of input instead of sixteen.
#[expect(clippy::indexing_slicing, reason = "constants index arrays of constant length")]
fn half_md4_block(state: &mut [u32; 4], input: &[u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    const ROUNDS: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (|x, y, z| z ^ (x & (y ^ z)), 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (|x, y, z| (x & y) | (z & (x | y)), 0x5a82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (|x, y, z| x ^ y ^ z, 0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, constant, order, shifts) in ROUNDS {
        for (step, index) in order.into_iter().enumerate() {
            let sum =
                a.wrapping_add(mix(b, c, d)).wrapping_add(input[index]).wrapping_add(constant);
            (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
        }
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}

fn tea(mut state: [u32; 4], name: &[u8], unsigned: bool) -> (u32, u32) {
    let mut rest = name;
    while !rest.is_empty() {
        tea_block(&mut state, &words(rest, unsigned));
        rest = rest.get(16..).unwrap_or(&[]);
    }
    (state[0], state[1])
}

/// Sixteen TEA cycles that encrypt the state with the input as key. The result is added to the
/// state.
fn tea_block(state: &mut [u32; 4], key: &[u32; 4]) {
    const DELTA: u32 = 0x9e37_79b9;
    let (mut x, mut y) = (state[0], state[1]);
    let half = |v: u32, sum: u32, k: u32, l: u32| {
        (v << 4).wrapping_add(k) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(l)
    };
    for cycle in 1..=16_u32 {
        let sum = DELTA.wrapping_mul(cycle);
        x = x.wrapping_add(half(y, sum, key[0], key[1]));
        y = y.wrapping_add(half(x, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1132_5476];

    fn settings(seed: [u32; 4]) -> HashSettings {
        HashSettings { default_version: HALF_MD4, unsigned: false, seed }
    }

    /// The hashes of one name by debugfs's `dx_hash`: version, whether it is seeded, name,
    /// major and minor hash.
    type Known = (u8, bool, &'static [u8], u32, u32);

    const FOX: &[u8] = b"the quick brown fox jumps over the lazy dog ";
    const ESZETT: &[u8] = b"\xc3\x9f";

    const fn repeated<const LEN: usize>(unit: &[u8]) -> [u8; LEN] {
        let mut name = [0; LEN];
        let mut at = 0;
        while at < LEN {
            name[at] = unit[at % unit.len()];
            at += 1;
        }
        name
    }

    #[test]
    fn names_hash_as_debugfs_says() {
        for (version, seeded, name, major, minor) in KNOWN {
            let hash = settings(if seeded { SEEDED } else { [0; 4] }).hash(version, name);
            let shown = name.escape_ascii();
            assert_eq!(hash, Some(NameHash { major, minor }), "version {version} of {shown}");
        }
    }

    #[test]
    fn unknown_versions_are_refused_and_signedness_is_the_volumes() {
        let signed = settings([0; 4]);
        let unsigned = HashSettings { unsigned: true, ..signed };
        assert_eq!(signed.hash(6, b"x"), None);
        let name = "räksmörgås".as_bytes();
        for version in [LEGACY, HALF_MD4, TEA] {
            assert_eq!(unsigned.hash(version, name), signed.hash(version + LEGACY_UNSIGNED, name));
            assert_ne!(unsigned.hash(version, name), signed.hash(version, name));
            assert_eq!(unsigned.hash(version, b"ascii"), signed.hash(version, b"ascii"));
        }
    }

    #[rustfmt::skip]
    const KNOWN: [Known; 52] = [
        (0, false, b"a", 0xe74b_53e2, 0x0000_0000),
        (0, false, b"ab", 0xda0d_8cd0, 0x0000_0000),
        (0, false, b"abc", 0x75af_d992, 0x0000_0000),
        (0, false, b"abcd", 0xfafa_23ca, 0x0000_0000),
        (0, false, b"hello world", 0xe0a6_a922, 0x0000_0000),
        (0, false, b"r\xc3\xa4ksm\xc3\xb6rg\xc3\xa5s", 0xee8e_2d62, 0x0000_0000),
        (0, false, b"xxxxxxxxxxxxxxx", 0xf7be_4196, 0x0000_0000),
        (0, false, b"yyyyyyyyyyyyyyyy", 0xa027_e7a0, 0x0000_0000),
        (0, false, b"zzzzzzzzzzzzzzzzz", 0xc057_3694, 0x0000_0000),
        (0, false, b"qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", 0xd167_fdbc, 0x0000_0000),
        (0, false, b"rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr", 0x0199_00ae, 0x0000_0000),
        (0, false, b"sssssssssssssssssssssssssssssssss", 0xa4e1_ce06, 0x0000_0000),
        (0, false, &repeated::<176>(FOX), 0x1632_f08c, 0x0000_0000),
        (0, false, &repeated::<254>(ESZETT), 0x0d91_aaea, 0x0000_0000),
        (1, false, b"a", 0xd5fa_7d7a, 0xacb4_8187),
        (1, true, b"a", 0x7adb_dda0, 0xd05b_ad9e),
        (1, false, b"ab", 0xee5e_f564, 0x4bcb_e18e),
        (1, false, b"abc", 0xd196_a868, 0xc420_eb28),
        (1, false, b"abcd", 0xad75_57a8, 0xb1da_437c),
        (1, true, b"abcd", 0x244f_624e, 0x133c_a232),
        (1, false, b"hello world", 0x36f1_5d9e, 0x108b_37f5),
        (1, false, b"r\xc3\xa4ksm\xc3\xb6rg\xc3\xa5s", 0x0799_afa2, 0xcbbc_5422),
        (1, false, b"xxxxxxxxxxxxxxx", 0x622a_55a8, 0xe073_2b3c),
        (1, true, b"xxxxxxxxxxxxxxx", 0x9552_30bc, 0xf28d_5b6e),
        (1, false, b"yyyyyyyyyyyyyyyy", 0x69af_df5a, 0xa69a_e959),
        (1, false, b"zzzzzzzzzzzzzzzzz", 0x75de_0b38, 0x4788_6745),
        (1, false, b"qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", 0xb332_5f1e, 0x5f0f_6fe4),
        (1, true, b"qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", 0xfd42_d922, 0x4385_eb29),
        (1, false, b"rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr", 0xc438_9576, 0x7e86_237c),
        (1, false, b"sssssssssssssssssssssssssssssssss", 0x76cb_1556, 0x8f96_9b57),
        (1, false, &repeated::<176>(FOX), 0x16f2_120c, 0xb646_6450),
        (1, true, &repeated::<176>(FOX), 0xd78a_f3cc, 0x86a8_f721),
        (1, false, &repeated::<254>(ESZETT), 0x45b7_382c, 0x3c83_e339),
        (2, false, b"a", 0x6d0e_a4c0, 0xc189_22df),
        (2, true, b"a", 0x6d0e_a4c0, 0xc189_22df),
        (2, false, b"ab", 0xd27d_8658, 0xb845_8267),
        (2, false, b"abc", 0xb143_5ec4, 0x3f7e_aa0e),
        (2, false, b"abcd", 0x5a24_112e, 0x9544_2076),
        (2, true, b"abcd", 0x5a24_112e, 0x9544_2076),
        (2, false, b"hello world", 0x0901_2b8e, 0x8078_fb31),
        (2, false, b"r\xc3\xa4ksm\xc3\xb6rg\xc3\xa5s", 0x9a8f_6d5a, 0xe723_c471),
        (2, false, b"xxxxxxxxxxxxxxx", 0x1bb0_94c0, 0xe674_1c6b),
        (2, true, b"xxxxxxxxxxxxxxx", 0x1bb0_94c0, 0xe674_1c6b),
        (2, false, b"yyyyyyyyyyyyyyyy", 0xa1fc_ec84, 0x3d14_43b3),
        (2, false, b"zzzzzzzzzzzzzzzzz", 0xfcfd_560e, 0x2a5f_b8aa),
        (2, false, b"qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", 0x62a2_82b2, 0x7344_a54a),
        (2, true, b"qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", 0x62a2_82b2, 0x7344_a54a),
        (2, false, b"rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr", 0x7e28_8dc2, 0xd1dd_c0c8),
        (2, false, b"sssssssssssssssssssssssssssssssss", 0xd7aa_2c80, 0x4213_1d58),
        (2, false, &repeated::<176>(FOX), 0xeb2b_9ce4, 0x2684_df7b),
        (2, true, &repeated::<176>(FOX), 0xeb2b_9ce4, 0x2684_df7b),
        (2, false, &repeated::<254>(ESZETT), 0x4aff_b532, 0x6766_3d09),
    ];
}
