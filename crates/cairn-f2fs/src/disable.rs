//! `checkpoint=disable`: from one checkpoint on nothing is final. Whatever happens can be thrown away by unmounting, and is
//! made to stay by `checkpoint=enable`.
//!
//! That one checkpoint is marked, so that whoever mounts the volume next knows that nothing behind it counts. What it holds is
//! not overwritten: blocks of it that are freed cannot be used again before checkpoints are enabled, and neither counts as free
//! what lies in holes beyond the overprovisioned space. How much that may be at the start is the option's value.

use std::sync::atomic::Ordering;

use cairn_base::stats::Report;

use crate::checkpoint::Reason;
use crate::error::{Error, Result};
use crate::format::units::BLOCKS_PER_SEGMENT;
use crate::options::UnusableCap;
use crate::store::Store;
use crate::volume::Volume;

impl Volume {
    /// Makes everything done so far final and writes no checkpoint from then on. Nobody else changes the volume meanwhile.
    ///
    /// # Errors
    /// More than `cap` would be unusable, although cleaning was tried; or a write failed.
    pub(crate) fn disable_checkpoints(&self, cap: UnusableCap) -> Result<()> {
        let store = self.store()?;
        self.write_data()?;
        store.checkpoints.write(Reason::Sync)?;
        let cap = cap.blocks(store.space.user_blocks());
        let mut unusable = unusable_at_first(store);
        while unusable > cap {
            self.clean_one()?;
            let left = unusable_at_first(store);
            if left >= unusable {
                return Err(Error::Option(format!(
                    "checkpoint=disable: {left} blocks would be unusable, and {cap} are allowed: say \
                     checkpoint=disable:{left}, or free some space"
                )));
            }
            unusable = left;
        }
        store.checkpoints.stop_merging();
        store.checkpoints.write(Reason::Pause)?;
        self.unusable_at_first.store(unusable, Ordering::Relaxed);
        Ok(())
    }

    /// Makes everything done so far final and writes checkpoints again. Nobody else changes the volume meanwhile.
    ///
    /// # Errors
    /// A write failed.
    pub(crate) fn enable_checkpoints(&self) -> Result<()> {
        let store = self.store()?;
        self.write_data()?;
        store.checkpoints.write(Reason::Resume)?;
        store.space.set_unusable(0);
        Ok(())
    }

    /// Starts or ends the daemon that merges checkpoints: it is there while the volume is written, checkpoints are enabled, and
    /// the option is on.
    pub(crate) fn switch_merging(&self) {
        let Some(store) = &self.store else { return };
        let wanted = self.options().checkpoint_merge;
        if wanted && self.read_only.lock().is_none() && !store.checkpoints.is_disabled() {
            store.checkpoints.start_merging();
        } else {
            store.checkpoints.stop_merging();
        }
    }

    /// Blocks that are neither used nor usable while checkpoints are disabled.
    #[must_use]
    pub fn unusable(&self) -> u64 {
        let Some(store) = self.store.as_ref().filter(|store| store.checkpoints.is_disabled()) else { return 0 };
        self.unusable_at_first.load(Ordering::Relaxed) + store.segments.held_back()
    }

    /// State of the option, for a volume's report.
    pub(crate) fn disabled_report(&self) -> Report {
        let disabled = self.store.as_ref().is_some_and(|store| store.checkpoints.is_disabled());
        Report::new().with("disabled", disabled).with("unusable_blocks", self.unusable())
    }
}

/// Blocks in holes of segments, of data or of nodes (whichever is more), beyond the space that is overprovisioned anyway.
fn unusable_at_first(store: &Store) -> u64 {
    let holes = store.segments.holes().into_iter().max().unwrap_or(0);
    let overprovision = u64::from(store.space.overprovision_segments()) * u64::from(BLOCKS_PER_SEGMENT);
    let reserved = u64::from(store.space.reserved_sections()) * u64::from(store.layout.section_capacity());
    holes.saturating_sub(overprovision.saturating_sub(reserved))
}
