//! What the command, and process 1 beside it, may do.
//!
//! The command is root in its namespace of users, and process 1 is of the same user. Whoever traces
//! process 1, or opens its files by `/proc/1`, acts with its rights. The command never has the
//! capabilities for that: until process 1 gives up its rights, right after it has started the
//! command, it has some that the command lacks, and then it is not dumpable. The kernel refuses
//! both.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities,
};

/// What no program in the image gets, also by exec.
///
/// With the first, it could make writable what it may only read: the kernel lets who owns the
/// namespace of a mount change its flags. With the second, it could trace processes that have more
/// rights.
const WITHHELD: [CapabilitySet; 2] = [CapabilitySet::SYS_ADMIN, CapabilitySet::SYS_PTRACE];

/// What process 1 needs while the command runs, and afterwards: it passes signals on to processes
/// of other users, and removes what it has made.
const NEEDED: CapabilitySet = CapabilitySet::KILL.union(CapabilitySet::DAC_OVERRIDE);

/// Programs that this process starts are without what is withheld.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn withhold() -> io::Result<()> {
    WITHHELD.into_iter().try_for_each(|one| Ok(remove_capability_from_bounding_set(one)?))
}

/// Gives up what this process does not need. `unmounts`: it takes mounts away at the end.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn give_up(unmounts: bool) -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let kept = if unmounts { NEEDED | CapabilitySet::SYS_ADMIN } else { NEEDED };
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}
