//! Blocks behind the new end move: data of files and directories, blocks of their maps, blocks of
//! attributes.

use cairn_base::units::as_index;
use cairn_base::{FileBlock, Ino, Pba};
use cairn_block::BlockDeviceExt;
use cairn_cache::mapper::Run;
use cairn_cache::status::State as Mapped;

use super::session::Session;
use super::tree;
use crate::error::{Error, Result};
use crate::format::extent::MAX_FILE_BLOCKS;
use crate::format::inode::{Inode as Record, InodeFlags, mode};
use crate::format::layout::inodes::{BAD, JOURNAL, RESIZE};
use crate::format::{orphan, xattr};
use crate::map::Progress;
use crate::space::{BlockSource, Freed};
use crate::txn::Handle;

/// Bytes copied at a time.
const PIECE: u64 = 4 << 20;
/// Blocks of a map that a removal changes in a step.
const REMOVE_STEP: u32 = 16;

/// Moves the blocks of all inodes.
///
/// # Errors
/// There is no room, the volume is damaged, or the device failed.
pub(super) fn move_all(session: &Session) -> Result<()> {
    for ino in session.used_inodes()? {
        let mut record = session.record(ino)?;
        if ino == RESIZE || ino == JOURNAL {
            // The reserved descriptor blocks have fixed places, and the log is before the end
            // already. The blocks that lead to them can be anywhere.
            if has_map(&record) {
                tree::move_all(session, ino, &mut record)?;
            }
            continue;
        }
        if ino == BAD && record.blocks_512 > 0 {
            let why = "it has a list of bad blocks, which cannot move: use resize2fs";
            return Err(Error::Refused(why.into()));
        }
        if record.file_acl.get() >= session.end.get() {
            move_attributes(session, ino, &mut record)?;
        }
        if has_map(&record) {
            move_data(session, ino, &mut record)?;
            tree::move_all(session, ino, &mut record)?;
        }
    }
    session.commit()
}

/// True if the record has a map of blocks.
fn has_map(record: &Record) -> bool {
    let is_fast = record.file_type() == mode::SYMLINK
        && !record.flags.contains(InodeFlags::EXTENTS)
        && record.size < 60;
    let kinds = [mode::REGULAR, mode::DIRECTORY, mode::SYMLINK];
    kinds.contains(&record.file_type())
        && !is_fast
        && !record.flags.contains(InodeFlags::INLINE_DATA)
}

/// What the blocks of a file hold.
#[derive(Clone, Copy, PartialEq)]
enum Contents {
    /// Data, which the log never holds.
    Data,
    /// Entries, which change through the log.
    Directory,
    /// The orphan file's, whose checksums follow from their places.
    Orphans,
}

fn contents(session: &Session, ino: Ino, record: &Record) -> Contents {
    if record.file_type() == mode::DIRECTORY {
        Contents::Directory
    } else if session.orphan_file() == Some(ino) {
        Contents::Orphans
    } else {
        Contents::Data
    }
}

/// A run of blocks behind the end.
struct Behind {
    at: u64,
    len: u64,
    pba: Pba,
    unwritten: bool,
}

/// The first run from `at` on that lies behind the end. `None` if there is none.
fn next_behind(session: &Session, ino: Ino, record: &Record, at: u64) -> Result<Option<Behind>> {
    let kept = session.kept();
    let map = session.map(ino, record, &kept);
    let mut at = at;
    while at < MAX_FILE_BLOCKS {
        let found = map.lookup(&record.block, FileBlock(at))?;
        let Some(part) = found.clip(at, MAX_FILE_BLOCKS) else { return Ok(None) };
        let (pba, unwritten) = match part.state {
            Mapped::Mapped(pba) => (pba, false),
            Mapped::Unwritten(pba) => (pba, true),
            _ => {
                at = part.end();
                continue;
            }
        };
        let before = session.end.get().saturating_sub(pba.get()).min(part.len);
        if before < part.len {
            return Ok(Some(Behind {
                at: at + before,
                len: part.len - before,
                pba: Pba(pba.get() + before),
                unwritten,
            }));
        }
        at = part.end();
    }
    Ok(None)
}

