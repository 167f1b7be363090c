//! Garbage collection: what is still valid in a section moves away, and the next checkpoint makes the section free.
//!
//! | part | knows |
//! |---|---|
//! | [`victim`] | which section is cleaned next |
//! | [`policy`] | when foreground cleaning begins, writes a checkpoint and stops |
//! | [`background`] | when the daemon cleans, and how it serves others |
//! | [`adaptive`] | how `gc_victim=adaptive` does with less |
//! | [`relocate`] | how blocks move while everybody goes on |
//! | [`collector`] | what cleaning remembers from one call to the next |
//! | [`foreground`] | a call of cleaning, for one who waits |
//! | [`merged`] | how the daemon is asked to clean for others |
//! | [`stats`] | what it all cost |
//!
//! *Foreground*: whoever is about to change the volume has room made first (`Volume::collect`),
//! without the operation lock.
//!
//! Locking: one cleaner at a time (`Collector::working`, after inodes, before the operation lock).

pub mod adaptive;
pub mod background;
pub mod collector;
pub mod foreground;
pub mod merged;
pub mod policy;
pub mod relocate;
pub mod stats;
pub mod victim;

pub use background::GcDaemon;
pub use collector::Collector;
pub use merged::Merged;
pub use policy::{BackgroundGc, GcVictim, SpaceState};
pub use stats::{GcStats, Written};
