//! Mounts a volume: checks, recovery, and the order of writes.
//!
//! For writing: superblock, features, replay of the journal and its fast commits, descriptors, the
//! root's inode, the mark "mounted", journal, orphans. Read-only mounts write nothing: in memory,
//! the blocks of an unclean journal replace those of the device ([`mod@crate::replayed_device`] for
//! file data), and so do the blocks of a backup
//! if the superblock or descriptors are damaged ([`mod@crate::probe`]).

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use cairn_base::memory;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::{DaemonHandle, Runtime};
use cairn_block::BlockDevice;
use cairn_cache::block::BufferCache;
use cairn_cache::budget::{Budget, Reclaim};
use cairn_cache::durability::Flushes;
use cairn_cache::file::{PageCache, PageCacheOptions};
use cairn_cache::writeback::Expired;
use cairn_jbd2::{Journal, JournalArea, JournalOptions};

use crate::alloc::Space;
use crate::error::{Error, Result};
use crate::fast_commit::ReplayTarget;
use crate::format::features::{Access, Incompat, RoCompat};
use crate::format::layout::{Layout, inodes};
use crate::format::superblock::{self as format, Superblock};
use crate::groups::GroupTable;
use crate::inode::directory;
use crate::inodes::Inodes;
use crate::journal_area;
use crate::mount_state::MountState;
use crate::op::Operations;
use crate::options::MountOptions;
use crate::orphan::{Orphans, cleanup};
use crate::probe::{self, Probe};
use crate::recovery::{self, Replayed};
use crate::redo::{self, Unfinished};
use crate::replayed_device::ReplayedDevice;
use crate::root;
use crate::stop_cause::{StopCause, Stopped};
use crate::store::LiveSuperblock;
use crate::store::Store;
use crate::superblock::Mark;
use crate::txn::Txn;
use crate::volume::Ext4;

impl Ext4 {
    /// Opens a volume, and replays its journal if it was not unmounted cleanly. Nothing is written
    /// with `ro`, if a feature or the device forbids it, or if a backup replaces a damaged
    /// superblock; [`Ext4::read_only_reason`] gives the reason.
    ///
    /// # Errors
    /// The device has no such filesystem, it is damaged, its journal cannot be replayed, it has
    /// unknown features, an option is unsuitable, or the device failed.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        runtime: Arc<dyn Runtime>,
        options: &MountOptions,
    ) -> Result<Arc<Self>> {
        open(device, runtime, options).map(Arc::new)
    }
}

fn open(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &MountOptions,
) -> Result<Ext4> {
    let device = settled(device, options)?;
    let probe = choose(&*device, options)?;
    let found = match read_structures(device.clone(), &runtime, options, &probe) {
        Err(Error::Corrupt(wrong)) if probe.backup.is_none() && wrong.is_of_descriptors() => {
            let other = probe::with_other_descriptors(&*device, &probe.superblock, &wrong)?;
            let probe = other.ok_or(wrong)?;
            let found = read_structures(device, &runtime, options, &probe)?;
            probe.warn();
            found
        }
        found => {
            let found = found?;
            probe.warn();
            found
        }
    };
    start(found, runtime, options)
}

/// The device behind a change that was interrupted: it is finished, or, if nothing is written, in
/// memory only.
fn settled(device: Arc<dyn BlockDevice>, options: &MountOptions) -> Result<Arc<dyn BlockDevice>> {
    if options.no_load || options.superblock.is_some() {
        return Ok(device);
    }
    let Some(unfinished) = redo::find(&*device)? else { return Ok(device) };
    if options.read_only || device.geometry().read_only || !unfinished.is_allowed {
        let Unfinished { block_size, images, .. } = unfinished;
        return Ok(Arc::new(ReplayedDevice::new(device, block_size, &images)));
    }
    redo::finish(&*device)?;
    Ok(device)
}

/// Finds the superblock by which the volume is opened.
fn choose(device: &dyn BlockDevice, options: &MountOptions) -> Result<Probe> {
    if let Some(kib) = options.superblock {
        return probe::probe_at(device, kib);
    }
    let found = match probe::probe(device)? {
        None => probe::probe_backups(device)?,
        found => found,
    };
    found.ok_or_else(|| Error::NotExt4 { found: probe::found_magic(device) })
}

/// A volume's structures after the replay. Nothing else has been written.
struct Structures {
    store: Store,
    budget: Arc<Budget>,
    journal: Option<JournalArea>,
    stopped: Option<Stopped>,
    /// The superblock before the replay.
    superblock: Superblock,
}

