//! qcow2, QEMU's format of virtual disks: versions 2 and 3, read and written.
//!
//! The format is described by QEMU's docs/interop/qcow2.rst. A disk is divided into clusters. Two
//! levels of tables (L1, L2) lead from a cluster of the disk to one of the file, and refcounts say
//! how often each cluster of the file is in use: more than once where internal snapshots share it,
//! which is why only clusters with a refcount of 1 (the flag COPIED) are overwritten.
//!
//! # What survives a power cut
//! Everything that was flushed, and a file in which at worst clusters are leaked. Writes that
//! allocate put data into free clusters at once; tables change in memory alone. A flush writes
//! three groups, with a flush of the host after each: refcounts that rise, and new L2 tables; the
//! refcount table, or the header that names a moved one; the L2 and L1 entries. Only then refcounts
//! fall, and freed clusters can be used again. So a guest's flush is three flushes of the host at
//! most, one if nothing was allocated, and no write waits for one, unless more tables have changed
//! than may stay in memory. A failure to write a table is final: nothing more is allocated and
//! every flush fails.
//!
//! # Locking
//! All locks have the rank `Image`, in this order: the *writer* (refcounts and what waits for a
//! flush; one thread allocates, discards or flushes at a time), the *clusters* (shared by
//! transfers, exclusive before freed clusters are used again), the *tables*, the decoded clusters.

mod cache;
mod clear;
mod compressed;
mod create;
mod decoded;
mod device;
mod error;
mod extents;
mod flush;
mod format;
mod header_io;
mod host;
mod image;
mod metadata;
mod open;
mod pack;
mod plan;
mod read;
mod rebuild;
mod refcounts;
mod resize;
mod snapshots;
mod tables;
mod write;

pub use create::{CreateOptions, create};
pub use device::Qcow2;
pub use error::{Damage, Error, Result, What};
pub use open::{BackingName, MOST_IMAGES, Options, open};
pub use pack::{PACKED_CLUSTER, packed_head};
pub use resize::resize;
