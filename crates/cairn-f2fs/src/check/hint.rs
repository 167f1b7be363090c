//! The hint of an inode's largest extent: exact, or empty.

use cairn_check::{Finding, Place};

use super::context::Context;
use super::kinds;
use crate::format::inode::ExtentHint;
use crate::format::units::{BlockAddr, Nid};

/// Compares the hint with the pointers as the walk sees them.
pub(super) struct Hint {
    ext: ExtentHint,
    /// Blocks of the hint whose pointers agree.
    agree: u32,
    /// Another block of the file lies in the hint's blocks.
    strange: bool,
}

impl Hint {
    pub(super) const fn new(ext: ExtentHint) -> Self {
        Self { ext, agree: 0, strange: false }
    }

    /// A pointer of the file.
    pub(super) fn see(&mut self, block: u64, addr: BlockAddr) {
        let ExtentHint { fofs, blk_addr, len } = self.ext;
        if len == 0 || !addr.is_address() {
            return;
        }
        let within = block.checked_sub(fofs.into()).filter(|within| *within < len.into());
        let ahead = addr.get().checked_sub(blk_addr.get()).filter(|ahead| *ahead < len);
        match (within, ahead) {
            (Some(within), Some(ahead)) if within == u64::from(ahead) => {
                self.agree = self.agree.saturating_add(1);
            }
            (None, None) => {}
            _ => self.strange = true,
        }
    }

    /// The end of the file.
    pub(super) fn finish(&self, context: &Context, ino: Nid) {
        let ExtentHint { fofs, blk_addr, len } = self.ext;
        if len > 0 && (self.strange || self.agree != len) {
            let text = format!("{len} blocks from file block {fofs} on at block {blk_addr}");
            let place = Place::inode(ino.get()).in_field("i_ext");
            let agree = format!("{} of them lie there", self.agree);
            context.add(Finding::new(&kinds::INODE_EXTENT, place).stored(&*text).computed(&*agree));
        }
    }
}
