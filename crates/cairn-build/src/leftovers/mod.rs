//! What a program that runs on an image has needed there for its mounts: empty directories and
//! files. Until all of it was removed, an attribute of the root directory lists it ([`Made`]). If
//! the program was killed, whoever copies the image leaves it out, and the next writer removes it.
//!
//! An image from elsewhere may have any list. So only what such a program can have made counts:
//! empty, of root, with the rights and no attributes of a new file, and not older or newer than the
//! changes of its directory.

mod made;

use std::collections::{HashMap, HashSet};

use cairn_base::Ino;
use cairn_base::names::Escaped;
use cairn_vfs::{
    Attributes, FileKind, FileSystem, Result, SetAttributes, SetTime, Timestamp, walk,
};

pub use made::{LEFTOVERS, Made, Touched};

/// Names in a warning. The others are counted.
const NAMED: usize = 4;

/// The files that the list of a volume names, as far as a run can have made them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftovers {
    root: Ino,
    inodes: HashSet<Ino>,
    paths: Vec<Vec<u8>>,
    /// Modification and change time of directories in which nothing else has changed.
    times: HashMap<Ino, [Timestamp; 2]>,
    is_listed: bool,
}

fn listed(fs: &dyn FileSystem) -> Option<Made> {
    let list = fs.getxattr(fs.root(), LEFTOVERS.as_bytes()).ok()?;
    Some(Made::decode(&list))
}

impl Leftovers {
    /// Looks at what the list names. What cannot be read is none of it.
    #[must_use]
    pub fn find(fs: &dyn FileSystem) -> Self {
        let list = listed(fs);
        let is_listed = list.is_some();
        let list = list.unwrap_or_default();
        let (inodes, times) = (HashSet::new(), HashMap::new());
        let mut found = Self { root: fs.root(), inodes, paths: Vec::new(), times, is_listed };
        // A list may name a directory many times.
        let mut seen = HashSet::from([found.root]);
        // The deepest first.
        for path in list.paths().rev() {
            let Ok(of) = walk::resolve(fs, path, false) else { continue };
            if seen.insert(of.ino) && found.is_made(fs, &of, path, &list) {
                found.inodes.insert(of.ino);
                found.paths.push(path.to_vec());
            }
        }
        found.times = unchanged(fs, &list).collect();
        found
    }

    /// Can a run have made this?
    fn is_made(&self, fs: &dyn FileSystem, of: &Attributes, path: &[u8], list: &Made) -> bool {
        let is_new = of.uid == 0 && fs.listxattr(of.ino).is_ok_and(|names| names.is_empty());
        match of.kind {
            FileKind::Directory => {
                let has_rights = of.permissions & !0o2755 == 0;
                let is_empty = walk::list(fs, of.ino).is_ok_and(|entries| {
                    entries.iter().all(|entry| self.inodes.contains(&entry.ino))
                });
                is_new && has_rights && is_empty
            }
            FileKind::Regular => {
                let has_rights = of.permissions & !0o644 == 0;
                let is_of_the_time = list.touched(made::parent(path)).is_some_and(|directory| {
                    let [mtime, _] = directory.before;
                    of.mtime >= mtime && directory.after.is_none_or(|after| of.mtime <= after)
                });
                is_new && has_rights && of.size == 0 && of.links == 1 && is_of_the_time
            }
            _ => false,
        }
    }

    /// True if there is a list, of whatever.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// True for an inode that is to be left out.
    #[must_use]
    pub fn contains(&self, ino: Ino) -> bool {
        self.inodes.contains(&ino)
    }

    /// True for the attribute with the list.
    #[must_use]
    pub fn is_list(&self, ino: Ino, attribute: &[u8]) -> bool {
        ino == self.root && attribute == LEFTOVERS.as_bytes()
    }

    /// Modification and change time of a directory before the run, if nothing else has changed
    /// there since.
    #[must_use]
    pub fn times(&self, ino: Ino) -> Option<[Timestamp; 2]> {
        self.times.get(&ino).copied()
    }

    /// What is left out, for a warning. `None` if it is nothing.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let names: Vec<_> =
            self.paths.iter().rev().take(NAMED).map(|path| path.escaped()).collect();
        let more = match self.paths.len().saturating_sub(names.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names = names.join(", ");
        (!names.is_empty()).then(|| {
            format!("left out what a killed run has made there for its mounts: {names}{more}")
        })
    }

    /// Removes what the list names, as far as a run can have made it, and the list.
    pub fn remove(fs: &dyn FileSystem) {
        if let Some(list) = listed(fs) {
            let found = Self::find(fs);
            remove_all(fs, &list, &found.times, |ino| found.contains(ino));
        }
    }

    /// Removes what a run that has just ended has listed, and the list. What has got contents
    /// stays.
    pub fn remove_own(fs: &dyn FileSystem) {
        if let Some(list) = listed(fs) {
            let times = unchanged(fs, &list).collect();
            remove_all(fs, &list, &times, |_| true);
        }
    }
}

/// Directories of the list that have not changed since the run has begun.
fn unchanged(fs: &dyn FileSystem, list: &Made) -> impl Iterator<Item = (Ino, [Timestamp; 2])> {
    list.all_touched().filter_map(|touched| {
        let of = walk::resolve(fs, &touched.path, false).ok()?;
        let is_same = of.kind == FileKind::Directory
            && touched.after == Some(of.mtime)
            && of.permissions == touched.permissions;
        is_same.then_some((of.ino, touched.before))
    })
}

fn remove_all(
    fs: &dyn FileSystem,
    list: &Made,
    times: &HashMap<Ino, [Timestamp; 2]>,
    is_own: impl Fn(Ino) -> bool,
) {
    for path in list.paths().rev() {
        if let Err(error) = remove(fs, path, &is_own) {
            tracing::debug!("{} of a run stays: {error}", path.escaped());
        }
    }
    if let Err(error) = fs.removexattr(fs.root(), LEFTOVERS.as_bytes()) {
        tracing::debug!("the list of a run stays: {error}");
    }
    for (ino, [mtime, ctime]) in times {
        let set = SetAttributes {
            mtime: Some(SetTime::To(*mtime)),
            ctime: Some(*ctime),
            ..SetAttributes::default()
        };
        // A directory that the run has made is gone.
        if let Err(error) = fs.setattr(*ino, &set) {
            tracing::debug!("times of inode {ino} stay: {error}");
        }
    }
}

fn remove(fs: &dyn FileSystem, path: &[u8], is_own: impl Fn(Ino) -> bool) -> Result<()> {
    let (parent, name) = walk::resolve_parent(fs, path)?;
    let found = walk::lookup(fs, parent.ino, name)?;
    match found.kind {
        _ if !is_own(found.ino) => Ok(()),
        FileKind::Directory => fs.rmdir(parent.ino, name),
        FileKind::Regular if found.size == 0 => fs.unlink(parent.ino, name),
        _ => Ok(()),
    }
}
