//! Opening a volume: superblock (either copy) → layout → checkpoint (either pack) → journals → roll-forward.

use std::sync::Arc;

use cairn_base::Pba;
use cairn_base::runtime::Runtime;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_cache::file::{PageCache, PageCacheOptions};

use crate::checkpoint::{self, summaries};
use crate::error::{Error, Result};
use crate::format::checksum::MAGIC;
use crate::format::layout::Layout;
use crate::format::superblock::{self, Superblock};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::info::Info;
use crate::nat::NatTable;
use crate::node::NodeCache;
use crate::options::MountOptions;
use crate::recovery::chain;
use crate::recovery::overlay::Overlay;
use crate::volume::{Parts, Volume};

/// What a first look at a device tells.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The superblock.
    pub superblock: Superblock,
    /// Its geometry, checked against itself and the device.
    pub layout: Layout,
    /// The first copy is damaged; this is the second one.
    pub from_backup: bool,
}

/// Looks for a volume; `None` if neither copy of the superblock has the magic number.
///
/// # Errors
/// The device cannot be read, or both copies are damaged: the error is that of the first one.
pub fn probe(device: &dyn BlockDevice) -> Result<Option<Probe>> {
    let size = device.geometry().size;
    if size < 2 * BLOCK_BYTES {
        return Ok(None);
    }
    let blocks = device.read_at(0, 2 * BLOCK_SIZE)?;
    let copies: Vec<&[u8]> = blocks.chunks_exact(BLOCK_SIZE).collect();
    if !copies.iter().any(|block| superblock::magic_of(block) == Some(MAGIC)) {
        return Ok(None);
    }
    let mut first_error = None;
    for (index, block) in copies.into_iter().enumerate() {
        let decoded = Superblock::decode(block);
        match decoded.and_then(|superblock| Ok((Layout::new(&superblock, size)?, superblock))) {
            Ok((layout, superblock)) => return Ok(Some(Probe { superblock, layout, from_backup: index > 0 })),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    first_error.map_or(Ok(None), |error| Err(error.into()))
}

/// What the volume on the device says about itself; also of one whose checkpoints are damaged.
///
/// # Errors
/// As [`probe`].
pub fn inspect(device: &Arc<dyn BlockDevice>) -> Result<Option<Info>> {
    let Some(probe) = probe(&**device)? else { return Ok(None) };
    let buffers = BufferCache::new(device.clone(), BLOCK_SIZE as u32, Budget::new(1 << 20));
    let loaded = match checkpoint::load(&buffers, &probe.layout) {
        Ok(loaded) => Some(loaded),
        Err(Error::Corrupt(_)) => None,
        Err(error) => return Err(error),
    };
    let replays = match &loaded {
        // A damaged chain is for mount to refuse: that something follows is true all the same.
        Some(loaded) => match chain::scan(&buffers, &probe.layout, &loaded.checkpoint) {
            Ok(nodes) => !nodes.is_empty(),
            Err(Error::Corrupt(_)) => true,
            Err(error) => return Err(error),
        },
        None => false,
    };
    Ok(Some(Info::of(&probe.superblock, &probe.layout, loaded.as_ref(), replays)))
}

/// Opens a volume; see [`crate::F2fs::open`].
pub(crate) fn open(device: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>, options: &MountOptions) -> Result<Volume> {
    let Some(Probe { superblock, layout, from_backup }) = probe(&*device)? else {
        return Err(Error::NotF2fs { found: found_magic(&*device) });
    };
    if from_backup {
        tracing::warn!("the first superblock is damaged; using the second one");
    }
    let read_only = read_only_reason(&superblock, &*device, options);
    let layout = Arc::new(layout);
    let budget = Budget::new(options.cache_bytes as u64);
    let buffers = BufferCache::new(device.clone(), BLOCK_SIZE as u32, budget.clone());
    let checkpoint = checkpoint::load(&buffers, &layout)?;
    let journals = summaries::journals(&checkpoint, &buffers, &layout)?;
    let nat = Arc::new(NatTable::new(layout.clone(), buffers.clone(), &checkpoint.checkpoint, &journals.nat));
    let overlay = match options.no_recovery {
        true => Overlay::default(),
        false => Overlay::build(&buffers, &layout, &checkpoint.checkpoint, &nat)?,
    };
    let nodes = NodeCache::new(layout.clone(), buffers.clone(), nat.clone(), overlay);
    let pages = PageCacheOptions {
        mode: options.buffered,
        max_folio: options.max_folio,
        ..PageCacheOptions::new(BLOCK_SIZE as u32)
    };
    let pages = PageCache::new(device.clone(), budget, pages, runtime.clone());
    let parts = Parts { device, runtime, superblock, layout, buffers, pages, checkpoint, nat, nodes };
    let volume = Volume::new(parts, options.clone(), Some(read_only));
    // A volume without its root is no volume: better said now than at the first look.
    let root = volume.inode(crate::ROOT_INO)?;
    if root.kind != cairn_vfs::FileKind::Directory {
        let (ino, value) = (root.nid, root.kind.mode_bits().into());
        let expected = "the root must be a directory";
        return Err(crate::Corrupt::Inode { ino, field: "i_mode", value, expected }.into());
    }
    Ok(volume)
}

fn read_only_reason(superblock: &Superblock, device: &dyn BlockDevice, options: &MountOptions) -> Arc<str> {
    if let Some(reason) = superblock.features.read_only_reason() {
        return reason.into();
    }
    if options.read_only {
        return "mounted with the option ro".into();
    }
    if device.geometry().read_only {
        return "the device accepts no writes".into();
    }
    "this version of Cairn only reads F2FS".into()
}

fn found_magic(device: &dyn BlockDevice) -> u32 {
    let at_most = device.geometry().size.min(BLOCK_BYTES);
    let block = usize::try_from(at_most).ok().and_then(|len| device.read_at(0, len).ok());
    block.and_then(|block| superblock::magic_of(&block)).unwrap_or(0)
}

/// The address of a superblock's copy, for whoever writes it: the second one first.
pub const SUPERBLOCKS: [Pba; 2] = [Pba(0), Pba(1)];
