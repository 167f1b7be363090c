//! Records damage in the superblock until the next e2fsck, as Linux does with `errors=continue`.
//!
//! A thread without locks writes the superblock a little later, because the caller that found the
//! damage may hold locks. There is at most one such job; it also writes damage that is found
//! meanwhile.

use cairn_vfs::Timestamp;

use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::superblock::FoundError;
use crate::volume::Volume;

impl Volume {
    /// Records damage.
    pub(crate) fn note_damage(&self, error: &Error) {
        tracing::error!(%error, "the volume is damaged: run e2fsck on it");
        let (ino, block) = if let Error::Corrupt(what) = error { what.place() } else { (0, 0) };
        let checksum = matches!(error, Error::Corrupt(Corrupt::Checksum { .. }));
        let found = FoundError {
            seconds: Timestamp::from(self.runtime.now()).seconds,
            ino,
            block,
            checksum,
        };
        let first = self.damage.push(found);
        let Some(volume) = self.me.upgrade().filter(|_| first) else { return };
        self.runtime.defer(Box::new(move || {
            if let Err(error) = volume.store_damage() {
                tracing::warn!(%error, "the damage could not be recorded in the superblock");
            }
        }));
    }

    /// Writes the waiting records to the superblock.
    fn store_damage(&self) -> Result<()> {
        let found = self.damage.take();
        if found.is_empty() || self.is_read_only() {
            return Ok(());
        }
        let handle = self.begin(self.credits.attributes)?;
        self.superblock.change(self, &handle, |superblock| {
            found.iter().for_each(|found| superblock.note_error(found))
        })?;
        handle.finish();
        Ok(())
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
}
