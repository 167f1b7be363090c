//! File block → place, in the largest runs the node tree gives.
//!
//! The map of a regular file is kept in memory ([`super::map`]), so nodes are read once.

use cairn_base::FileBlock;
use cairn_cache::mapper::{FileMapper, MapError, Mapping, Place, Placement, Run};
use cairn_vfs::{Error as VfsError, FileKind};

use super::Inode;
use super::map::unaddressed;
use super::owned;
use crate::corrupt::Corrupt;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::inode::Inode as Record;
use crate::format::units::BlockAddr;
use crate::node::tree::{self, Leaf, Pointers};
use crate::operation_lock::DataGuard;

/// Maps one file.
pub(crate) struct ReadMapper<'a> {
    disk: &'a Disk,
    inode: &'a Inode,
    /// Cleaning is excluded, so mappings read from nodes may be stored.
    stable: bool,
}

impl<'a> ReadMapper<'a> {
    /// A mapper for answers that are used at once: cleaning may move blocks meanwhile.
    #[must_use]
    pub(crate) fn new(disk: &'a Disk, inode: &'a Inode) -> Self {
        Self { disk, inode, stable: disk.store.is_none() }
    }

    /// A mapper whose blocks only operations on this inode move while `_guard` is held.
    #[must_use]
    pub(crate) fn stable(disk: &'a Disk, inode: &'a Inode, _guard: &'a DataGuard<'a>) -> Self {
        Self { disk, inode, stable: true }
    }

