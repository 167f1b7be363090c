//! Garbage collection: the valid blocks of a section are moved, and the next checkpoint makes the
//! section free.
//!
//! | part | knows |
//! |---|---|
//! | `victim` | which section is cleaned next |
//! | `policy` | when foreground cleaning begins, writes a checkpoint and stops |
//! | `background` | when the daemon cleans, and how it serves others |
//! | `adaptive` | how `gc_victim=adaptive` writes less |
//! | `relocate` | how blocks are moved while operations continue |
//! | `unreadable` | what is left where it is, because it cannot be read |
//! | `cleaner` | the parts it works on, and its state between two calls |
//! | `foreground` | cleaning for an operation that waits |
//! | `evacuate` | how sections are emptied that the volume will no longer have |
//! | `merged` | requests to the daemon to clean for others |
//! | `stats` | counters |
//!
//! *Foreground*: an operation that will change the volume first frees sections
//! (`Cleaner::collect`), without the operation lock.
//!
//! Locking: one cleaner at a time (`Cleaner::working`, after inodes, before the operation lock).

mod adaptive;
mod background;
mod cleaner;
mod evacuate;
mod foreground;
mod merged;
mod policy;
mod relocate;
mod stats;
mod unreadable;
mod victim;

pub(crate) use policy::BackgroundGc;
pub(crate) use policy::GcVictim;
pub(crate) use stats::GcStats;
pub use stats::Written;

pub(crate) use background::GcDaemon;
pub(crate) use cleaner::Cleaner;
