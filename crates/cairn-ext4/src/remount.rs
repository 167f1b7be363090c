//! Changes the options of a mounted volume ([`cairn_vfs::FileSystem::remount`]).
//!
//! All options are parsed and checked before the first is applied, so that a refused list changes
//! nothing. Turning read-only or writable can fail on the device. It precedes the settings, which
//! cannot fail.
//!
//! **Read-only and back.** Calls that may change the volume hold [write
//! access](cairn_vfs::write_access), and the remount holds it exclusively: earlier calls have
//! ended, and later calls see the new state. A volume that turns read-only is on the disk as after
//! an unmount (inodes that are unlinked but open stay recorded as orphans). A volume that turns
//! writable gets a new journal object over the same empty log; transaction numbers continue.
//!
//! **Freezing** turns a volume read-only in the same way, and calls that would change it wait.

use std::sync::Arc;

use cairn_base::memory;
use cairn_jbd2::JournalArea;
use cairn_vfs::write_access::PriorState;

use crate::error::{Error, Result};
use crate::mount;
use crate::options::MountOptions;
use crate::orphan::cleanup;
use crate::stop_cause::StopCause;
use crate::superblock::Mark;
use crate::sync;
use crate::txn::Txn;
use crate::volume::Volume;

/// Applies a list of options as for mounting. Options that it does not name stay.
pub(crate) fn remount(volume: &Arc<Volume>, list: &str) -> Result<()> {
    let _changing = volume.options.changing.lock();
    let old = volume.options.get();
    let new = old.changed(list)?;
    volume.access.check()?;
    check_stopped(volume, &old, list)?;
    check(volume, &old, &new)?;
    if new.read_only && !old.read_only {
        make_read_only(volume)?;
    }
    if !new.read_only && old.read_only {
        make_writable(volume, &new)?;
    }
    if let Some(journal) = volume.journal() {
        journal.set_async_checkpoint(new.async_checkpoint)?;
        journal.set_checkpoint_clean(new.checkpoint_clean);
        journal.set_commit_interval(new.commit_interval);
    }
    volume.pages.budget().set_limit(memory::within_limit(new.cache_bytes as u64));
    volume.pages.set_mode(new.buffered);
    volume.pages.set_max_folio(new.max_folio);
    volume.pages.set_dirty_expire(new.commit_interval);
    volume.options.set(new);
    volume.follow_options();
    Ok(())
}

/// Checks a list as [`remount`] does.
pub(crate) fn check_list(volume: &Volume, list: &str) -> Result<()> {
    let old = volume.options.get();
    volume.access.check()?;
    check_stopped(volume, &old, list)?;
    check(volume, &old, &old.changed(list)?)
}

/// Fails if `rw` is requested after an error has stopped the volume.
fn check_stopped(volume: &Volume, old: &MountOptions, list: &str) -> Result<()> {
    let asks = !old.read_only && list.split(',').any(|word| word == "rw");
    match volume.read_only_reason().filter(|_| asks) {
        Some(reason) => {
            Err(Error::Option(format!("rw is not possible: {reason}: unmount and mount again")))
        }
        None => Ok(()),
    }
}

fn check(volume: &Volume, old: &MountOptions, new: &MountOptions) -> Result<()> {
    let refused = |text: &str| Err(Error::Option(format!("{text}: unmount and mount again")));
    if old.no_load != new.no_load {
        return refused("noload cannot be changed while the volume is mounted");
    }
    if old.superblock != new.superblock {
        return refused("sb cannot be changed while the volume is mounted");
    }
    if old.read_only && !new.read_only {
        check_may_write(volume)?;
    }
    if old.async_checkpoint != new.async_checkpoint && !new.read_only {
        let reason =
            volume.read_only_reason().filter(|_| volume.stop_cause() != Some(StopCause::Asked));
        new.check_journal(has_journal(volume), reason.as_deref())?;
    }
    Ok(())
}

fn has_journal(volume: &Volume) -> bool {
    volume.layout.features.compat(crate::format::features::Compat::HAS_JOURNAL)
}

/// Fails unless the volume is read-only on request and may be written.
fn check_may_write(volume: &Volume) -> Result<()> {
    let refused = |why: &str| {
        Err(Error::Option(format!("rw is not possible: {why}: unmount and mount again")))
    };
    if volume.stop_cause() != Some(StopCause::Asked) {
        return refused(&volume.read_only_reason().unwrap_or_default());
    }
    if volume.device.geometry().read_only {
        return refused("the image was opened for reading only");
    }
    match journal_area(volume)? {
        Some(area) if cairn_jbd2::read_superblock(&area)?.start != 0 => {
            refused("the journal was not empty when the volume was mounted read-only")
        }
        _ => Ok(()),
    }
}

