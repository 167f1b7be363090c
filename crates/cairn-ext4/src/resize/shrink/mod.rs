//! A volume becomes smaller: what lies behind its new end moves before it, then the end is cut off.
//!
//! Everything moves in transactions of the journal, each of which leaves a whole volume: first
//! inodes of the groups that go, with the entries that name them; then blocks of files, of their
//! maps and of their attributes. The cut is one transaction. After a crash the volume is whole, and
//! the next try goes on. Without a journal, all of it is made in memory, where data is copied into
//! free blocks alone, and written as one change ([`crate::offline::Switch`]).
//!
//! Structures of the groups that go may lie before the end (flex_bg), and are free only after the
//! cut: a volume may shrink in several steps. If the journal itself lies behind the new end, it is
//! made anew before it, as by a change of its size ([`crate::tune`]).

mod blocks;
mod cut;
mod inodes;
mod plan;
mod raw_dir;
mod session;
mod tree;

use cairn_base::Pba;

use crate::error::{Error, Result};
use crate::offline::Offline;
use crate::tune::journal;

use self::plan::Plan;
use self::session::Session;

pub(super) use plan::{least, steps};

/// Shrinks a volume to this many blocks, or a few less. It stays larger if what moves needs more
/// room than was estimated.
///
/// # Errors
/// The volume cannot become as small, or is damaged; the device failed. The volume is whole, but
/// may have a size in between.
pub(super) fn shrink(mut volume: Offline, blocks: u64) -> Result<Offline> {
    // Before anything is written. Structures of groups that go make room for the next step.
    for step in steps(&volume, blocks)? {
        volume = reach(volume, step)?;
        if volume.layout.blocks_count > step {
            break;
        }
    }
    Ok(volume)
}

/// Shrinks a volume to this many blocks, or to as few as there is room for.
fn reach(mut volume: Offline, blocks: u64) -> Result<Offline> {
    // The largest size for which what moves had no room.
    let (mut wanted, mut failed) = (blocks, None);
    while volume.layout.blocks_count > blocks {
        let plan = Plan::of(&volume, wanted)?;
        let lack = if failed.is_some_and(|failed| plan.layout.blocks_count <= failed) {
            Some(Lack::Blocks)
        } else {
            let (next, lack) = shrink_by_step(volume, &plan)?;
            volume = next;
            lack
        };
        let from = match lack {
            None if failed.is_none() => {
                wanted = blocks;
                continue;
            }
            // A smaller step changes less.
            Some(Lack::Record) => wanted,
            Some(Lack::Blocks) => *failed.insert(wanted),
            None => failed.unwrap_or(wanted),
        };
        wanted = volume.layout.blocks_count.midpoint(from);
        if wanted == from {
            break;
        }
    }
    Ok(volume)
}

/// What a step has no room for.
enum Lack {
    /// What lies behind the new end.
    Blocks,
    /// A record of the step, which a volume without a journal needs.
    Record,
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Vfs(cairn_vfs::Error::NoSpace))
}

/// The volume as it was, but for what has moved, if it has no room for the step.
fn shrink_by_step(mut volume: Offline, plan: &Plan) -> Result<(Offline, Option<Lack>)> {
    let end = Pba(plan.layout.blocks_count);
    let (device, runtime) = (volume.device.clone(), volume.runtime.clone());
    let as_before = || Offline::open(device.clone(), runtime.clone());
    let lies_behind =
        |(_, start, len): &(_, Pba, u64)| start.get().saturating_add(*len) > end.get();
    if volume.journal_extents().iter().any(lies_behind) {
        volume = match journal::move_before(volume, end) {
            Err(error) if is_full(&error) => return Ok((as_before()?, Some(Lack::Blocks))),
            moved => moved?,
        };
    }
    let session = Session::open(volume, plan)?;
    let moved = inodes::move_all(&session).and_then(|()| blocks::move_all(&session));
    let volume = session.close()?;
    match moved {
        // Without a journal, all of it is in memory.
        Err(error) if is_full(&error) => return Ok((as_before()?, Some(Lack::Blocks))),
        moved => moved?,
    }
    match cut::cut(volume, plan)? {
        Some(volume) => Ok((volume, None)),
        None => Ok((as_before()?, Some(Lack::Record))),
    }
}
