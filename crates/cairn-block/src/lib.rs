//! Block devices: the trait that every layer above writes through, its implementations, and
//! wrappers that observe, restrict or break a device.
//!
//! The only crate of the workspace that may hold `unsafe` code.

#![deny(unsafe_op_in_unsafe_fn)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod allocations;
pub mod bounds;
pub mod buffer;
pub mod descriptors;
pub mod device;
pub mod error;
pub mod extent;
pub mod file;
mod in_place;
mod ioctl;
mod join;
pub mod memory;
mod pages;
pub mod reserve;
pub mod seccomp;
pub mod sparse;
pub mod storage;
pub mod tagged;
pub mod uring;
pub mod wrap;
pub mod zoned;

pub use buffer::IoBuf;
pub use bytes::Bytes;
pub use device::{
    Batch, BlockDevice, BlockDeviceExt, Completion, Durability, Geometry, Growable, Request,
};
pub use error::{Error, ErrorKind, Operation, Result};
pub use extent::Extent;
pub use storage::{Storage, StorageDevice};
