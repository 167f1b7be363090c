//! Targets of symbolic links.

use cairn_base::units::as_u64;
use cairn_check::Finding;

use super::super::context::Scratch;
use super::super::symlink;
use super::edit::Edit;
use crate::error::Result;
use crate::format::inode::{Advise, InlineFlags};
use crate::format::units::{BLOCK_SIZE, Nid};

impl Edit<'_> {
    /// A target with a NUL in it ends there. A link without a target is given up.
    pub(super) fn mend_target(&mut self, finding: &Finding, ino: Nid) -> Result<bool> {
        let Some((bytes, len)) = self.target(ino)? else { return self.drop_link(finding, ino) };
        let Some((record, mut image)) = self.inode(ino)? else { return Ok(false) };
        // Any byte can be a part of an encrypted target.
        let is_encrypted = record.advise.contains(Advise::ENCRYPT);
        if len == 0 || len == bytes.len() || is_encrypted {
            return self.drop_link(finding, ino);
        }
        let ends = |bytes: &mut [u8]| bytes.get_mut(len..).unwrap_or_default().fill(0);
        if record.inline.contains(InlineFlags::DATA) {
            ends(image.get_mut(record.inline_data_range()).unwrap_or_default());
            self.put_node(ino, image)?;
        } else if let Some(slot) = self.slot(ino, 0)? {
            let mut block = self.read(slot.addr.get().into())?;
            ends(&mut block);
            self.write(slot.addr.get().into(), block)?;
        }
        self.change(ino, |record| record.size = as_u64(len))?;
        let what = "what follows the NUL in its target";
        self.lost((finding.kind, finding.place.clone()), ino, what);
        Ok(true)
    }

    /// Gives a link up. Its block is cleared, or else the node would be found for its name.
    fn drop_link(&mut self, finding: &Finding, ino: Nid) -> Result<bool> {
        let addr = self.node_addr(ino)?;
        let is_dropped = self.drop_inode(finding, ino)?;
        if let Some(addr) = addr.filter(|_| is_dropped) {
            self.write(addr.get().into(), vec![0; BLOCK_SIZE])?;
        }
        Ok(is_dropped)
    }

    /// The size of a symbolic link from its target.
    pub(super) fn mend_link_size(&mut self, ino: Nid) -> Result<bool> {
        let len = self.target(ino)?.map_or(0, |(_, len)| len);
        if len == 0 {
            return Ok(false);
        }
        self.change(ino, |record| record.size = as_u64(len))
    }

    /// The bytes that a target lies in, and its length in them.
    fn target(&self, ino: Nid) -> Result<Option<(Vec<u8>, usize)>> {
        let Some((record, image)) = self.inode(ino)? else { return Ok(None) };
        let scratch = &mut Scratch::default();
        let bytes = symlink::contents(&self.context, scratch, &record, &image)?;
        Ok(bytes.map(|bytes| {
            let len = symlink::len(&bytes);
            (bytes, len)
        }))
    }
}
