//! [`Paths`]: the paths of each inode, for the list of what is lost.

use std::collections::HashMap;

use cairn_base::Ino;
use cairn_base::units::as_u64;
use cairn_check::escaped;
use cairn_vfs::FileKind;

use super::super::directory;
use super::super::each_entry::each_entry;
use super::super::state::State;
use crate::format::layout::inodes;

/// Most names of files that are kept. A name of each directory is kept besides.
const MOST: usize = 1 << 20;
/// Most names of a file that are shown besides its path.
const MOST_OTHERS: usize = 3;
/// Most directories of a path.
const DEEPEST: usize = 4096;

/// A directory, and a name in it.
type Name = (u32, Box<[u8]>);

/// The names of all inodes.
pub(super) struct Paths {
    /// The first name of each.
    names: HashMap<u32, Name>,
    /// The names besides, of those that have several: the first ones, and how many there are.
    others: HashMap<u32, (Vec<Name>, u64)>,
}

impl Paths {
    /// Reads all directories.
    pub(super) fn find(state: &State) -> Self {
        let mut paths = Self { names: HashMap::new(), others: HashMap::new() };
        for (ino, facts) in state.inodes.iter() {
            if !facts.is_directory() || facts.is_broken() {
                continue;
            }
            if let Some(directory) = directory::open(state, Ino(ino)) {
                let parent = u32::try_from(ino).unwrap_or(0);
                each_entry(&directory, |_, entry| {
                    let is_directory = entry.file_type == FileKind::Directory.entry_code();
                    paths.add(entry.ino, (parent, entry.name), is_directory);
                });
            }
        }
        paths
    }

    fn add(&mut self, ino: u32, (parent, name): (u32, &[u8]), is_directory: bool) {
        if self.names.contains_key(&ino) {
            // A directory has one name.
            if !is_directory && self.others.len() < MOST {
                let (shown, count) = self.others.entry(ino).or_default();
                *count = count.saturating_add(1);
                if shown.len() < MOST_OTHERS {
                    shown.push((parent, name.into()));
                }
            }
        } else if is_directory || self.names.len() < MOST {
            self.names.insert(ino, (parent, name.into()));
        }
    }

    /// The names that a file has besides its path, in words; empty if there are none.
    pub(super) fn others(&self, ino: Ino) -> String {
        let number = u32::try_from(ino.get()).unwrap_or(0);
        let Some((shown, count)) = self.others.get(&number) else { return String::new() };
        let shown = shown.iter().map(|(parent, name)| {
            let mut path = self.of(Ino(u64::from(*parent)));
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            escaped(&path)
        });
        let shown: Vec<String> = shown.collect();
        let more = match count.saturating_sub(as_u64(shown.len())) {
            0 => String::new(),
            more => format!(", and {more} besides"),
        };
        let names = if *count == 1 { "name" } else { "names" };
        format!("; the file has {count} more {names}: {}{more}", shown.join(", "))
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
