//! The name hashes that order an indexed directory. Source: "Hash Tree Directories" in the kernel's
//! ext4 documentation. The compression functions are half of MD4 (RFC 1320) and TEA (Wheeler and
//! Needham).
//!
//! Each algorithm exists twice: the bytes of a name are sign-extended or not, as on the machine
//! that created the volume. Flags of the superblock tell which.

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

    /// The hashes of one name by debugfs's `dx_hash`.
    struct Known {
        version: u8,
        seeded: bool,
        name: &'static [u8],
        major: u32,
        minor: u32,
    }

    #[test]
    fn names_hash_as_debugfs_says() {
        for known in KNOWN {
            let hash = settings(if known.seeded { SEEDED } else { [0; 4] })
                .hash(known.version, known.name);
            assert_eq!(
                hash,
                Some(NameHash { major: known.major, minor: known.minor }),
                "version {} of {:?}",
                known.version,
                known.name.escape_ascii().to_string()
            );
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

    const KNOWN: [Known; 52] = [
Known { version: 0, seeded: false, name: b"a", major: 0xe74b_53e2, minor: 0x0000_0000 },
Known { version: 0, seeded: false, name: b"ab", major: 0xda0d_8cd0, minor: 0x0000_0000 },
Known { version: 0, seeded: false, name: b"abc", major: 0x75af_d992, minor: 0x0000_0000 },
Known { version: 0, seeded: false, name: b"abcd", major: 0xfafa_23ca, minor: 0x0000_0000 },
Known { version: 0, seeded: false, name: b"hello world", major: 0xe0a6_a922, minor: 0x0000_0000 },
Known { version: 0, seeded: false, name: b"r\xc3\xa4ksm\xc3\xb6rg\xc3\xa5s", major: 0xee8e_2d62, minor: 0x0000_0000 },
Known { version: 0, seeded: false, name: b"xxxxxxxxxxxxxxx", major: 0xf7be_4196, minor: 0x0000_0000 },
Known { version: 0, seeded: false, name: b"yyyyyyyyyyyyyyyy", major: 0xa027_e7a0, minor: 0x0000_0000 },
Known { version: 0, seeded: false, name: b"zzzzzzzzzzzzzzzzz", major: 0xc057_3694, minor: 0x0000_0000 },
Known { version: 0, seeded: false, name: b"qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", major: 0xd167_fdbc, minor: 0x0000_0000 },
Known { version: 0, seeded: false, name: b"rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr", major: 0x0199_00ae, minor: 0x0000_0000 },
Known { version: 0, seeded: false, name: b"sssssssssssssssssssssssssssssssss", major: 0xa4e1_ce06, minor: 0x0000_0000 },
Known { version: 0, seeded: false, name: b"the quick brown fox jumps over the lazy dog the quick brown fox jumps over the lazy dog the quick brown fox jumps over the lazy dog the quick brown fox jumps over the lazy dog ", major: 0x1632_f08c, minor: 0x0000_0000 },
Known { version: 0, seeded: false, name: b"\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f", major: 0x0d91_aaea, minor: 0x0000_0000 },
Known { version: 1, seeded: false, name: b"a", major: 0xd5fa_7d7a, minor: 0xacb4_8187 },
Known { version: 1, seeded: true, name: b"a", major: 0x7adb_dda0, minor: 0xd05b_ad9e },
Known { version: 1, seeded: false, name: b"ab", major: 0xee5e_f564, minor: 0x4bcb_e18e },
Known { version: 1, seeded: false, name: b"abc", major: 0xd196_a868, minor: 0xc420_eb28 },
Known { version: 1, seeded: false, name: b"abcd", major: 0xad75_57a8, minor: 0xb1da_437c },
Known { version: 1, seeded: true, name: b"abcd", major: 0x244f_624e, minor: 0x133c_a232 },
Known { version: 1, seeded: false, name: b"hello world", major: 0x36f1_5d9e, minor: 0x108b_37f5 },
Known { version: 1, seeded: false, name: b"r\xc3\xa4ksm\xc3\xb6rg\xc3\xa5s", major: 0x0799_afa2, minor: 0xcbbc_5422 },
Known { version: 1, seeded: false, name: b"xxxxxxxxxxxxxxx", major: 0x622a_55a8, minor: 0xe073_2b3c },
Known { version: 1, seeded: true, name: b"xxxxxxxxxxxxxxx", major: 0x9552_30bc, minor: 0xf28d_5b6e },
Known { version: 1, seeded: false, name: b"yyyyyyyyyyyyyyyy", major: 0x69af_df5a, minor: 0xa69a_e959 },
Known { version: 1, seeded: false, name: b"zzzzzzzzzzzzzzzzz", major: 0x75de_0b38, minor: 0x4788_6745 },
Known { version: 1, seeded: false, name: b"qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", major: 0xb332_5f1e, minor: 0x5f0f_6fe4 },
Known { version: 1, seeded: true, name: b"qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", major: 0xfd42_d922, minor: 0x4385_eb29 },
Known { version: 1, seeded: false, name: b"rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr", major: 0xc438_9576, minor: 0x7e86_237c },
Known { version: 1, seeded: false, name: b"sssssssssssssssssssssssssssssssss", major: 0x76cb_1556, minor: 0x8f96_9b57 },
Known { version: 1, seeded: false, name: b"the quick brown fox jumps over the lazy dog the quick brown fox jumps over the lazy dog the quick brown fox jumps over the lazy dog the quick brown fox jumps over the lazy dog ", major: 0x16f2_120c, minor: 0xb646_6450 },
Known { version: 1, seeded: true, name: b"the quick brown fox jumps over the lazy dog the quick brown fox jumps over the lazy dog the quick brown fox jumps over the lazy dog the quick brown fox jumps over the lazy dog ", major: 0xd78a_f3cc, minor: 0x86a8_f721 },
Known { version: 1, seeded: false, name: b"\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f", major: 0x45b7_382c, minor: 0x3c83_e339 },
Known { version: 2, seeded: false, name: b"a", major: 0x6d0e_a4c0, minor: 0xc189_22df },
Known { version: 2, seeded: true, name: b"a", major: 0x6d0e_a4c0, minor: 0xc189_22df },
Known { version: 2, seeded: false, name: b"ab", major: 0xd27d_8658, minor: 0xb845_8267 },
Known { version: 2, seeded: false, name: b"abc", major: 0xb143_5ec4, minor: 0x3f7e_aa0e },
Known { version: 2, seeded: false, name: b"abcd", major: 0x5a24_112e, minor: 0x9544_2076 },
Known { version: 2, seeded: true, name: b"abcd", major: 0x5a24_112e, minor: 0x9544_2076 },
Known { version: 2, seeded: false, name: b"hello world", major: 0x0901_2b8e, minor: 0x8078_fb31 },
Known { version: 2, seeded: false, name: b"r\xc3\xa4ksm\xc3\xb6rg\xc3\xa5s", major: 0x9a8f_6d5a, minor: 0xe723_c471 },
Known { version: 2, seeded: false, name: b"xxxxxxxxxxxxxxx", major: 0x1bb0_94c0, minor: 0xe674_1c6b },
Known { version: 2, seeded: true, name: b"xxxxxxxxxxxxxxx", major: 0x1bb0_94c0, minor: 0xe674_1c6b },
Known { version: 2, seeded: false, name: b"yyyyyyyyyyyyyyyy", major: 0xa1fc_ec84, minor: 0x3d14_43b3 },
Known { version: 2, seeded: false, name: b"zzzzzzzzzzzzzzzzz", major: 0xfcfd_560e, minor: 0x2a5f_b8aa },
Known { version: 2, seeded: false, name: b"qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", major: 0x62a2_82b2, minor: 0x7344_a54a },
Known { version: 2, seeded: true, name: b"qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", major: 0x62a2_82b2, minor: 0x7344_a54a },
Known { version: 2, seeded: false, name: b"rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr", major: 0x7e28_8dc2, minor: 0xd1dd_c0c8 },
Known { version: 2, seeded: false, name: b"sssssssssssssssssssssssssssssssss", major: 0xd7aa_2c80, minor: 0x4213_1d58 },
Known { version: 2, seeded: false, name: b"the quick brown fox jumps over the lazy dog the quick brown fox jumps over the lazy dog the quick brown fox jumps over the lazy dog the quick brown fox jumps over the lazy dog ", major: 0xeb2b_9ce4, minor: 0x2684_df7b },
Known { version: 2, seeded: true, name: b"the quick brown fox jumps over the lazy dog the quick brown fox jumps over the lazy dog the quick brown fox jumps over the lazy dog the quick brown fox jumps over the lazy dog ", major: 0xeb2b_9ce4, minor: 0x2684_df7b },
Known { version: 2, seeded: false, name: b"\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f\xc3\x9f", major: 0x4aff_b532, minor: 0x6766_3d09 },
];
}
