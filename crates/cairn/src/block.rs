//! Devices: [`BlockDevice`] and what its calls take and give, devices in memory and in files, and
//! storage of a program's own as a device ([`StorageDevice`]).

pub use cairn_block::file::{FileDevice, lock_making};
pub use cairn_block::memory::MemoryDevice;
pub use cairn_block::{
    Batch, BlockDevice, BlockDeviceExt, Bytes, Completion, Durability, Error, ErrorKind, Extent,
    Geometry, IoBuf, Operation, Request, Result, Storage, StorageDevice,
};