    /// Runs `work` with a mapper whose answers hold until `work` returns. Reads of a file's blocks
    /// use it.
    pub(crate) fn while_stable<T>(
        disk: &'a Disk,
        inode: &'a Inode,
        work: impl FnOnce(&ReadMapper<'_>) -> T,
    ) -> T {
        match disk.store.as_ref().map(|store| store.operation_lock.lock_reading()) {
            Some(reading) => work(&ReadMapper::stable(disk, inode, &reading)),
            None => work(&Self::new(disk, inode)),
        }
    }

    /// The mapping at `run.start` and its length, which may be more than `run.len` if no node must
    /// be read for that.
    ///
    /// # Errors
    /// The node tree is damaged, or the device failed.
    pub(crate) fn find(&self, run: Run) -> Result<Mapping> {
        if self.inode.kind != FileKind::Regular {
            return self.ask(run);
        }
        let moves = self.disk.moves();
        if let Some(known) = self.inode.map.find(run.start, moves) {
            return Ok(known);
        }
        let stamp = self.inode.map.stamp(moves);
        let found = self.ask(run)?;
        if self.stable {
            self.inode.map.remember(&stamp, &found);
        }
        // A hole may be reserved in part.
        Ok(self.inode.map.find(run.start, moves).unwrap_or(found))
    }

    /// As [`ReadMapper::find`], for blocks that are written over: whosever a block is, its pointer
    /// will lead to another one.
    ///
    /// # Errors
    /// As [`ReadMapper::find`].
    pub(crate) fn find_any(&self, run: Run) -> Result<Mapping> {
        match self.find(run) {
            Err(error) if owned::is_refusal(&error) => {
                let place = match self.address(&self.inode.record(), run.start.get())? {
                    BlockAddr::NEW => Place::Unwritten(unaddressed(run.start.get())),
                    addr if addr.is_address() => Place::Mapped(addr.pba()),
                    _ => Place::Hole,
                };
                Ok(Mapping { run: Run { start: run.start, len: 1 }, place })
            }
            found => found,
        }
    }

    /// As [`ReadMapper::find`], read from the nodes.
    fn ask(&self, run: Run) -> Result<Mapping> {
        let record = self.inode.record();
        let start = run.start.get();
        let (first, mut len) = self.ask_leaf(&record, start, run.len.max(1))?;
        // The run continues in the next node if the addresses do.
        while let Place::Mapped(pba) = &first {
            if len >= run.len {
                break;
            }
            let next = start + len;
            match self.ask_leaf(&record, next, run.len - len)? {
                (Place::Mapped(more), count) if more.get() == pba.get() + len => len += count,
                _ => break,
            }
        }
        Ok(Mapping { run: Run { start: run.start, len }, place: first })
    }

    /// As [`ReadMapper::ask`], within one node.
    fn ask_leaf(&self, record: &Record, block: u64, want: u64) -> Result<(Place, u64)> {
        loop {
            let pointers = match tree::find(&self.disk.nodes, self.inode.nid, record, block)? {
                Leaf::Hole(len) => return Ok((Place::Hole, len)),
                Leaf::Node(pointers) => pointers,
            };
            let most = u32::try_from(want).unwrap_or(u32::MAX).min(pointers.len());
            let first = pointers.get(record, 0);
            self.check(record, first, block)?;
            if !first.is_address() {
                let goes_on = |index: &u32| pointers.get(record, *index) == first;
                let len = (1..most).find(|index| !goes_on(index)).unwrap_or(most);
                let place = match first {
                    BlockAddr::NEW => Place::Unwritten(unaddressed(block)),
                    BlockAddr::NULL => Place::Hole,
                    _ => return Ok((Place::Hole, len.into())),
                };
                return match self.hole(record, &pointers, len)? {
                    0 => Err(owned::lost(self.inode.nid, block)),
                    len => Ok((place, len.into())),
                };
            }
            // An address outside the main area is reported when its block is looked up.
            let run = (0..most).map(|index| pointers.get(record, index)).zip(first.get()..);
            let run = run.take_while(|(addr, next)| {
                addr.get() == *next && (*addr == first || self.disk.layout.in_main(*addr))
            });
            let addrs: Vec<BlockAddr> = run.map(|(addr, _)| addr).collect();
            let (holder, slot) = pointers.place();
            let run = owned::Pointers { holder, first: slot, addrs: &addrs };
            let len = owned::own(self.disk, self.inode.nid, run)?;
            if len > 0 {
                return Ok((Place::Mapped(first.pba()), len));
            }
            // The block may have been moved meanwhile, and its old place may be another's now.
            if self.address(record, block)? == first {
                return Err(owned::error(self.inode.nid, block, first));
            }
        }
    }

    /// How many of the first empty pointers are a hole, as far as the blocks beside them tell.
    fn hole(&self, record: &Record, pointers: &Pointers, len: u32) -> Result<u32> {
        let (holder, slot) = pointers.place();
        let has_lost = |index: u32, beside: Option<u32>| match beside {
            Some(addr) => {
                let slot = slot.saturating_add(u16::try_from(index).unwrap_or(u16::MAX));
                owned::has_lost(self.disk, self.inode.nid, (holder, slot), BlockAddr(addr))
            }
            None => Ok(false),
        };
        let before = pointers.before(record).filter(|addr| addr.is_address());
        if has_lost(0, before.and_then(|addr| addr.get().checked_add(1)))? {
            return Ok(0);
        }
        let after = (len < pointers.len()).then(|| pointers.get(record, len));
        let after = after.filter(|addr| addr.is_address());
        let last = len.saturating_sub(1);
        let is_cut = has_lost(last, after.and_then(|addr| addr.get().checked_sub(1)))?;
        Ok(if is_cut { last } else { len })
    }

    /// The pointer of a block.
    fn address(&self, record: &Record, block: u64) -> Result<BlockAddr> {
        Ok(match tree::find(&self.disk.nodes, self.inode.nid, record, block)? {
            Leaf::Hole(_) => BlockAddr::NULL,
            Leaf::Node(pointers) => pointers.get(record, 0),
        })
    }

    fn check(&self, record: &Record, addr: BlockAddr, block: u64) -> Result<(), Corrupt> {
        tree::check_pointer(addr, self.inode.nid, block, &self.disk.layout)?;
        if addr == BlockAddr::COMPRESS && record.cluster_blocks().is_none() {
            let what = "a compressed cluster in a file that is not compressed";
            return Err(Corrupt::Mapping {
                ino: self.inode.nid,
                block,
                what,
                value: addr.get().into(),
            });
        }
        Ok(())
    }
}

impl FileMapper for ReadMapper<'_> {
    fn lookup(&self, run: Run) -> Result<Mapping, MapError> {
        Ok(self.find(run)?)
    }

    fn reserve(&self, _run: Run) -> Result<Mapping, MapError> {
        Err(Error::Vfs(VfsError::ReadOnly("mapped for reading".into())).into())
    }

    fn release(&self, run: Run) {
        self.inode.map.release(run, self.inode.shape());
    }

    fn place(&self, _run: Run) -> Result<Placement, MapError> {
        Err(Error::Vfs(VfsError::ReadOnly("mapped for reading".into())).into())
    }
}

/// The address of one block; `None` in a hole.
///
/// # Errors
/// As [`ReadMapper::find`].
pub(crate) fn block_address(
    disk: &Disk,
    inode: &Inode,
    block: u64,
) -> Result<Option<cairn_base::Pba>> {
    let mapping = ReadMapper::new(disk, inode).find(Run { start: FileBlock(block), len: 1 })?;
    Ok(match mapping.place {
        Place::Mapped(pba) => Some(pba),
        _ => None,
    })
}
