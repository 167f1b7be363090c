//! The bytes of a file, past what cannot be read.

use cairn_base::Ino;
use cairn_check::salvage::{Contents, Found, Inline, Run, Runs};
use cairn_vfs::FileKind;
use cairn_vfs::types::Timestamp;

use crate::format::extent::Extent;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::raw::RawVolume;
use crate::raw::directory::kind_of;
use crate::raw::map::{Extents, walk};

/// Bytes of a symbolic link that lie in the inode.
const FAST_LINK: u64 = 60;

/// The contents of a file of so many bytes that has these extents.
pub(super) fn runs(
    volume: &RawVolume,
    size: u64,
    extents: &[Extent],
    faults: impl IntoIterator<Item = String>,
) -> Runs {
    let mut runs = Runs::new(volume.device.clone(), volume.layout.block_size, size);
    faults.into_iter().for_each(|what| runs.faults.add(what));
    for Extent { start, len, pba, .. } in extents.iter().filter(|extent| !extent.unwritten) {
        runs.push(Run { start: *start, block: pba.get(), len: *len });
    }
    runs.take_from(&volume.allowance, 0);
    runs
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

/// What lies in the inode instead of blocks.
pub(super) fn held_by_inode(volume: &RawVolume, ino: Ino, record: &Record) -> Option<Inline> {
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
    // Behind its contents, a file has a hole.
    let has_hole = is_inline && kind_of(record) == Some(FileKind::Regular);
    let held = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    Some(Inline { size: if has_hole { held } else { record.size }, bytes })
}

/// The contents of a file or a link, by its map on the volume.
pub(super) fn contents(volume: &RawVolume, ino: Ino, record: &Record) -> Box<dyn Contents> {
    if let Some(inline) = held_by_inode(volume, ino, record) {
        return Box::new(inline);
    }
    if !matches!(kind_of(record), Some(FileKind::Regular | FileKind::Symlink)) {
        return Box::new(Inline::default());
    }
    let mut map = Extents::default();
    walk(volume, ino, record, &mut map);
    if kind_of(record) == Some(FileKind::Symlink) {
        // A block that is marked as never written has a target, too.
        map.extents.iter_mut().for_each(|extent| extent.unwritten = false);
    }
    let faults = map.faults.into_iter().map(|(start, what)| {
        format!("its contents from block {start} on are not all known: {what}")
    });
    let mut faults: Vec<String> = faults.collect();
    if record.flags.contains(InodeFlags::ENCRYPT) {
        faults.push("it is encrypted: what was copied is not readable".into());
    }
    Box::new(runs(volume, record.size, &map.extents, faults))
}
