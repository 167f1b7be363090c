//! The fields of the superblock that say where everything else is, and what it means.

use zerocopy::little_endian::{U16, U32, U64};

use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::superblock::RawSuperblock;

/// A number of the superblock.
trait Word: Copy {
    fn number(self) -> u64;
    fn from_number(number: u64) -> Self;
}

impl Word for U16 {
    fn number(self) -> u64 {
        self.get().into()
    }

    fn from_number(number: u64) -> Self {
        Self::new(u16::try_from(number).unwrap_or(u16::MAX))
    }
}

impl Word for U32 {
    fn number(self) -> u64 {
        self.get().into()
    }

    fn from_number(number: u64) -> Self {
        Self::new(u32::try_from(number).unwrap_or(u32::MAX))
    }
}

impl Word for U64 {
    fn number(self) -> u64 {
        self.get()
    }

    fn from_number(number: u64) -> Self {
        Self::new(number)
    }
}

/// A field, by its name.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) get: fn(&RawSuperblock) -> u64,
    pub(super) set: fn(&mut RawSuperblock, u64),
}

macro_rules! fields {
    ($($field:ident)*) => {
        &[$(Field {
            name: stringify!($field),
            get: |raw| raw.$field.number(),
            set: |raw, number| raw.$field = Word::from_number(number),
        }),*]
    };
}

/// Numbers.
pub(super) const NUMBERS: &[Field] = fields! {
    s_inodes_count s_blocks_count_lo s_blocks_count_hi s_first_data_block s_log_block_size
    s_log_cluster_size s_blocks_per_group s_clusters_per_group s_inodes_per_group s_creator_os
    s_first_ino s_inode_size s_reserved_gdt_blocks s_journal_inum s_desc_size s_first_meta_bg
    s_mmp_block s_checksum_seed
};

/// Words of flags, each with those that change what the rest of the volume means, and those of them
/// which may only be set: without them less is compared.
pub(super) const FLAGS: &[(Field, u32, u32)] = &[
    (
        Field {
            name: "s_feature_compat",
            get: |raw| raw.s_feature_compat.number(),
            set: |raw, number| raw.s_feature_compat = Word::from_number(number),
        },
        Compat::SPARSE_SUPER2.union(Compat::RESIZE_INODE).union(Compat::DIR_INDEX).bits(),
        Compat::DIR_INDEX.bits(),
    ),
    (
        Field {
            name: "s_feature_incompat",
            get: |raw| raw.s_feature_incompat.number(),
            set: |raw, number| raw.s_feature_incompat = Word::from_number(number),
        },
        Incompat::FILETYPE
            .union(Incompat::META_BG)
            .union(Incompat::EXTENTS)
            .union(Incompat::BITS_64)
            .union(Incompat::MMP)
            .union(Incompat::FLEX_BG)
            .union(Incompat::EA_INODE)
            .union(Incompat::CSUM_SEED)
            .union(Incompat::LARGE_DIR)
            .union(Incompat::INLINE_DATA)
            .union(Incompat::ENCRYPT)
            .union(Incompat::CASEFOLD)
            .bits(),
        Incompat::EXTENTS.bits(),
    ),
    (
        Field {
            name: "s_feature_ro_compat",
            get: |raw| raw.s_feature_ro_compat.number(),
            set: |raw, number| raw.s_feature_ro_compat = Word::from_number(number),
        },
        RoCompat::SPARSE_SUPER
            .union(RoCompat::HUGE_FILE)
            .union(RoCompat::GDT_CSUM)
            .union(RoCompat::METADATA_CSUM)
            .union(RoCompat::BIGALLOC)
            .bits(),
        RoCompat::GDT_CSUM.union(RoCompat::METADATA_CSUM).bits(),
    ),
];

/// The flags of a word that differ in another superblock, one by one, and may differ.
pub(super) fn flags(word: &(Field, u32, u32), one: &RawSuperblock, other: u64) -> Vec<u64> {
    let (field, telling, only_set) = word;
    let here = (field.get)(one);
    let differing = (here ^ other) & u64::from(*telling);
    (0..32)
        .map(|bit| 1_u64 << bit)
        .filter(|flag| differing & flag != 0)
        .filter(|flag| here & flag == 0 || u64::from(*only_set) & flag == 0)
        .map(|flag| here ^ flag)
        .collect()
}

/// Fields that differ: their names and values.
pub(super) fn differences<'a>(
    one: &'a RawSuperblock,
    other: &'a RawSuperblock,
) -> impl Iterator<Item = (&'static str, u64, u64)> + 'a {
    let fields = NUMBERS.iter().chain(FLAGS.iter().map(|(field, ..)| field));
    let simple = fields.map(|field| (field.name, (field.get)(one), (field.get)(other)));
    let backups = one.s_backup_bgs.iter().zip(&other.s_backup_bgs);
    let backups = backups.map(|(one, other)| ("s_backup_bgs", one.number(), other.number()));
    let halves = uuid_halves(one).zip(uuid_halves(other));
    let uuids = halves.map(|(one, other)| ("s_uuid", one, other));
    simple.chain(backups).chain(uuids).filter(|(_, one, other)| one != other)
}

/// The UUID as two numbers that are written as it is.
fn uuid_halves(raw: &RawSuperblock) -> impl Iterator<Item = u64> {
    let (halves, _) = raw.s_uuid.as_chunks();
    let halves = [0, 1].map(|at| halves.get(at).copied().map_or(0, u64::from_be_bytes));
    halves.into_iter()
}
