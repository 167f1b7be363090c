//! [`Switch`]: many blocks and the superblock change together, without a log.
//!
//! All blocks are first written as they are: a host without room for one of them refuses it before
//! anything has changed. Then the superblock says that the volume is not clean, the blocks change,
//! and the superblock follows. If one of these writes fails, the old blocks are written back.

use cairn_base::Pba;
use cairn_block::BlockDeviceExt;

use crate::error::{Error, Result};
use crate::format::superblock::{OFFSET, Superblock};
use crate::offline::{Blocks, Offline};

/// The old state of a volume and the new one.
pub(super) struct Switch {
    before: Superblock,
    between: Superblock,
    after: Superblock,
    old: Blocks,
    new: Blocks,
}

impl Switch {
    /// Reads the old state, and writes all of it, unchanged. `between` is not clean.
    ///
    /// # Errors
    /// The device failed, or has no room for the blocks.
    pub(super) fn prepare(
        volume: &Offline,
        between: Superblock,
        after: Superblock,
        new: Blocks,
    ) -> Result<Self> {
        let size = u64::from(volume.layout.block_size);
        let mut old = Blocks::new();
        for pba in new.keys() {
            old.insert(*pba, volume.claim(*pba, 1)?);
        }
        volume.claim(Pba(OFFSET / size), 1)?;
        volume.device.flush()?;
        Ok(Self { before: volume.superblock.clone(), between, after, old, new })
    }

    /// Makes the new state.
    ///
    /// # Errors
    /// The device failed. The error says in which state the volume is.
    pub(super) fn make(self, volume: &mut Offline) -> Result<()> {
        let done = write(volume, (&self.between, &self.new, &self.after));
        done.map_err(|error| match write(volume, (&self.between, &self.old, &self.before)) {
            Ok(()) => unchanged(error),
            Err(_) => Error::unfinished(
                error,
                "the volume has no journal now and is not clean: make room on the host or \
                     replace the device, run e2fsck -f on it, and add a journal again",
            ),
        })
    }
}

/// The error of what has left the journal.
pub(super) fn unchanged(error: Error) -> Error {
    Error::unfinished(
        error,
        "the journal is as it was, and the volume clean: make room on the host or replace the \
         device, and try again",
    )
}

type State<'a> = (&'a Superblock, &'a Blocks, &'a Superblock);

fn write(volume: &mut Offline, (between, blocks, end): State<'_>) -> Result<()> {
    volume.write_superblock(between.clone())?;
    let size = u64::from(volume.layout.block_size);
    for (pba, bytes) in blocks {
        volume.device.write_at(pba.get() * size, bytes.clone())?;
    }
    // The flush before it makes the blocks durable.
    volume.write_superblock(end.clone())
}
