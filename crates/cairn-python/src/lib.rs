//! The native part of the Python package: `cairn._cairn`.
//!
//! It has few and plain calls, with paths as bytes. What a user of Python meets is written in
//! Python over it: `python/cairn`. Python's lock is released while a call works, so threads of
//! Python work in parallel.

#![deny(unsafe_code)]
#![warn(unreachable_pub)]

mod errors;
mod file;
mod stat;
mod volume;
mod work;

use pyo3::prelude::*;

/// The module.
#[pymodule]
mod _cairn {
    #[pymodule_export]
    use super::file::File;
    #[pymodule_export]
    use super::volume::{Volume, check, mkfs, open};
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
