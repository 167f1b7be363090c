//! The interface between front-ends (FUSE, command line, library) and formats ([`FileSystem`]), and
//! what Linux does in the same way for all formats: [`name`], [`namespace`], [`new_inode`],
//! [`protection`], [`root_reserved`], [`acl`], [`copy`], [`fiemap`], [`seek`], [`short_write`],
//! [`synchronous`], [`write_access`], [`remount`], [`error_policy`], [`past_damage`]; and what a
//! new volume is filled with: [`new_tree`].

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod acl;
pub mod copy;
mod device_number;
pub mod error;
pub mod error_policy;
pub mod fallocate;
pub mod fiemap;
pub mod filesystem;
pub mod going_down;
pub mod inode_table;
mod kind_words;
pub mod name;
pub mod namespace;
pub mod new_inode;
pub mod new_tree;
pub mod over;
pub mod past_damage;
pub mod protection;
pub mod remount;
pub mod root_reserved;
pub mod seek;
pub mod short_write;
pub mod synchronous;
mod timestamp;
pub mod types;
pub mod walk;
pub mod write_access;

pub use acl::Acl;
pub use bytes::Bytes;
pub use device_number::{decode_device, encode_device};
pub use error::{Error, Result};
pub use error_policy::{OnDamage, Reach, Verdict};
pub use filesystem::FileSystem;
pub use going_down::GoingDown;
pub use inode_table::InodeTable;
pub use name::{Name, NameBuf};
pub use over::FileSystemOver;
pub use past_damage::PastDamage;
pub use root_reserved::ReservedFor;
pub use types::*;
pub use write_access::WriteAccess;
