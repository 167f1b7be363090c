//! The flags of `chattr`: which of them forbids a change, and their letters.

use cairn_vfs::{FileSystem, InodeFlags, walk};

use crate::failure::Failure;

/// Flags and their letters, in the order of lsattr(1).
const LETTERS: [(InodeFlags, char); 11] = [
    (InodeFlags::SYNC, 'S'),
    (InodeFlags::DIRSYNC, 'D'),
    (InodeFlags::IMMUTABLE, 'i'),
    (InodeFlags::APPEND, 'a'),
    (InodeFlags::NODUMP, 'd'),
    (InodeFlags::NOATIME, 'A'),
    (InodeFlags::INDEX, 'I'),
    (InodeFlags::TOPDIR, 'T'),
    (InodeFlags::EXTENT, 'e'),
    (InodeFlags::INLINE_DATA, 'N'),
    (InodeFlags::PROJINHERIT, 'P'),
];

/// The letters of lsattr(1) for flags that are set; `-` if there are none.
#[must_use]
pub fn letters(flags: InodeFlags) -> String {
    let letters: String = LETTERS
        .iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .map(|(_, letter)| letter)
        .collect();
    if letters.is_empty() { "-".to_owned() } else { letters }
}

/// Adds to a failure which file's flag forbids the call: that of the path, of its directory, or of
/// what a link leads to. A name that messages show escaped gets no reason.
#[must_use]
pub fn explain(fs: &dyn FileSystem, failure: Failure) -> Failure {
    failure.explained(&|path| {
        let above = path.trim_end_matches('/').rsplit_once('/').map_or("", |(above, _)| above);
        let above = if above.is_empty() { "/" } else { above };
        [(path, false), (above, true), (path, true)]
            .into_iter()
            .find_map(|(path, follow)| reason(fs, path, follow))
    })
}

fn reason(fs: &dyn FileSystem, path: &str, follow: bool) -> Option<String> {
    let flags = walk::resolve(fs, path.as_bytes(), follow).ok()?.flags;
    let (what, letter) = if flags.contains(InodeFlags::IMMUTABLE) {
        ("immutable", 'i')
    } else if flags.contains(InodeFlags::APPEND) {
        ("append-only", 'a')
    } else {
        return None;
    };
    Some(format!("{path} is {what}: mount the image, and `chattr -{letter}` it there"))
}