fn move_data(session: &Session, ino: Ino, record: &mut Record) -> Result<()> {
    let contents = contents(session, ino, record);
    let mut goal = session.space.goal_of(ino);
    let mut at = 0;
    while let Some(run) = next_behind(session, ino, record, at)? {
        let most = match contents {
            Contents::Data => crate::map::max_run(
                record.flags.contains(InodeFlags::EXTENTS),
                session.layout.block_size,
            ),
            // Each block is one of the transaction.
            Contents::Directory | Contents::Orphans => 16,
        };
        let want = u32::try_from(run.len).unwrap_or(most).min(most);
        let found = session.allocate(goal, want)?;
        let len = u64::from(found.len);
        if contents == Contents::Data && !run.unwritten {
            copy(session, run.pba, found.start, len)?;
        }
        let others = match contents {
            Contents::Data => 0,
            Contents::Directory | Contents::Orphans => found.len,
        };
        let credits = session.credits;
        let handle = session.begin(2 * credits.map_extent + credits.remove_step + others)?;
        session.space.mark(&handle, &found)?;
        if contents != Contents::Data {
            copy_in_log(session, &handle, ino, record, (run.pba, found.start, len), contents)?;
        }
        remap(session, &handle, ino, record, &Behind { len, ..run }, found.start)?;
        let kind = if contents == Contents::Data { Freed::Data } else { Freed::Metadata };
        session.space.free(&handle, run.pba, len, kind)?;
        session.put(&handle, ino, Some(record))?;
        handle.finish();
        goal = Pba(found.start.get() + len);
        at = run.at + len;
    }
    Ok(())
}

/// Replaces the address of a run.
fn remap(
    session: &Session,
    handle: &Handle,
    ino: Ino,
    record: &mut Record,
    run: &Behind,
    to: Pba,
) -> Result<()> {
    let kept = session.kept();
    let map = session.map(ino, record, &kept);
    let blocks = Run { start: FileBlock(run.at), len: run.len };
    let mut change = 0;
    loop {
        let (progress, removed) = map.remove(handle, &mut record.block, blocks, REMOVE_STEP)?;
        change += removed;
        if progress == Progress::Done {
            break;
        }
    }
    change += map.insert(handle, &mut record.block, blocks, to, run.unwritten)?;
    let sectors = i64::from(session.layout.block_size / 512);
    record.blocks_512 = record.blocks_512.saturating_add_signed(change * sectors);
    Ok(())
}

/// Copies data on the device. The commit of the handle that maps it flushes it.
fn copy(session: &Session, from: Pba, to: Pba, blocks: u64) -> Result<()> {
    let size = u64::from(session.layout.block_size);
    let (mut done, all) = (0, blocks * size);
    while done < all {
        let len = PIECE.min(all - done);
        let bytes = session
            .device()
            .read_at(from.get() * size + done, usize::try_from(len).unwrap_or(usize::MAX))?;
        session.device().write_at(to.get() * size + done, bytes.to_vec())?;
        done += len;
    }
    Ok(())
}

/// Copies blocks that change through the log.
fn copy_in_log(
    session: &Session,
    handle: &Handle,
    ino: Ino,
    record: &Record,
    (from, to, blocks): (Pba, Pba, u64),
    contents: Contents,
) -> Result<()> {
    for index in 0..blocks {
        let (from, to) = (Pba(from.get() + index), Pba(to.get() + index));
        let image = session.buffers().get(from)?.image();
        let buffer = handle.create(to)?;
        let mut block = handle.write(&buffer)?;
        if contents == Contents::Orphans {
            // There are no orphans on a volume at rest.
            orphan::init(&mut block, to, record.seed(ino, &session.layout));
        } else {
            block.copy_from_slice(&image);
        }
    }
    Ok(())
}

/// Gives an inode a copy of its block of attributes, whose checksum follows from its place.
fn move_attributes(session: &Session, ino: Ino, record: &mut Record) -> Result<()> {
    let old = record.file_acl;
    let checksum = session.layout.checksum;
    let found = session.allocate(session.space.goal_of(ino), 1)?;
    let handle = session.begin(session.credits.xattr + session.credits.remove_step)?;
    session.space.mark(&handle, &found)?;
    let buffer = session.buffers().get(old)?;
    let image = buffer.image();
    xattr::verify_block(&image, old, checksum, ino)?;
    let users = xattr::refcount(&image);
    {
        let copy = handle.create(found.start)?;
        let mut bytes = handle.write(&copy)?;
        bytes.copy_from_slice(&image);
        xattr::set_refcount(&mut bytes, 1);
        xattr::seal_block(&mut bytes, found.start, checksum);
    }
    if users > 1 {
        let mut bytes = handle.write(&buffer)?;
        xattr::set_refcount(&mut bytes, users - 1);
        xattr::seal_block(&mut bytes, old, checksum);
    } else {
        session.space.free(&handle, old, 1, Freed::Metadata)?;
    }
    record.file_acl = found.start;
    session.put(&handle, ino, Some(record))?;
    handle.finish();
    debug_assert_eq!(image.len(), as_index(session.layout.block_size));
    Ok(())
}