fn journal_area(volume: &Volume) -> Result<Option<JournalArea>> {
    let superblock = volume.superblock.read(&volume.buffers)?;
    mount::journal_area(&superblock, &volume.layout, &volume.buffers, &volume.device)
}

fn make_read_only(volume: &Arc<Volume>) -> Result<()> {
    if volume.stop_cause().is_some() {
        // The volume is read-only already, by an error, the device or a feature.
        return Ok(());
    }
    // Most of the writing is done while other calls continue.
    sync::sync(volume)?;
    let _exclusive = volume.access.exclusive();
    quiesce(volume, "remounted with ro")
}

/// Writes everything and stops writing. The caller holds exclusive access.
fn quiesce(volume: &Arc<Volume>, reason: &str) -> Result<()> {
    volume.runtime.drain_deferred();
    sync::sync(volume)?;
    mount::stop_daemons(volume);
    volume.set_read_only(Some(reason));
    let closed = finish(volume);
    match volume.pages.start_readahead() {
        Ok(daemon) => volume.daemons.lock().push(daemon),
        Err(error) => tracing::warn!("nothing is read ahead: {error}"),
    }
    closed.inspect_err(|error| {
        if volume.stop_for(StopCause::Failed, &format!("stopped after an error: {error}")) {
            volume.record_stop(error);
        }
    })
}

/// [`cairn_vfs::FileSystem::freeze`].
pub(crate) fn freeze(volume: &Arc<Volume>) -> Result<()> {
    let _changing = volume.options.changing.lock();
    volume.access.check()?;
    volume.check_readable()?;
    // Most of the writing is done while other calls continue.
    sync::sync(volume)?;
    let exclusive = volume.access.exclusive();
    if volume.stop_cause().is_some() {
        exclusive.freeze(PriorState::ReadOnly);
        return Ok(());
    }
    quiesce(volume, "frozen")?;
    exclusive.freeze(PriorState::Writable);
    Ok(())
}

/// [`cairn_vfs::FileSystem::thaw`].
pub(crate) fn thaw(volume: &Arc<Volume>) -> Result<()> {
    let _changing = volume.options.changing.lock();
    let exclusive = volume.access.exclusive();
    let resumed = match exclusive.prior_state()? {
        PriorState::Writable => resume(volume, &volume.options.get()),
        PriorState::ReadOnly => Ok(()),
    };
    exclusive.thaw();
    resumed
}

fn finish(volume: &Volume) -> Result<()> {
    if let Some(journal) = volume.journal() {
        journal.shutdown()?;
    }
    volume.set_txn(Txn::Direct(volume.buffers.clone()));
    volume.superblock.mark(volume, Mark::Clean, !volume.orphans.is_empty())
}

fn make_writable(volume: &Arc<Volume>, options: &MountOptions) -> Result<()> {
    let _exclusive = volume.access.exclusive();
    resume(volume, options)
}

/// Starts writing again. The caller holds exclusive access.
fn resume(volume: &Arc<Volume>, options: &MountOptions) -> Result<()> {
    // The volume may have been stopped since the first check.
    check_may_write(volume)?;
    let area = journal_area(volume)?;
    volume.superblock.mark(volume, Mark::Mounted, true)?;
    mount::keep_journal_error(volume, area.as_ref())?;
    volume.set_txn(mount::open_txn(volume, area, options)?);
    volume.daemons.lock().push(volume.pages.start_writeback()?);
    volume.set_read_only(None);
    let unfinished = volume.unfinished.lock().take();
    if let Some(slots) = unfinished {
        cleanup::finish_orphans(volume, slots)?;
    }
    evict_forgotten(volume)
}

/// Evicts inodes whose last reference was dropped while the volume was read-only.
fn evict_forgotten(volume: &Arc<Volume>) -> Result<()> {
    let mut nameless = Vec::new();
    volume.inodes.for_each(|_, inode| {
        if inode.state.read().record.links == 0 {
            nameless.push(inode.clone());
        }
    });
    nameless.iter().try_for_each(|inode| volume.evict_inode(inode))
}
