//! Records whose fields may be wrong, for checks.

use std::ops::Range;

use cairn_base::checksum::crc32c_before;
use cairn_base::one_bit::{WrongBit, find};
use cairn_base::units::as_index;
use cairn_base::{Ino, Pba};

use super::Inode;
use super::raw::{
    CHECKSUM_HI_AT, CHECKSUM_LO_AT, GOOD_OLD_SIZE, checksums, extra_isize_fits, has_wide_checksum,
    seal, stored_extra_isize, verify, widen,
};
use crate::corrupt::Corrupt;
use crate::format::features::{Incompat, RoCompat};
use crate::format::layout::{Creator, Layout};

/// Offset of `i_links_count`.
const LINKS_AT: usize = 26;
/// `i_generation`.
const GENERATION: Range<usize> = 100..104;
/// `i_extra_isize`.
const EXTRA_SIZE: Range<usize> = 128..130;

/// What an inode that holds the value of an attribute has in the fields of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueFacts {
    /// Hash of the value.
    pub hash: u32,
    /// Attributes that refer to it.
    pub references: u64,
}

/// Does a record, which may be damaged, hold an inode in use? One that was deleted has no links, or
/// the time of its deletion.
pub(crate) fn is_record_in_use(record: &[u8]) -> bool {
    record.get(..GOOD_OLD_SIZE).is_some_and(|bytes| {
        let raw = widen(bytes);
        raw.i_links_count != 0 && raw.i_mode != 0 && raw.i_dtime == 0
    })
}

impl Inode {
    /// Decodes a record whose fields may be wrong. An impossible `i_extra_isize` counts as 0.
    /// `None` if the record has another size.
    #[must_use]
    pub(crate) fn decode_unchecked(bytes: &[u8], layout: &Layout) -> Option<Self> {
        if bytes.len() != as_index(layout.inode_size) {
            return None;
        }
        let stored = stored_extra_isize(bytes);
        let extra_isize = if extra_isize_fits(stored, bytes) { stored } else { 0 };
        Some(Self::from_raw(bytes.to_vec(), layout, extra_isize))
    }

    /// The bytes of fields beyond the first 128, if the stored number of them is impossible.
    #[must_use]
    pub(crate) fn wrong_extra_isize(bytes: &[u8]) -> Option<u16> {
        let stored = stored_extra_isize(bytes);
        (!extra_isize_fits(stored, bytes)).then_some(stored)
    }

    /// Verifies the checksum of a record.
    ///
    /// # Errors
    /// The checksum is wrong.
    pub(crate) fn verify(bytes: &[u8], ino: Ino, layout: &Layout) -> Result<(), Corrupt> {
        verify(bytes, &widen(bytes), ino, layout)
    }

    /// Stored and computed checksum of a record, if the volume has them.
    #[must_use]
    pub(crate) fn checksums(bytes: &[u8], ino: Ino, layout: &Layout) -> Option<(u32, u32)> {
        checksums(bytes, &widen(bytes), ino, layout)
    }

    /// The bit that makes the checksum of a record hold: the byte, and the bit in it. `None` if it
    /// takes more, or if the checksum has 16 bits, which prove too little.
    #[must_use]
    pub(crate) fn wrong_bit(bytes: &[u8], ino: Ino, layout: &Layout) -> Option<(usize, u8)> {
        let (stored, computed) = Self::checksums(bytes, ino, layout)?;
        let found = find(bytes.len(), stored, computed).and_then(|wrong| match wrong {
            WrongBit::Byte { at, mask } => Some((at, mask)),
            WrongBit::Checksum => {
                let halves = (stored ^ computed).to_le_bytes();
                let places = [0, 1].map(|at| CHECKSUM_LO_AT.saturating_add(at));
                let high = [0, 1].map(|at| CHECKSUM_HI_AT.saturating_add(at));
                let places = places.into_iter().chain(high);
                places.zip(halves).find(|(_, byte)| *byte != 0)
            }
        });
        // A bit of these has more effects: on the seed, and on what the checksum covers.
        let others = GENERATION.chain(EXTRA_SIZE);
        let others = others.flat_map(|at| (0..8).map(move |bit| (at, 1_u8 << bit)));
        found.into_iter().chain(others).find(|(at, mask)| {
            let mut right = bytes.to_vec();
            if let Some(byte) = right.get_mut(*at) {
                *byte ^= mask;
            }
            has_wide_checksum(&widen(&right), &right) && Self::verify(&right, ino, layout).is_ok()
        })
    }

