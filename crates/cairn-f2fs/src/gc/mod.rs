//! Garbage collection: the valid blocks of a section are moved, and the next checkpoint makes the
//! section free.
//!
//! | part | knows |
//! |---|---|
//! | `victim` | which section is cleaned next |
//! | `policy` | when foreground cleaning begins, writes a checkpoint and stops |
//! | `background` | when the daemon cleans, and how it serves others |
//! | `adaptive` | how `gc_victim=adaptive` does with less |
//! | `relocate` | how blocks move while everybody goes on |
//! | `cleaner` | what it works on, and what it remembers from one call to the next |
//! | `foreground` | a call of cleaning, for one who waits |
//! | `merged` | how the daemon is asked to clean for others |
//! | `stats` | what it all cost |
//!
//! *Foreground*: an operation that will change the volume first frees sections
//! (`Cleaner::collect`), without the operation lock.
//!
//! Locking: one cleaner at a time (`Cleaner::working`, after inodes, before the operation lock).

mod adaptive;
mod background;
mod cleaner;
mod foreground;
mod merged;
mod policy;
pub(crate) mod relocate;
mod stats;
mod victim;

pub(crate) use policy::BackgroundGc;
pub(crate) use policy::GcVictim;
pub(crate) use stats::GcStats;
pub use stats::Written;

pub(crate) use background::GcDaemon;
pub(crate) use cleaner::Cleaner;
