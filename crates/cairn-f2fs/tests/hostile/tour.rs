//! All calls that read a volume. They have limits only for values that may be large on a valid
//! volume.

use cairn_base::Ino;
use cairn_f2fs::F2fs;
use cairn_vfs::{FileSystem, IoFlags, Seek};

/// Most inodes that are visited.
const INODES: usize = 1500;

/// Walks the volume; returns how many inodes were seen.
pub fn of(volume: &F2fs) -> usize {
    inodes(volume, INODES, &mut |ino| {
        let Ok(attributes) = volume.getattr(ino) else { return };
        let _ = volume
            .listxattr(ino)
            .map(|names| names.iter().for_each(|name| drop(volume.getxattr(ino, name))));
        let _ = volume.readlink(ino);
        read(volume, ino, attributes.size);
    })
}

/// Visits everything below the root, each inode once per name. Returns the number of visits.
pub fn inodes(volume: &F2fs, limit: usize, visit: &mut dyn FnMut(Ino)) -> usize {
    let mut pending = vec![volume.root()];
    let mut seen = 0;
    while let Some(ino) = pending.pop().filter(|_| seen < limit) {
        seen += 1;
        visit(ino);
        for name in
            names(volume, ino).iter().filter(|name| !matches!(name.as_slice(), b"." | b".."))
        {
            if let Ok(found) = volume.lookup(ino, name) {
                volume.forget(found.ino, 1);
                pending.push(found.ino);
            }
        }
    }
    seen
}

/// Names of a directory, as far as they can be read.
pub fn names(volume: &F2fs, directory: Ino) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let _ = volume.readdir(directory, 0, &mut |entry| {
        names.push(entry.name.into_bytes());
        names.len() < 3000
    });
    names
}

fn read(volume: &F2fs, ino: Ino, size: u64) {
    let mut buffer = vec![0; 300_000];
    for offset in [0, size / 2, size.saturating_sub(5000), 3_600_000] {
        let _ = volume.read(ino, offset, &mut buffer, IoFlags::empty());
    }
    let _ = volume.seek(ino, 0, Seek::Hole);
    let _ = volume.seek(ino, size / 2, Seek::Data);
    let mut extents = 0;
    let _ = volume.extents(ino, 0, u64::MAX, false, &mut |_| {
        extents += 1;
        extents < 1000
    });
}
