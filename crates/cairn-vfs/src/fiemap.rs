//! `FIEMAP`: the bits of [`FileExtent::flags`], `FIEMAP_EXTENT_*` of linux/fiemap.h, and the rule
//! for [`LAST`].

use crate::FileExtent;

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

/// Passes extents to a caller, one behind what was found: only when the walk has ended is known
/// which extent is the last.
pub struct Emitter<'e> {
    emit: &'e mut dyn FnMut(FileExtent) -> bool,
    held: Option<FileExtent>,
}

impl<'e> Emitter<'e> {
    /// `emit` returns false to end the walk.
    pub fn new(emit: &'e mut dyn FnMut(FileExtent) -> bool) -> Self {
        Self { emit, held: None }
    }

    /// Takes the next extent. False if the caller wants no more.
    #[must_use]
    pub fn push(&mut self, extent: FileExtent) -> bool {
        match self.held.replace(extent) {
            Some(before) => (self.emit)(before),
            None => true,
        }
    }

    /// Ends the walk. `is_last` tells whether an extent is the last of its file.
    ///
    /// # Errors
    /// Those of `is_last`.
    pub fn finish<E>(self, is_last: impl FnOnce(&FileExtent) -> Result<bool, E>) -> Result<(), E> {
        let Some(mut extent) = self.held else { return Ok(()) };
        if is_last(&extent)? {
            extent.flags |= LAST;
        }
        (self.emit)(extent);
        Ok(())
    }
}
