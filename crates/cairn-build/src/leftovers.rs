//! What a program that runs on an image has needed there for its mounts: empty directories and
//! files. Until all of it was removed, an attribute of the root directory lists it. If the program
//! was killed, whoever copies the image leaves it out, and the next writer removes it.

use std::collections::HashSet;

use cairn_base::Ino;
use cairn_vfs::{Attributes, FileKind, FileSystem, Result, walk};

/// The attribute of the root directory: paths, a directory before what is in it, with NUL behind
/// each.
pub const LEFTOVERS: &str = "user.cairn.run";

/// The files that the list of a volume names, as far as nothing was put into them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftovers {
    root: Ino,
    inodes: HashSet<Ino>,
    is_listed: bool,
}

/// The listed paths, the deepest first.
fn listed(fs: &dyn FileSystem) -> Option<Vec<Vec<u8>>> {
    let list = fs.getxattr(fs.root(), LEFTOVERS.as_bytes()).ok()?;
    let paths = list.split(|byte| *byte == 0).rev().filter(|path| !path.is_empty());
    Some(paths.map(<[u8]>::to_vec).collect())
}

impl Leftovers {
    /// Looks at what the list names. What cannot be read is none of it.
    #[must_use]
    pub fn find(fs: &dyn FileSystem) -> Self {
        let paths = listed(fs);
        let mut found =
            Self { root: fs.root(), inodes: HashSet::new(), is_listed: paths.is_some() };
        // A list may name a directory many times.
        let mut seen = HashSet::from([found.root]);
        for path in paths.unwrap_or_default() {
            let Ok(of) = walk::resolve(fs, &path, false) else { continue };
            if seen.insert(of.ino) && found.is_empty(fs, &of) {
                found.inodes.insert(of.ino);
            }
        }
        found
    }

    fn is_empty(&self, fs: &dyn FileSystem, of: &Attributes) -> bool {
        match of.kind {
            FileKind::Directory => walk::list(fs, of.ino)
                .is_ok_and(|entries| entries.iter().all(|entry| self.inodes.contains(&entry.ino))),
            FileKind::Regular => of.size == 0 && of.links == 1,
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

    /// Removes what is listed, and the list. What has got contents stays.
    pub fn remove(fs: &dyn FileSystem) {
        let Some(paths) = listed(fs) else { return };
        for path in paths {
            if let Err(error) = remove(fs, &path) {
                let path = path.escape_ascii();
                tracing::debug!("{path} of a run that was killed stays: {error}");
            }
        }
        if let Err(error) = fs.removexattr(fs.root(), LEFTOVERS.as_bytes()) {
            tracing::debug!("the list of a run that was killed stays: {error}");
        }
    }
}

fn remove(fs: &dyn FileSystem, path: &[u8]) -> Result<()> {
    let (parent, name) = walk::resolve_parent(fs, path)?;
    let found = walk::lookup(fs, parent.ino, name)?;
    match found.kind {
        FileKind::Directory => fs.rmdir(parent.ino, name),
        FileKind::Regular if found.size == 0 => fs.unlink(parent.ino, name),
        _ => Ok(()),
    }
}
