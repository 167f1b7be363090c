//! The filesystem seam: what every front-end (FUSE, command line, library) asks, and every format answers.

#![forbid(unsafe_code)]

pub mod error;
pub mod filesystem;
pub mod types;
pub mod walk;

pub use error::{Error, Result};
pub use filesystem::FileSystem;
pub use types::*;
