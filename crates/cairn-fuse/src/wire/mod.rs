//! The protocol of `/dev/fuse` (`linux/fuse.h`, version 7.40): requests as they are read, answers
//! as they are written; and both as they are in an entry of a ring.
//!
//! fuser mounts and exchanges the INIT messages; all later requests are read
//! here. The number of wake-ups of threads limits small requests, and it depends on which thread
//! reads, when, and for how long ([`crate::servers`]).

pub(crate) mod abi;
mod buffer;
mod device;
mod outbox;
mod payload;
mod reply;
mod request;

pub(crate) use buffer::{Buffer, BufferPool, Lending};
pub(crate) use device::{Device, MAX_WRITE, Taken};
pub(crate) use outbox::{Lent, Outbox};
pub(crate) use payload::Areas;
pub(crate) use reply::Reply;
pub(crate) use request::Request;
