//! Targets of coverage-guided fuzzing: each takes a byte string and must neither panic, hang nor
//! take much memory. docs/fuzzing.md says how they are run.
//!
//! | module | what |
//! |---|---|
//! | [`targets`] | what is done with an input |
//! | `records`, [`mutate()`] | the form of inputs of targets with volumes, and mutations that know it |
//! | `base`, `ext4`, `f2fs` | images that inputs change, where their metadata is, its checksums |
//! | [`image`] | the packed form of the images |
//! | `volume`, `tour`, `work` | opening, reading and changing what an input has made |
//!
//! Everything runs on the calling thread: volumes are in memory, and daemons are stepped by
//! [`cairn_base::runtime::simulated::Simulated`]. So an input does the same whenever it is run. The
//! target `control` alone has sockets.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod base;
mod ext4;
mod f2fs;
pub mod image;
mod mutate;
mod records;
mod scratch;
pub mod targets;
mod tour;
mod volume;
mod work;

pub use base::names as bases;
pub use mutate::mutate;
pub use targets::{TARGETS, Target};
