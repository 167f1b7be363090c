//! Opening a volume: superblock (either copy) → layout → checkpoint (either pack) → journals →
//! roll-forward.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use cairn_base::memory;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::{Event, Runtime};
use cairn_block::BlockDevice;
use cairn_cache::block::BufferCache;
use cairn_cache::budget::{Budget, Reclaim};
use cairn_cache::durability::Flushes;
use cairn_cache::file::{PageCache, PageCacheOptions};

use crate::checkpoint::summaries::{self, Journals};
use crate::checkpoint::{self, Hook, Loaded, Reason, newer};
use crate::checkpointer::Checkpointer;
use crate::corrupt::Corrupt;
use crate::damage;
use crate::disable;
use crate::disk::{Disk, Parts};
use crate::error::{Error, Result};
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;
use crate::format::units::BLOCK_SIZE;
use crate::format::{CheckpointFlags, Features};
use crate::gc::{Cleaner, GcDaemon};
use crate::info::Info;
use crate::inodes::Inodes;
use crate::mount_state::MountState;
use crate::nat::NatTable;
use crate::node::NodeCache;
use crate::op::Operations;
use crate::options::MountOptions;
use crate::probe::{Probe, found_magic, probe, probe_as};
use crate::recovery::chain::{self, ChainNode};
use crate::recovery::names::has_unknown_hash;
use crate::recovery::orphans;
use crate::recovery::overlay::Overlay;
use crate::recovery::replay::{self, RollForward};
use crate::recovery::unknown;
use crate::recovery::versions::Versions;
use crate::root;
use crate::segment::Mode;
use crate::sit::SitTable;
use crate::sizes::adopted;
use crate::store::{Store, StoreOptions};
use crate::tables;
use crate::volume::F2fs;
use crate::zones;

/// Facts of the volume on the device, also if its checkpoints are damaged.
///
/// # Errors
/// As [`probe`].
pub fn inspect(device: &Arc<dyn BlockDevice>) -> Result<Option<Info>> {
    let probe = match probe(&**device) {
        Err(Error::Corrupt(short @ Corrupt::TooShort { volume, .. })) => {
            let probe = probe_as(&**device, volume)?;
            return Ok(probe.map(|probe| {
                Info::of(&probe.superblock, &probe.layout, None, false).truncated(&short)
            }));
        }
        probe => probe?,
    };
    let Some(probe) = probe else { return Ok(None) };
    let buffers = BufferCache::new(device.clone(), BLOCK_SIZE as u32, Budget::new(1 << 20));
    let loaded = match checkpoint::load(&buffers, &probe.layout) {
        Ok(loaded) => loaded,
        Err(error @ Error::Corrupt(_)) => {
            let info = Info::of(&probe.superblock, &probe.layout, None, false);
            return Ok(Some(info.refused(&error)));
        }
        Err(error) => return Err(error),
    };
    // A damaged chain follows the checkpoint, too. Mount refuses it.
    let replays = match chain::scan(&buffers, &probe.layout, &loaded.checkpoint) {
        Ok(nodes) => !nodes.is_empty(),
        Err(Error::Corrupt(_)) => true,
        Err(error) => return Err(error),
    };
    let info = Info::of(&probe.superblock, &probe.layout, Some(&loaded), replays);
    let replays = replays && !was_disabled(&loaded);
    Ok(Some(match root::check_unopened(&buffers, &probe.layout, &loaded, replays) {
        Ok(()) if newer::damaged(&buffers, &probe.layout, &loaded)?.is_some() => {
            info.read_only(newer::WHY_READ_ONLY)
        }
        Ok(()) => info,
        Err(error) => info.refused(&newer::explained(error, device, &probe.layout)),
    }))
}

