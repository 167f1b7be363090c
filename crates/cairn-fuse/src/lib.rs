//! A FUSE front for any [`cairn_vfs::FileSystem`].
//!
//! [`mount`] checks the mount point, mounts, and tunes the kernel's side; [`Session::run`] serves until it is unmounted; the caller then
//! calls [`cairn_vfs::FileSystem::unmount`].
//!
//! | module | what |
//! |---|---|
//! | `adapter` | one method a FUSE request: translation only |
//! | `core` | what all requests share: the filesystem, panics made into errors, node numbers |
//! | `convert` | attributes, times, modes between the two worlds |
//! | `counters` | requests by operation, bytes, queue depth |
//! | [`control`] | the socket through which a live mount is asked and changed |
//! | `directory`, `ioctl` | the requests that take more than a line |
//! | `pool` | threads for requests that wait for the disk, so that many fsyncs share one commit |
//! | `transport` | how requests arrive: `/dev/fuse` now |
//! | `mounts`, `options`, `session`, `remount`, `error` | mounting |

#![forbid(unsafe_code)]

mod adapter;
pub mod control;
mod convert;
mod core;
mod counters;
mod directory;
mod error;
mod ioctl;
mod mounts;
mod options;
mod pool;
mod remount;
mod session;
mod transport;

pub use counters::FuseStats;
pub use error::{Error, Result};
pub use options::MountOptions;
pub use remount::remount;
pub use session::{Session, mount};
pub use transport::Unmounter;
