//! Support for tests: the oracle model and its comparison with a filesystem, seeded trees and their
//! digests, crash images, checks of durability, of failing devices, of error policy, of frozen
//! volumes and of mount options, mutated images, foreign judges, test suites, and a virtual machine
//! with the kernel.
//!
//! It is only a dev-dependency. The caller seeds everything random; a failing test prints its seed.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub use cairn_crash::{damage, foreign, states as crash, transfer, workload};

pub mod contention;
pub mod durability;
pub mod faults;
pub mod freezing;
pub mod full;
pub mod judge;
pub mod made;
pub mod model;
pub mod modes;
pub mod mutate;
pub mod options;
pub mod oracle;
pub mod place;
pub mod policy;
pub mod suites;
pub mod times;
pub mod tree;
pub mod uring;
pub mod vm;

/// True if the long runs are requested (`CAIRN_DEEP=1`).
#[must_use]
pub fn deep() -> bool {
    std::env::var_os("CAIRN_DEEP").is_some_and(|value| value == "1")
}
