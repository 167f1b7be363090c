//! Keeps the image of a read-only volume open. If the volume is to be opened again for writing,
//! this is the same file, even if its name leads elsewhere by then.
//!
//! For reading, the open descriptor is enough. For writing the file is opened again, through
//! `/proc`, or by its name if that still leads to the same file.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cairn_base::names::Escaped;

use super::open::{self, OpenOptions};
use super::{FileDevice, open_image};
use crate::error::{Error, ErrorKind, Result};

/// The open image of a read-only volume, and its name.
#[derive(Debug)]
pub struct KeptImage {
    /// Without locks; a device that is made of it takes them.
    file: File,
    path: PathBuf,
}

impl KeptImage {
    /// Keeps the image or block device at `path`.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        Ok(Self { file: open_image(&path)?, path })
    }

    /// The image as a device that is read, locked against writers. There can be one at a time.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
    pub fn read(&self) -> Result<FileDevice> {
        let file =
            self.file.try_clone().map_err(|error| Error::from_io(self.operation(), error))?;
        open::take(file, &self.path, OpenOptions::read()).map(FileDevice::new)
    }

    /// A path that leads to it.
    ///
    /// # Errors
    /// The file has another name now, and `/proc` is not mounted.
    pub fn path(&self) -> Result<PathBuf> {
        self.path_by(Path::new("/proc/self/fd"))
    }

    fn path_by(&self, descriptors: &Path) -> Result<PathBuf> {
        let descriptor = descriptors.join(self.file.as_raw_fd().to_string());
        if descriptor.exists() {
            return Ok(descriptor);
        }
        let own = self.file.metadata().map_err(|error| Error::from_io(self.operation(), error))?;
        match std::fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (own.dev(), own.ino()) => {
                Ok(self.path.clone())
            }
            _ => {
                let detail = "the image has another name now, and /proc, which leads to it, is not \
                    mounted: mount /proc";
                Err(Error::new(ErrorKind::NotFound, self.operation(), detail))
            }
        }
    }

    /// Do the file's permissions allow writing? Takes and checks no locks.
    ///
    /// # Errors
    /// Why not.
    pub fn check_writable(&self) -> Result<()> {
        let options = OpenOptions { lock: false, ..OpenOptions::write() };
        FileDevice::open(self.path()?, options).map(drop)
    }

    fn operation(&self) -> String {
        format!("open {}", self.path.escaped())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::device::BlockDeviceExt;

    #[test]
    fn without_proc_the_name_counts_as_long_as_it_leads_to_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("image"), dir.path().join("moved"));
        fs::write(&path, [7; 8192]).unwrap();
        let kept = KeptImage::open(&path).unwrap();
        assert!(kept.path().unwrap().starts_with("/proc/self/fd"));
        let nowhere = dir.path().join("no proc");
        assert_eq!(kept.path_by(&nowhere).unwrap(), path);
        fs::rename(&path, &moved).unwrap();
        fs::write(&path, "another").unwrap();
        let refused = kept.path_by(&nowhere).unwrap_err().to_string();
        assert!(refused.contains("mount /proc") && refused.contains("image"), "{refused}");
        fs::remove_file(&path).unwrap();
        assert!(kept.path_by(&nowhere).is_err());
    }

    #[test]
    fn what_is_open_is_read_again_and_again_and_locked_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        fs::write(&path, [7; 8192]).unwrap();
        let kept = KeptImage::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        for _ in 0..2 {
            let device = kept.read().unwrap();
            assert_eq!(device.read_at(4096, 2).unwrap()[..], [7, 7]);
            let busy = FileDevice::open(kept.path().unwrap(), OpenOptions::write()).unwrap_err();
            assert_eq!(busy.kind, ErrorKind::InUse, "{busy}");
            drop(device);
            FileDevice::open(kept.path().unwrap(), OpenOptions::write()).unwrap();
        }
    }
}
