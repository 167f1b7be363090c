//! The F2FS format: reading, writing, making.
//!
//! Layers inside the crate, downward only: `volume` and the `vfs` front wire the parts; `inode`,
//! `dir`, `xattr` and `compress` know files and directories; below them is the write core
//! ([`store`]): `node`, `nat`, `segment`, `space`, `operation_lock` and `checkpoint`; `format`
//! decodes and encodes and does no I/O.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod blocks;
pub mod checkpoint;
mod checkpointer;
pub mod compress;
pub mod corrupt;
pub mod devices;
pub mod dir;
pub mod dirty;
mod disable;
pub mod disk;
pub mod error;
pub mod format;
pub mod fsync;
pub mod gc;
pub mod info;
pub mod inode;
pub mod inodes;
pub mod mkfs;
pub mod mount;
mod mount_state;
pub mod namespace;
pub mod nat;
pub mod node;
pub mod op;
pub mod operation_lock;
pub mod options;
pub mod recovery;
pub mod remount;
mod report;
pub mod segment;
pub mod space;
mod stop;
pub mod store;
pub mod sync;
pub mod trim;
pub mod unmount;
mod vfs;
pub mod volume;
pub mod xattr;
mod zones;

use cairn_base::Ino;

pub use corrupt::Corrupt;
pub use error::{Error, Result};
pub use info::Info;
pub use mount::{Probe, inspect, probe};
pub use options::MountOptions;
pub use volume::F2fs;

/// The root directory.
pub const ROOT_INO: Ino = format::units::Nid::ROOT.ino();
