//! Errors that the superblock records until fsck.f2fs has run: why checkpoints stopped, and which
//! kinds of damage were found.
//!
//! fsck.f2fs from 1.16 on reads the record, checks the whole volume for it, and clears it.

use super::superblock::Superblock;

/// Why checkpoints stopped: an index into `s_stop_reason` (`enum stop_cp_reason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// On request, or for damage that [`FoundDamage`] names.
    Shutdown,
    /// Metadata could not be read.
    MetaPage,
    /// A write failed.
    WriteFail,
    /// A summary was damaged.
    CorruptedSummary,
    /// A flush failed.
    FlushFail,
    /// No segment was free.
    NoSegment,
}

impl StopReason {
    const fn index(self) -> usize {
        match self {
            Self::Shutdown => 0,
            Self::MetaPage => 2,
            Self::WriteFail => 3,
            Self::CorruptedSummary => 4,
            Self::FlushFail => 6,
            Self::NoSegment => 7,
        }
    }
}

/// A kind of damage: a bit of `s_errors` (`enum f2fs_error`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundDamage {
    /// A compressed cluster.
    Cluster,
    /// An address of a block.
    BlockAddress,
    /// A directory entry.
    DirectoryEntry,
    /// An inode.
    Inode,
    /// A summary.
    Summary,
    /// The footer of a node.
    Footer,
    /// The SIT.
    Sit,
    /// Extended attributes.
    Xattr,
    /// The NAT.
    Nat,
}

impl FoundDamage {
    const fn bit(self) -> usize {
        match self {
            Self::Cluster => 0,
            Self::BlockAddress => 2,
            Self::DirectoryEntry => 3,
            Self::Inode => 4,
            Self::Summary => 5,
            Self::Footer => 6,
            Self::Sit => 12,
            Self::Xattr => 14,
            Self::Nat => 16,
        }
    }
}

impl Superblock {
    /// Counts a stop.
    pub(crate) fn note_stop(&mut self, reason: StopReason) {
        if let Some(count) = self.s_stop_reason.get_mut(reason.index()) {
            *count = count.saturating_add(1);
        }
    }

    /// Records a kind of damage. False if it was recorded before.
    pub(crate) fn note_damage(&mut self, found: FoundDamage) -> bool {
        let mask = 1_u8.rotate_left(u32::try_from(found.bit() % 8).unwrap_or(0));
        let Some(byte) = self.s_errors.get_mut(found.bit() / 8) else { return false };
        let new = *byte & mask == 0;
        *byte |= mask;
        new
    }

    /// True if an error has stopped checkpoints or damage was found.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        let [_on_request, errors @ ..] = &self.s_stop_reason;
        errors.iter().chain(&self.s_errors).any(|byte| *byte != 0)
    }

    /// Clears the record.
    pub(crate) fn clear_errors(&mut self) {
        self.s_stop_reason = Default::default();
        self.s_errors = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_that_fsck_f2fs_reads() {
        let mut superblock = Superblock::blank();
        assert!(!superblock.has_errors());
        superblock.note_stop(StopReason::Shutdown);
        assert!(!superblock.has_errors(), "a stop on request is no error");
        superblock.note_stop(StopReason::FlushFail);
        superblock.note_stop(StopReason::FlushFail);
        assert!(superblock.has_errors());
        assert_eq!(superblock.s_stop_reason[..8], [1, 0, 0, 0, 0, 0, 2, 0]);
        assert!(superblock.note_damage(FoundDamage::Inode));
        assert!(!superblock.note_damage(FoundDamage::Inode));
        assert!(superblock.note_damage(FoundDamage::Nat));
        assert_eq!(superblock.s_errors[..4], [0x10, 0, 1, 0]);
        superblock.clear_errors();
        assert!(!superblock.has_errors());
    }
}
