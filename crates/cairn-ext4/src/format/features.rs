//! Feature flags: their names, and how Cairn treats each.
//!
//! Unknown compat flags are ignored, unknown ro_compat flags make the volume read-only, and unknown
//! incompat flags forbid the mount. Features that Cairn reads but does not maintain make the volume
//! read-only as well.

use bitflags::bitflags;

bitflags! {
    /// `s_feature_compat`: unknown flags may be ignored.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Compat: u32 {
        /// Directory preallocation.
        const DIR_PREALLOC = 0x1;
        /// AFS inodes.
        const IMAGIC_INODES = 0x2;
        /// A journal.
        const HAS_JOURNAL = 0x4;
        /// Extended attributes.
        const EXT_ATTR = 0x8;
        /// Reserved descriptor blocks belong to inode 7.
        const RESIZE_INODE = 0x10;
        /// Hashed directories.
        const DIR_INDEX = 0x20;
        /// Never implemented.
        const LAZY_BG = 0x40;
        /// Snapshots (next3).
        const EXCLUDE_INODE = 0x80;
        /// Snapshots (next3).
        const EXCLUDE_BITMAP = 0x100;
        /// At most two backup superblocks.
        const SPARSE_SUPER2 = 0x200;
        /// The journal may hold fast commits.
        const FAST_COMMIT = 0x400;
        /// Inode numbers and UUID never change.
        const STABLE_INODES = 0x800;
        /// Orphans are kept in a file.
        const ORPHAN_FILE = 0x1000;
        const _ = !0;
    }
}

bitflags! {
    /// `s_feature_incompat`: a program must know all flags to use the volume.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// Compressed files; never implemented.
        const COMPRESSION = 0x1;
        /// Directory entries contain the file type.
        const FILETYPE = 0x2;
        /// The journal must be replayed.
        const RECOVER = 0x4;
        /// The device is an external journal.
        const JOURNAL_DEV = 0x8;
        /// Descriptor blocks are spread over the volume.
        const META_BG = 0x10;
        /// Extent trees.
        const EXTENTS = 0x40;
        /// Block numbers have 64 bits, and descriptors are larger.
        const BITS_64 = 0x80;
        /// Multiple-mount protection.
        const MMP = 0x100;
        /// Bitmaps and inode tables of several groups are contiguous.
        const FLEX_BG = 0x200;
        /// Large attribute values have their own inodes.
        const EA_INODE = 0x400;
        /// Data in directory entries (Lustre).
        const DIRDATA = 0x1000;
        /// The checksum seed is stored and does not follow from the UUID.
        const CSUM_SEED = 0x2000;
        /// Directories may exceed 2 GiB and have three index levels.
        const LARGE_DIR = 0x4000;
        /// Small files are stored in the inode.
        const INLINE_DATA = 0x8000;
        /// Encrypted files.
        const ENCRYPT = 0x1_0000;
        /// Case-insensitive directories.
        const CASEFOLD = 0x2_0000;
        const _ = !0;
    }
}

bitflags! {
    /// `s_feature_ro_compat`: a program must know all flags to write.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RoCompat: u32 {
        /// Backup superblocks only in groups 0, 1 and powers of 3, 5 and 7.
        const SPARSE_SUPER = 0x1;
        /// Files of 2 GiB and more.
        const LARGE_FILE = 0x2;
        /// Never implemented.
        const BTREE_DIR = 0x4;
        /// Block counts of files may be in filesystem blocks and have 48 bits.
        const HUGE_FILE = 0x8;
        /// Descriptor checksums (crc16) and uninitialised groups.
        const GDT_CSUM = 0x10;
        /// Directories may have 65,000 subdirectories or more.
        const DIR_NLINK = 0x20;
        /// Inodes larger than 128 bytes.
        const EXTRA_ISIZE = 0x40;
        /// A snapshot (next3).
        const HAS_SNAPSHOT = 0x80;
        /// The filesystem maintains quota files.
        const QUOTA = 0x100;
        /// The unit of allocation is a cluster of blocks.
        const BIGALLOC = 0x200;
        /// All metadata has a crc32c checksum.
        const METADATA_CSUM = 0x400;
        /// Never implemented.
        const REPLICA = 0x800;
        /// The volume must not be written.
        const READONLY = 0x1000;
        /// Project identifiers and project quota.
        const PROJECT = 0x2000;
        /// Android's deduplicated images.
        const SHARED_BLOCKS = 0x4000;
        /// Files protected by fs-verity.
        const VERITY = 0x8000;
        /// The orphan file may contain entries.
        const ORPHAN_PRESENT = 0x1_0000;
        const _ = !0;
    }
}

