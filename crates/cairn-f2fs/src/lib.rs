//! The F2FS format: reading, writing, making.
//!
//! Layers inside the crate, downward only: `volume` and the `vfs` front wire the parts; `inode`,
//! `dir`, `xattr` and `compress` know files and directories; below them is the [`store`], which
//! writes them: `node`, `nat`, `segment`, `space`, `operation_lock` and `checkpoint`; `format`
//! decodes and encodes and does no I/O.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod blocks;
pub mod check;
pub mod checkpoint;
mod checkpointer;
mod compress;
#[cfg(test)]
mod core_tests;
mod corrupt;
mod damage;
pub mod devices;
mod dir;
mod dirty;
mod disable;
mod disk;
pub mod dump;
mod error;
mod form;
pub mod format;
mod fsync;
pub mod gc;
mod info;
mod inode;
mod inodes;
pub mod mkfs;
mod mount;
mod mount_state;
mod namespace;
mod nat;
mod node;
mod op;
mod operation_lock;
mod options;
mod probe;
mod raw;
mod recovery;
mod remount;
mod report;
pub mod rescue;
pub mod resize;
mod root;
mod segment;
mod sit;
mod sizes;
mod space;
mod stop;
pub mod store;
mod sync;
mod tables;
mod traces;
mod trim;
pub mod tune;
mod unmount;
mod vfs;
mod volume;
mod xattr;
mod zones;

use cairn_base::Ino;

pub use check::repair;
pub use corrupt::Corrupt;
pub use error::{Error, Result};
pub use info::Info;
pub use mount::inspect;
pub use options::MountOptions;
pub use probe::probe;
pub use raw::Choice;
pub use traces::has_checkpoint;
pub use volume::F2fs;

/// The root directory.
pub(crate) const ROOT_INO: Ino = format::units::Nid::ROOT.ino();
