//! Records errors in the superblock until the next e2fsck, as Linux does.
//!
//! **The volume continues** (`errors=continue`): the record is a change of the superblock in a
//! transaction. A thread without locks makes it a little later, because the caller that found the
//! damage may hold locks. There is at most one such job; it also writes damage that is found
//! meanwhile.
//!
//! **The volume has stopped** (`errors=remount-ro`, `errors=panic`, a failed write, an aborted
//! journal): nothing can be committed any more. The record is written directly, at once, and
//! nothing else is. If the power fails before, the journal's own error number records it, but after
//! `errors=panic` nothing does. Recovery may write an older superblock over the record; the mount
//! restores it then, as Linux's and e2fsck do.

use cairn_base::told::TOLD;
use cairn_block::ErrorKind;
use cairn_vfs::Timestamp;
use cairn_vfs::error_policy::DAMAGED;

use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::error_record::{ErrorCode, FoundError};
use crate::mount_state::MountState;

impl MountState {
    /// Records damage.
    pub(crate) fn note_damage(&self, error: &Error) {
        tracing::error!(%error, "{DAMAGED}");
        let first = self.damage.push(self.found(error));
        let Some(mount) = self.me.upgrade().filter(|_| first) else { return };
        self.runtime.defer(Box::new(move || {
            if let Err(error) = mount.store_damage() {
                tracing::warn!(%error, "the damage could not be recorded in the superblock");
            }
        }));
    }

    /// Records at the end that a group was left out, because its bitmaps are damaged.
    pub(crate) fn note_left_out(&self, defect: Corrupt) {
        let error = Error::Corrupt(defect);
        tracing::error!(%error, "{DAMAGED}");
        self.damage.push(self.found(&error));
        if let Err(error) = self.store_damage() {
            tracing::warn!(%error, "the damage could not be recorded in the superblock");
        }
    }

    /// Writes the waiting records to the superblock.
    fn store_damage(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let found = self.damage.take();
        if found.is_empty() {
            return Ok(());
        }
        let handle = self.begin(self.credits.attributes)?;
        self.superblock.change(self, &handle, |superblock| {
            found.iter().for_each(|found| superblock.note_error(found))
        })?;
        handle.finish();
        Ok(())
    }

    /// Records the error for which the volume has stopped, and the records that wait.
    pub(crate) fn record_stop(&self, error: &Error) {
        let mut found = self.damage.take();
        found.push(self.found(error));
        if let Some(journal) = self.journal() {
            journal.wait_for_home_write(self.superblock.block);
        }
        if let Err(error) = self.superblock.record_errors(self, &found) {
            let what = "the error could not be recorded in the superblock";
            tracing::warn!(target: TOLD, %error, "{what}");
        }
    }

    fn found(&self, error: &Error) -> FoundError {
        let seconds = Timestamp::from(self.runtime.now()).seconds;
        let (ino, block) = if let Error::Corrupt(what) = error { what.place() } else { (0, 0) };
        FoundError { seconds, ino, block, code: error.code(), part: error.part() }
    }
}

impl Error {
    /// The error's number in the superblock.
    fn code(&self) -> ErrorCode {
        match self {
            Self::Corrupt(Corrupt::Checksum { .. })
            | Self::Journal(cairn_jbd2::Error::Checksum { .. }) => ErrorCode::Checksum,
            Self::Unreplayable(why) => why.code(),
            Self::Corrupt(_) | Self::Journal(cairn_jbd2::Error::Corrupt { .. }) => {
                ErrorCode::Corrupted
            }
            Self::Device(error)
            | Self::Data(error)
            | Self::Journal(cairn_jbd2::Error::Device(error)) => match error.kind {
                ErrorKind::NoMemory => ErrorCode::NoMemory,
                ErrorKind::NoSpace => ErrorCode::NoSpace,
                ErrorKind::ReadOnly => ErrorCode::ReadOnly,
                _ => ErrorCode::Io,
            },
            _ => ErrorCode::Io,
        }
    }

    /// The part of the crate in which the error was found.
    fn part(&self) -> &'static str {
        match self {
            Self::Corrupt(what) => what.part(),
            Self::Journal(_) => "journal",
            Self::Device(_) => "metadata",
            Self::Data(_) => "file data",
            _ => "operation",
        }
    }
}

impl Corrupt {
    /// The damaged inode and block; 0 if unknown.
    fn place(&self) -> (u32, u64) {
        let number = |ino: cairn_base::Ino| u32::try_from(ino.get()).unwrap_or(0);
        match self {
            Self::Inode { ino, .. } | Self::Xattr { ino, .. } => (number(*ino), 0),
            Self::Mapping { ino, pba, .. } => (number(*ino), pba.get()),
            Self::Directory { ino, .. } => (number(*ino), 0),
            Self::Checksum { what: "inode", place, .. } => (u32::try_from(*place).unwrap_or(0), 0),
            _ => (0, 0),
        }
    }

    /// The structure that is damaged.
    fn part(&self) -> &'static str {
        match self {
            Self::Checksum { what, .. } => what,
            Self::Superblock { .. } | Self::TooShort { .. } => "superblock",
            Self::Group { .. } => "group descriptor",
            Self::Inode { .. } => "inode",
            Self::Mapping { .. } => "block map",
            Self::Directory { .. } => "directory",
            Self::Xattr { .. } => "extended attributes",
            Self::Bitmap { .. } => "bitmap",
            Self::Orphan { .. } => "orphans",
        }
    }
}
