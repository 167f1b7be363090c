//! The root directory, if its node is lost: an older version of it in the log, or a new one.
//!
//! What is not in the older version, or has no name in the new one, gets the name that it records.

use cairn_block::BlockDeviceExt;
use cairn_check::{Finding, Place};
use cairn_vfs::FileKind;

use super::super::claims::Use;
use super::super::kinds;
use super::edit::Edit;
use crate::error::{Error, Result};
use crate::format::dentry::DentriesMut;
use crate::format::hash::name_hash;
use crate::format::inode::{EXTRA_SIZE, FileFlags};
use crate::format::node::{Marks, NodeFooter};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE, BlockAddr, Nid, SegNo};
use crate::format::{Features, Inode, NatEntry, Summary, inode};

impl Edit<'_> {
    /// Gives the volume a root again, if it has none. False if it has one, or if nothing may be
    /// lost.
    pub(super) fn mend_root(&mut self, findings: &[Finding]) -> Result<bool> {
        let is_missing = findings.iter().any(|found| found.kind.code == kinds::ROOT.code);
        if !is_missing || !self.scope.allows(&kinds::ROOT) {
            return Ok(false);
        }
        let place = Place::inode(Nid::ROOT.get());
        if let Some(addr) = self.older_root()? {
            let version = self.entry(Nid::ROOT)?.version;
            self.set_entry(Nid::ROOT, NatEntry { version, ino: Nid::ROOT, block_addr: addr });
            let what = "what has changed in the root directory since an older version of it; \
                names that were removed since may be back";
            self.lost((&kinds::ROOT, place.at_block(addr.get())), Nid::ROOT, what);
            return Ok(true);
        }
        self.make_root()?;
        let what = "owner, mode and attributes of the root, and names that no inode records";
        self.lost((&kinds::ROOT, place), Nid::ROOT, what);
        Ok(true)
    }

    /// The newest version of the root's inode in the blocks that nothing uses, other than the one
    /// that the NAT has.
    fn older_root(&self) -> Result<Option<BlockAddr>> {
        let now = self.entry(Nid::ROOT)?.block_addr;
        let version = self.context.volume.loaded.checkpoint.version & u64::from(u32::MAX);
        let mut newest = None;
        for segno in (0..self.layout.main_segments).map(SegNo) {
            let usable = usize::from(self.layout.usable_blocks(segno));
            let start = self.layout.address(segno, 0).bytes();
            let blocks = self.device.read_at(start, usable.saturating_mul(BLOCK_SIZE))?;
            for (offset, image) in (0_u16..).zip(blocks.chunks_exact(BLOCK_SIZE)) {
                let addr = self.layout.address(segno, offset);
                if addr == now || self.context.claims.contains(&self.layout, addr) {
                    continue;
                }
                let footer = NodeFooter::read(image);
                let then = footer.cp_ver & u64::from(u32::MAX);
                if footer.check(Nid::ROOT, Nid::ROOT, addr).is_err() || then > version {
                    continue;
                }
                let Ok(record) = Inode::decode(image, Nid::ROOT, self.layout.features) else {
                    continue;
                };
                if record.kind == FileKind::Directory && record.links > 0 {
                    let age = (then, record.ctime.seconds, record.ctime.nanoseconds, addr);
                    newest = newest.max(Some(age));
                }
            }
        }
        Ok(newest.map(|(.., addr)| addr))
    }

    fn make_root(&mut self) -> Result<()> {
        let has_extra = self.layout.features.contains(Features::EXTRA_ATTR);
        let extra = if has_extra { EXTRA_SIZE } else { 0 };
        let record = Inode::new(FileKind::Directory, 0o755, self.layout.features, extra);
        self.make_directory(Nid::ROOT, (Nid::NONE, Nid::ROOT), record)
    }

    /// Writes the inode of a new directory with this record, and its first block. The first parent
    /// is that which the inode records, the second one that of the entry `..`.
    pub(super) fn make_directory(
        &mut self,
        nid: Nid,
        (recorded, parent): (Nid, Nid),
        mut record: Inode,
    ) -> Result<()> {
        (record.links, record.blocks, record.current_depth) = (2, 2, 1);
        (record.size, record.flags, record.pino) = (BLOCK_BYTES, FileFlags::INDEX, recorded);
        let owner = Summary { nid, ..Summary::default() };
        let addr = self.allocate(Use::Node, owner)?.ok_or(Error::NO_SPACE)?;
        let mut image = vec![0; BLOCK_SIZE];
        record.encode_into(&mut image);
        let footer = NodeFooter {
            nid,
            ino: nid,
            marks: Marks::empty(),
            offset: 0,
            cp_ver: 1,
            next_blkaddr: BlockAddr(addr.get().saturating_add(1)),
        };
        footer.write(&mut image);
        inode::seal(&mut image, &self.layout);
        self.write(addr.get().into(), image)?;
        let version = self.entry(nid)?.version;
        self.set_entry(nid, NatEntry { version, ino: nid, block_addr: addr });
        let mut bytes = vec![0; BLOCK_SIZE];
        let mut entries = DentriesMut::new(&mut bytes);
        for (slot, (name, ino)) in [(&b"."[..], nid), (b"..", parent)].into_iter().enumerate() {
            entries.insert(slot, name, name_hash(name), ino, FileKind::Directory);
        }
        if self.put_new(nid, 0, bytes)? { Ok(()) } else { Err(Error::NO_SPACE) }
    }
}
