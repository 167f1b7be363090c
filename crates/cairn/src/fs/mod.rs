//! Files and directories of a volume, as `std::fs` has those of the system.
//!
//! [`Volume`](crate::Volume) has the calls that take a path (`read`, `write`, `read_dir`, …), and
//! [`OpenOptions`] opens a [`File`].
//!
//! - A path is bytes: a string, a byte string or a [`Path`](std::path::Path). It begins at the
//!   volume's root, with or without a slash. An empty path leads nowhere. A name has at most 255
//!   bytes, a path any number, also more than `PATH_MAX`.
//! - Symbolic links are followed inside the volume, at most 40 in a row. `..` at the root is the
//!   root, and a link to `/etc` leads to the volume's `etc`. Nothing leads to the system's files.
//! - Permissions are not checked: who has the image may do everything. New files belong to root,
//!   unless [`OpenOptions::owner`] or [`Volume::set_owner`](crate::Volume::set_owner) says
//!   otherwise.
//! - Errors are [`std::io::Error`]. Their kind is that of the error of Linux, and
//!   [`get_ref`](std::io::Error::get_ref) gives the [`cairn_vfs::Error`].
//!
//! ```no_run
//! let volume = cairn::Volume::open("disk.img#2")?;
//! let hosts = volume.read_to_string("/etc/hosts")?;
//! for entry in volume.read_dir("/etc")? {
//!     println!("{}", entry?.name().escape_ascii());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod copy;
mod directory;
mod file;
mod last;
mod metadata;
mod options;
mod path;
mod volume;
mod xattr;

pub use copy::{Copied, CopyProgress};
pub use directory::{DirEntry, ReadDir};
pub use file::File;
pub use metadata::Metadata;
pub use options::OpenOptions;
pub use path::AsPath;
