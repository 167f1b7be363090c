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
use cairn_vfs::remount::{check_stopped, refused};
use cairn_vfs::write_access::PriorState;

use crate::error::Result;
use crate::inodes::Inodes;
use crate::mount;
use crate::mount_state::MountState;
use crate::op::Operations;
use crate::options::MountOptions;
use crate::orphan::cleanup;
use crate::stop_cause::StopCause;
use crate::store::Store;
use crate::superblock::Mark;
use crate::sync;
use crate::txn::Txn;
use crate::volume::Ext4;

/// Applies a list of options as for mounting. Options that it does not name stay.
pub(crate) fn remount(volume: &Ext4, list: &str) -> Result<()> {
    let ops = &volume.ops;
    let _changing = ops.options.changing.lock();
    let old = ops.options.get();
    let new = old.changed(list)?;
    ops.access.check()?;
    check_stopped(old.read_only, ops.read_only_reason().as_deref(), list)?;
    check(ops, &old, &new)?;
    if new.read_only && !old.read_only {
        make_read_only(volume)?;
    }
    if !new.read_only && old.read_only {
        make_writable(volume, &new)?;
    }
    if let Some(journal) = ops.journal() {
        journal.set_async_checkpoint(new.async_checkpoint)?;
        journal.set_checkpoint_clean(new.checkpoint_clean);
        journal.set_commit_interval(new.commit_interval);
    }
    ops.set_cache_bytes(memory::within_limit(new.cache_bytes as u64));
    ops.pages.set_mode(new.buffered);
    ops.pages.set_max_folio(new.max_folio);
    ops.pages.set_dirty_expire(new.commit_interval);
    ops.options.set(new);
    ops.follow_options();
    Ok(())
}

/// Checks a list as [`remount`] does.
pub(crate) fn check_list(mount: &MountState, list: &str) -> Result<()> {
    let old = mount.options.get();
    mount.access.check()?;
    check_stopped(old.read_only, mount.read_only_reason().as_deref(), list)?;
    check(mount, &old, &old.changed(list)?)
}

fn check(mount: &MountState, old: &MountOptions, new: &MountOptions) -> Result<()> {
    if old.no_load != new.no_load {
        return Err(refused(
            "noload cannot be changed while the volume is mounted: unmount, and \
            mount without noload",
        )
        .into());
    }
    if old.superblock != new.superblock {
        return Err(refused("sb cannot be changed while the volume is mounted").into());
    }
    if old.read_only && !new.read_only {
        check_may_write(mount)?;
    }
    let checkpointing =
        |options: &MountOptions| (options.async_checkpoint, options.async_checkpoint_asked);
    if checkpointing(old) != checkpointing(new) && !new.read_only {
        let reason =
            mount.read_only_reason().filter(|_| mount.stop_cause() != Some(StopCause::Asked));
        new.check_journal(has_journal(mount), reason.as_deref())?;
    }
    Ok(())
}

fn has_journal(store: &Store) -> bool {
    store.layout.features.compat(crate::format::features::Compat::HAS_JOURNAL)
}

/// Fails unless the volume is read-only on request and may be written.
fn check_may_write(mount: &MountState) -> Result<()> {
    let refused = |why: &str| Err(refused(&format!("rw is not possible: {why}")).into());
    if mount.stop_cause() != Some(StopCause::Asked) {
        return refused(&mount.read_only_reason().unwrap_or_default());
    }
    if mount.device.geometry().read_only {
        return refused("the image was opened for reading only");
    }
    match journal_area(mount)? {
        Some(area) if cairn_jbd2::read_superblock(&area)?.start != 0 => {
            refused("the journal was not empty when the volume was mounted read-only")
        }
        _ => Ok(()),
    }
}

fn journal_area(store: &Store) -> Result<Option<JournalArea>> {
    let superblock = store.superblock.read(&store.buffers)?;
    crate::journal_area::journal_area(&superblock, &store.layout, &store.buffers, &store.device)
}

