//! The crash search, without the formats: crash states of a recorded run ([`states`]), all short
//! histories of durable changes ([`durability`]), and damage in a copy of a volume.
//!
//! What a search examines is given by the caller: how a volume is opened, and who judges it. The
//! tests of both formats and `cairn lab crash` use the same search. The caller seeds everything
//! random.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod damage;
pub mod durability;
pub mod states;
pub mod transfer;
