//! [`Paths`]: the path of each inode, for the list of what is lost.

use std::collections::HashMap;

use cairn_base::Ino;
use cairn_vfs::FileKind;

use super::super::directory;
use super::super::each_entry::each_entry;
use super::super::state::State;
use crate::format::layout::inodes;

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
