//! A FUSE server for any [`cairn_vfs::FileSystem`].
//!
//! [`mount`] checks the mount point, mounts, and tunes the kernel's side; [`Session::run`] serves
//! until it is unmounted; the caller then calls [`cairn_vfs::FileSystem::unmount`].
//!
//! | module | what |
//! |---|---|
//! | `wire` | the protocol of `/dev/fuse`: requests and answers |
//! | `servers` | the threads that read requests, and when they wait, look or call another |
//! | `operations` | what each request means to the filesystem: translation only |
//! | `core` | what all requests share: the filesystem, panics made into errors, node numbers |
//! | `kernel` | the kernel's copy of attributes and pages: all that tells it of changes it did not ask for |
//! | `convert` | attributes, times, modes between the two worlds |
//! | `credentials` | who sent a request |
//! | `counters` | requests by operation, bytes, queue depth |
//! | [`control`] | the socket through which a live mount is asked and changed |
//! | `synchronous` | what `sync` and `dirsync` ask of names and attributes |
//! | `writers` | who has a file open for writing |
//! | `removals` | "no space" waits for removed inodes that are on their way out |
//! | `directory`, `ioctl` | the requests that take more than a line |
//! | `handshake`, `transport` | what is agreed with the kernel at first, and how requests arrive: `/dev/fuse` now |
//! | `mounts`, `options`, `session`, `remount`, `error` | mounting |

#![forbid(unsafe_code)]

pub mod control;
mod convert;
mod core;
mod counters;
mod credentials;
mod directory;
mod error;
mod guard;
mod handshake;
mod ioctl;
mod kernel;
mod listing;
mod mounts;
mod operations;
mod options;
mod remount;
mod removals;
mod servers;
mod session;
mod synchronous;
mod transport;
mod wire;
mod writers;

pub use counters::FuseStats;
pub use error::{Error, Result};
pub use options::MountOptions;
pub use remount::remount;
pub use session::{Session, mount};
pub use synchronous::Synchronous;
pub use transport::{Ender, Unmounter};
