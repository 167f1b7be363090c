//! The crash search, without the formats: crash states of a recorded run ([`states`]), seeded
//! workloads that know what they were promised ([`workload`]), all short histories of durable
//! changes ([`durability`]), damage in a copy of a volume, and foreign checkers.
//!
//! What a search examines is given by the caller: how a volume is opened, and who judges it. The
//! tests of both formats and `cairn lab crash` use the same search. The caller seeds everything
//! random.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod damage;
pub mod durability;
pub mod foreign;
pub mod nodes;
pub mod opened;
pub mod states;
pub mod transfer;
pub mod workload;
