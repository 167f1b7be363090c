//! The copies of the superblock.

use cairn_check::Finding;

use super::super::kinds;
use super::edit::Edit;
use crate::disk::SUPERBLOCKS;
use crate::error::Result;
use crate::format::block::put;
use crate::format::superblock::OFFSET;

impl Edit<'_> {
    /// Writes the copies of the superblock. The record of errors stays as long as there is damage
    /// by which files lose something.
    pub(super) fn mend_superblocks(&mut self, findings: &[Finding], loses: bool) -> Result<()> {
        let is_one = |found: &&Finding| {
            let code = found.kind.code;
            let copies = [kinds::SUPERBLOCK.code, kinds::SUPERBLOCK_COPIES.code];
            copies.contains(&code) || (code == kinds::SUPERBLOCK_ERRORS.code && !loses)
        };
        let found: Vec<&Finding> = findings.iter().filter(is_one).collect();
        if found.is_empty() {
            return Ok(());
        }
        let mut superblock = self.context.volume.superblock.clone();
        if !loses {
            superblock.s_errors.fill(0);
            superblock.s_stop_reason.fill(0);
        }
        let bytes = superblock.encode();
        for at in SUPERBLOCKS {
            let mut block = self.read(at.get())?;
            put(&mut block, OFFSET, &bytes);
            self.write(at.get(), block)?;
        }
        found.into_iter().for_each(|finding| self.mended(finding));
        Ok(())
    }
}