/// Names of mke2fs, tune2fs and dumpe2fs.
const COMPAT_NAMES: &[(u32, &str)] = &[
    (0x1, "dir_prealloc"),
    (0x2, "imagic_inodes"),
    (0x4, "has_journal"),
    (0x8, "ext_attr"),
    (0x10, "resize_inode"),
    (0x20, "dir_index"),
    (0x40, "lazy_bg"),
    (0x80, "snapshot_inode"),
    (0x100, "snapshot"),
    (0x200, "sparse_super2"),
    (0x400, "fast_commit"),
    (0x800, "stable_inodes"),
    (0x1000, "orphan_file"),
];

const INCOMPAT_NAMES: &[(u32, &str)] = &[
    (0x1, "compression"),
    (0x2, "filetype"),
    (0x4, "needs_recovery"),
    (0x8, "journal_dev"),
    (0x10, "meta_bg"),
    (0x40, "extent"),
    (0x80, "64bit"),
    (0x100, "mmp"),
    (0x200, "flex_bg"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x2000, "metadata_csum_seed"),
    (0x4000, "large_dir"),
    (0x8000, "inline_data"),
    (0x1_0000, "encrypt"),
    (0x2_0000, "casefold"),
];

const RO_COMPAT_NAMES: &[(u32, &str)] = &[
    (0x1, "sparse_super"),
    (0x2, "large_file"),
    (0x4, "btree_dir"),
    (0x8, "huge_file"),
    (0x10, "uninit_bg"),
    (0x20, "dir_nlink"),
    (0x40, "extra_isize"),
    (0x80, "has_snapshot"),
    (0x100, "quota"),
    (0x200, "bigalloc"),
    (0x400, "metadata_csum"),
    (0x800, "replica"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x4000, "shared_blocks"),
    (0x8000, "verity"),
    (0x1_0000, "orphan_present"),
];

/// Other names that mke2fs accepts.
const ALIASES: &[(&str, &str)] = &[
    ("extents", "extent"),
    ("gdt_csum", "uninit_bg"),
    ("largedir", "large_dir"),
    ("journal_needs_recovery", "needs_recovery"),
];

const WRITABLE_INCOMPAT: Incompat = Incompat::FILETYPE
    .union(Incompat::RECOVER)
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BITS_64)
    .union(Incompat::FLEX_BG)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGE_DIR)
    .union(Incompat::INLINE_DATA);

const WRITABLE_RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::BTREE_DIR)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::ORPHAN_PRESENT);

/// Flags that are read but not maintained, each with a remedy.
const READ_ONLY_INCOMPAT: &[(Incompat, &str)] = &[
    (
        Incompat::MMP,
        "Cairn does not support multiple-mount protection; remove it with `tune2fs -O ^mmp`",
    ),
    (
        Incompat::ENCRYPT,
        "encrypted files cannot be read without their keys; mount with Linux to write",
    ),
    (
        Incompat::EA_INODE,
        "attribute values in separate inodes are read but not maintained; mount with Linux to \
         write",
    ),
    (Incompat::CASEFOLD, "case-insensitive names are not maintained; mount with Linux to write"),
];

