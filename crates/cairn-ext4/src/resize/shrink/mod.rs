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

use self::session::Session;

pub(super) use plan::{Plan, least};

/// Shrinks a volume to this many blocks, or a few less.
///
/// # Errors
/// The volume cannot become as small, is damaged, or has no room for what moves; the device failed.
/// The volume is whole, but may have a size in between.
pub(super) fn shrink(mut volume: Offline, blocks: u64) -> Result<Offline> {
    // Before anything is written.
    Plan::new(&volume, blocks)?;
    let mut wanted = blocks;
    while volume.layout.blocks_count > blocks {
        let present = volume.layout.blocks_count;
        // Structures of groups that go make room for the next step.
        let step = plan::step(&volume, wanted)?;
        if step >= present {
            return Err(no_room());
        }
        let plan = Plan::of(&volume, step)?;
        let (device, runtime) = (volume.device.clone(), volume.runtime.clone());
        volume = match shrink_by_step(volume, &plan)? {
            Some(volume) => {
                wanted = blocks;
                volume
            }
            // A smaller step changes less.
            None => {
                let volume = Offline::open(device, runtime)?;
                wanted = present.midpoint(step);
                if wanted == step {
                    return Err(no_room());
                }
                volume
            }
        };
    }
    Ok(volume)
}

fn no_room() -> Error {
    Error::Refused(
        "there is no room for what lies behind the new end: give a larger size, or min".into(),
    )
}

/// `None` if there is no room for a record of the step, which a volume without a journal needs.
fn shrink_by_step(mut volume: Offline, plan: &Plan) -> Result<Option<Offline>> {
    let end = Pba(plan.layout.blocks_count);
    let lies_behind =
        |(_, start, len): &(_, Pba, u64)| start.get().saturating_add(*len) > end.get();
    if volume.journal_extents().iter().any(lies_behind) {
        volume = journal::move_before(volume, end)?;
    }
    let session = Session::open(volume, plan)?;
    let moved = inodes::move_all(&session).and_then(|()| blocks::move_all(&session));
    let volume = session.close()?;
    match moved {
        Err(Error::Vfs(cairn_vfs::Error::NoSpace)) => Err(no_room()),
        Err(error) => Err(error),
        Ok(()) => cut::cut(volume, plan),
    }
}
