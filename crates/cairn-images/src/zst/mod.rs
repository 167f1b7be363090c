//! Disks compressed with zstd, read only.
//!
//! Only whole frames can be decoded, so a disk must be in many. [The seekable format] ends with a
//! table of frames. Other files with many frames (of pzstd, of t2sz) are scanned once when they are
//! opened, which reads their block headers, and decodes frames that do not say how long their
//! contents are.
//!
//! [The seekable format]: https://github.com/facebook/zstd/blob/dev/contrib/seekable_format/zstd_seekable_compression_format.md

mod device;
mod index;
mod scan;

pub use device::{Zst, open};
pub use index::{Error, Result};
