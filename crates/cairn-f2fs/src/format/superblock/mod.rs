//! The superblock: two copies, at byte 1024 of blocks 0 and 1.
//!
//! [`Superblock`] holds every byte of the 3072, so decoding and encoding lose nothing.

mod devices;
mod encoding;
pub(crate) mod implied;
mod raw;

use cairn_base::units::{as_index, as_u64};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::checksum::{MAGIC, crc32};
use super::features::Features;
use super::inode::Advise;
use super::units::{BLOCK_BYTES, BlockAddr, Nid};
use crate::corrupt::Corrupt;

pub(crate) use encoding::{STRICT, UTF8};
pub(crate) use raw::CHECKSUM_OFFSET;
pub(crate) use raw::EXTENSION_LEN;
pub(crate) use raw::MAX_DEVICES;
pub(crate) use raw::MAX_EXTENSIONS;
pub(crate) use raw::OFFSET;
pub(crate) use raw::SIZE;
use raw::{RawDevice, RawSuperblock};

/// One of the devices of a volume on several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DevicePart {
    /// Path given to mkfs, filled up with zeros.
    pub(crate) path: [u8; 64],
    /// Segments on it.
    pub(crate) total_segments: u32,
}

/// A decoded superblock. Fields have the specification's names; addresses and counts are checked by
/// [`super::Layout::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Format version, before the dot.
    pub(crate) major_ver: u16,
    /// Format version, after the dot (15 today).
    pub(crate) minor_ver: u16,
    /// log2 of the sector size (9 to 12).
    pub log_sectorsize: u32,
    /// log2 of the sectors per block.
    pub(crate) log_sectors_per_block: u32,
    /// log2 of the block size (12).
    pub log_blocksize: u32,
    /// log2 of the blocks per segment (9).
    pub log_blocks_per_seg: u32,
    /// Segments per section.
    pub segs_per_sec: u32,
    /// Sections per zone.
    pub secs_per_zone: u32,
    /// `CHECKSUM_OFFSET` with the feature `sb_checksum`, else 0.
    pub(crate) checksum_offset: u32,
    /// Blocks of the volume.
    pub block_count: u64,
    /// Sections of the main area.
    pub section_count: u32,
    /// Segments from `segment0_blkaddr` to the end of the main area.
    pub segment_count: u32,
    /// Segments of the checkpoint area (2).
    pub(crate) segment_count_ckpt: u32,
    /// Segments of the SIT, both copies.
    pub segment_count_sit: u32,
    /// Segments of the NAT, both copies.
    pub segment_count_nat: u32,
    /// Segments of the summary area.
    pub segment_count_ssa: u32,
    /// Segments of the main area.
    pub segment_count_main: u32,
    /// First block of the first segment.
    pub(crate) segment0_blkaddr: BlockAddr,
    /// First block of the checkpoint area.
    pub cp_blkaddr: BlockAddr,
    /// First block of the SIT.
    pub sit_blkaddr: BlockAddr,
    /// First block of the NAT.
    pub nat_blkaddr: BlockAddr,
    /// First block of the summary area.
    pub ssa_blkaddr: BlockAddr,
    /// First block of the main area.
    pub main_blkaddr: BlockAddr,
    /// Root directory (3).
    pub(crate) root_ino: Nid,
    /// Inode of all nodes (1).
    pub(crate) node_ino: Nid,
    /// Inode of all metadata (2).
    pub(crate) meta_ino: Nid,
    /// Identity of the volume.
    pub(crate) uuid: [u8; 16],
    /// UTF-16, filled up with zeros.
    pub(crate) volume_name: [u16; 512],
    /// Cold extensions: the first of the list.
    pub(crate) extension_count: u32,
    /// Cold ones, then hot ones.
    pub(crate) extension_list: [[u8; EXTENSION_LEN]; MAX_EXTENSIONS],
    /// Blocks that follow the first block of a checkpoint pack for its bitmaps.
    pub(crate) cp_payload: u32,
    /// Version text of the kernel that last mounted it.
    pub(crate) version: [u8; 256],
    /// Version text of the kernel it was made on.
    pub(crate) init_version: [u8; 256],
    /// Feature bits.
    pub(crate) features: Features,
    /// Unused.
    pub(crate) encryption_level: u8,
    /// Salt of old encryption keys.
    pub(crate) encrypt_pw_salt: [u8; 16],
    /// Devices of a volume on several.
    pub(crate) devs: [DevicePart; MAX_DEVICES],
    /// Hidden quota inodes: user, group, project (0: none).
    pub(crate) qf_ino: [Nid; 3],
    /// Hot extensions: those after the cold ones.
    pub(crate) hot_ext_count: u8,
    /// Encoding of names (1: UTF-8 12.1).
    pub(crate) s_encoding: u16,
    /// Bit 0: strict.
    pub(crate) s_encoding_flags: u16,
    /// Counters of why checkpoints stopped.
    pub s_stop_reason: [u8; 32],
    /// Bits of the errors met.
    pub s_errors: [u8; 16],
    /// Kept as found.
    pub(crate) reserved: [u8; 258],
    /// The stored checksum (0 without the feature); [`Superblock::encode`] computes its own.
    pub(crate) crc: u32,
}