const READ_ONLY_RO_COMPAT: &[(RoCompat, &str)] = &[
    (
        RoCompat::QUOTA,
        "quota would not count what is written, so nothing but repairs and settings change it; \
         mount with Linux, or remove it with `tune2fs -O ^quota`",
    ),
    (
        RoCompat::PROJECT,
        "project quota would not count what is written, so nothing but repairs and settings change \
         it; mount with Linux, or remove it with `tune2fs -O ^project`",
    ),
    (RoCompat::BIGALLOC, "clusters (bigalloc) cannot be allocated; mount with Linux to write"),
    (RoCompat::VERITY, "fs-verity files are not maintained; mount with Linux to write"),
    (RoCompat::READONLY, "the volume is marked read-only; remove the mark"),
    (RoCompat::SHARED_BLOCKS, "files share blocks; `e2fsck -E unshare_blocks` gives each its own"),
];

/// What Cairn can do with a volume, by its features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read and write.
    ReadWrite,
    /// Read only. The reason names the features and a remedy.
    ReadOnly(String),
    /// Nothing. The reason names the features.
    Refuse(String),
}

/// The three sets of flags of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// Flags that may be ignored.
    pub compat: Compat,
    /// Flags that must be known.
    pub incompat: Incompat,
    /// Flags that must be known to write.
    pub ro_compat: RoCompat,
}

impl Features {
    /// True if the volume has this compat feature.
    #[must_use]
    pub(crate) const fn compat(&self, flag: Compat) -> bool {
        self.compat.contains(flag)
    }

    /// True if the volume has this incompat feature.
    #[must_use]
    pub(crate) const fn incompat(&self, flag: Incompat) -> bool {
        self.incompat.contains(flag)
    }

    /// True if the volume has this ro_compat feature.
    #[must_use]
    pub(crate) const fn ro_compat(&self, flag: RoCompat) -> bool {
        self.ro_compat.contains(flag)
    }

    /// True if group descriptors have a checksum; groups may then be uninitialised.
    #[must_use]
    pub(crate) const fn has_group_checksums(&self) -> bool {
        self.ro_compat.contains(RoCompat::GDT_CSUM)
            || self.ro_compat.contains(RoCompat::METADATA_CSUM)
    }

    /// What Cairn can do with a volume of these features.
    #[must_use]
    pub(crate) fn access(&self) -> Access {
        if self.incompat(Incompat::JOURNAL_DEV) {
            return Access::Refuse(
                "this is an external journal, not a filesystem; name the filesystem's own device"
                    .into(),
            );
        }
        let unreadable = self.unreadable();
        if !unreadable.is_empty() {
            let names = names_of(unreadable.bits(), INCOMPAT_NAMES, 'I').join(", ");
            return Access::Refuse(format!(
                "unsupported incompatible features: {names}; mount it with Linux"
            ));
        }
        let reasons = self.read_only_reasons();
        if reasons.is_empty() { Access::ReadWrite } else { Access::ReadOnly(reasons.join("; ")) }
    }

    /// The flags of volumes that cannot be read.
    #[must_use]
    pub(crate) fn unreadable(&self) -> Incompat {
        let readable =
            READ_ONLY_INCOMPAT.iter().fold(WRITABLE_INCOMPAT, |all, (flag, _)| all | *flag);
        self.incompat.difference(readable)
    }

    fn read_only_reasons(&self) -> Vec<String> {
        let incompat = READ_ONLY_INCOMPAT.iter().filter(|(flag, _)| self.incompat(*flag));
        let mut reasons: Vec<String> = incompat
            .map(|(flag, help)| {
                format!("feature {}: {help}", name_of(flag.bits(), INCOMPAT_NAMES, 'I'))
            })
            .collect();
        let mut left = self.ro_compat.difference(WRITABLE_RO_COMPAT);
        for (flag, help) in READ_ONLY_RO_COMPAT.iter().filter(|(flag, _)| self.ro_compat(*flag)) {
            reasons.push(format!("feature {}: {help}", name_of(flag.bits(), RO_COMPAT_NAMES, 'R')));
            left.remove(*flag);
        }
        for name in names_of(left.bits(), RO_COMPAT_NAMES, 'R') {
            reasons.push(format!(
                "feature {name}: Cairn does not know it and cannot maintain it; mount with Linux \
                 to write"
            ));
        }
        reasons
    }

