//! The contents of files.

use cairn_vfs::new_tree::{read_blocks, read_part};

use super::error::PopulateResult;
use super::survey::Survey;

impl Survey {
    /// Fills `out` with the bytes of a file from `offset` on.
    pub(super) fn read(&self, id: u32, offset: u64, out: &mut [u8]) -> PopulateResult<()> {
        Ok(read_part(&*self.source, id, offset, out)?)
    }

    /// Fills `out` with data blocks of a file, from its `skip`th block with data on.
    pub(super) fn data(&self, id: u32, skip: u64, out: &mut [u8]) -> PopulateResult<()> {
        let block_size = self.settings.block_size as u64;
        Ok(read_blocks(&*self.source, id, block_size, skip, out)?)
    }
}
