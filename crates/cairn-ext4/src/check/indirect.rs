//! The walk through the block pointers of ext2 and ext3.

use cairn_base::Pba;
use cairn_check::Place;

use super::kinds;
use super::state::State;
use super::visitor::{Fault, Run, Visitor, Why};
use crate::format::extent::ROOT_BYTES;
use crate::format::indirect::{decode, decode_inode, slot_range, span};

struct Walk<'a> {
    state: &'a State,
    visitor: &'a mut dyn Visitor,
    /// Blocks that were found and may go on.
    run: Option<Run>,
}

/// Visits the blocks of `i_block`.
pub(super) fn walk(state: &State, i_block: &[u8; ROOT_BYTES], visitor: &mut dyn Visitor) {
    let mut walk = Walk { state, visitor, run: None };
    for (slot, pointer) in decode_inode(i_block).into_iter().enumerate() {
        let (level, first) = slot_range(slot, state.layout.block_size);
        walk.pointer(level, first, pointer, Pba(0));
    }
    walk.flush();
}

impl Walk<'_> {
    fn flush(&mut self) {
        if let Some(run) = self.run.take() {
            self.visitor.data(run);
        }
    }

    fn pointer(&mut self, level: u32, at: u64, pointer: u32, holder: Pba) {
        if pointer == 0 {
            return;
        }
        let pba = Pba(pointer.into());
        if !self.state.layout.contains(pba, 1) {
            let why = Why::Number(pba.get());
            return self.visitor.fault(Fault { kind: &kinds::MAP_RANGE, at, pba: holder, why });
        }
        if level == 0 {
            return self.data(at, pba);
        }
        self.flush();
        if !self.visitor.node(at, pba) {
            return;
        }
        match self.state.source.block(pba) {
            Ok(block) => {
                let below = level.saturating_sub(1);
                let span = span(below, self.state.layout.block_size);
                let mut at = at;
                for pointer in decode(&block) {
                    self.pointer(below, at, pointer, pba);
                    at = at.saturating_add(span);
                }
            }
            Err(error) => self.state.unreadable(Place::block(pba.get()), &error),
        }
    }

    fn data(&mut self, at: u64, pba: Pba) {
        if let Some(run) = &mut self.run
            && run.end() == at
            && run.pba.get().saturating_add(run.len) == pba.get()
        {
            run.len = run.len.saturating_add(1);
            return;
        }
        self.flush();
        self.run = Some(Run { start: at, pba, len: 1, unwritten: false });
    }
}
