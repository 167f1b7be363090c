//! [`Nothing`]: a filesystem that stores nothing. Served through FUSE, it shows the cost of
//! requests alone.
//!
//! It has one directory. A file has a name and a size; writes are dropped, and reads return zeros.
//! One file can be a device ([`Nothing::with_device`]), which keeps what is written. One lock
//! guards names and sizes and is held for look-ups only.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::stats::Report;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_vfs::types::{
    AllocateMode, Attributes, Caller, DirEntry, FileExtent, FileKind, InodeFlags, IoFlags,
    NewInode, OpenMode, RenameMode, Seek, SetAttributes, Timestamp, VolumeStats, XattrMode,
};
use cairn_vfs::{Error, FileSystem, Name, Result};

use crate::clock::Real;
use crate::media::{self, OnMedium};

const ROOT: Ino = Ino(2);
const BLOCK: u32 = 4096;

#[derive(Debug)]
struct Files {
    names: BTreeMap<Vec<u8>, Ino>,
    /// Sizes of files, including those without a name.
    sizes: BTreeMap<Ino, u64>,
    next: Ino,
}

/// A directory of files without contents.
pub struct Nothing {
    files: Mutex<Files>,
    /// The device that the first file is.
    device: Option<Arc<dyn BlockDevice>>,
}

/// The first file.
const FIRST: Ino = Ino(ROOT.0 + 1);

impl Nothing {
    /// Creates the files with these names and sizes.
    #[must_use]
    pub fn new<'f>(files: impl IntoIterator<Item = (&'f str, u64)>) -> Self {
        let mut all =
            Files { names: BTreeMap::new(), sizes: BTreeMap::new(), next: Ino(ROOT.0 + 1) };
        for (name, size) in files {
            all.add(name.as_bytes(), size);
        }
        Self { files: Mutex::new(Rank::Leaf, all), device: None }
    }

    /// The file `data` with this many bytes in memory, which takes the time of storage that people
    /// have. `None` if there is no medium of this name.
    #[must_use]
    pub fn with_device(medium: &str, size: u64) -> Option<Self> {
        let medium = media::ALL.into_iter().find(|one| one.id == medium)?;
        let memory: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(size));
        let paced = OnMedium::new(memory, medium, Arc::new(Real::new()));
        Some(Self { device: Some(Arc::new(paced)), ..Self::new([("data", size)]) })
    }

    /// The device, if the file is one.
    fn device(&self, ino: Ino) -> Option<&Arc<dyn BlockDevice>> {
        self.device.as_ref().filter(|_| ino == FIRST)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        if ino == ROOT {
            return Ok(attributes(ROOT, FileKind::Directory, u64::from(BLOCK)));
        }
        let size = self.files.lock().sizes.get(&ino).copied().ok_or(Error::NotFound)?;
        Ok(attributes(ino, FileKind::Regular, size))
    }
}

impl Files {
    fn add(&mut self, name: &[u8], size: u64) -> Ino {
        let ino = self.next;
        self.next = Ino(ino.0 + 1);
        self.names.insert(name.to_vec(), ino);
        self.sizes.insert(ino, size);
        ino
    }

    fn grow(&mut self, ino: Ino, end: u64) {
        if let Some(size) = self.sizes.get_mut(&ino) {
            *size = end.max(*size);
        }
    }
}

fn attributes(ino: Ino, kind: FileKind, size: u64) -> Attributes {
    let now = Timestamp::default();
    Attributes {
        ino,
        generation: 0,
        kind,
        permissions: if kind == FileKind::Directory { 0o777 } else { 0o666 },
        links: if kind == FileKind::Directory { 2 } else { 1 },
        uid: 0,
        gid: 0,
        size,
        sectors: size.div_ceil(512),
        block_size: BLOCK,
        device: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: None,
        flags: InodeFlags::empty(),
    }
}

fn io(error: cairn_block::Error) -> Error {
    Error::Io(Arc::new(error))
}

const NOT_HERE: Error = Error::Unsupported("nothing is stored here");

