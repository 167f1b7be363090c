//! The filesystem seam: what every front-end (FUSE, command line, library) asks, and every format answers.

#![forbid(unsafe_code)]

pub mod acl;
pub mod error;
pub mod filesystem;
pub mod inode_table;
pub mod types;
pub mod walk;

pub use acl::Acl;
pub use error::{Error, Result};
pub use filesystem::FileSystem;
pub use inode_table::InodeTable;
pub use types::*;