    /// Names of all features in dumpe2fs's order. Unknown ones are `FEATURE_C13`, `FEATURE_I31` and
    /// so on.
    #[must_use]
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = names_of(self.compat.bits(), COMPAT_NAMES, 'C');
        names.extend(names_of(self.incompat.bits(), INCOMPAT_NAMES, 'I'));
        names.extend(names_of(self.ro_compat.bits(), RO_COMPAT_NAMES, 'R'));
        names
    }

    /// The names of all features.
    pub(crate) fn all_names() -> impl Iterator<Item = &'static str> {
        [COMPAT_NAMES, INCOMPAT_NAMES, RO_COMPAT_NAMES].into_iter().flatten().map(|(_, name)| *name)
    }

    /// Sets or clears a feature by its name or alias. False if the name is unknown.
    pub(crate) fn set_by_name(&mut self, name: &str, on: bool) -> bool {
        let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, real)| real);
        let bit = |table: &[(u32, &str)]| {
            table.iter().find(|(_, known)| *known == name).map(|(bit, _)| *bit)
        };
        if let Some(bit) = bit(COMPAT_NAMES) {
            self.compat.set(Compat::from_bits_retain(bit), on);
        } else if let Some(bit) = bit(INCOMPAT_NAMES) {
            self.incompat.set(Incompat::from_bits_retain(bit), on);
        } else if let Some(bit) = bit(RO_COMPAT_NAMES) {
            self.ro_compat.set(RoCompat::from_bits_retain(bit), on);
        } else {
            return false;
        }
        true
    }
}

fn name_of(bit: u32, table: &[(u32, &str)], set: char) -> String {
    table.iter().find(|(known, _)| *known == bit).map_or_else(
        || format!("FEATURE_{set}{}", bit.trailing_zeros()),
        |(_, name)| (*name).to_owned(),
    )
}

fn names_of(bits: u32, table: &[(u32, &str)], set: char) -> Vec<String> {
    (0..u32::BITS)
        .map(|n| 1 << n)
        .filter(|bit| bits & bit != 0)
        .map(|bit| name_of(bit, table, set))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_decide_access() {
        let mut features = Features::default();
        assert_eq!(features.access(), Access::ReadWrite);
        features.compat = Compat::from_bits_retain(1 << 30);
        assert_eq!(features.access(), Access::ReadWrite);
        features.ro_compat = RoCompat::from_bits_retain(1 << 29);
        assert!(matches!(features.access(), Access::ReadOnly(why) if why.contains("FEATURE_R29")));
        features.incompat = Incompat::from_bits_retain(1 << 28);
        assert!(matches!(features.access(), Access::Refuse(why) if why.contains("FEATURE_I28")));
    }

    #[test]
    fn read_only_reasons_name_the_feature_and_the_remedy() {
        for (name, remedy) in [
            ("quota", "tune2fs -O ^quota"),
            ("project", "tune2fs"),
            ("casefold", "Linux"),
            ("encrypt", "keys"),
            ("verity", "Linux"),
            ("bigalloc", "Linux"),
            ("mmp", "tune2fs -O ^mmp"),
        ] {
            let mut features = Features::default();
            assert!(features.set_by_name(name, true));
            let Access::ReadOnly(why) = features.access() else {
                panic!("{name} is not read-only")
            };
            assert!(why.contains(name) && why.contains(remedy), "{why}");
        }
    }

    #[test]
    fn names_round_trip() {
        for table in [COMPAT_NAMES, INCOMPAT_NAMES, RO_COMPAT_NAMES] {
            for (_, name) in table {
                let mut features = Features::default();
                assert!(features.set_by_name(name, true));
                assert_eq!(features.names(), [*name]);
                assert!(features.set_by_name(name, false));
                assert_eq!(features, Features::default());
            }
        }
        assert!(!Features::default().set_by_name("no_such_feature", true));
    }
}
