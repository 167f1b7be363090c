//! A FUSE server for any [`cairn_vfs::FileSystem`].
//!
//! [`mount`] checks the mount point, mounts, and tunes the kernel's side; [`Session::run`] serves
//! until it is unmounted; the caller then calls [`cairn_vfs::FileSystem::unmount`].
//!
//! | module | what |
//! |---|---|
//! | `wire` | the protocol of `/dev/fuse`: requests and answers |
//! | `servers` | the threads that read requests: when they wait, poll or wake another |
//! | `operations` | what each request means to the filesystem: translation only |
//! | `core` | the state that all requests share: the filesystem, node numbers, the handling of panics |
//! | `kernel` | invalidates the kernel's copies of attributes and pages |
//! | `convert` | attributes, times and modes, of FUSE and of `FileSystem` |
//! | `credentials` | who sent a request |
//! | `counters` | requests by operation, bytes, queue depth |
//! | [`control`] | the socket for statistics and control of a live mount |
//! | `synchronous` | `sync` and `dirsync` for names and attributes |
//! | `writers` | who has a file open for writing |
//! | `removals` | an operation that finds no space waits until removed inodes are deleted |
//! | `guard` | refuses a write(2) that a nearly full volume cannot store |
//! | `empty` | a server without a filesystem, for measurements: the cost of FUSE alone |
//! | `directory`, `listing`, `ioctl` | `readdir` and its answer; ioctls |
//! | `ring` | FUSE over io_uring: rings, their threads, and workers |
//! | `handshake`, `transport` | the settings of FUSE's INIT; how requests arrive: `/dev/fuse` or rings |
//! | `block` | mounts on a block device, which the kernel claims |
//! | `mounts`, `options`, `owners`, `session`, `remount`, `error` | mounting |

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod block;
pub mod control;
mod convert;
mod core;
mod counters;
mod credentials;
mod directory;
mod empty;
mod error;
mod guard;
mod handshake;
mod ioctl;
mod kernel;
mod listing;
mod mounts;
mod operations;
mod options;
mod owners;
mod patience;
mod remount;
mod removals;
mod ring;
mod servers;
mod session;
mod synchronous;
mod transport;
mod wire;
mod writers;

pub use block::BlockDevice;
pub use counters::FuseStats;
pub use empty::{Empty, Requests, serve_empty};
pub use error::{Error, Result};
pub use options::{MountOptions, TransportChoice};
pub use owners::Owners;
pub use remount::remount;
pub use ring::NoRing;
pub use session::{Session, mount, mount_on};
pub use synchronous::Synchronous;
pub use transport::{Ender, Unmounter};
