//! What tests need: the oracle model and what compares a filesystem to it, seeded trees and their
//! digests, crash images, what was said to be durable, what an error means, mutated images, what
//! holds of frozen volumes, what options change, foreign judges, suites, and a virtual machine with
//! the kernel.
//!
//! Only ever a dev-dependency. Everything random is seeded by the caller; a failing test prints its
//! seed.

#![forbid(unsafe_code)]

pub mod contention;
pub mod crash;
pub mod damage;
pub mod durability;
pub mod freezing;
pub mod full;
pub mod judge;
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
pub mod vm;

/// True if the long runs were asked for (`CAIRN_DEEP=1`).
#[must_use]
pub fn deep() -> bool {
    std::env::var_os("CAIRN_DEEP").is_some_and(|value| value == "1")
}