fn read_structures(
    device: Arc<dyn BlockDevice>,
    runtime: &Arc<dyn Runtime>,
    options: &MountOptions,
    probe: &Probe,
) -> Result<Structures> {
    let flushes = Flushes::new(device, runtime.clone());
    let device: Arc<dyn BlockDevice> = flushes.clone();
    // The other fields of a device that is not a filesystem, such as an external journal, are
    // undefined.
    if let Access::Refuse(reason) = probe.superblock.features().access() {
        return Err(Error::Feature(reason));
    }
    let unwritable = |reason| Stopped { reason, cause: StopCause::Unwritable };
    let layout = Layout::new(&probe.superblock, device.geometry().size)?;
    probe::check_sectors(&*device, &layout)?;
    let stopped = read_only_reason(&layout, &*device, options)?;
    let stopped = probe.read_only_reason().map(|reason| unwritable(reason.into())).or(stopped);
    let budget = Budget::of_volume(memory::within_limit(options.cache_bytes as u64));
    let images = probe.images();
    let buffers = BufferCache::with_overlay(
        device.clone(),
        layout.block_size,
        budget.clone(),
        images.clone(),
    );
    let journal = journal_area::to_mount(&probe.superblock, &layout, &buffers, &device)?;
    let short = journal.as_ref().and_then(short_journal).map(|reason| unwritable(reason.into()));
    let stopped = short.or(stopped);
    let writable = stopped.is_none();
    // Recovery may change everything that was read before, including the superblock.
    let target = ReplayTarget { device: &device, budget: &budget, runtime, images: &images };
    let is_old = match &journal {
        Some(area) => match recovery::forget_old(area, &probe.superblock, writable) {
            Err(Error::Unreplayable(_)) if options.no_load => false,
            forgotten => forgotten?,
        },
        None => false,
    };
    let Replayed { buffers, layout, device } = match &journal {
        Some(area) if !options.no_load && !is_old => {
            recovery::replay(area, &target, buffers, layout, writable)?
        }
        _ => Replayed { buffers, layout, device: device.clone() },
    };
    options.check_journal(journal.is_some(), stopped.as_ref().map(|stopped| &*stopped.reason))?;
    let layout = Arc::new(layout);
    let superblock = LiveSuperblock::new(layout.block_size);
    let groups = Arc::new(GroupTable::open(
        &buffers,
        &layout,
        journal.as_ref().map_or(&[], |area| &area.extents),
    )?);
    let overhead = groups.overhead() + journal.as_ref().map_or(0, JournalArea::blocks);
    root::check(&layout, &buffers, groups.system_blocks(inodes::ROOT))?;
    let runtime = runtime.clone();
    let store = Store { device, flushes, buffers, layout, superblock, overhead, groups, runtime };
    Ok(Structures { store, budget, journal, stopped, superblock: probe.superblock.clone() })
}

fn start(found: Structures, runtime: Arc<dyn Runtime>, options: &MountOptions) -> Result<Ext4> {
    let Structures { store, budget, journal, stopped, superblock: before_replay } = found;
    let writable = stopped.is_none();
    let found = store.superblock.read(&store.buffers)?;
    let hash = directory::hash_settings(&found);
    if writable {
        store.superblock.restore_errors(&store, &before_replay)?;
        store.superblock.mark(&store, Mark::Mounted, true)?;
        keep_journal_error(&store, journal.as_ref())?;
    }
    let pages = PageCache::new(
        store.device.clone(),
        budget,
        cache_options(options, &store.layout),
        runtime,
    );
    let txn = open_txn(&store, &pages, journal.filter(|_| writable), options)?;
    let space =
        Arc::new(Space::new(store.groups.clone(), store.layout.clone(), store.runtime.clone()));
    let (orphan_file, slots) = cleanup::open_orphan_file(&store)?;
    let orphans = Orphans::new(orphan_file);
    let mount = MountState::new(store, txn, options.clone(), stopped);
    let inodes = Arc::new(Inodes::new(mount, pages, orphans, hash));
    let reclaim: Arc<dyn Reclaim> = inodes.clone();
    inodes.pages.budget().add_reclaim(Arc::downgrade(&reclaim));
    let ops = Arc::new(Operations::new(inodes, space));
    let expired: Weak<dyn Expired> = Arc::downgrade(&(ops.clone() as Arc<dyn Expired>));
    ops.pages.set_expired(expired);
    ops.options.on_damage.get_or_init(|| found.on_damage());
    ops.follow_options();
    let mut daemons = vec![ops.pages.start_readahead()?];
    let mut unfinished = None;
    if writable {
        daemons.push(ops.pages.start_writeback()?);
        cleanup::finish_orphans(&ops, slots)?;
    } else {
        unfinished = Some(slots);
    }
    Ok(Ext4 {
        ops,
        unfinished: Mutex::new(Rank::Leaf, unfinished),
        daemons: Mutex::new(Rank::Leaf, daemons),
        next_handle: AtomicU64::new(1),
    })
}

