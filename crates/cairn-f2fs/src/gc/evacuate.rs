//! Empties sections that the volume will no longer have.

use std::ops::Range;

use super::cleaner::Cleaner;
use super::relocate;
use crate::checkpoint::Reason;
use crate::error::{Error, Result};
use crate::store::Store;

/// How often a section is tried, and how often room is made for it.
const ATTEMPTS: u32 = 8;

impl Cleaner {
    /// Moves everything out of these sections, which then take no more blocks, and writes a
    /// checkpoint. Call it without the operation lock. If it fails, the sections can be written
    /// again.
    ///
    /// # Errors
    /// The other sections have no room, blocks have no owner or cannot be read, or a write failed.
    pub(crate) fn evacuate(&self, sections: Range<u32>) -> Result<()> {
        let store = self.mount.store()?;
        let outcome = store
            .segments
            .bar(sections.clone())
            .and_then(|()| sections.into_iter().try_for_each(|one| self.empty(store, one)))
            .and_then(|()| store.checkpoints.write(Reason::Cleaning).map(drop));
        self.mount.stop_after(&outcome);
        if outcome.is_err() {
            store.segments.unbar();
        }
        outcome
    }

    fn empty(&self, store: &Store, section: u32) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let info = store.segments.section(section);
            if info.valid == 0 {
                return Ok(());
            }
            self.make_room(store)?;
            let moved = {
                let _working = self.working.lock();
                relocate::clean_section(self, store, &info)
            };
            match moved {
                Ok(moved) if moved.stuck => {
                    return Err(Error::NeedsCheck(
                        "blocks have no owner, or cannot be read".into(),
                    ));
                }
                Ok(moved) if moved.full => self.clean_one()?,
                Err(Error::Vfs(cairn_vfs::Error::NoSpace)) => self.clean_one()?,
                moved => drop(moved?),
            }
        }
        match store.segments.section(section).valid {
            0 => Ok(()),
            _ => Err(Error::NO_SPACE),
        }
    }

    /// Frees sections until a section's blocks and a checkpoint have room.
    fn make_room(&self, store: &Store) -> Result<()> {
        for round in 0..ATTEMPTS {
            if !self.space_state()?.is_tight() {
                return Ok(());
            }
            match round {
                0 => drop(store.checkpoints.write(Reason::Cleaning)?),
                _ => self.clean_one()?,
            }
        }
        Ok(())
    }
}