impl F2fs {
    /// Opens a volume, for writing if options, features and device allow it:
    /// [`F2fs::read_only_reason`] says why not. On a read-only volume, changes that were fsynced
    /// since the last checkpoint are replayed in memory.
    ///
    /// # Errors
    /// There is no such filesystem, it is damaged, or the device failed.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        runtime: Arc<dyn Runtime>,
        options: &MountOptions,
    ) -> Result<Arc<Self>> {
        let probe =
            probe(&*device)?.ok_or_else(|| Error::NotF2fs { found: found_magic(&*device) })?;
        let layout = probe.layout;
        let opened = Self::open_probed(probe, device.clone(), runtime, options);
        opened.map_err(|error| newer::explained(error, &device, &layout))
    }

    fn open_probed(
        probe: Probe,
        device: Arc<dyn BlockDevice>,
        runtime: Arc<dyn Runtime>,
        options: &MountOptions,
    ) -> Result<Arc<Self>> {
        let from_backup = probe.from_backup;
        let (volume, chain) = load(probe, device.clone(), runtime.clone(), options)?;
        let (disk, checkpoint) = (&volume.disk, &volume.disk.checkpoint.checkpoint);
        let resized = checkpoint.flags.contains(CheckpointFlags::RESIZEFS) && disk.store.is_some();
        if resized
            && matches!(chain, Chain::Empty)
            && tables::finish(&device, &disk.superblock, &disk.layout, checkpoint)?
        {
            return Self::open(device, runtime, options);
        }
        root::check_opened(&volume.inodes)?;
        if let Some(store) = &disk.store {
            volume.start(chain)?;
            if from_backup {
                disk.restore_first_superblock()?;
            }
            if resized {
                // The other superblock may have another size.
                disk.change_superblock(|_| true)?;
                store.checkpoints.write(Reason::Resize)?;
            }
        }
        Ok(Arc::new(volume))
    }

    /// Connects the parts of the volume.
    fn new(
        disk: Disk,
        pages: Arc<PageCache>,
        runtime: Arc<dyn Runtime>,
        mount: (MountOptions, Option<Arc<str>>),
    ) -> Self {
        let disk = Arc::new(disk);
        let (options, read_only) = mount;
        let mount = Arc::new(MountState::new(disk.clone(), options, read_only));
        let inodes = Arc::new(Inodes::new(mount.clone(), pages, runtime));
        let reclaim: Arc<dyn Reclaim> = inodes.clone();
        inodes.pages.budget().add_reclaim(Arc::downgrade(&reclaim));
        let cleaner = Arc::new(Cleaner::new(inodes.clone()));
        Self {
            disk,
            mount,
            operations: Arc::new(Operations::new(cleaner.clone())),
            checkpointer: Arc::new(Checkpointer::new(inodes.clone())),
            inodes,
            cleaner,
            daemons: Mutex::new(Rank::Leaf, Vec::new()),
            next_handle: AtomicU64::new(1),
        }
    }

    /// Makes a volume ready for writes: moves the logs away from an old chain, recovers, and
    /// deletes orphans.
    fn start(&self, chain: Chain) -> Result<()> {
        let (ops, store) = (&self.operations, self.mount.store()?);
        let hook: Weak<dyn Hook> = Arc::downgrade(&(self.checkpointer.clone() as Arc<dyn Hook>));
        store.checkpoints.set_hook(hook);
        if !was_disabled(&self.disk.checkpoint) {
            chain.expect_sound_numbers(store)?;
        }
        match &chain {
            // The volume is read-only with a chain that is unknown.
            Chain::Empty | Chain::Unknown => {
                // Roll-forward begins where the last checkpoint has the log.
                if store.segments.ask_logs()? {
                    store.checkpoints.write(Reason::Recovery)?;
                }
            }
            Chain::Unsynced(chain) => {
                chain.iter().for_each(|entry| store.segments.protect(entry.addr));
                // Old nodes after new ones would look like the rest of the new chain. So new nodes
                // go elsewhere, with another version.
                store.segments.resume(0)?;
                store.checkpoints.write(Reason::Recovery)?;
            }
            Chain::Fsynced(roll_forward) => {
                // No checkpoint may be written before the chain is part of the volume, because it
                // would end the chain.
                self.mount.set_recovering(true);
                orphans::delete_orphans(ops)?;
                replay::replay(ops, roll_forward)?;
                self.mount.set_recovering(false);
            }
        }
        store.segments.check_write_pointers()?;
        orphans::delete_orphans(ops)?;
        self.start_daemons()?;
        match self.mount.options().checkpoint_disabled {
            Some(cap) => disable::disable(ops, cap)?,
            None if was_disabled(&self.disk.checkpoint) => disable::enable(ops)?,
            None => {}
        }
        disable::switch_merging(&self.mount);
        damage::carry_over(&self.mount)
    }

    fn start_daemons(&self) -> Result<()> {
        let (runtime, pages, merged) =
            (&self.inodes.runtime, &self.inodes.pages, &self.cleaner.merged);
        let checkpoints =
            runtime.spawn("f2fs-checkpoint", Arc::new(Event::new()), self.checkpointer.daemon())?;
        merged.serve(true);
        let gc = runtime.spawn("f2fs_gc", merged.wake(), Arc::new(GcDaemon::new(&self.cleaner)))?;
        self.daemons.lock().extend([
            checkpoints,
            gc,
            pages.start_writeback()?,
            pages.start_readahead()?,
        ]);
        Ok(())
    }
}

