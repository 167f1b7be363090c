//! The bytes of an image: decoded and validated, without I/O.

pub(super) mod entry;
pub(super) mod header;
pub(super) mod refcount;
pub(super) mod snapshot;
