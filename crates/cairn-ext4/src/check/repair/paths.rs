//! [`Paths`]: the path of each inode, for the list of what is lost.

use std::collections::HashMap;

use cairn_base::Ino;
use cairn_base::units::as_u64;
use cairn_vfs::FileKind;

use super::super::dir_blocks::Directory;
use super::super::directory;
use super::super::state::State;
use crate::format::dir_entry;
use crate::format::inode::InodeFlags;
use crate::format::layout::inodes;
use crate::format::xattr::{self, Value, XattrLocation};

/// Most names of files that are kept. A name of each directory is kept besides.
const MOST: usize = 1 << 20;
/// Most directories of a path.
const DEEPEST: usize = 4096;

/// One name of each inode.
pub(super) struct Paths {
    names: HashMap<u32, (u32, Box<[u8]>)>,
}

impl Paths {
    /// Reads all directories.
    pub(super) fn find(state: &State) -> Self {
        let mut paths = Self { names: HashMap::new() };
        for (ino, facts) in state.inodes.iter() {
            if !facts.is_directory() || facts.is_broken() {
                continue;
            }
            if let Some(directory) = directory::open(state, Ino(ino)) {
                let parent = u32::try_from(ino).unwrap_or(0);
                each_entry(&directory, |_, entry| {
                    let is_directory = entry.file_type == FileKind::Directory.entry_code();
                    if is_directory || paths.names.len() < MOST {
                        let named = || (parent, entry.name.into());
                        paths.names.entry(entry.ino).or_insert_with(named);
                    }
                });
            }
        }
        paths
    }

    /// The path; empty if the inode has none.
    pub(super) fn of(&self, ino: Ino) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = u32::try_from(ino.get()).unwrap_or(0);
        let root = u32::try_from(inodes::ROOT.get()).unwrap_or(0);
        if at == root {
            return b"/".to_vec();
        }
        while at != root {
            match self.names.get(&at) {
                Some((parent, name)) if names.len() < DEEPEST => {
                    names.push(name);
                    at = *parent;
                }
                // A circle, or what no directory has.
                _ => return Vec::new(),
            }
        }
        names.iter().rev().flat_map(|name| [b"/".as_slice(), name]).flatten().copied().collect()
    }
}

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
