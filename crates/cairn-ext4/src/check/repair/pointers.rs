//! Block pointers of ext2 and ext3, rewritten where they are. An indirect block without pointers
//! goes.

use std::collections::HashSet;

use cairn_base::Pba;

use super::super::visitor::Run;
use super::mender::Mender;
use super::policy::{Fate, Policy};
use crate::error::Result;
use crate::format::indirect;
use crate::format::inode::Inode as Record;

struct Rewrite<'a, 'm> {
    mender: &'a Mender<'m>,
    policy: &'a mut dyn Policy,
    seen: HashSet<u64>,
    is_changed: bool,
}

/// Rewrites the pointers of an inode. True if something of them has changed.
pub(super) fn rewrite(
    mender: &Mender<'_>,
    record: &mut Record,
    policy: &mut dyn Policy,
) -> Result<bool> {
    let mut rewrite = Rewrite { mender, policy, seen: HashSet::new(), is_changed: false };
    let old = indirect::decode_inode(&record.block);
    let mut new = old;
    for (number, slot) in new.iter_mut().enumerate() {
        let (level, first) = indirect::slot_range(number, mender.state.layout.block_size);
        *slot = rewrite.pointer(level, first, *slot)?;
    }
    indirect::encode(&new, &mut record.block);
    Ok(rewrite.is_changed || new != old)
}

impl Rewrite<'_, '_> {
    fn pointer(&mut self, level: u32, at: u64, pointer: u32) -> Result<u32> {
        let pba = Pba(pointer.into());
        if pointer == 0 || !self.mender.state.layout.contains(pba, 1) {
            return Ok(0);
        }
        let moved = |pba: Pba| u32::try_from(pba.get()).unwrap_or(0);
        let Some(below) = level.checked_sub(1) else {
            let run = Run { start: at, pba, len: 1, unwritten: false };
            return Ok(match self.policy.data(self.mender, run)? {
                Fate::Keep | Fate::Part { .. } => pointer,
                Fate::Drop => 0,
                Fate::Move(pba) | Fate::Copied(pba) => moved(pba),
            });
        };
        if !self.seen.insert(pba.get()) {
            return Ok(0);
        }
        let place = match self.policy.node(self.mender, pba)? {
            Fate::Keep | Fate::Part { .. } => pba,
            Fate::Drop => return Ok(0),
            Fate::Move(place) => place,
            Fate::Copied(place) => return Ok(moved(place)),
        };
        let mut block = self.mender.read(pba)?;
        let old = indirect::decode(&block);
        let span = indirect::span(below, self.mender.state.layout.block_size);
        let (mut new, mut from) = (Vec::new(), at);
        for pointer in &old {
            new.push(self.pointer(below, from, *pointer)?);
            from = from.saturating_add(span);
        }
        if new.iter().all(|pointer| *pointer == 0) {
            return Ok(0);
        }
        if place != pba || new != old {
            let Some(place) = self.mender.place_of_node(pba, place) else { return Ok(0) };
            indirect::encode(&new, &mut block);
            self.mender.write(place, block)?;
            self.is_changed = true;
            return Ok(moved(place));
        }
        Ok(pointer)
    }
}
