//! Object volumes: a virtual disk as a log of objects in an object store. One flush is one PUT.
//!
//! docs/object-volumes.md has the layout, and the proof of what survives a power cut, a lost answer
//! and a second writer.
//!
//! | module | knows |
//! |---|---|
//! | [`address`] | `s3://bucket/prefix@name` and the like |
//! | [`store`] | the requests to an object store, and the stores there are |
//! | `requests` | repeating them: what failed, and whose object has a name |
//! | `format` | bytes: decode, validate, encode |
//! | `extents`, `map` | which sector is in which object |
//! | `cache` | parts of objects in memory and in a directory |
//! | [`volume`] | the device: writing, flushing, opening, checkpoints, repacking |
//! | `local_log` | flushes in a file of this machine, until the store has them |
//! | `older_manifest` | that a manifest is older than the objects |
//! | `gc` | which objects no volume needs, and removing them |
//! | [`pool`] | what several volumes share: copies, lists |
//!
//! # Locking
//!
//! Locks are leaves (`Rank::Leaf`), and none is held during a request to the store.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod address;
mod cache;
mod extents;
mod format;
mod gc;
mod local_log;
mod map;
mod marks;
mod older_manifest;
mod opening;
pub mod pool;
mod process;
mod requests;
pub mod store;
pub mod volume;

pub use address::{Address, is_address};
pub use volume::{CreateOptions, ObjectVolume, Options, create, open};
