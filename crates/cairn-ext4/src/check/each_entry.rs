//! [`each_entry`]: the entries of a directory that can be read, whatever else is wrong with it.

use cairn_base::Ino;
use cairn_base::units::as_u64;

use super::dir_blocks::Directory;
use crate::format::dir_entry;
use crate::format::inode::InodeFlags;
use crate::format::xattr::{self, Value, XattrLocation};

/// Calls `each` for the entries of a directory that can be read, but `.` and `..`, with the block.
pub(super) fn each_entry(
    directory: &Directory<'_>,
    mut each: impl FnMut(u64, &dir_entry::Entry<'_>),
) {
    let format = directory.format;
    let mut region = |block: u64, bytes: &[u8], from: usize, to: usize| {
        for entry in dir_entry::entries_in(bytes, from..to, &format).flatten() {
            if entry.ino != 0 && !matches!(entry.name, b"." | b"..") {
                each(block, &entry);
            }
        }
    };
    if directory.record.flags.contains(InodeFlags::INLINE_DATA) {
        region(0, &directory.record.block, 4, directory.record.block.len());
        let tail = inline_tail(&directory.record.extra, directory.ino);
        region(0, &tail, 0, tail.len());
        return;
    }
    for run in &directory.runs {
        for block in run.start..run.end().min(directory.blocks) {
            if let Some(bytes) = directory.block(block) {
                region(block, &bytes, 0, format.leaf_len());
            }
        }
    }
}

/// The contents of a file in its inode behind the first 60 bytes.
pub(super) fn inline_tail(extra: &[u8], ino: Ino) -> Vec<u8> {
    let attributes = xattr::decode(extra, XattrLocation::Inode, ino).unwrap_or_default();
    let tail = attributes.iter().find_map(|attribute| match attribute.value {
        Value::Here(value) if attribute.index == 7 && attribute.name == b"data" => Some(value),
        _ => None,
    });
    let tail = tail.unwrap_or_default();
    debug_assert!(as_u64(tail.len()) <= 65_536, "a value has a bound");
    tail.to_vec()
}
