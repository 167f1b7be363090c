//! The C library: [`cairn`] behind a C interface, `include/cairn.h`, which cbindgen makes of these
//! files.
//!
//! Every entry is a function that C calls. What C passes in becomes values of Rust's in `raw`,
//! which has all of the crate's unsafe code; `failure` turns results into numbers and keeps
//! panics inside. Handles are boxes. A file and a directory keep their volume open.

#![deny(unsafe_op_in_unsafe_fn)]

mod check;
mod directory;
mod failure;
mod file;
mod metadata;
mod names;
mod raw;
mod volume;
mod walk;
mod xattr;

/// Threads of C share the handles: the compiler does not see that they do.
const fn is_shared<T: Send + Sync>() {}
const _: () = {
    is_shared::<volume::Volume>();
    is_shared::<file::File>();
    is_shared::<directory::Directory>();
};