    /// The seed of the volume by which the checksum of a record is right. `None` if it has 16 bits.
    #[must_use]
    pub(crate) fn volume_seed(bytes: &[u8], ino: Ino) -> Option<u32> {
        let raw = widen(bytes);
        if !has_wide_checksum(&raw, bytes) {
            return None;
        }
        let mut record = bytes.to_vec();
        let mut sum = 0_u32;
        for (shift, at) in [(0, CHECKSUM_LO_AT), (16, CHECKSUM_HI_AT)] {
            let half = record.get_mut(at..)?.first_chunk_mut::<2>()?;
            sum |= u32::from(u16::from_le_bytes(*half)) << shift;
            *half = [0; 2];
        }
        let seed = crc32c_before(sum, &record);
        let number = u32::try_from(ino.get()).ok()?.to_le_bytes();
        Some(crc32c_before(crc32c_before(seed, &raw.i_generation.get().to_le_bytes()), &number))
    }

    /// Computes the checksum of a record again.
    pub(crate) fn seal(bytes: &mut [u8], ino: Ino, layout: &Layout) {
        seal(bytes, ino, layout);
    }

    /// The upper half of the size where a record has it; other records must have 0 there.
    #[must_use]
    pub(crate) fn size_high(bytes: &[u8]) -> u32 {
        widen(bytes).i_size_high.get()
    }

    /// The first field with a number although the volume's features leave it unused.
    #[must_use]
    pub(crate) fn must_be_zero(bytes: &[u8], layout: &Layout) -> Option<(&'static str, u64)> {
        let raw = widen(bytes);
        let is_wide = layout.features.incompat(Incompat::BITS_64);
        let is_huge = layout.features.ro_compat(RoCompat::HUGE_FILE);
        // Other systems have fields of their own there.
        let is_linux = layout.creator == Creator::Linux;
        let fields = [
            ("i_file_acl_high", u64::from(raw.l_i_file_acl_high.get()), is_wide || !is_linux),
            ("i_blocks_high", raw.l_i_blocks_high.get().into(), is_huge || !is_linux),
            ("i_obso_faddr", raw.i_obso_faddr.get().into(), false),
        ];
        let wrong = fields.into_iter().find(|(_, value, is_used)| *value != 0 && !is_used);
        wrong.map(|(field, value, _)| (field, value))
    }

    /// The block of a translator, which inodes of the Hurd may have.
    #[must_use]
    pub(crate) fn translator(&self, layout: &Layout) -> Option<Pba> {
        let word = widen(&self.raw).l_i_version.get();
        (layout.creator == Creator::Hurd && word != 0).then(|| Pba(word.into()))
    }

    /// Mode and links of a record, without the cost of a whole one.
    #[must_use]
    pub(crate) fn mode_and_links(bytes: &[u8]) -> (u16, u16) {
        let number = |at: usize| {
            bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |two| u16::from_le_bytes(*two))
        };
        (number(0), number(LINKS_AT))
    }

    /// Hash and references of an inode that holds the value of an attribute: they lie in the fields
    /// of times.
    #[must_use]
    pub(crate) fn value_facts(&self) -> ValueFacts {
        let raw = widen(&self.raw);
        let references = u64::from(raw.i_ctime.get()) << 32 | u64::from(raw.l_i_version.get());
        ValueFacts { hash: raw.i_atime.get(), references }
    }
}