/// The journal superblock records an error that aborted the journal, and opening the journal clears
/// it. This copies it to the volume's superblock for the next fsck.
pub(crate) fn keep_journal_error(store: &Store, area: Option<&JournalArea>) -> Result<()> {
    let Some(area) = area else { return Ok(()) };
    let errno = cairn_jbd2::read_superblock(area)?.errno;
    if errno == 0 {
        return Ok(());
    }
    let errno = errno.cast_signed();
    tracing::warn!(
        errno,
        "the journal was stopped by an error when the volume was last used: \
         check and repair it"
    );
    store.superblock.change_directly(store, |superblock| {
        superblock.raw.s_state = (superblock.raw.s_state.get() | format::STATE_ERROR).into();
    })
}

/// Why the volume cannot be written; `None` if it can. Fails if it cannot be read.
pub(crate) fn read_only_reason(
    layout: &Layout,
    device: &dyn BlockDevice,
    options: &MountOptions,
) -> Result<Option<Stopped>> {
    let stopped = |cause, reason: &str| Ok(Some(Stopped { reason: reason.into(), cause }));
    if layout.has_no_room_of_hurd() {
        let reason = "the volume was made for the Hurd, whose inodes have no room for the features \
            64bit and ea_inode: clear them with tune2fs";
        return Err(Error::Feature(reason.into()));
    }
    match layout.features.access() {
        Access::Refuse(reason) => Err(Error::Feature(reason)),
        Access::ReadOnly(reason) => stopped(StopCause::Unwritable, &reason),
        Access::ReadWrite if options.read_only => stopped(StopCause::Asked, "opened for reading"),
        Access::ReadWrite if device.geometry().read_only => {
            stopped(StopCause::Unwritable, "the image or device is not writable")
        }
        Access::ReadWrite => Ok(None),
    }
}

/// Why nothing can be written if the journal is too short for the largest operations. Linux does
/// not mount such a volume.
pub(crate) fn short_journal(area: &JournalArea) -> Option<String> {
    // The replay reports other defects of the superblock.
    let superblock = cairn_jbd2::read_superblock(area).ok()?;
    let blocks = superblock.blocks.saturating_add(1).saturating_sub(superblock.first);
    (blocks < cairn_jbd2::MIN_JOURNAL_BLOCKS).then(|| {
        format!(
            "the journal has {blocks} blocks, but needs at least {}: make a larger one \
             (tune2fs -O ^has_journal, then tune2fs -j)",
            cairn_jbd2::MIN_JOURNAL_BLOCKS
        )
    })
}

/// The destination of changes: the journal, which is opened here, or the buffers.
pub(crate) fn open_txn(
    store: &Store,
    pages: &Arc<PageCache>,
    area: Option<JournalArea>,
    options: &MountOptions,
) -> Result<Txn> {
    let Some(area) = area else { return Ok(Txn::Direct(store.buffers.clone())) };
    let options = journal_options(options, &store.layout);
    let journal = Journal::open(options, store.buffers.clone(), area, store.runtime.clone())?;
    let pages = Arc::downgrade(pages);
    journal.set_postpones_commits(move || pages.upgrade().is_some_and(|pages| pages.lacks_room()));
    Ok(Txn::Journaled(journal))
}

fn journal_options(options: &MountOptions, layout: &Layout) -> JournalOptions {
    JournalOptions {
        alone: false,
        commit_interval: options.commit_interval,
        checksums: Some(layout.features.ro_compat(RoCompat::METADATA_CSUM)),
        wide: layout.features.incompat(Incompat::BITS_64),
        async_checkpoint: options.async_checkpoint,
        checkpoint_clean: options.checkpoint_clean,
    }
}

fn cache_options(options: &MountOptions, layout: &Layout) -> PageCacheOptions {
    let (mode, max_folio) = (options.buffered, options.max_folio);
    let dirty_expire = options.commit_interval;
    PageCacheOptions { mode, max_folio, dirty_expire, ..PageCacheOptions::new(layout.block_size) }
}

/// Stops write-back and readahead.
pub(crate) fn stop_daemons(volume: &Ext4) {
    let daemons = std::mem::take(&mut *volume.daemons.lock());
    daemons.into_iter().for_each(DaemonHandle::stop);
}
