//! Feature bits of the superblock, their names, and what Cairn can do with each.

use bitflags::bitflags;

bitflags! {
    /// `feature` of the superblock. Unknown bits are kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Features: u32 {
        /// Files or names may be encrypted.
        const ENCRYPT = 0x1;
        /// On a zoned device.
        const BLKZONED = 0x2;
        /// Unused on disk.
        const ATOMIC_WRITE = 0x4;
        /// Inodes may have extra attributes.
        const EXTRA_ATTR = 0x8;
        /// Inodes have a project id.
        const PROJECT_QUOTA = 0x10;
        /// Inodes have a checksum.
        const INODE_CHECKSUM = 0x20;
        /// Space for attributes in the inode is set per inode.
        const FLEXIBLE_INLINE_XATTR = 0x40;
        /// Quota is kept in hidden inodes.
        const QUOTA_INO = 0x80;
        /// Inodes have a creation time.
        const INODE_CRTIME = 0x100;
        /// There is a lost+found directory.
        const LOST_FOUND = 0x200;
        /// Files may be protected by fs-verity.
        const VERITY = 0x400;
        /// The superblock has a checksum.
        const SB_CHECKSUM = 0x800;
        /// Directories may ignore case.
        const CASEFOLD = 0x1000;
        /// Files may be compressed.
        const COMPRESSION = 0x2000;
        /// Never written after mkfs.
        const RO = 0x4000;
        /// Files may stand for whole devices.
        const DEVICE_ALIAS = 0x8000;
        const _ = !0;
    }
}

/// Names as in `mkfs.f2fs -O`. Features without an option have a name of Cairn's in brackets.
const NAMES: [(Features, &str); 16] = [
    (Features::ENCRYPT, "encrypt"),
    (Features::BLKZONED, "blkzoned"),
    (Features::ATOMIC_WRITE, "atomic_write"),
    (Features::EXTRA_ATTR, "extra_attr"),
    (Features::PROJECT_QUOTA, "project_quota"),
    (Features::INODE_CHECKSUM, "inode_checksum"),
    (Features::FLEXIBLE_INLINE_XATTR, "flexible_inline_xattr"),
    (Features::QUOTA_INO, "quota"),
    (Features::INODE_CRTIME, "inode_crtime"),
    (Features::LOST_FOUND, "lost_found"),
    (Features::VERITY, "verity"),
    (Features::SB_CHECKSUM, "sb_checksum"),
    (Features::CASEFOLD, "casefold"),
    (Features::COMPRESSION, "compression"),
    (Features::RO, "ro"),
    (Features::DEVICE_ALIAS, "device_alias"),
];

impl Features {
    /// Features that need extra attributes in inodes.
    pub(crate) const NEED_EXTRA_ATTR: Self = Self::PROJECT_QUOTA
        .union(Self::INODE_CHECKSUM)
        .union(Self::FLEXIBLE_INLINE_XATTR)
        .union(Self::INODE_CRTIME)
        .union(Self::COMPRESSION);

    /// Features that Cairn writes. Any other feature makes a volume read-only.
    pub(crate) const WRITABLE: Self = Self::ENCRYPT
        .union(Self::BLKZONED)
        .union(Self::ATOMIC_WRITE)
        .union(Self::EXTRA_ATTR)
        .union(Self::PROJECT_QUOTA)
        .union(Self::INODE_CHECKSUM)
        .union(Self::FLEXIBLE_INLINE_XATTR)
        .union(Self::QUOTA_INO)
        .union(Self::INODE_CRTIME)
        .union(Self::LOST_FOUND)
        .union(Self::VERITY)
        .union(Self::SB_CHECKSUM)
        .union(Self::CASEFOLD)
        .union(Self::COMPRESSION);

    /// Does no feature lack another one that it needs?
    #[must_use]
    pub(crate) const fn is_possible(self) -> bool {
        self.contains(Self::EXTRA_ATTR) || !self.intersects(Self::NEED_EXTRA_ATTR)
    }

    /// The feature of an option's name.
    #[must_use]
    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(feature, _)| *feature)
    }

    /// Names of all features that are set; unknown bits in hexadecimal.
    #[must_use]
    pub(crate) fn names(self) -> Vec<String> {
        let known = NAMES
            .iter()
            .filter(|(feature, _)| self.contains(*feature))
            .map(|(_, name)| (*name).to_owned());
        let named = NAMES.iter().fold(Self::empty(), |all, (feature, _)| all | *feature);
        let unknown = self.difference(named).bits();
        let unknown = (0..32)
            .map(|bit| unknown & (1 << bit))
            .filter(|bit| *bit != 0)
            .map(|bit| format!("{bit:#x}"));
        known.chain(unknown).collect()
    }

    /// Why the volume is read-only, if a feature is the reason.
    #[must_use]
    pub fn read_only_reason(self) -> Option<String> {
        let refused = self.difference(Self::WRITABLE);
        if refused == Self::RO {
            return Some("the volume was made read-only (feature ro)".into());
        }
        (!refused.is_empty()).then(|| {
            format!(
                "the volume has features that Cairn does not write: {}",
                refused.names().join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        let all = Features::from_bits_retain(0x1_0fff);
        let names = all.names();
        assert_eq!(names.last().map(String::as_str), Some("0x10000"));
        let back = names
            .iter()
            .filter_map(|name| Features::named(name))
            .fold(Features::empty(), |a, b| a | b);
        assert_eq!(back.bits(), 0xfff);
    }

    #[test]
    fn refusals_name_the_feature() {
        assert_eq!(Features::from_bits_retain(0xb68).read_only_reason(), None);
        assert_eq!(Features::from_bits_retain(0x3499).read_only_reason(), None, "Android's");
        let unknown = Features::from_bits_retain(0x1_8001).read_only_reason().unwrap();
        assert!(unknown.ends_with(": device_alias, 0x10000"), "{unknown}");
        assert!(Features::RO.read_only_reason().unwrap().contains("ro"));
    }
}
