//! Replays the journal's fast commits: changes of names, records and mappings that Linux logs one
//! by one.
//!
//! They are applied in memory to buffers over the replayed log, in a volume without a journal that
//! no other code uses. The buffers are written home only if all changes fit. Then the log is marked
//! empty. A crash before that repeats the replay, and every operation may be repeated.
//!
//! Linux logs neither times nor link counts of existing directories; the replay computes both.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

mod names;
mod records;

use std::collections::BTreeSet;
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::{FileBlock, Ino, Pba};
use cairn_block::BlockDevice;
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_cache::durability::Flushes;
use cairn_cache::file::{PageCache, PageCacheOptions};
use cairn_jbd2::Images;
use cairn_jbd2::fast_commit::{FastCommit, Operation};
use cairn_vfs::Error as VfsError;

use crate::alloc::Space;
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::layout::Layout;
use crate::groups::GroupTable;
use crate::inode::{Inode, directory};
use crate::inodes::Inodes;
use crate::mount_state::MountState;
use crate::op::Operations;
use crate::options::MountOptions;
use crate::orphan::Orphans;
use crate::store::LiveSuperblock;
use crate::store::Store;
use crate::txn::Txn;

/// The volume to which fast commits are applied.
pub(crate) struct ReplayTarget<'a> {
    /// The device.
    pub device: &'a Arc<dyn BlockDevice>,
    /// The memory budget, which the mounted volume will use as well.
    pub budget: &'a Arc<Budget>,
    /// Clock and randomness.
    pub runtime: &'a Arc<dyn Runtime>,
    /// Blocks of a backup. They replace those of the device unless the log has
    /// newer ones.
    pub images: &'a Images,
}

/// Applies fast commits to buffers of the last complete transaction. Nothing is written to the
/// device. After an error the buffers must be dropped.
///
/// # Errors
/// A fast commit does not fit the volume, or the device failed.
pub(crate) fn apply(
    target: &ReplayTarget<'_>,
    buffers: &Arc<BufferCache>,
    layout: Layout,
    journal: &[(FileBlock, Pba, u64)],
    commits: &[FastCommit],
) -> Result<()> {
    if layout.cluster_bits > 0 {
        let why = "fast commits of a volume with clusters (bigalloc) are not replayed; mount it \
            with Linux once";
        return Err(Error::Feature(why.into()));
    }
    let ops = bare_volume(target, buffers, layout, journal)?;
    // With `data=writeback`, Linux gives blocks that one fast commit frees to files of a later one.
    ops.space.keep_freed();
    let mut replay = Replay { ops: &ops, touched: BTreeSet::new(), mapped: BTreeSet::new() };
    let operations = || commits.iter().flat_map(|commit| &commit.operations);
    // This comes first: blocks for trees and directories must not be allocated from those that
    // files use.
    for operation in operations() {
        if let Operation::AddRange { pba, len, .. } = operation {
            let handle = ops.begin(ops.credits.create)?;
            ops.space.adopt_blocks(&handle, *pba, u64::from(*len))?;
        }
    }
    operations().try_for_each(|operation| replay.operation(operation))?;
    replay.finish()
}

fn bare_volume(
    target: &ReplayTarget<'_>,
    buffers: &Arc<BufferCache>,
    layout: Layout,
    journal: &[(FileBlock, Pba, u64)],
) -> Result<Arc<Operations>> {
    let layout = Arc::new(layout);
    let superblock = LiveSuperblock::new(layout.block_size);
    let hash = directory::hash_settings(&superblock.read(buffers)?);
    let groups = Arc::new(GroupTable::open(buffers, &layout, journal)?);
    let store = Store {
        device: target.device.clone(),
        flushes: Flushes::new(target.device.clone(), target.runtime.clone()),
        buffers: buffers.clone(),
        layout: layout.clone(),
        superblock,
        // Not used during replay.
        overhead: 0,
        groups: groups.clone(),
        runtime: target.runtime.clone(),
    };
    let options = PageCacheOptions::new(layout.block_size);
    let pages = PageCache::new(
        target.device.clone(),
        target.budget.clone(),
        options,
        target.runtime.clone(),
    );
    let space = Arc::new(Space::new(groups, layout, target.runtime.clone()));
    let (orphan_file, slots) = crate::orphan::cleanup::open_orphan_file(&store)?;
    let (orphans, txn) = (Orphans::new(orphan_file), Txn::Direct(buffers.clone()));
    let mount = MountState::new(store, txn, MountOptions::default(), None);
    let inodes = Arc::new(Inodes::new(mount, pages, orphans, hash));
    let ops = Arc::new(Operations::new(inodes, space));
    // The mount reports errors of the list later.
    let (listed, _) = crate::orphan::cleanup::orphan_list(&ops)?;
    ops.orphans.adopt(slots, listed);
    Ok(ops)
}

/// A replay in progress.
struct Replay<'a> {
    ops: &'a Arc<Operations>,
    /// Inodes whose record was in a fast commit.
    touched: BTreeSet<Ino>,
    /// Inodes that were given blocks.
    mapped: BTreeSet<Ino>,
}

/// The error for an operation that does not fit the volume.
fn misfit(ino: Ino, value: u64, what: &'static str) -> Error {
    Corrupt::Inode { ino, field: "fast commit", value, problem: what }.into()
}

impl Replay<'_> {
    fn operation(&mut self, operation: &Operation) -> Result<()> {
        match operation {
            Operation::AddRange { ino, start, pba, len, unwritten } => {
                self.add_range(*ino, *start, u64::from(*len), *pba, *unwritten)
            }
            Operation::DeleteRange { ino, start, len } => {
                self.delete_range(*ino, *start, u64::from(*len))
            }
            Operation::Create(name) => self.create(name),
            Operation::Link(name) => self.link(name),
            Operation::Unlink(name) => self.unlink(name),
            Operation::Inode { ino, raw } => self.record(*ino, raw),
        }
    }

    /// The inode, if its number is in use and it exists.
    fn find(&self, ino: Ino) -> Result<Option<Arc<Inode>>> {
        let reserved = ino.get() < u64::from(self.ops.layout.first_ino) && ino != crate::ROOT_INO;
        if reserved || self.ops.layout.inode_group(ino).is_none() {
            return Err(misfit(ino, ino.get(), "not the number of a file"));
        }
        if let Some(inode) = self.ops.table.get(ino) {
            return Ok(Some(inode));
        }
        if !self.ops.groups.inode_in_use(ino)? {
            return Ok(None);
        }
        match self.ops.inode(ino) {
            Ok(inode) => Ok(Some(inode)),
            Err(Error::Vfs(VfsError::Stale)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn expect(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.find(ino)?.ok_or_else(|| misfit(ino, ino.get(), "names an inode that does not exist"))
    }

    /// Deletes inodes without a name: no process has them open. Then marks the blocks of the others
    /// in use: what was freed may have been of a file that is older than the present owner.
    fn finish(&self) -> Result<()> {
        for ino in &self.touched {
            let Some(inode) = self.ops.table.get(*ino) else { continue };
            let nameless = inode.state.read().record.links == 0;
            if nameless && !self.ops.orphans.contains(*ino) {
                crate::inode::delete::delete_inode(self.ops, &inode)?;
            }
        }
        self.mapped.iter().try_for_each(|ino| self.adopt_map(*ino))
    }
}
