//! Changing options of a mounted volume: [`cairn_vfs::FileSystem::remount`].
//!
//! Everything is parsed and checked before anything is applied, so that a refused list changes nothing. What is applied
//! last is what can still fail.

use crate::error::{Error, Result};
use crate::options::MountOptions;
use crate::volume::Volume;

/// Takes a list of options as for mounting; what it does not name stays.
pub(crate) fn remount(volume: &Volume, list: &str) -> Result<()> {
    let old = volume.options.get();
    let new = old.changed(list)?;
    check(&old, &new)?;
    new.check_journal(volume.journal.is_some(), volume.read_only_reason().as_deref())?;
    if let Some(journal) = &volume.journal {
        journal.set_async_checkpoint(new.async_checkpoint)?;
        journal.set_checkpoint_clean(new.checkpoint_clean);
        journal.set_commit_interval(new.commit_interval);
    }
    volume.pages.budget().set_limit(new.cache_bytes as u64);
    volume.pages.set_mode(new.buffered);
    volume.pages.set_max_folio(new.max_folio);
    volume.options.set(new);
    Ok(())
}

fn check(old: &MountOptions, new: &MountOptions) -> Result<()> {
    let fixed = |name: &str| {
        Err(Error::Option(format!("{name} cannot be changed while the volume is mounted: unmount and mount again")))
    };
    if old.no_load != new.no_load {
        return fixed("noload");
    }
    if old.read_only != new.read_only {
        return fixed(if new.read_only { "ro" } else { "rw" });
    }
    Ok(())
}
