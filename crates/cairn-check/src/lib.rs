//! What the checks of all formats share: findings, their list, progress, exit statuses, compact
//! sets of blocks and inodes, threads, how a repair is planned, applied and taken back; what dumps
//! show ([`Fields`]), what rescues find ([`salvage`]), and quota files ([`quota`]).
//!
//! A format declares its [`Kind`]s with [`kinds!`], walks its volume, and adds each [`Finding`] to
//! [`Findings`], which is bounded: a hostile volume cannot fill the memory. The walks themselves
//! are in each format's `check/`.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(
    not(test),
    deny(
        clippy::disallowed_methods,
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

mod block_set;
mod detail;
mod exit;
mod finding;
mod findings;
mod kind;
mod place;
mod progress;
pub mod quota;
pub mod repair;
mod report;
pub mod salvage;
mod sparse;
mod workers;

pub use block_set::BlockSet;
pub use detail::{Detail, Fields};
pub use exit::ExitStatus;
pub use finding::{Finding, Value};
pub use findings::Findings;
pub use kind::{Kind, Severity};
pub use place::{Place, escaped};
pub use progress::{Observer, Phase, Progress};
pub use report::{Report, Usage};
pub use sparse::Sparse;
pub use workers::{Work, run};
