//! Records errors until fsck.f2fs has run, as Linux does.
//!
//! **The volume continues** (`errors=continue`): the next checkpoint asks for fsck.f2fs
//! (`CP_FSCK_FLAG`), and the superblock says which kinds of damage were found (`s_errors`).
//!
//! **The volume has stopped**: no checkpoint is written any more. The superblock says why
//! (`s_stop_reason`), and nothing else is written. fsck.f2fs before 1.16 does not know that record:
//! the next mount carries it over into a checkpoint that asks for fsck.f2fs, and clears it when
//! that checkpoint is on the medium. If the power fails before the superblock is written, nothing
//! tells of the error.

use cairn_base::told::TOLD;
use cairn_block::Operation;
use cairn_vfs::error_policy::DAMAGED;

use crate::checkpoint::Reason;
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::CheckpointFlags;
use crate::format::error_record::{FoundDamage, StopReason};
use crate::mount_state::MountState;
use crate::options::MountOptions;
use crate::store::Store;

impl MountState {
    /// Records damage.
    pub(crate) fn note_damage(&self, store: &Store, error: &Error) {
        tracing::error!(%error, "{DAMAGED}");
        store.checkpoints.raise(CheckpointFlags::FSCK);
        let Some(found) = error.damage() else { return };
        let noted = self.disk.change_superblock(|superblock| superblock.note_damage(found));
        if let Err(error) = noted {
            tracing::warn!(%error, "the damage could not be recorded in the superblock");
        }
    }

    /// Records the error for which the volume has stopped.
    pub(crate) fn record_stop(&self, error: &Error) {
        let noted = self.disk.change_superblock(|superblock| {
            superblock.note_stop(error.stop_reason());
            if let Some(found) = error.damage() {
                superblock.note_damage(found);
            }
            true
        });
        if let Err(error) = noted {
            let what = "the error could not be recorded in the superblock";
            tracing::warn!(target: TOLD, %error, "{what}");
        }
    }
}

/// Warns that the first superblock is damaged, and says whether it is restored.
pub(crate) fn warn_of_backup(options: &MountOptions) {
    let repair = if options.read_only {
        "opening the volume for writing repairs it"
    } else {
        "it is written over the first"
    };
    tracing::warn!("the first superblock is damaged: the second one is used, and {repair}");
}

/// Copies the superblock's record of errors to all further checkpoints.
///
/// # Errors
/// The checkpoint cannot be written, or the device failed.
pub(crate) fn carry_over(mount: &MountState) -> Result<()> {
    if !mount.disk.has_errors() {
        return Ok(());
    }
    tracing::warn!(
        "errors were found when the volume was last used: check and \
         repair it"
    );
    let checkpoints = &mount.store()?.checkpoints;
    checkpoints.raise(CheckpointFlags::FSCK);
    checkpoints.write(Reason::Sync)?;
    // No checkpoint is written while checkpoints are disabled.
    if !checkpoints.last().flags.contains(CheckpointFlags::FSCK) {
        return Ok(());
    }
    mount.disk.change_superblock(|superblock| {
        superblock.clear_errors();
        true
    })
}

impl Error {
    fn stop_reason(&self) -> StopReason {
        match self {
            Self::Corrupt(Corrupt::Summary { .. }) => StopReason::CorruptedSummary,
            Self::Corrupt(_) => StopReason::Shutdown,
            Self::Device(error) if error.operation == Operation::Flush => StopReason::FlushFail,
            Self::Device(error) if !error.operation.changes() => StopReason::MetaPage,
            Self::Vfs(cairn_vfs::Error::NoSpace) => StopReason::NoSegment,
            _ => StopReason::WriteFail,
        }
    }

    fn damage(&self) -> Option<FoundDamage> {
        let Self::Corrupt(what) = self else { return None };
        match what {
            Corrupt::Cluster { .. } => Some(FoundDamage::Cluster),
            Corrupt::Mapping { .. } => Some(FoundDamage::BlockAddress),
            Corrupt::Directory { .. } => Some(FoundDamage::DirectoryEntry),
            Corrupt::Inode { .. } | Corrupt::Checksum { what: "inode", .. } => {
                Some(FoundDamage::Inode)
            }
            Corrupt::Summary { .. } => Some(FoundDamage::Summary),
            Corrupt::Node { .. } => Some(FoundDamage::Footer),
            Corrupt::Sit { .. } => Some(FoundDamage::Sit),
            Corrupt::Xattr { .. } => Some(FoundDamage::Xattr),
            Corrupt::Nat { .. } => Some(FoundDamage::Nat),
            _ => None,
        }
    }
}