/// The magic number in a block of a superblock, if the block is long enough.
#[must_use]
pub(crate) fn magic_of(block: &[u8]) -> Option<u32> {
    let (_, superblock) = block.split_at_checked(OFFSET)?;
    superblock.first_chunk().map(|magic| u32::from_le_bytes(*magic))
}

impl Superblock {
    /// Decodes the superblock in a whole block (0 or 1); verifies magic, checksum and the fixed
    /// sizes.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn decode(block: &[u8]) -> Result<Self, Corrupt> {
        Self::decode_as(block, true)
    }

    /// As [`Superblock::decode`], whatever the checksum is.
    ///
    /// # Errors
    /// As [`Superblock::decode`].
    pub(crate) fn decode_unsealed(block: &[u8]) -> Result<Self, Corrupt> {
        Self::decode_as(block, false)
    }

    /// Decodes a superblock whose fields may be impossible; `None` without the magic number.
    #[must_use]
    pub(crate) fn decode_any(block: &[u8]) -> Option<Self> {
        let bytes = block.get(OFFSET..OFFSET + SIZE)?;
        let raw = RawSuperblock::read_from_bytes(bytes).ok()?;
        (raw.magic.get() == MAGIC).then(|| Self::from_raw(&raw))
    }

    fn decode_as(block: &[u8], verifies: bool) -> Result<Self, Corrupt> {
        let bytes = block.get(OFFSET..OFFSET + SIZE).unwrap_or_default();
        let Ok(raw) = RawSuperblock::read_from_bytes(bytes) else {
            return Err(bad("length", as_u64(bytes.len()), "3072 bytes are needed"));
        };
        let superblock = Self::from_raw(&raw);
        if raw.magic.get() != MAGIC {
            return Err(bad("magic", raw.magic.get().into(), "0xf2f52010 is expected"));
        }
        if verifies {
            superblock.verify_checksum(bytes)?;
        }
        superblock.check_sizes()?;
        Ok(superblock)
    }

    fn verify_checksum(&self, bytes: &[u8]) -> Result<(), Corrupt> {
        if !self.features.contains(Features::SB_CHECKSUM) {
            return Ok(());
        }
        if as_index(self.checksum_offset) != CHECKSUM_OFFSET {
            return Err(bad(
                "checksum_offset",
                self.checksum_offset.into(),
                "only 3068 is possible",
            ));
        }
        let computed = crc32(MAGIC, bytes.get(..CHECKSUM_OFFSET).unwrap_or_default());
        if computed != self.crc {
            return Err(Corrupt::Checksum {
                what: "superblock",
                place: 0,
                stored: self.crc,
                computed,
            });
        }
        Ok(())
    }

    /// Checks the fixed sizes and numbers.
    ///
    /// # Errors
    /// The first one that is wrong.
    pub(crate) fn check_sizes(&self) -> Result<(), Corrupt> {
        if self.log_blocksize != 12 {
            return Err(bad(
                "log_blocksize",
                self.log_blocksize.into(),
                "only blocks of 4096 bytes (12) are supported",
            ));
        }
        if self.log_blocks_per_seg != 9 {
            return Err(bad(
                "log_blocks_per_seg",
                self.log_blocks_per_seg.into(),
                "only 9 is possible",
            ));
        }
        if !(9..=12).contains(&self.log_sectorsize) {
            return Err(bad("log_sectorsize", self.log_sectorsize.into(), "it must be 9 to 12"));
        }
        if self.log_sectorsize.saturating_add(self.log_sectors_per_block) != 12 {
            let value = self.log_sectors_per_block.into();
            return Err(bad("log_sectors_per_block", value, "with log_sectorsize it must give 12"));
        }
        let extensions = self.extension_count.saturating_add(self.hot_ext_count.into());
        if as_index(extensions) > MAX_EXTENSIONS {
            return Err(bad("extension_count", extensions.into(), "there is room for 64"));
        }
        let inos = [
            ("node_ino", self.node_ino, 1),
            ("meta_ino", self.meta_ino, 2),
            ("root_ino", self.root_ino, 3),
        ];
        match inos.into_iter().find(|(_, ino, right)| ino.get() != *right) {
            Some((field, ino, _)) => {
                Err(bad(field, ino.get().into(), "the numbers are fixed: node 1, meta 2, root 3"))
            }
            None => Ok(()),
        }
    }

    /// The 3072 bytes to be written at `OFFSET` of blocks 0 and 1, with the checksum where the
    /// feature asks for it.
    #[must_use]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut raw = self.to_raw();
        if self.features.contains(Features::SB_CHECKSUM) {
            let (covered, _) = raw.as_bytes().split_at(CHECKSUM_OFFSET);
            raw.crc = crc32(MAGIC, covered).into();
        }
        raw.as_bytes().to_vec()
    }

    /// An empty superblock with the fixed numbers, for mkfs.
    #[must_use]
    pub(crate) fn blank() -> Self {
        let mut superblock = Self::from_raw(&RawSuperblock::new_zeroed());
        superblock.major_ver = 1;
        superblock.minor_ver = 15;
        superblock.log_sectorsize = 9;
        superblock.log_sectors_per_block = 3;
        superblock.log_blocksize = 12;
        superblock.log_blocks_per_seg = 9;
        superblock.segs_per_sec = 1;
        superblock.secs_per_zone = 1;
        superblock.root_ino = Nid::ROOT;
        superblock.node_ino = Nid::NODE_INO;
        superblock.meta_ino = Nid::META_INO;
        superblock
    }

    /// How often a new file will change, by the extension of its name in upper or lower case. The
    /// extension before a temporary one counts too (`film.mp4.part`).
    #[must_use]
    pub(crate) fn advise_for(&self, name: &[u8]) -> Advise {
        let cold = as_index(self.extension_count);
        let known = cold.saturating_add(self.hot_ext_count.into());
        let mut extensions = self.extension_list.iter().take(known).enumerate();
        match extensions.find(|(_, extension)| has_extension(name, extension)) {
            Some((index, _)) if index < cold => Advise::COLD,
            Some(_) => Advise::HOT,
            None => Advise::empty(),
        }
    }

    /// The label.
    #[must_use]
    pub fn label(&self) -> String {
        let units = self.volume_name.iter().copied().take_while(|unit| *unit != 0);
        char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    }

    /// Sets the label; false, and no change, if it has more than 511 UTF-16 units.
    pub(crate) fn set_label(&mut self, label: &str) -> bool {
        let units: Vec<u16> = label.encode_utf16().collect();
        if units.len() >= self.volume_name.len() {
            return false;
        }
        self.volume_name = [0; 512];
        self.volume_name.iter_mut().zip(units).for_each(|(to, unit)| *to = unit);
        true
    }

    /// Extensions of cold files and of hot files, in lower case as stored.
    #[must_use]
    pub(crate) fn extensions(&self) -> (Vec<&[u8]>, Vec<&[u8]>) {
        let cold = as_index(self.extension_count);
        let trim = |bytes: &'_ [u8; EXTENSION_LEN]| {
            bytes.iter().position(|byte| *byte == 0).unwrap_or(EXTENSION_LEN)
        };
        let list =
            self.extension_list.iter().map(|bytes| bytes.get(..trim(bytes)).unwrap_or_default());
        let mut all: Vec<&[u8]> =
            list.take(cold.saturating_add(self.hot_ext_count.into())).collect();
        let hot = all.split_off(cold.min(all.len()));
        (all, hot)
    }

    /// Sets the extensions; false, and no change, if they are too many or one is too long.
    pub(crate) fn set_extensions(&mut self, cold: &[Vec<u8>], hot: &[Vec<u8>]) -> bool {
        let all = || cold.iter().chain(hot);
        let (Ok(cold_count), Ok(hot_count)) = (u32::try_from(cold.len()), u8::try_from(hot.len()))
        else {
            return false;
        };
        // Each ends with a zero.
        if all().count() > MAX_EXTENSIONS || all().any(|one| one.len() >= EXTENSION_LEN) {
            return false;
        }
        self.extension_list = [[0; EXTENSION_LEN]; MAX_EXTENSIONS];
        for (place, extension) in self.extension_list.iter_mut().zip(all()) {
            place.iter_mut().zip(extension).for_each(|(to, from)| *to = *from);
        }
        (self.extension_count, self.hot_ext_count) = (cold_count, hot_count);
        true
    }

    /// Bytes of the volume.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.block_count.saturating_mul(BLOCK_BYTES)
    }
}

