//! Cairn: real ext4 and F2FS volumes in an ordinary process.
//!
//! This is the public library. A [`Volume`] is opened from an image: a file, a block device, an
//! export of an NBD server, or a part of one ([`ImageSpec`]). Its calls take paths, as those of
//! `std::fs` do; [`fs`] describes them. [`FileSystem`] is the interface below, by inode number.
//! [`mkfs()`] makes a new volume. Each crate below this one is one layer.
//!
//! ```no_run
//! use cairn::Volume;
//!
//! let volume = Volume::open_writable("disk.img#2")?;
//! let name = volume.read_to_string("/etc/hostname")?;
//! volume.write("/etc/motd", format!("welcome to {name}"))?;
//! volume.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What the signatures need is here, too, so that no other crate has to be named: [`vfs`],
//! [`block`], [`checking`], [`salvage`], [`stats`], [`runtime`],
//! [`Ino`].
//!
//! **Durability.** Written data is durable after [`fs::File::sync_all`], [`Volume::sync`] or
//! [`Volume::close`]. If the process dies before that, the next open recovers the image.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod block;
mod bytes;
mod chain;
mod check;
pub mod checking;
mod claim;
pub mod contents;
mod device;
mod direct;
pub mod disk;
pub mod dump;
mod errno;
pub mod error;
pub mod format;
pub mod fs;
pub mod further;
pub mod image;
mod interrupted;
mod keys;
mod layers;
mod link;
pub mod mkfs;
pub mod objects;
mod overwriting;
pub mod partition;
pub mod populate;
mod process;
pub mod recognise;
mod remote;
mod reopen;
mod repair;
mod rescue;
pub mod runtime;
mod structure;
mod transfer;
pub mod tune;
pub mod vfs;
pub mod volume;

pub use cairn_base::{Ino, host, stats};
pub use cairn_block::{BlockDevice, Storage, StorageDevice};
pub use cairn_check::salvage;
pub use cairn_luks::Passphrase;
pub use cairn_vfs::{
    AllocateMode, FileKind, FileSystem, NewInode, Seek, Timestamp, decode_device, encode_device,
};
pub use chain::{chain, passphrase};
pub use check::{CheckProgress, Checked, check, check_frozen, check_watched};
pub use contents::contents;
pub use device::{Claim, attach, claim};
pub use disk::{Disk, DiskPartition, disk};
pub use dump::{dump, journal};
pub use errno::errno;
pub use error::{Cause, Class, Error, Result};
pub use format::{Format, Info, check_options};
pub use image::{DiskFormat, ImageSpec, Key, Location, ObjectImage, Part, Transfers};
pub use interrupted::{interrupted_repair, refuse_interrupted};
pub use keys::{Ask, ask_with, forget_passphrases, remember_passphrase};
pub use link::Link;
pub use mkfs::{ImageZones, MkfsOptions, Tuning, mkfs, mkfs_on};
pub use overwriting::{Overwriting, keeps_size};
pub use populate::Population;
pub use recognise::Hint;
pub use repair::{Repair, plan_repair, take_back};
pub use rescue::rescue;
pub use structure::{Copies, Structure};
pub use tune::{SizeWish, TuneOptions, resize, tune};
pub use volume::{OpenOptions, Volume, inspect, open, open_device, open_on};
