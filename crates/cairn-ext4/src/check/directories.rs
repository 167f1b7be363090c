//! The second walk: every directory, by several threads.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_check::Work;

use super::directory;
use super::kinds;
use super::state::State;

/// Inodes of a step.
const STEP: u64 = 1024;

/// After all names and links are known: if something contradicts names, no block with a wrong
/// checksum is taken as it is without losses.
pub(super) fn judge_checksums(state: &State) {
    let names = ["ext4.directory.", "ext4.entry.", "ext4.htree."];
    let links = [kinds::INODE_LINKS.code, kinds::INODE_UNREACHABLE.code];
    let sums = [kinds::DIRECTORY_CHECKSUM.code, kinds::DIRECTORY_CHECKSUM_ONLY.code];
    let contradicts = |code: &str| {
        links.contains(&code)
            || (!sums.contains(&code) && names.iter().any(|name| code.starts_with(name)))
    };
    if state.findings.count_where(contradicts) > 0 {
        state.findings.rename(&kinds::DIRECTORY_CHECKSUM_ONLY, &kinds::DIRECTORY_CHECKSUM);
    }
}

/// The walk over all inodes that are directories.
pub(super) struct Directories(pub(super) Arc<State>);

impl Work for Directories {
    fn steps(&self) -> u64 {
        self.0.inodes.len().div_ceil(STEP)
    }

    fn step(&self, number: u64) -> bool {
        let state = &*self.0;
        let first = number.saturating_mul(STEP);
        for (ino, facts) in state.inodes.range(first, first.saturating_add(STEP)) {
            if facts.is_directory() && !facts.is_broken() && !facts.is_deleted() {
                directory::check(state, Ino(ino));
                state.progress.advance(1);
            }
        }
        !state.is_cancelled()
    }
}
