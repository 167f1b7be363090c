//! The ext4 format: reading, writing and creating volumes.
//!
//! Layers inside the crate, downward only: `volume` owns the parts, and `vfs` connects them to
//! callers. `inode`, `dir`, `xattr`, `extent`, `indirect` and `alloc` each know one structure and
//! use only the layers below. `format` decodes and encodes without I/O. Every change of metadata
//! goes through a handle (`txn`).

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod alloc;
mod backups;
pub mod check;
mod checksum;
mod corrupt;
mod credits;
mod damage;
mod damage_log;
mod dir;
pub mod dump;
mod error;
mod extent;
mod fast_commit;
mod features_in_use;
mod form;
mod format;
mod fsync;
mod groups;
mod indirect;
mod info;
mod inode;
mod inodes;
mod journal_area;
mod live_options;
mod log_age;
mod map;
pub mod mkfs;
mod mount;
mod mount_state;
mod namespace;
mod offline;
mod op;
mod options;
mod orphan;
mod probe;
mod raw;
mod recovery;
mod redo;
mod remount;
mod replayed_device;
mod report;
pub mod rescue;
pub mod resize;
mod root;
mod space;
mod stop;
mod stop_cause;
mod store;
mod superblock;
mod sync;
mod system_file;
mod trim;
pub mod tune;
mod txn;
mod unmount;
mod vfs;
mod volume;
mod xattr;
mod xattr_ops;

pub use corrupt::Corrupt;
pub use error::{Error, Result};
pub use info::Info;
pub use options::MountOptions;

pub use probe::{Probe, is_marked, is_sound, probe, probe_all_backups, probe_at, probe_backups};
pub use raw::SuperblockChoice;
pub use volume::Ext4;

pub use format::time::storable as storable_time;

/// The inode number of the root directory.
pub use format::layout::inodes::ROOT as ROOT_INO;
