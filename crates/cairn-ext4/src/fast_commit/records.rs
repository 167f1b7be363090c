//! Replays inode records and block maps.

use std::sync::Arc;

use cairn_base::{FileBlock, Ino, Pba};
use cairn_cache::durability::Ledger;
use cairn_cache::mapper::Run;
use cairn_cache::status::{ExtentStatus, State as Mapped};
use cairn_vfs::FileKind;

use super::{Replay, misfit};
use crate::error::Result;
use crate::format::extent::MAX_FILE_BLOCKS;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::inode::{Inode, State, delete, has_block_map, inline};
use crate::map::Progress;
use crate::txn::Handle;

/// Flags for the form of the contents.
const STORAGE: InodeFlags =
    InodeFlags::EXTENTS.union(InodeFlags::INDEX).union(InodeFlags::INLINE_DATA);
/// Byte offset of `i_flags`.
const FLAGS_AT: usize = 0x20;
/// Byte offset of `i_generation`.
const GENERATION_AT: usize = 0x64;

impl Replay<'_> {
    /// Replaces an inode's record by that of the fast commit. The block map stays.
    pub(super) fn record(&mut self, ino: Ino, raw: &[u8]) -> Result<()> {
        self.touched.insert(ino);
        let generation = raw.get(GENERATION_AT..).and_then(<[u8]>::first_chunk).map_or(0, word);
        let found = match self.find(ino)? {
            Some(inode) if inode.state.read().record.generation != generation => {
                // An inode without a name was deleted, and its number used again.
                if inode.state.read().record.links > 0 {
                    return Err(misfit(
                        ino,
                        u64::from(generation),
                        "gives an inode in use another generation",
                    ));
                }
                delete::delete_inode(self.ops, &inode)?;
                None
            }
            found => found,
        };
        match found {
            Some(inode) => self.update(&inode, raw),
            None => self.make(ino, generation, raw),
        }
    }

    fn update(&self, inode: &Arc<Inode>, raw: &[u8]) -> Result<()> {
        let handle = self.ops.begin(self.ops.credits.attributes)?;
        let mut guard = inode.state.write();
        let state = &mut *guard;
        let storage = InodeFlags::from_bits_retain(
            raw.get(FLAGS_AT..).and_then(<[u8]>::first_chunk).map_or(0, word),
        );
        if inode.kind != FileKind::Directory && !storage.contains(InodeFlags::INLINE_DATA) {
            self.leave_inline(inode, state)?;
        }
        let before = &state.record;
        let mut new = before.overlaid(raw, inode.ino, &self.ops.layout)?;
        if FileKind::from_mode(u32::from(new.mode)) != Some(inode.kind) {
            return Err(misfit(inode.ino, u64::from(new.mode), "changes the kind of an inode"));
        }
        if inode.kind == FileKind::Directory {
            // The changes of its names follow separately, with size, links and map.
            (new.size, new.links, new.block) = (before.size, before.links, before.block);
            if new.extra_isize != before.extra_isize {
                return Err(misfit(
                    inode.ino,
                    new.extra_isize.into(),
                    "changes where a directory's attributes begin",
                ));
            }
            new.extra.clone_from(&before.extra);
            new.flags = new.flags.difference(STORAGE) | (before.flags & STORAGE);
        } else {
            choose_map(inode.ino, before, &mut new)?;
        }
        state.set_size_and_disksize(new.size);
        state.record = new;
        state.status = ExtentStatus::default();
        inode.write_inode(self.ops, &handle, state)
    }

    fn make(&self, ino: Ino, generation: u32, raw: &[u8]) -> Result<()> {
        let ops = self.ops;
        let blank = Record::new(generation, &ops.layout);
        let mut new = blank.overlaid(raw, ino, &ops.layout)?;
        let kind = FileKind::from_mode(u32::from(new.mode))
            .ok_or_else(|| misfit(ino, u64::from(new.mode), "makes an inode of no known kind"))?;
        if kind == FileKind::Directory {
            // The directory begins empty; its names follow.
            new.links = 2;
            new.flags.remove(InodeFlags::INDEX);
        } else {
            choose_map(ino, &blank, &mut new)?;
        }
        let handle = ops.begin(ops.credits.create)?;
        ops.space.adopt_inode(&handle, ino, kind == FileKind::Directory)?;
        let inode = ops.adopt(Inode::new(
            &ops.pages,
            &ops.layout,
            ino,
            ops.locate(ino)?,
            kind,
            new,
            Ledger::fresh(&ops.flushes),
        ))?;
        let mut guard = inode.state.write();
        let state = &mut *guard;
        if kind == FileKind::Directory {
            state.record.flags.insert(InodeFlags::INLINE_DATA);
            self.leave_inline(&inode, state)?;
        }
        inode.write_inode(ops, &handle, state)
    }

    /// An inode whose contents move from the record to blocks begins with an empty map.
    fn leave_inline(&self, inode: &Inode, state: &mut State) -> Result<()> {
        if state.record.flags.contains(InodeFlags::INLINE_DATA) {
            inline::destroy_inline_data(self.ops, inode, state)?;
        }
        Ok(())
    }

    /// Maps blocks and marks them in use, whatever was mapped before.
    pub(super) fn add_range(
        &mut self,
        ino: Ino,
        start: FileBlock,
        len: u64,
        pba: Pba,
        unwritten: bool,
    ) -> Result<()> {
        let inode = self.expect(ino)?;
        self.mapped.insert(ino);
        let handle = self.ops.begin(self.ops.credits.create)?;
        let end = start.get().saturating_add(len);
        if len == 0 || end > MAX_FILE_BLOCKS || pba.get() <= self.ops.layout.first_data_block {
            return Err(misfit(ino, len, "maps an impossible range"));
        }
        // An earlier record may have freed them.
        self.ops.space.adopt_blocks(&handle, pba, len)?;
        let mut guard = inode.state.write();
        let state = &mut *guard;
        self.leave_inline(&inode, state)?;
        if !has_block_map(&state.record) {
            return Err(misfit(ino, start.get(), "maps blocks of an inode that has none"));
        }
        let mut at = start.get();
        while at < end {
            let target = Pba(pba.get().saturating_add(at.saturating_sub(start.get())));
            let run = Run { start: FileBlock(at), len: end.saturating_sub(at) };
            at = at.saturating_add(self.add_part(&inode, &handle, state, run, target, unwritten)?);
        }
        state.status = ExtentStatus::default();
        inode.write_inode(self.ops, &handle, state)
    }

    /// Maps the head of a run, as far as its present mapping is of one kind. Returns the number of
    /// blocks.
    fn add_part(
        &self,
        inode: &Inode,
        handle: &Handle,
        state: &mut State,
        run: Run,
        pba: Pba,
        unwritten: bool,
    ) -> Result<u64> {
        let end = run.start.get().saturating_add(run.len);
        let found = self.ops.map_of(inode, state).lookup(&state.record.block, run.start)?;
        let Some(part) = found.clip(run.start.get(), end).filter(|part| part.len > 0) else {
            return Err(misfit(inode.ino, run.start.get(), "maps blocks that a file cannot have"));
        };
        let here = Run { start: run.start, len: part.len };
        let (mapped, is_unwritten) = match part.state {
            Mapped::Mapped(there) => (Some(there), false),
            Mapped::Unwritten(there) => (Some(there), true),
            _ => (None, false),
        };
        if mapped == Some(pba) {
            if is_unwritten != unwritten {
                // The replay uses no transactions, so there is no limit for a step.
                let map = self.ops.map_of(inode, state);
                let block = &mut state.record.block;
                let (_, delta) = if unwritten {
                    map.mark_unwritten(handle, block, here, u32::MAX)?
                } else {
                    map.convert_written(handle, block, here, u32::MAX)?
                };
                state.account(&self.ops.layout, delta);
            }
            return Ok(here.len);
        }
        if mapped.is_some() {
            self.remove(inode, handle, state, here)?;
        }
        let delta = self.ops.map_of(inode, state).insert(
            handle,
            &mut state.record.block,
            here,
            pba,
            unwritten,
        )?;
        state.account(&self.ops.layout, delta);
        Ok(here.len)
    }

    /// Marks all blocks that a file maps in use.
    pub(super) fn adopt_map(&self, ino: Ino) -> Result<()> {
        let Some(inode) = self.find(ino)? else { return Ok(()) };
        let handle = self.ops.begin(self.ops.credits.create)?;
        let state = inode.state.read();
        if state.record.links == 0 || !has_block_map(&state.record) {
            return Ok(());
        }
        let mut at = 0;
        while at < MAX_FILE_BLOCKS {
            let found =
                self.ops.map_of(&inode, &state).lookup(&state.record.block, FileBlock(at))?;
            let Some(part) = found.clip(at, MAX_FILE_BLOCKS).filter(|part| part.len > 0) else {
                break;
            };
            if let Mapped::Mapped(pba) | Mapped::Unwritten(pba) = part.state {
                self.ops.space.adopt_blocks(&handle, pba, part.len)?;
            }
            at = at.saturating_add(part.len);
        }
        handle.finish();
        Ok(())
    }

    /// Makes a hole.
    pub(super) fn delete_range(&mut self, ino: Ino, start: FileBlock, len: u64) -> Result<()> {
        let inode = self.expect(ino)?;
        let handle = self.ops.begin(self.ops.credits.remove_step)?;
        let mut guard = inode.state.write();
        let state = &mut *guard;
        if len == 0 || !has_block_map(&state.record) {
            return Ok(());
        }
        self.remove(&inode, &handle, state, Run { start, len })?;
        state.status = ExtentStatus::default();
        inode.write_inode(self.ops, &handle, state)
    }

    fn remove(&self, inode: &Inode, handle: &Handle, state: &mut State, run: Run) -> Result<()> {
        loop {
            let map = self.ops.map_of(inode, state);
            let (progress, delta) = map.remove(handle, &mut state.record.block, run, u32::MAX)?;
            state.account(&self.ops.layout, delta);
            if progress == Progress::Done {
                return Ok(());
            }
        }
    }
}

fn word(bytes: &[u8; 4]) -> u32 {
    u32::from_le_bytes(*bytes)
}

/// A fast commit contains ranges and not a map. The map stays or begins empty; other contents are
/// taken from the record.
fn choose_map(ino: Ino, before: &Record, new: &mut Record) -> Result<()> {
    let extents = new.flags.contains(InodeFlags::EXTENTS);
    let same = has_block_map(new) && extents == before.flags.contains(InodeFlags::EXTENTS);
    match (has_block_map(before), has_block_map(new)) {
        (true, _) if same => new.block = before.block,
        (true, _) => {
            return Err(misfit(
                ino,
                u64::from(new.flags.bits()),
                "changes how contents are stored",
            ));
        }
        (false, true) if extents => crate::extent::initialize(&mut new.block),
        (false, true) => new.block = [0; 60],
        (false, false) => {}
    }
    Ok(())
}
