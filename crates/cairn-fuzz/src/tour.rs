//! Reads all of a volume, with a bound for each call that a sound volume does not reach.

use cairn_base::Ino;
use cairn_vfs::{FileKind, FileSystem, IoFlags, Result, Seek};

/// Most inodes that are visited.
const INODES: usize = 300;
/// Most names that are taken of a directory.
const NAMES: usize = 400;
/// Most extents of a file.
const EXTENTS: usize = 200;

/// Formats the message of an error, which must not panic or be empty.
pub(crate) fn told<T>(outcome: Result<T>) -> Option<T> {
    outcome.map_err(|error| assert!(!error.to_string().is_empty())).ok()
}

/// Walks a volume and reads it. Returns the number of inodes that were seen.
pub(crate) fn read(fs: &dyn FileSystem) -> usize {
    told(fs.statfs());
    told(fs.label());
    let _ = fs.report();
    let mut pending = vec![(fs.root(), 0)];
    let mut seen = 0;
    let mut buffer = vec![0; 1 << 14];
    while let Some((dir, depth)) = pending.pop() {
        for (name, _) in names(fs, dir) {
            if seen > INODES {
                return seen;
            }
            let Some(found) = told(fs.lookup(dir, &name)) else { continue };
            seen += 1;
            contents(fs, found.ino, found.size, found.kind, &mut buffer);
            if found.kind == FileKind::Directory && depth < 6 && name != b"." && name != b".." {
                pending.push((found.ino, depth + 1));
            } else {
                fs.forget(found.ino, 1);
            }
        }
    }
    seen
}

/// Names of a directory, as far as they can be read.
pub(crate) fn names(fs: &dyn FileSystem, dir: Ino) -> Vec<(Vec<u8>, Ino)> {
    let mut names = Vec::new();
    told(fs.readdir(dir, 0, &mut |entry| {
        names.push((entry.name.to_vec(), entry.ino));
        names.len() < NAMES
    }));
    names
}

fn contents(fs: &dyn FileSystem, ino: Ino, size: u64, kind: FileKind, buffer: &mut [u8]) {
    told(fs.getattr(ino));
    for name in told(fs.listxattr(ino)).unwrap_or_default() {
        told(fs.getxattr(ino, &name));
    }
    match kind {
        FileKind::Regular => {
            for offset in [0, buffer.len() as u64, size / 2, size.saturating_sub(5000)] {
                told(fs.read(ino, offset, buffer, IoFlags::empty()));
            }
            told(fs.seek(ino, 0, Seek::Hole));
            told(fs.seek(ino, size / 2, Seek::Data));
            let mut extents = 0;
            told(fs.extents(ino, 0, u64::MAX, false, &mut |_| {
                extents += 1;
                extents < EXTENTS
            }));
        }
        FileKind::Symlink => drop(told(fs.readlink(ino))),
        _ => {}
    }
}
