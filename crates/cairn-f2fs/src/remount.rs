//! Changing options of a mounted volume: [`cairn_vfs::FileSystem::remount`].
//!
//! Everything is parsed and checked before anything is applied, so that a refused list changes
//! nothing. Turned read-only, the volume is on the disk as after an unmount (inodes that are
//! unlinked but open stay among the orphans); once writable, it continues from there. Frozen, it is
//! turned read-only in the same way, and calls that would change it
//! [wait](cairn_vfs::write_access).

use cairn_base::memory;
use cairn_vfs::remount::{check_stopped, refused};
use cairn_vfs::write_access::PriorState;

use crate::checkpoint::Reason;
use crate::disable;
use crate::error::{Error, Result};
use crate::inode::delete;
use crate::op::Operations;
use crate::options::MountOptions;
use crate::sync;

/// Takes a list of options as for mounting. Other options stay as they are.
///
/// # Errors
/// An option is unknown, malformed or cannot be changed now; or a write failed.
pub(crate) fn remount(ops: &Operations, list: &str) -> Result<()> {
    let _exclusive = ops.mount.access.exclusive();
    ops.mount.access.check()?;
    let old = ops.mount.options();
    let new = old.changed(list)?;
    check_stopped(old.read_only, ops.mount.read_only_reason().as_deref(), list)?;
    check(ops, &old, &new)?;
    let is_disabled = ops.disk.store.as_ref().is_some_and(|store| store.checkpoints.is_disabled());
    if is_disabled && new.checkpoint_disabled.is_none() {
        disable::enable(ops)?;
    }
    if new.read_only && !old.read_only {
        make_read_only(ops, "remounted with ro")?;
    }
    let turns_writable = old.read_only && !new.read_only;
    if turns_writable {
        make_writable(ops)?;
    }
    if let Some(cap) = new.checkpoint_disabled.filter(|_| !is_disabled)
        && let Err(refused) = disable::disable(ops, cap)
    {
        if turns_writable {
            make_read_only(ops, "remounted with ro")?;
        }
        disable::switch_merging(&ops.mount);
        return Err(refused);
    }
    ops.inodes.set_cache_bytes(memory::within_limit(new.cache_bytes as u64));
    ops.inodes.pages.set_mode(new.buffered);
    ops.inodes.pages.set_max_folio(new.max_folio);
    ops.inodes.pages.set_dirty_expire(new.dirty_expire());
    ops.mount.set_options(new);
    disable::switch_merging(&ops.mount);
    Ok(())
}

/// Checks what [`remount`] would refuse.
///
/// # Errors
/// That.
pub(crate) fn check_list(ops: &Operations, list: &str) -> Result<()> {
    ops.mount.access.check()?;
    let old = ops.mount.options();
    check_stopped(old.read_only, ops.mount.read_only_reason().as_deref(), list)?;
    check(ops, &old, &old.changed(list)?)
}

fn check(ops: &Operations, old: &MountOptions, new: &MountOptions) -> Result<()> {
    if old.read_only && !new.read_only {
        let Some(store) = &ops.disk.store else {
            return Err(refused("rw is not possible for a volume that was opened with ro").into());
        };
        store.operation_lock.check()?;
    }
    let kept = MountOptions {
        read_only: new.read_only,
        on_damage: new.on_damage,
        cache_bytes: new.cache_bytes,
        buffered: new.buffered,
        max_folio: new.max_folio,
        access_times: new.access_times,
        checkpoint_interval: new.checkpoint_interval,
        checkpoint_merge: new.checkpoint_merge,
        checkpoint_disabled: new.checkpoint_disabled,
        reserve_root: new.reserve_root,
        reserved_for: new.reserved_for,
        gc_victim: new.gc_victim,
        background_gc: new.background_gc,
        gc_merge: new.gc_merge,
        atgc: new.atgc,
        ..old.clone()
    };
    if kept == *new {
        return Ok(());
    }
    Err(refused(
        "of an F2FS volume only ro, rw, errors, relatime, noatime, cache, buffered_iomap, \
         max_folio, checkpoint_interval, checkpoint_merge, checkpoint, gc_victim, background_gc, \
         gc_merge, atgc, reserve_root, resuid and resgid can be changed",
    )
    .into())
}

/// Turns the volume read-only. The caller has exclusive access.
fn make_read_only(ops: &Operations, reason: &str) -> Result<()> {
    if ops.mount.read_only_reason().is_some() {
        return Ok(());
    }
    sync::write_data(ops)?;
    ops.store()?.checkpoints.stop_merging();
    ops.checkpoint(Reason::Umount)?;
    ops.mount.set_read_only(Some(reason.into()));
    Ok(())
}

/// [`cairn_vfs::FileSystem::freeze`].
///
/// # Errors
/// It is frozen, or has stopped; checkpoints are disabled; a write failed.
pub(crate) fn freeze(ops: &Operations) -> Result<()> {
    // Writes most of the data while other operations continue.
    sync::sync(ops)?;
    let exclusive = ops.mount.access.exclusive();
    ops.mount.access.check()?;
    if let Some(store) = &ops.disk.store {
        store.operation_lock.check()?;
        if store.checkpoints.is_disabled() {
            return Err(Error::Option(
                "checkpoints are disabled, so changes cannot be made durable: remount with \
                 checkpoint=enable first"
                    .into(),
            ));
        }
    }
    if ops.mount.read_only_reason().is_some() {
        exclusive.freeze(PriorState::ReadOnly);
        return Ok(());
    }
    if let Err(error) = make_read_only(ops, "frozen") {
        disable::switch_merging(&ops.mount);
        return Err(error);
    }
    exclusive.freeze(PriorState::Writable);
    Ok(())
}

/// [`cairn_vfs::FileSystem::thaw`].
///
/// # Errors
/// It is not frozen, has been stopped since, or a write failed.
pub(crate) fn thaw(ops: &Operations) -> Result<()> {
    let exclusive = ops.mount.access.exclusive();
    let resumed = match exclusive.prior_state()? {
        PriorState::Writable => {
            let resumed = make_writable(ops);
            disable::switch_merging(&ops.mount);
            resumed
        }
        PriorState::ReadOnly => Ok(()),
    };
    exclusive.thaw();
    resumed
}

/// Turns the volume writable. The caller has exclusive access. Inodes that lost their last user
/// while it was read-only are deleted.
fn make_writable(ops: &Operations) -> Result<()> {
    ops.store()?.operation_lock.check()?;
    ops.mount.set_read_only(None);
    for orphan in ops.store()?.checkpoints.orphans.list() {
        if ops.inodes.is_unused(orphan.ino()) {
            delete::delete_inode(ops, &ops.inodes.inode(orphan.ino())?)?;
        }
    }
    Ok(())
}