fn bad(field: &'static str, value: u64, expected: &'static str) -> Corrupt {
    Corrupt::Superblock { field, value, expected }
}

/// Copies the fields that have the same name and nearly the same type on both sides.
macro_rules! conversions {
    (u16: $($short:ident)*; u32: $($word:ident)*; addr: $($addr:ident)*; nid: $($nid:ident)*;
        same: $($same:ident)*;) => {
        impl Superblock {
            fn from_raw(raw: &RawSuperblock) -> Self {
                Self {
                    $($short: raw.$short.get(),)*
                    $($word: raw.$word.get(),)*
                    $($addr: BlockAddr(raw.$addr.get()),)*
                    $($nid: Nid(raw.$nid.get()),)*
                    $($same: raw.$same,)*
                    block_count: raw.block_count.get(),
                    volume_name: raw.volume_name.map(U16::get),
                    features: Features::from_bits_retain(raw.feature.get()),
                    devs: raw.devs.map(|dev| DevicePart { path: dev.path,
                        total_segments: dev.total_segments.get() }),
                    qf_ino: raw.qf_ino.map(|ino| Nid(ino.get())),
                }
            }

            fn to_raw(&self) -> RawSuperblock {
                RawSuperblock {
                    magic: MAGIC.into(),
                    $($short: self.$short.into(),)*
                    $($word: self.$word.into(),)*
                    $($addr: self.$addr.get().into(),)*
                    $($nid: self.$nid.get().into(),)*
                    $($same: self.$same,)*
                    block_count: self.block_count.into(),
                    volume_name: self.volume_name.map(U16::new),
                    feature: self.features.bits().into(),
                    devs: self.devs.clone().map(|dev| RawDevice {
                        path: dev.path,
                        total_segments: dev.total_segments.into(),
                    }),
                    qf_ino: self.qf_ino.map(|ino| ino.get().into()),
                }
            }
        }
    };
}

