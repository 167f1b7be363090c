//! What the rescues of all formats share: files that were found, deleted files, losses, and names
//! that are safe on a host.

mod bounds;
mod runs;
mod walk;

use std::fmt;

use cairn_base::units::as_u64;

pub use bounds::{ANY_SIZE, Allowance, Faults};
pub use runs::{Run, Runs};
pub use walk::{DEEPEST, Entry, LOST, Tree, Walk};

/// A time: seconds since 1970, and nanoseconds.
pub type Moment = (i64, u32);

/// An extended attribute: the name with its prefix, and the value as `getxattr` gives it.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Most bytes of a path. A directory whose path would be longer counts as one without a name.
pub const LONGEST_PATH: usize = 1 << 15;

/// A file, directory or other inode that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Its path, without a slash at its start. Every name in it went through [`safe_name`].
    pub path: Vec<u8>,
    /// Inode number.
    pub ino: u64,
    /// `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Last read.
    pub atime: Moment,
    /// Last change of contents.
    pub mtime: Moment,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Extended attributes.
    pub xattrs: Vec<Xattr>,
}

/// The contents of a regular file or a symbolic link.
pub trait Contents {
    /// Hands out the parts that are not holes, each with its offset, until `to` returns false.
    /// Returns what could not be read.
    fn copy(&mut self, to: &mut dyn FnMut(u64, &[u8]) -> bool) -> Vec<String>;
}

/// Contents that lie in the inode.
#[derive(Clone, Debug, Default)]
pub struct Inline {
    /// As many as there are, and not more than `size`.
    pub bytes: Vec<u8>,
    /// Bytes that the inode should hold.
    pub size: u64,
}

impl Contents for Inline {
    fn copy(&mut self, to: &mut dyn FnMut(u64, &[u8]) -> bool) -> Vec<String> {
        to(0, &self.bytes);
        let (there, size) = (as_u64(self.bytes.len()), self.size);
        let missing = (there < size)
            .then(|| format!("its size is {size} bytes, and its inode holds {there} of them"));
        missing.into_iter().collect()
    }
}

/// Something that could not be rescued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Its path, as far as it is known.
    pub path: Vec<u8>,
    /// Inode number; 0 if it is not known.
    pub ino: u64,
    /// What is lost, and why.
    pub what: String,
}

/// Takes what a rescue finds. Each call returns false to end the rescue.
pub trait Receiver {
    /// A file, or a directory; a directory comes before what is in it.
    fn found(&mut self, file: &Found, contents: &mut dyn Contents) -> bool;

    /// One more name of a file that was found.
    fn linked(&mut self, path: &[u8], ino: u64, first: &[u8]) -> bool;

    /// A loss.
    fn lost(&mut self, loss: Loss) -> bool;

    /// So many steps of so many are done.
    fn progress(&mut self, what: &'static str, done: u64, total: u64) -> bool;
}

/// How much of a deleted file's data is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Everything that it had.
    Whole,
    /// Some of its blocks.
    Part,
    /// None of its blocks: others use them.
    Overwritten,
    /// Nothing says where its data was.
    Unknown,
}

impl fmt::Display for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole => "whole",
            Self::Part => "part",
            Self::Overwritten => "overwritten",
            Self::Unknown => "unknown",
        })
    }
}

/// A deleted inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Which of the list it is.
    pub index: usize,
    /// Its path, with the name it had last, if one is known.
    pub path: Option<Vec<u8>>,
    /// What is known of it. Its path is empty.
    pub file: Found,
    /// When it was deleted, in seconds since 1970, if that is known.
    pub deleted: Option<i64>,
    /// How much of its data is there.
    pub remains: Remains,
    /// Blocks of data that it had.
    pub blocks: u64,
    /// Those of them that nobody has used since.
    pub free: u64,
    /// Where its record was found.
    pub source: String,
}

/// A volume that is being rescued.
pub trait Salvage {
    /// What was wrong with the volume as a whole, such as a damaged superblock.
    fn notes(&self) -> Vec<String>;

    /// Finds the whole tree, and then what no directory leads to, which is below `lost/`.
    fn tree(&mut self, receiver: &mut dyn Receiver);

    /// Which deleted files are not found, in one sentence.
    fn limits(&self) -> &'static str;

    /// Finds deleted inodes.
    fn deleted(&mut self, receiver: &mut dyn Receiver) -> Vec<Deleted>;

    /// Hands out a deleted inode of the last list, under a path.
    fn restore(&mut self, deleted: &Deleted, path: &[u8], receiver: &mut dyn Receiver) -> bool;
}

/// A name as a host can have it: no slash, no NUL, not `.` or `..`, neither empty nor too long.
#[must_use]
pub fn safe_name(name: &[u8]) -> Vec<u8> {
    const LONGEST: usize = 255;
    let safe = |byte: &u8| if matches!(byte, b'/' | 0) { b'_' } else { *byte };
    let name: Vec<u8> = name.iter().take(LONGEST).map(safe).collect();
    match &name[..] {
        b"" | b"." => b"_".to_vec(),
        b".." => b"__".to_vec(),
        _ => name,
    }
}

/// The path of a name in a directory; `None` if it is too long.
#[must_use]
pub fn join(directory: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let name = safe_name(name);
    let path = match directory {
        b"" => name,
        directory => [directory, b"/", &name].concat(),
    };
    (path.len() <= LONGEST_PATH).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_stay_in_their_directory() {
        for (name, safe) in [
            (&b"a"[..], &b"a"[..]),
            (b"", b"_"),
            (b".", b"_"),
            (b"..", b"__"),
            (b"../x", b".._x"),
            (b"/etc/passwd", b"_etc_passwd"),
            (b"a\0b", b"a_b"),
        ] {
            assert_eq!(safe_name(name), safe);
        }
        assert_eq!(safe_name(&[b'x'; 300]).len(), 255);
        assert_eq!(join(b"", b"a").unwrap(), b"a");
        assert_eq!(join(b"a", b"..").unwrap(), b"a/__");
        assert_eq!(join(&vec![b'x'; LONGEST_PATH], b"a"), None);
    }
}