fn page_cache_options(options: &MountOptions) -> PageCacheOptions {
    PageCacheOptions {
        mode: options.buffered,
        max_folio: options.max_folio,
        dirty_expire: options.dirty_expire(),
        ..PageCacheOptions::new(BLOCK_SIZE as u32)
    }
}

/// Reads the volume and connects its parts. Nothing is written.
fn load(
    probe: Probe,
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &MountOptions,
) -> Result<(F2fs, Chain)> {
    let Probe { superblock, mut layout, from_backup } = probe;
    if from_backup {
        damage::warn_of_backup(options);
    }
    let zones = match device.as_zoned() {
        Some(_) if superblock.features.contains(Features::BLKZONED) && !options.read_only => {
            Some(zones::ordered(device.clone(), &mut layout)?)
        }
        _ => None,
    };
    let inner = zones.clone().map_or(device, |zones| zones as Arc<dyn BlockDevice>);
    let flushes = Flushes::new(inner, runtime.clone());
    let device: Arc<dyn BlockDevice> = flushes.clone();
    // Blocks in zones are never overwritten in place.
    let mode = if zones.is_some() { Mode::Lfs } else { options.mode };
    let options = &MountOptions { mode, ..options.clone() };
    let layout = Arc::new(layout);
    let budget = Budget::of_volume(memory::within_limit(options.cache_bytes as u64));
    let buffers = BufferCache::new(device.clone(), BLOCK_SIZE as u32, budget.clone());
    let loaded = checkpoint::load(&buffers, &layout)?;
    let damaged_pack = newer::read_only_reason(&buffers, &layout, &loaded);
    let checkpoint = adopted(loaded, &layout);
    let journals = summaries::journals(&checkpoint, &buffers, &layout)?;
    let nat = Arc::new(NatTable::new(
        layout.clone(),
        buffers.clone(),
        &checkpoint.checkpoint,
        &journals.nat,
    ));
    let chain = Chain::find(&buffers, &layout, &checkpoint, &nat, options)?;
    let read_only = read_only_reason(&superblock, &*device, options)
        .or_else(|| damaged_pack.map(Into::into))
        .or_else(|| matches!(chain, Chain::Unknown).then(|| UNKNOWN_HASH.into()));
    let pages = PageCache::new(
        device.clone(),
        budget.clone(),
        page_cache_options(options),
        runtime.clone(),
    );
    let (nat, nodes, store) = if read_only.is_none() {
        let settings = StoreOptions { mode: options.mode, discard: options.discard };
        let store = Store::with_pack(
            buffers.clone(),
            budget,
            *layout,
            &checkpoint,
            settings,
            runtime.clone(),
        )
        .map(Arc::new)?;
        (store.nat.clone(), live_nodes(&layout, &buffers, &store), Some(store))
    } else {
        let nodes = read_only_nodes((&layout, &buffers), &checkpoint, &journals, &nat, options)?;
        (nat, nodes, None)
    };
    if let (Some(zones), Some(store)) = (zones, &store) {
        store.segments.set_zones(zones);
    }
    let disk = Disk::new(Parts {
        device,
        flushes,
        superblock,
        layout,
        buffers,
        checkpoint,
        nat,
        nodes,
        store,
    });
    Ok((F2fs::new(disk, pages, runtime, (options.clone(), read_only)), chain))
}

