//! [`Stage`]: in which order defects are mended.

use cairn_check::{Finding, Severity};

use super::super::kinds;

/// The order of repairs: what is later follows from what is earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Single wrong bits.
    Bits,
    /// The first superblock, the journal.
    Base,
    /// Group descriptors: where bitmaps and tables are.
    Groups,
    /// Fields of the superblock.
    Fields,
    /// The block of multiple-mount protection.
    Protection,
    /// Inodes, block maps, attributes, orphans.
    Inodes,
    /// Blocks of two files.
    Twice,
    /// Directories.
    Directories,
    /// Link counts, references, inodes without a name.
    Links,
    /// Bitmaps, counts, backups.
    Counts,
    /// What quota files count.
    Quota,
    /// A journal without a valid superblock: what else is damaged may make it unreadable.
    Journal,
    /// A file of orphans without a journal, which may be made meanwhile.
    OrphanFile,
}

impl Stage {
    /// The stage of a finding.
    pub(super) fn of(finding: &Finding) -> Self {
        let code = finding.kind.code;
        let is = |kinds: &[&cairn_check::Kind]| kinds.iter().any(|kind| kind.code == code);
        if is(&[
            &kinds::METADATA_BIT,
            &kinds::XATTR_MARK,
            &kinds::XATTR_PLACE,
            &kinds::ENCRYPTION_BYTE,
        ]) {
            Self::Bits
        } else if is(&[
            &kinds::SUPERBLOCK_BIT,
            &kinds::SUPERBLOCK_DAMAGED,
            &kinds::SUPERBLOCK_CHECKSUM,
            &kinds::SUPERBLOCK_REVISION,
            &kinds::JOURNAL_REPLAY,
        ]) {
            Self::Base
        } else if is(&[&kinds::JOURNAL_INVALID]) {
            Self::Journal
        } else if is(&[&kinds::ORPHAN_JOURNAL]) {
            Self::OrphanFile
        } else if is(&[&kinds::QUOTA_COUNTS, &kinds::QUOTA_FILE]) {
            Self::Quota
        } else if is(&[
            &kinds::GROUP_CHECKSUM,
            &kinds::GROUP_FLAGS,
            &kinds::GROUP_PLACE,
            &kinds::GROUP_OVERLAP,
        ]) {
            Self::Groups
        } else if is(&[&kinds::SUPERBLOCK_FIELD]) {
            Self::Fields
        } else if is(&[&kinds::MMP_CHECKSUM, &kinds::MMP_INVALID]) {
            Self::Protection
        } else if is(&[&kinds::MAP_TWICE]) {
            Self::Twice
        } else if is(&[
            &kinds::INODE_LINKS,
            &kinds::INODE_OWNERS,
            &kinds::INODE_UNREACHABLE,
            &kinds::VALUE_UNREACHABLE,
            &kinds::INODE_BLOCKS,
            &kinds::XATTR_REFERENCES,
            &kinds::VALUE_REFERENCES,
        ]) || is(&[&kinds::XATTR_DISPUTED]) && finding.place.group.is_none()
        {
            Self::Links
        } else if ["ext4.directory.", "ext4.entry.", "ext4.htree."]
            .iter()
            .any(|prefix| code.starts_with(prefix))
            || is(&[&kinds::ENCRYPTION_NAME])
        {
            Self::Directories
        } else if ["ext4.superblock.", "ext4.group.", "ext4.block_bitmap.", "ext4.inode_bitmap."]
            .iter()
            .any(|prefix| code.starts_with(prefix))
            || is(&[&kinds::XATTR_DISPUTED])
        {
            Self::Counts
        } else {
            Self::Inodes
        }
    }
}

/// True if a defect can be mended while defects that lose something stay: it says nothing of what
/// they concern.
pub(super) fn is_independent(finding: &Finding) -> bool {
    let free = [
        &kinds::METADATA_BIT,
        &kinds::SUPERBLOCK_BIT,
        &kinds::MMP_CHECKSUM,
        &kinds::SUPERBLOCK_DAMAGED,
        &kinds::SUPERBLOCK_BACKUP,
        &kinds::SUPERBLOCK_FIELD,
        &kinds::BLOCK_BITMAP_FREE,
        &kinds::BLOCK_BITMAP_PADDING,
        &kinds::INODE_BITMAP_FREE,
        &kinds::INODE_BITMAP_PADDING,
        &kinds::XATTR_HASH,
    ];
    // It tells the size of clusters, where that is what is wrong.
    let is_witness = finding.place.field == Some("s_clusters_per_group");
    !is_witness
        && finding.kind.severity == Severity::Accounting
        && free.iter().any(|kind| kind.code == finding.kind.code)
}
