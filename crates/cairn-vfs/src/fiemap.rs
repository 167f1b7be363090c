//! The bits of [`FileExtent::flags`](crate::FileExtent::flags): `FIEMAP_EXTENT_*` of
//! linux/fiemap.h.

/// The last extent of the file.
pub const LAST: u32 = 0x1;
/// The extent has no address yet.
pub const UNKNOWN: u32 = 0x2;
/// The data has no blocks yet (with [`UNKNOWN`]).
pub const DELALLOC: u32 = 0x4;
/// The data is encoded: compressed.
pub const ENCODED: u32 = 0x8;
/// The data is in the inode.
pub const DATA_INLINE: u32 = 0x200;
/// The blocks were never written: they read as zeros.
pub const UNWRITTEN: u32 = 0x800;