conversions! {
    u16: major_ver minor_ver s_encoding s_encoding_flags;
    u32: log_sectorsize log_sectors_per_block log_blocksize log_blocks_per_seg segs_per_sec
        secs_per_zone
        checksum_offset section_count segment_count segment_count_ckpt segment_count_sit
            segment_count_nat
        segment_count_ssa segment_count_main extension_count cp_payload crc;
    addr: segment0_blkaddr cp_blkaddr sit_blkaddr nat_blkaddr ssa_blkaddr main_blkaddr;
    nid: root_ino node_ino meta_ino;
    same: uuid extension_list version init_version encryption_level encrypt_pw_salt hot_ext_count
        s_stop_reason
        s_errors reserved;
}

/// True if this is the last extension of the name, or the last but one. An asterisk matches all
/// names.
fn has_extension(name: &[u8], extension: &[u8; EXTENSION_LEN]) -> bool {
    let extension = extension.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut parts = name.rsplit(|byte| *byte == b'.');
    let (last, before) = (parts.next(), parts.next());
    // The part before the first dot is no extension.
    let temporary = parts.next().and(before);
    let found = [before.and(last), temporary]
        .into_iter()
        .flatten()
        .any(|part| part.eq_ignore_ascii_case(extension));
    !extension.is_empty() && (found || extension == b"*")
}

#[cfg(test)]
mod tests;
