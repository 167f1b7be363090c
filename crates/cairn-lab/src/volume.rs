//! Volumes in this process: creating, opening and filling them, and their counters.

use std::path::Path;
use std::sync::Arc;

use cairn::{FileSystem, OpenOptions};
use cairn_base::Ino;
use cairn_base::runtime::threads::Threads;
use cairn_base::stats::Report;
use cairn_block::file::{DirectFile, FileDevice, OpenOptions as FileOptions};
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_vfs::types::{Caller, IoFlags, NewInode, OpenMode, SetAttributes};

use crate::error::{Error, Result};

/// A device in memory whose pages were all touched, as a ramdisk in use.
pub(crate) fn ramdisk(size: u64) -> Result<Arc<dyn BlockDevice>> {
    const PIECE: u64 = 1 << 20;
    let device = MemoryDevice::new(size);
    let pattern = vec![0x5a; PIECE as usize];
    for offset in (0..size / PIECE).map(|piece| piece * PIECE) {
        device.write_at(offset, pattern.clone())?;
    }
    Ok(Arc::new(device))
}

/// An image file, with direct I/O if its filesystem supports it. The text says whether it does.
pub(crate) fn image_file(path: &Path, size: u64) -> Result<(Arc<dyn BlockDevice>, &'static str)> {
    let file = std::fs::File::create(path).map_err(Error::host(path))?;
    file.set_len(size).map_err(Error::host(path))?;
    match DirectFile::open(path, FileOptions::write()) {
        Ok(device) => Ok((Arc::new(device), "an image file with O_DIRECT")),
        Err(_) => {
            let device = FileDevice::open(path, FileOptions::write())?;
            Ok((
                Arc::new(device),
                "an image file through the host's page cache (its filesystem refuses O_DIRECT)",
            ))
        }
    }
}

/// Creates an ext4 volume with mke2fs's defaults. `journal` is the size of the journal in bytes.
pub(crate) fn make(device: &Arc<dyn BlockDevice>, journal: Option<u64>) -> Result<()> {
    let options = cairn_ext4::mkfs::MkfsOptions {
        journal_size: journal,
        block_size: Some(4096),
        ..Default::default()
    };
    cairn_ext4::mkfs::make(device.clone(), &options, &*Threads::new())?;
    Ok(())
}

/// Creates an F2FS volume with mkfs.f2fs's defaults.
pub(crate) fn make_f2fs(device: &Arc<dyn BlockDevice>) -> Result<()> {
    cairn_f2fs::mkfs::make(
        device.clone(),
        &cairn_f2fs::mkfs::MkfsOptions::default(),
        &*Threads::new(),
    )?;
    Ok(())
}

/// Opens the volume on the device with mount options.
pub(crate) fn open(device: &Arc<dyn BlockDevice>, options: &str) -> Result<Arc<dyn FileSystem>> {
    let options = OpenOptions {
        read_only: false,
        mount_options: options.to_owned(),
        ..OpenOptions::default()
    };
    Ok(cairn::open_on(device.clone(), Threads::new(), &options)?.filesystem().clone())
}

/// An open file.
pub(crate) struct OpenFile<'v> {
    volume: &'v dyn FileSystem,
    pub(crate) ino: Ino,
    handle: u64,
}

impl<'v> OpenFile<'v> {
    /// Creates `name` in the root directory.
    pub(crate) fn create(volume: &'v dyn FileSystem, name: &str) -> Result<Self> {
        let made = volume.create(
            volume.root(),
            name.as_bytes(),
            NewInode::Regular,
            0o644,
            &Caller::ROOT,
        )?;
        Self::of(volume, made.ino)
    }

    /// Opens `name` in the root directory.
    pub(crate) fn open(volume: &'v dyn FileSystem, name: &str) -> Result<Self> {
        Self::of(volume, volume.lookup(volume.root(), name.as_bytes())?.ino)
    }

    fn of(volume: &'v dyn FileSystem, ino: Ino) -> Result<Self> {
        let handle = volume.open(ino, OpenMode { write: true, direct: false })?;
        Ok(Self { volume, ino, handle })
    }

    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let written = self.volume.write(self.ino, offset, data, IoFlags::empty())?;
        if written < data.len() { Err(cairn_vfs::Error::NoSpace.into()) } else { Ok(()) }
    }

    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.volume.read(self.ino, offset, buf, IoFlags::empty())?)
    }

    pub(crate) fn fsync(&self) -> Result<()> {
        Ok(self.volume.fsync(self.ino, self.handle, false)?)
    }

    pub(crate) fn set_size(&self, size: u64) -> Result<()> {
        self.volume
            .setattr(self.ino, &SetAttributes { size: Some(size), ..SetAttributes::default() })?;
        Ok(())
    }
}

impl Drop for OpenFile<'_> {
    fn drop(&mut self) {
        self.volume.release(self.ino, self.handle);
        self.volume.forget(self.ino, 1);
    }
}

/// The value of a counter, or the sum of all counters of a section.
pub(crate) fn counter(report: &Report, path: &str) -> Option<f64> {
    use cairn_base::stats::Value;
    match report.get(path)? {
        Value::U64(value) => Some(*value as f64),
        Value::F64(value) => Some(*value),
        Value::Section(section) => section.iter().map(|(name, _)| counter(section, name)).sum(),
        _ => None,
    }
}

/// The growth of a counter.
pub(crate) fn growth(before: &Report, after: &Report, path: &str) -> Option<f64> {
    Some(counter(after, path)? - counter(before, path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_sections_are_summed() {
        let mut report = Report::new();
        report.section("cache").set("map_calls", 3_u64);
        report.section("cache").section("folios_by_order").set("4K", 2_u64).set("2M", 5_u64);
        assert_eq!(counter(&report, "cache.folios_by_order"), Some(7.0));
        let later = report.clone().with("cache", Report::new().with("map_calls", 10_u64));
        assert_eq!(growth(&report, &later, "cache.map_calls"), Some(7.0));
        assert_eq!(growth(&report, &later, "cache.folios_by_order"), None);
    }

    #[test]
    fn a_file_is_written_and_read_back() {
        let device = ramdisk(16 << 20).unwrap();
        make(&device, None).unwrap();
        let volume = open(&device, "").unwrap();
        {
            let file = OpenFile::create(&*volume, "f").unwrap();
            file.write(5, b"abc").unwrap();
            file.fsync().unwrap();
        }
        let mut buf = [0; 8];
        assert_eq!(OpenFile::open(&*volume, "f").unwrap().read(0, &mut buf).unwrap(), 8);
        assert_eq!(&buf, b"\0\0\0\0\0abc");
        volume.unmount().unwrap();
    }
}