impl FileSystem for Nothing {
    fn root(&self) -> Ino {
        ROOT
    }

    fn lookup(&self, _parent: Ino, name: &[u8]) -> Result<Attributes> {
        let ino = self.files.lock().names.get(name).copied().ok_or(Error::NotFound)?;
        self.attributes(ino)
    }

    fn forget(&self, _ino: Ino, _count: u64) {}

    fn create(
        &self,
        _: Ino,
        name: &[u8],
        new: NewInode<'_>,
        _permissions: u32,
        _: &Caller,
    ) -> Result<Attributes> {
        if new != NewInode::Regular {
            return Err(NOT_HERE);
        }
        let ino = {
            let mut files = self.files.lock();
            if files.names.contains_key(name) {
                return Err(Error::Exists);
            }
            files.add(name, 0)
        };
        self.attributes(ino)
    }

    fn tmpfile(&self, _parent: Ino, _permissions: u32, _caller: &Caller) -> Result<Attributes> {
        Err(NOT_HERE)
    }

    fn link(&self, _ino: Ino, _parent: Ino, _name: &[u8]) -> Result<Attributes> {
        Err(NOT_HERE)
    }

    fn unlink(&self, _parent: Ino, name: &[u8]) -> Result<()> {
        self.files.lock().names.remove(name).map(drop).ok_or(Error::NotFound)
    }

    fn rmdir(&self, _parent: Ino, _name: &[u8]) -> Result<()> {
        Err(Error::NotFound)
    }

    fn rename(&self, _: Ino, _: &[u8], _: Ino, _: &[u8], _: RenameMode) -> Result<()> {
        Err(NOT_HERE)
    }

    fn readlink(&self, _ino: Ino) -> Result<Vec<u8>> {
        Err(Error::Invalid("not a symbolic link"))
    }

    fn readdir(
        &self,
        _ino: Ino,
        position: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let mut entries = vec![(Name::DOT.to_buf(), ROOT), (Name::DOT_DOT.to_buf(), ROOT)];
        let files = self.files.lock();
        entries.extend(
            files
                .names
                .iter()
                .filter_map(|(name, ino)| Some((Name::check(name).ok()?.to_buf(), *ino))),
        );
        drop(files);
        for (next, (name, ino)) in (1..).zip(entries) {
            let kind = Some(if ino == ROOT { FileKind::Directory } else { FileKind::Regular });
            if next > position && !emit(DirEntry { ino, kind, name, next }) {
                break;
            }
        }
        Ok(())
    }

    fn getattr(&self, ino: Ino) -> Result<Attributes> {
        self.attributes(ino)
    }

    fn setattr(&self, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        if let (Some(wanted), Some(size)) = (set.size, self.files.lock().sizes.get_mut(&ino)) {
            *size = wanted;
        }
        self.attributes(ino)
    }

    fn open(&self, _ino: Ino, _mode: OpenMode) -> Result<u64> {
        Ok(0)
    }