fn make_read_only(volume: &Ext4) -> Result<()> {
    let ops = &volume.ops;
    if ops.stop_cause().is_some() {
        // The volume is read-only already, by an error, the device or a feature.
        return Ok(());
    }
    // Most of the writing is done while other calls continue.
    sync::sync(ops)?;
    let _exclusive = ops.access.exclusive();
    quiesce(volume, "remounted with ro")
}

/// Writes everything and stops writing. The caller holds exclusive access.
fn quiesce(volume: &Ext4, reason: &str) -> Result<()> {
    let ops = &volume.ops;
    ops.runtime.drain_deferred();
    sync::sync(ops)?;
    mount::stop_daemons(volume);
    ops.set_read_only(Some(reason));
    let closed = finish(ops);
    match ops.pages.start_readahead() {
        Ok(daemon) => volume.daemons.lock().push(daemon),
        Err(error) => tracing::warn!("nothing is read ahead: {error}"),
    }
    closed.inspect_err(|error| {
        if ops.stop_for(StopCause::Failed, &format!("stopped after an error: {error}")) {
            ops.record_stop(error);
        }
    })
}

/// [`cairn_vfs::FileSystem::freeze`].
pub(crate) fn freeze(volume: &Ext4) -> Result<()> {
    let ops = &volume.ops;
    let _changing = ops.options.changing.lock();
    ops.access.check()?;
    ops.check_readable()?;
    // Most of the writing is done while other calls continue.
    sync::sync(ops)?;
    let exclusive = ops.access.exclusive();
    if ops.stop_cause().is_some() {
        exclusive.freeze(PriorState::ReadOnly);
        return Ok(());
    }
    quiesce(volume, "frozen")?;
    exclusive.freeze(PriorState::Writable);
    Ok(())
}

/// [`cairn_vfs::FileSystem::thaw`].
pub(crate) fn thaw(volume: &Ext4) -> Result<()> {
    let ops = &volume.ops;
    let _changing = ops.options.changing.lock();
    let exclusive = ops.access.exclusive();
    let resumed = match exclusive.prior_state()? {
        PriorState::Writable => resume(volume, &ops.options.get()),
        PriorState::ReadOnly => Ok(()),
    };
    exclusive.thaw();
    resumed
}

fn finish(inodes: &Inodes) -> Result<()> {
    if let Some(journal) = inodes.journal() {
        journal.shutdown()?;
    }
    inodes.set_txn(Txn::Direct(inodes.buffers.clone()));
    inodes.superblock.mark(inodes, Mark::Clean, !inodes.orphans.is_empty())
}

fn make_writable(volume: &Ext4, options: &MountOptions) -> Result<()> {
    let _exclusive = volume.ops.access.exclusive();
    resume(volume, options)
}

/// Starts writing again. The caller holds exclusive access.
fn resume(volume: &Ext4, options: &MountOptions) -> Result<()> {
    let ops = &volume.ops;
    // The volume may have been stopped since the first check.
    check_may_write(ops)?;
    let area = journal_area(ops)?;
    ops.superblock.mark(ops, Mark::Mounted, true)?;
    mount::keep_journal_error(ops, area.as_ref())?;
    ops.set_txn(mount::open_txn(ops, &ops.pages, area, options)?);
    volume.daemons.lock().push(ops.pages.start_writeback()?);
    ops.set_read_only(None);
    let unfinished = volume.unfinished.lock().take();
    if let Some(slots) = unfinished {
        cleanup::finish_orphans(ops, slots)?;
    }
    evict_forgotten(ops)
}

/// Evicts inodes whose last reference was dropped while the volume was read-only.
fn evict_forgotten(ops: &Arc<Operations>) -> Result<()> {
    let mut nameless = Vec::new();
    ops.table.for_each(|_, inode| {
        if inode.state.read().record.links == 0 {
            nameless.push(inode.clone());
        }
    });
    nameless.iter().try_for_each(|inode| ops.evict_inode(inode))
}
