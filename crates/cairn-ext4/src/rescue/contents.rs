//! The bytes of a file, past what cannot be read.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::units::as_u64;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::salvage::{Contents, Faults, Found, TOO_MUCH, Whole};
use cairn_vfs::FileKind;
use cairn_vfs::types::Timestamp;

use crate::format::extent::Extent;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::raw::RawVolume;
use crate::raw::directory::kind_of;
use crate::raw::map::{Extents, walk};

/// Bytes read at once.
const CHUNK: u64 = 1 << 20;
/// Bytes of a symbolic link that lie in the inode.
const FAST_LINK: u64 = 60;

/// A file's extents on the device.
pub(super) struct Mapped {
    device: Arc<dyn BlockDevice>,
    block_size: u64,
    size: u64,
    extents: Vec<Extent>,
    faults: Faults,
}

impl Mapped {
    pub(super) fn new(volume: &RawVolume, size: u64, extents: Vec<Extent>) -> Self {
        let block_size = volume.layout.block_size.into();
        let end = size.div_ceil(block_size);
        let written = extents.iter().filter(|extent| !extent.unwritten);
        let lengths = written.filter_map(|extent| Some(extent.clip(0, end)?.len));
        let blocks = lengths.fold(0_u64, u64::saturating_add);
        let (device, faults) = (volume.device.clone(), Faults::default());
        let mut mapped = Self { device, block_size, size, extents, faults };
        if !volume.allowance.contents(blocks) {
            mapped.extents.clear();
            mapped.faults.add(TOO_MUCH);
        }
        mapped
    }

    pub(super) fn with_faults(mut self, faults: impl IntoIterator<Item = String>) -> Self {
        faults.into_iter().for_each(|what| self.faults.add(what));
        self
    }

    /// Bytes of the device; block by block if they cannot be read at once.
    fn read(&mut self, at: u64, len: u64, offset: u64) -> Vec<(u64, Vec<u8>)> {
        let whole = usize::try_from(len).unwrap_or(usize::MAX);
        if let Some(bytes) = self.read_at(at, whole) {
            return vec![(offset, bytes)];
        }
        let mut parts = Vec::new();
        let mut done = 0_u64;
        while done < len {
            let step = self.block_size.min(len.saturating_sub(done));
            let size = usize::try_from(step).unwrap_or(usize::MAX);
            let place = offset.saturating_add(done);
            match self.read_at(at.saturating_add(done), size) {
                Some(bytes) => parts.push((place, bytes)),
                None => {
                    self.faults.add(format!("{step} bytes from byte {place} on cannot be read"))
                }
            }
            done = done.saturating_add(step.max(1));
        }
        parts
    }

    fn read_at(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        let end = at.checked_add(as_u64(len))?;
        if end > self.device.geometry().size {
            return None;
        }
        self.device.read_at(at, len).ok().map(|bytes| bytes.to_vec())
    }
}

impl Contents for Mapped {
    fn copy(&mut self, to: &mut dyn FnMut(u64, &[u8]) -> bool) -> Vec<String> {
        for extent in std::mem::take(&mut self.extents) {
            if extent.unwritten {
                continue;
            }
            let start = extent.start.saturating_mul(self.block_size);
            // Whole blocks: a device reads no part of a sector.
            let blocks = self.size.div_ceil(self.block_size).min(extent.end());
            let end = blocks.saturating_mul(self.block_size);
            let device = extent.pba.get().saturating_mul(self.block_size);
            let mut offset = start;
            while offset < end {
                let len = CHUNK.min(end.saturating_sub(offset));
                let at = device.saturating_add(offset.saturating_sub(start));
                for (place, mut bytes) in self.read(at, len, offset) {
                    let most = usize::try_from(self.size.saturating_sub(place));
                    bytes.truncate(most.unwrap_or(usize::MAX));
                    if !to(place, &bytes) {
                        return std::mem::take(&mut self.faults).into_list();
                    }
                }
                offset = offset.saturating_add(len);
            }
        }
        std::mem::take(&mut self.faults).into_list()
    }
}

fn moment(stamp: Timestamp) -> (i64, u32) {
    (stamp.seconds, stamp.nanoseconds)
}

/// What an inode says of its file.
pub(super) fn describe(ino: Ino, record: &Record, path: Vec<u8>) -> Found {
    let is_device = matches!(kind_of(record), Some(FileKind::BlockDevice | FileKind::CharDevice));
    Found {
        path,
        ino: ino.get(),
        mode: record.mode.into(),
        uid: record.uid,
        gid: record.gid,
        size: record.size,
        atime: moment(record.atime),
        mtime: moment(record.mtime),
        device: if is_device { record.device() } else { (0, 0) },
        xattrs: Vec::new(),
    }
}

/// Bytes that lie in the inode instead of blocks.
pub(super) fn bytes_of_inode(volume: &RawVolume, ino: Ino, record: &Record) -> Option<Vec<u8>> {
    let is_inline = record.flags.contains(InodeFlags::INLINE_DATA);
    let is_fast = kind_of(record) == Some(FileKind::Symlink)
        && record.size < FAST_LINK
        && !record.flags.contains(InodeFlags::EXTENTS);
    let mut bytes = match (is_inline, is_fast) {
        (true, _) => volume.inline_bytes(ino, record),
        (false, true) => record.block.to_vec(),
        (false, false) => return None,
    };
    bytes.truncate(usize::try_from(record.size).unwrap_or(usize::MAX));
    Some(bytes)
}

/// The contents of a file or a link, by its map on the volume.
pub(super) fn contents(volume: &RawVolume, ino: Ino, record: &Record) -> Box<dyn Contents> {
    if let Some(bytes) = bytes_of_inode(volume, ino, record) {
        return Box::new(Whole(bytes));
    }
    if !matches!(kind_of(record), Some(FileKind::Regular | FileKind::Symlink)) {
        return Box::new(Whole::default());
    }
    let mut map = Extents::default();
    walk(volume, ino, record, &mut map);
    let faults = map.faults.into_iter().map(|(start, what)| {
        format!("its contents from block {start} on are not all known: {what}")
    });
    let mut faults: Vec<String> = faults.collect();
    if record.flags.contains(InodeFlags::ENCRYPT) {
        faults.push("it is encrypted: what was copied is not readable".into());
    }
    Box::new(Mapped::new(volume, record.size, map.extents).with_faults(faults))
}