    fn release(&self, _ino: Ino, _handle: u64) {}

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8], _flags: IoFlags) -> Result<usize> {
        let size = self.attributes(ino)?.size;
        let len = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
        match self.device(ino) {
            Some(device) => buf[..len].copy_from_slice(&device.read_at(offset, len).map_err(io)?),
            None => buf[..len].fill(0),
        }
        Ok(len)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], _flags: IoFlags) -> Result<usize> {
        if let Some(device) = self.device(ino) {
            device.write_at(offset, data.to_vec()).map_err(io)?;
        }
        self.files.lock().grow(ino, offset.saturating_add(data.len() as u64));
        Ok(data.len())
    }

    fn fsync(&self, ino: Ino, _handle: u64, _data_only: bool) -> Result<()> {
        self.device(ino).map_or(Ok(()), |device| device.flush().map_err(io))
    }

    fn allocate(&self, ino: Ino, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
        if mode == AllocateMode::Extend {
            self.files.lock().grow(ino, offset.saturating_add(len));
        }
        Ok(())
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        Ok(if what == Seek::Data { offset } else { self.attributes(ino)?.size })
    }

    fn extents(
        &self,
        _: Ino,
        _: u64,
        _: u64,
        _: bool,
        _: &mut dyn FnMut(FileExtent) -> bool,
    ) -> Result<()> {
        Ok(())
    }

    fn copy_range(&self, _: Ino, _: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        self.files.lock().grow(to, to_offset.saturating_add(len));
        Ok(len)
    }

    fn getxattr(&self, _ino: Ino, _name: &[u8]) -> Result<Vec<u8>> {
        Err(Error::NoAttribute)
    }

    fn listxattr(&self, _ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn setxattr(&self, _ino: Ino, _name: &[u8], _value: &[u8], _mode: XattrMode) -> Result<()> {
        Err(NOT_HERE)
    }

    fn removexattr(&self, _ino: Ino, _name: &[u8]) -> Result<()> {
        Err(Error::NoAttribute)
    }

    fn statfs(&self) -> Result<VolumeStats> {
        let blocks = 1 << 30;
        Ok(VolumeStats {
            block_size: BLOCK,
            blocks,
            free_blocks: blocks,
            available_blocks: blocks,
            inodes: blocks,
            free_inodes: blocks,
            name_max: 255,
            fsid: 0,
            overwrites_take_blocks: false,
        })
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn trim(&self, _offset: u64, _len: u64, _minimum: u64) -> Result<u64> {
        Ok(0)
    }

    fn label(&self) -> Result<Vec<u8>> {
        Ok(b"nothing".to_vec())
    }

    fn set_label(&self, _label: &[u8]) -> Result<()> {
        Err(NOT_HERE)
    }

    fn report(&self) -> Report {
        Report::new()
    }

    fn remount(&self, _options: &str) -> Result<()> {
        Err(NOT_HERE)
    }

    fn shutdown(&self, _flush_log: bool) -> Result<()> {
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_a_device_keeps_what_is_written() {
        assert!(Nothing::with_device("floppy", 4096).is_none());
        let paced = Nothing::with_device("nvme", 1 << 20).unwrap();
        let file = paced.lookup(ROOT, b"data").unwrap();
        assert_eq!((file.ino, file.size), (FIRST, 1 << 20));
        assert_eq!(paced.write(FIRST, 8192, &[7; 4096], IoFlags::empty()).unwrap(), 4096);
        paced.fsync(FIRST, 0, false).unwrap();
        let mut buf = [0; 6000];
        assert_eq!(paced.read(FIRST, 8192, &mut buf, IoFlags::empty()).unwrap(), 6000);
        assert!(buf[..4096] == [7; 4096] && buf[4096..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn files_have_sizes_and_zeros() {
        let nothing = Nothing::new([("data", 10)]);
        let data = nothing.lookup(ROOT, b"data").unwrap();
        let mut buf = [7; 8];
        assert_eq!(nothing.read(data.ino, 4, &mut buf, IoFlags::empty()).unwrap(), 6);
        assert_eq!(buf, [0, 0, 0, 0, 0, 0, 7, 7]);
        assert_eq!(nothing.read(data.ino, 40, &mut buf, IoFlags::empty()).unwrap(), 0);
        let new = nothing.create(ROOT, b"new", NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
        assert_eq!(nothing.write(new.ino, 100, b"abc", IoFlags::empty()).unwrap(), 3);
        assert_eq!(nothing.getattr(new.ino).unwrap().size, 103);
        let cut = SetAttributes { size: Some(1), ..SetAttributes::default() };
        assert_eq!(nothing.setattr(new.ino, &cut).unwrap().size, 1);
        nothing.unlink(ROOT, b"new").unwrap();
        assert!(matches!(nothing.lookup(ROOT, b"new"), Err(Error::NotFound)));
        let mut names = Vec::new();
        nothing
            .readdir(ROOT, 2, &mut |entry| {
                names.push(entry.name);
                true
            })
            .unwrap();
        assert_eq!(names, [b"data"]);
    }
}
