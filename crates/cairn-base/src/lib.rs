//! What every layer needs: units, checksums, bitmaps, ranked locks, the runtime, counters, lists of
//! options.
//!
//! This crate knows no devices and no filesystems.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod bitmap;
pub mod checksum;
pub mod host;
pub mod memory;
pub mod names;
pub mod nearest;
pub mod one_bit;
pub mod option_table;
pub mod options;
pub mod ranked_lock;
pub mod runtime;
pub mod sabotage;
pub mod shell;
pub mod stats;
pub mod system_error;
pub mod thread;
pub mod told;
pub mod units;

pub use units::{FileBlock, Ino, Pba, Tid};
