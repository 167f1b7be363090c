//! The block of multiple-mount protection: who uses the volume.
//!
//! Source: "Multiple Mount Protection" in the kernel's ext4 documentation.

use cairn_base::checksum::crc32c;
use cairn_base::units::as_u64;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::MetadataChecksum;
use crate::corrupt::Corrupt;

/// Bytes of the structure.
const SIZE: usize = 1024;
/// "MMP".
const MAGIC: u32 = 0x004d_4d50;
/// Nobody uses the volume.
const SEQ_CLEAN: u32 = 0xff4d_4d50;
/// e2fsck runs.
const SEQ_FSCK: u32 = 0xe24d_4d50;
/// The least seconds between two looks at the block.
const LEAST_INTERVAL: u16 = 5;

/// `struct mmp_struct`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMmp {
    mmp_magic: U32,
    mmp_seq: U32,
    mmp_time: U64,
    mmp_nodename: [u8; 64],
    mmp_bdevname: [u8; 32],
    mmp_check_interval: U16,
    mmp_pad1: U16,
    mmp_pad2: [U32; 226],
    mmp_checksum: U32,
}

const _: () = assert!(size_of::<RawMmp>() == SIZE);

/// A block of multiple-mount protection.
#[derive(Clone, Debug)]
pub(crate) struct Mmp {
    raw: RawMmp,
}

impl Mmp {
    /// Bytes that the checksum covers, which is behind them.
    pub(crate) const COVERED: usize = SIZE - 4;

    /// One of a volume that nobody uses. `interval` is that of the superblock, in seconds.
    #[must_use]
    pub(crate) fn new(interval: u16, now: u32) -> Self {
        Self {
            raw: RawMmp {
                mmp_magic: U32::new(MAGIC),
                mmp_seq: U32::new(SEQ_CLEAN),
                mmp_time: U64::new(now.into()),
                mmp_nodename: [0; 64],
                mmp_bdevname: [0; 32],
                mmp_check_interval: U16::new(interval.max(LEAST_INTERVAL)),
                mmp_pad1: U16::ZERO,
                mmp_pad2: [U32::ZERO; 226],
                mmp_checksum: U32::ZERO,
            },
        }
    }

    /// Decodes the start of a block.
    ///
    /// # Errors
    /// The checksum or the magic number is wrong.
    pub(crate) fn decode(bytes: &[u8], checksum: MetadataChecksum) -> Result<Self, Corrupt> {
        let found = Self::decode_unsealed(bytes)?;
        let (stored, computed) = (found.raw.mmp_checksum.get(), found.sum(checksum));
        if computed.is_some_and(|computed| computed != stored) {
            let computed = computed.unwrap_or_default();
            let what = "block of multiple-mount protection";
            return Err(Corrupt::Checksum { what, place: 0, stored, computed });
        }
        found.check_magic()?;
        Ok(found)
    }

    /// Does a block whose checksum is wrong say that nobody uses the volume? Magic and sequence
    /// are 64 bits that are so by no accident.
    #[must_use]
    pub(crate) fn says_clean(bytes: &[u8]) -> bool {
        let found = Self::decode_unsealed(bytes);
        found.is_ok_and(|found| found.check_magic().is_ok() && found.is_clean())
    }

    fn decode_unsealed(bytes: &[u8]) -> Result<Self, Corrupt> {
        let value = as_u64(bytes.len());
        let short = Corrupt::Superblock { field: "s_mmp_block", value, problem: "a short block" };
        let (raw, _) = RawMmp::read_from_prefix(bytes).map_err(|_| short)?;
        Ok(Self { raw })
    }

    fn check_magic(&self) -> Result<(), Corrupt> {
        let value = self.raw.mmp_magic.get();
        if value == MAGIC {
            return Ok(());
        }
        let (field, value) = ("mmp_magic", value.into());
        Err(Corrupt::Superblock { field, value, problem: "not 0x4d4d50" })
    }

    fn sum(&self, checksum: MetadataChecksum) -> Option<u32> {
        let (covered, _) = self.raw.as_bytes().split_at(Self::COVERED);
        checksum.seed().map(|seed| crc32c(seed, covered))
    }

    /// The bytes, with a checksum.
    #[must_use]
    pub(crate) fn encode(&self, checksum: MetadataChecksum) -> [u8; SIZE] {
        let mut raw = self.raw;
        raw.mmp_checksum = U32::new(self.sum(checksum).unwrap_or_default());
        zerocopy::transmute!(raw)
    }

    /// Does nobody use the volume?
    #[must_use]
    pub(crate) fn is_clean(&self) -> bool {
        self.raw.mmp_seq.get() == SEQ_CLEAN
    }

    /// Is the sequence one that a program writes?
    #[must_use]
    pub(crate) fn is_possible(&self) -> bool {
        self.is_clean() || self.raw.mmp_seq.get() <= SEQ_FSCK
    }

    /// The sequence.
    #[must_use]
    pub(crate) fn sequence(&self) -> u32 {
        self.raw.mmp_seq.get()
    }

    /// Who uses the volume, or was using it when it went down.
    #[must_use]
    pub(crate) fn user(&self) -> String {
        let name = self.raw.mmp_nodename.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name);
        match self.raw.mmp_seq.get() {
            SEQ_FSCK => format!("e2fsck on {name:?}"),
            _ => format!("the computer {name:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_what_was_encoded() {
        let sums = MetadataChecksum::with_seed(77);
        let bytes = Mmp::new(0, 1_000).encode(sums);
        assert!(Mmp::decode(&bytes, sums).is_ok_and(|found| found.is_clean()));
        assert!(Mmp::says_clean(&bytes) && Mmp::decode(&bytes[..1000], sums).is_err());
        for at in [0, 4, 16, 900, 1023] {
            let mut wrong = bytes;
            wrong[at] ^= 3;
            assert!(matches!(Mmp::decode(&wrong, sums), Err(Corrupt::Checksum { .. })), "{at}");
        }
        let mut used = bytes;
        used[4..8].copy_from_slice(&[1, 0, 0, 0]);
        used[16..20].copy_from_slice(b"node");
        let found = Mmp::decode(&used, MetadataChecksum::NONE).unwrap();
        assert!(!found.is_clean() && found.user() == "the computer \"node\"");
        assert!(found.is_possible());
        used[4..8].copy_from_slice(&0xff6d_4d50_u32.to_le_bytes());
        assert!(!Mmp::decode(&used, MetadataChecksum::NONE).unwrap().is_possible());
        assert!(Mmp::decode(&[0; 1024], MetadataChecksum::NONE).is_err());
    }
}