/// The nodes of a volume that is written.
fn live_nodes(layout: &Arc<Layout>, buffers: &Arc<BufferCache>, store: &Store) -> NodeCache {
    NodeCache::live(layout.clone(), buffers.clone(), store.nat.clone(), store.nodes.clone())
}

/// The nodes of a volume that is only read, with what was fsynced.
fn read_only_nodes(
    (layout, buffers): (&Arc<Layout>, &Arc<BufferCache>),
    loaded: &Loaded,
    journals: &Journals,
    nat: &Arc<NatTable>,
    options: &MountOptions,
) -> Result<NodeCache> {
    let checkpoint = &loaded.checkpoint;
    let overlay = match options.no_recovery || was_disabled(loaded) {
        true => Overlay::default(),
        false => Overlay::build(buffers, layout, checkpoint, nat)?,
    };
    let sit = SitTable::new(layout.clone(), buffers.clone(), checkpoint, &journals.sit);
    Ok(NodeCache::new(layout.clone(), buffers.clone(), nat.clone(), sit, overlay))
}

/// The nodes after the checkpoint in the warm node log.
enum Chain {
    /// Nothing.
    Empty,
    /// Nodes without an fsync: a checkpoint was interrupted.
    Unsynced(Vec<ChainNode>),
    /// Something was fsynced.
    Fsynced(RollForward),
    /// What was fsynced has names whose hashes Cairn does not compute.
    Unknown,
}

/// Why a volume with [`Chain::Unknown`] is read-only.
const UNKNOWN_HASH: &str = "files with names beyond ASCII were fsynced in a directory that ignores \
    case, and only Linux recovers them: mount the volume with Linux once";

impl Chain {
    fn find(
        buffers: &BufferCache,
        layout: &Layout,
        checkpoint: &Loaded,
        nat: &NatTable,
        options: &MountOptions,
    ) -> Result<Self> {
        if options.read_only {
            // Damage in the chain does not refuse a read-only mount.
            return Ok(Self::Empty);
        }
        if was_disabled(checkpoint) {
            // Blocks of these nodes were used again, so their links may lead anywhere.
            let followed = chain::follow(buffers, layout, &checkpoint.checkpoint)?;
            return Ok(Self::unsynced(followed.nodes));
        }
        let chain = chain::scan(buffers, layout, &checkpoint.checkpoint)?;
        let selected = chain::select(&chain, nat)?;
        Versions { buffers, layout, nat }.check(&chain, &selected)?;
        Ok(match selected.is_empty() {
            true => Self::unsynced(chain),
            false if has_unknown_hash((buffers, layout, nat), &chain, &selected)? => Self::Unknown,
            false => Self::Fsynced(RollForward { chain, selected }),
        })
    }

    /// Expects that the NAT knows the inodes that were fsynced, unless they were new.
    fn expect_sound_numbers(&self, store: &Store) -> Result<()> {
        match self {
            Self::Empty | Self::Unknown => Ok(()),
            Self::Unsynced(nodes) => unknown::expect_new(store, nodes, &HashMap::new()),
            Self::Fsynced(RollForward { chain, selected }) => {
                unknown::expect_new(store, chain, selected)
            }
        }
    }

    fn unsynced(nodes: Vec<ChainNode>) -> Self {
        if nodes.is_empty() { Self::Empty } else { Self::Unsynced(nodes) }
    }
}

/// Nodes after this checkpoint are ignored.
fn was_disabled(checkpoint: &Loaded) -> bool {
    checkpoint.checkpoint.flags.contains(CheckpointFlags::DISABLED)
}

fn read_only_reason(
    superblock: &Superblock,
    device: &dyn BlockDevice,
    options: &MountOptions,
) -> Option<Arc<str>> {
    if let Some(reason) = zones::read_only_reason(superblock.features, device) {
        return Some(reason.into());
    }
    if let Some(reason) = superblock.read_only_reason() {
        return Some(reason.into());
    }
    if options.read_only {
        return Some("opened for reading".into());
    }
    device.geometry().read_only.then(|| "the device accepts no writes".into())
}
