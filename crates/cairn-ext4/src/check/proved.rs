//! [`Proved`]: whose the blocks are that several files have. A file whose map is sound, and that
//! counts just the blocks of its map, proves to have them. Another one, whose map leads there by a
//! wrong pointer, counts fewer or more.

use std::collections::HashSet;

use cairn_base::{Ino, Pba};
use cairn_check::BlockSet;

use super::counted;
use super::state::State;
use crate::error::Result;

/// Whose the blocks are that several files have.
pub(super) struct Proved {
    /// Clusters of files that prove to have them.
    clusters: BlockSet,
    /// Files that share blocks, and prove nothing.
    doubted: HashSet<Ino>,
}

impl Proved {
    /// Looks at all files, if some share blocks.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn find(state: &State) -> Result<Self> {
        let clusters = BlockSet::new(state.twice.blocks())?;
        let mut doubted = HashSet::new();
        if state.twice.next(0).is_none() {
            return Ok(Self { clusters, doubted });
        }
        let known =
            state.inodes.iter().filter(|(_, facts)| facts.is_in_use() && !facts.is_broken());
        for ino in known.map(|(number, _)| Ino(number)).take_while(|_| !state.is_cancelled()) {
            let Some(record) = state.record(ino) else { continue };
            match counted::shared(state, ino, &record) {
                Ok(ranges) => ranges.into_iter().for_each(|(first, count)| {
                    clusters.insert_range(first, count, &mut |_, _| ());
                }),
                Err(wrong) => _ = wrong.is_shared && doubted.insert(ino),
            }
        }
        Ok(Self { clusters, doubted })
    }

    /// Does the file share blocks, and not prove that they are its own?
    pub(super) fn doubts(&self, ino: Ino) -> bool {
        self.doubted.contains(&ino)
    }

    /// Does a file besides this one share blocks, and not prove that they are its own?
    pub(super) fn doubts_another(&self, ino: Ino) -> bool {
        self.doubted.iter().any(|other| *other != ino)
    }

    /// Is a block of the map of this file proved to be another file's?
    pub(super) fn is_others(&self, state: &State, ino: Ino, pba: Pba) -> bool {
        self.doubts(ino) && self.clusters.contains(state.cluster(pba.get()))
    }
}
