//! [`RawDir`]: a directory of a volume that nobody has mounted.

use std::sync::Arc;

use cairn_base::{FileBlock, Ino};
use cairn_cache::block::Buffer;
use cairn_cache::status::State as Mapped;

use super::session::Session;
use crate::corrupt::Corrupt;
use crate::dir::{DirBlocks, DirSettings};
use crate::error::{Error, Result};
use crate::format::dir_entry::{self, DirFormat};
use crate::format::features::{Compat, Incompat};
use crate::format::htree;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::txn::Handle;

/// A directory with blocks.
pub(super) struct RawDir<'a> {
    session: &'a Session,
    ino: Ino,
    record: Record,
}

impl<'a> RawDir<'a> {
    /// Opens a directory.
    ///
    /// # Errors
    /// Its record is damaged, or its entries are in the inode.
    pub(super) fn open(session: &'a Session, ino: Ino) -> Result<Self> {
        let record = session.record(ino)?;
        if record.flags.contains(InodeFlags::INLINE_DATA) {
            return Err(Error::Refused(
                "directories in their inodes (feature inline_data) are not changed in place: \
                 make a smaller volume with the same files"
                    .into(),
            ));
        }
        Ok(Self { session, ino, record })
    }

    /// Calls `each` for every name but `.` and `..`.
    ///
    /// # Errors
    /// The directory is damaged, or the device failed.
    pub(super) fn for_each(&self, mut each: impl FnMut(&[u8], Ino)) -> Result<()> {
        let settings = self.settings();
        let is_indexed = settings.dir_index && self.indexed();
        for block in u64::from(is_indexed)..self.count() {
            let block = FileBlock(block);
            let image = self.get(block)?.image();
            if is_indexed && htree::is_spanned_by_free_entry(&image, &settings.format) {
                continue;
            }
            for entry in dir_entry::entries(&image, &settings.format) {
                let entry = entry.map_err(|defect| settings.corrupt(block, defect))?;
                if entry.ino != 0 && entry.name != b"." && entry.name != b".." {
                    each(entry.name, Ino(entry.ino.into()));
                }
            }
        }
        Ok(())
    }
}

impl DirBlocks for RawDir<'_> {
    fn settings(&self) -> DirSettings {
        let layout = &self.session.layout;
        DirSettings {
            ino: self.ino,
            format: DirFormat {
                block_size: layout.block_size as usize,
                filetype: layout.features.incompat(Incompat::FILETYPE),
                seed: self.record.seed(self.ino, layout),
                inodes_count: layout.inodes_count,
            },
            hash: self.session.hash,
            dir_index: layout.features.compat(Compat::DIR_INDEX),
            large_dir: layout.features.incompat(Incompat::LARGE_DIR),
        }
    }

    fn indexed(&self) -> bool {
        self.record.flags.contains(InodeFlags::INDEX)
    }

    fn folded(&self) -> bool {
        self.record.flags.contains(InodeFlags::CASEFOLD)
    }

    fn set_indexed(&self, _: &Handle, _: bool) -> Result<()> {
        Err(unchanged())
    }

    fn count(&self) -> u64 {
        self.record.size / u64::from(self.session.layout.block_size)
    }

    fn get(&self, block: FileBlock) -> Result<Arc<Buffer>> {
        let kept = self.session.kept();
        let map = self.session.map(self.ino, &self.record, &kept);
        let found = map.lookup(&self.record.block, block)?;
        match found.clip(block.get(), block.get() + 1).map(|part| part.state) {
            Some(Mapped::Mapped(pba)) => Ok(self.session.buffers().get(pba)?),
            _ => Err(Corrupt::Directory {
                ino: self.ino,
                block,
                offset: 0,
                what: "hole in a directory",
                value: 0,
            }
            .into()),
        }
    }

    fn append(&self, _: &Handle) -> Result<(FileBlock, Arc<Buffer>)> {
        Err(unchanged())
    }
}

/// The shape of a directory does not change.
fn unchanged() -> Error {
    cairn_vfs::Error::Unsupported("a directory whose entries change in place").into()
}
