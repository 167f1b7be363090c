//! One operation of a workload, and its text, a line: `write 4097 0 4096 dsync`.

use std::fmt;
use std::str::FromStr;

use cairn_vfs::{AllocateMode, IoFlags};

/// An operation. Files have numbers, which do not change with their names. Paths have no slash in
/// front; the root directory is the empty path, in text `/`.
#[expect(missing_docs, reason = "the names of fields say what they hold")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Creates a file.
    Create { id: u16, path: String },
    /// Writes words that identify themselves.
    Write { id: u16, offset: u64, len: u64, flags: IoFlags },
    /// Sets the size.
    Truncate { id: u16, size: u64 },
    /// Sets the attribute to `len` times this byte.
    SetXattr { id: u16, byte: u8, len: usize },
    /// Removes the attribute.
    RemoveXattr { id: u16 },
    /// A call of `fallocate`.
    Allocate { id: u16, mode: AllocateMode, offset: u64, len: u64 },
    /// Renames. `held`: the file that loses its last name is still open.
    Rename { from: String, to: String, held: bool },
    /// Adds a name.
    Link { id: u16, path: String },
    /// Removes a name. `held` as in [`Op::Rename`].
    Unlink { path: String, held: bool },
    /// Appends to the last file without a name that is still open.
    WriteUnlinked,
    /// Makes a directory.
    MakeDirectory { path: String },
    /// Removes a directory, if it is empty.
    RemoveDirectory { path: String },
    /// Makes a symbolic link to `len` bytes.
    Symlink { path: String, len: usize },
    /// `fsync`, or `fdatasync`.
    Fsync { id: u16, data_only: bool },
    /// The same of a directory.
    SyncDirectory { path: String, data_only: bool },
    /// Writes the file, flushes nothing, and drops its inode from memory.
    Evict { id: u16 },
    /// `sync`.
    Sync,
}

/// The words of flags.
const FLAGS: [(&str, IoFlags); 3] =
    [("direct", IoFlags::DIRECT), ("dsync", IoFlags::DSYNC), ("dontcache", IoFlags::DONTCACHE)];

/// The words of `fallocate`'s modes.
const MODES: [(&str, AllocateMode); 6] = [
    ("extend", AllocateMode::Extend),
    ("keep-size", AllocateMode::KeepSize),
    ("punch", AllocateMode::PunchHole),
    ("zero", AllocateMode::ZeroRange { keep_size: true }),
    ("collapse", AllocateMode::CollapseRange),
    ("insert", AllocateMode::InsertRange),
];

const HELD: &str = "held";

fn named(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = |held: &bool| if *held { " held" } else { "" };
        let data = |data_only: &bool| if *data_only { "fdatasync" } else { "fsync" };
        match self {
            Self::Create { id, path } => write!(f, "create {id} {path}"),
            Self::Write { id, offset, len, flags } => {
                write!(f, "write {id} {offset} {len}")?;
                let words = FLAGS.iter().filter(|(_, flag)| flags.contains(*flag));
                words.into_iter().try_for_each(|(word, _)| write!(f, " {word}"))
            }
            Self::Truncate { id, size } => write!(f, "truncate {id} {size}"),
            Self::SetXattr { id, byte, len } => write!(f, "setxattr {id} {byte} {len}"),
            Self::RemoveXattr { id } => write!(f, "removexattr {id}"),
            Self::Allocate { id, mode, offset, len } => {
                let word = MODES.iter().find(|(_, known)| known == mode);
                write!(f, "allocate {id} {} {offset} {len}", word.map_or("zero", |(word, _)| word))
            }
            Self::Rename { from, to, held } => write!(f, "rename {from} {to}{}", last(held)),
            Self::Link { id, path } => write!(f, "link {id} {path}"),
            Self::Unlink { path, held } => write!(f, "unlink {path}{}", last(held)),
            Self::WriteUnlinked => f.write_str("write-unlinked"),
            Self::MakeDirectory { path } => write!(f, "mkdir {path}"),
            Self::RemoveDirectory { path } => write!(f, "rmdir {path}"),
            Self::Symlink { path, len } => write!(f, "symlink {path} {len}"),
            Self::Fsync { id, data_only } => write!(f, "{} {id}", data(data_only)),
            Self::SyncDirectory { path, data_only } => {
                write!(f, "{}-directory {}", data(data_only), named(path))
            }
            Self::Evict { id } => write!(f, "evict {id}"),
            Self::Sync => f.write_str("sync"),
        }
    }
}

/// The words of a line, one after the other.
struct Words<'a> {
    line: &'a str,
    left: std::str::SplitWhitespace<'a>,
}

impl Words<'_> {
    fn number<T: FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.left.next().and_then(|word| word.parse().ok());
        word.ok_or_else(|| format!("'{}': {what} is missing or no number", self.line))
    }

    fn path(&mut self) -> Result<String, String> {
        let word = self.left.next().map(|word| word.trim_matches('/').to_owned());
        word.ok_or_else(|| format!("'{}': a path is missing", self.line))
    }

    fn rest<T: Copy>(&mut self, known: &[(&str, T)]) -> Result<Vec<T>, String> {
        let find = |word: &str| {
            let found = known.iter().find(|(name, _)| *name == word);
            found.map(|(_, value)| *value).ok_or_else(|| {
                let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
                let names = names.join(", ");
                format!("'{}': no word '{word}': leave it out, or give {names}", self.line)
            })
        };
        self.left.clone().map(find).collect()
    }

    fn held(&mut self) -> Result<bool, String> {
        Ok(!self.rest(&[(HELD, ())])?.is_empty())
    }
}

/// Bytes of the largest file that a line may ask for.
const LARGEST: u64 = 1 << 20;

impl FromStr for Op {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = Words { line, left: line.split_whitespace() };
        let verb = words.left.next().unwrap_or_default();
        let op = match verb {
            "create" => Self::Create { id: words.number("the file")?, path: words.path()? },
            "write" => {
                let (id, offset) = (words.number("the file")?, words.number("the offset")?);
                let len = words.number("the length")?;
                let flags = words.rest(&FLAGS)?.into_iter();
                let flags = flags.fold(IoFlags::empty(), |all, flag| all | flag);
                Self::Write { id, offset, len, flags }
            }
            "truncate" => {
                Self::Truncate { id: words.number("the file")?, size: words.number("the size")? }
            }
            "setxattr" => {
                let (id, byte) = (words.number("the file")?, words.number("the byte")?);
                Self::SetXattr { id, byte, len: words.number("the length")? }
            }
            "removexattr" => Self::RemoveXattr { id: words.number("the file")? },
            "allocate" => allocate(&mut words)?,
            "rename" => {
                let (from, to) = (words.path()?, words.path()?);
                Self::Rename { from, to, held: words.held()? }
            }
            "link" => Self::Link { id: words.number("the file")?, path: words.path()? },
            "unlink" => Self::Unlink { path: words.path()?, held: words.held()? },
            "write-unlinked" => Self::WriteUnlinked,
            "mkdir" => Self::MakeDirectory { path: words.path()? },
            "rmdir" => Self::RemoveDirectory { path: words.path()? },
            "symlink" => Self::Symlink { path: words.path()?, len: words.number("the length")? },
            "fsync" | "fdatasync" => {
                Self::Fsync { id: words.number("the file")?, data_only: verb == "fdatasync" }
            }
            "fsync-directory" | "fdatasync-directory" => {
                let data_only = verb == "fdatasync-directory";
                Self::SyncDirectory { path: words.path()?, data_only }
            }
            "evict" => Self::Evict { id: words.number("the file")? },
            "sync" => Self::Sync,
            _ => return Err(format!("'{line}': no operation '{verb}'")),
        };
        op.within_bounds().ok_or_else(|| format!("'{line}': a number is more than {LARGEST}"))
    }
}

fn allocate(words: &mut Words<'_>) -> Result<Op, String> {
    let id = words.number("the file")?;
    let word = words.left.next().unwrap_or_default();
    let mode = MODES.iter().find(|(name, _)| *name == word).map(|(_, mode)| *mode);
    let mode = mode.ok_or_else(|| {
        let names: Vec<&str> = MODES.iter().map(|(name, _)| *name).collect();
        format!("'{}': no mode '{word}': give one of {}", words.line, names.join(", "))
    })?;
    let (offset, len) = (words.number("the offset")?, words.number("the length")?);
    Ok(Op::Allocate { id, mode, offset, len })
}

impl Op {
    /// None if a number is too large for a volume of the search.
    fn within_bounds(self) -> Option<Self> {
        let numbers = match &self {
            Self::Write { offset, len, .. } | Self::Allocate { offset, len, .. } => [*offset, *len],
            Self::Truncate { size, .. } => [*size, 0],
            Self::SetXattr { len, .. } | Self::Symlink { len, .. } => [*len as u64, 0],
            _ => [0, 0],
        };
        numbers.iter().all(|number| *number <= LARGEST).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_as_it_is_written() {
        let lines = "create 4097 d0/a-1\nwrite 4097 0 4096\nwrite 4097 8 16 direct dsync\n\
                     write 1 8 16 dontcache\ntruncate 4097 512\nsetxattr 4097 7 20\n\
                     removexattr 4097\nallocate 4097 extend 0 8192\nallocate 4097 punch 8 8\n\
                     allocate 4097 collapse 0 4096\nrename d0/a-1 b held\nrename a b\n\
                     link 4097 c\nunlink c\nunlink b held\nwrite-unlinked\nmkdir d2\nrmdir d2\n\
                     symlink l 100\nfsync 4097\nfdatasync 4097\nfsync-directory /\n\
                     fdatasync-directory d0\nevict 4097\nsync";
        for line in lines.lines() {
            assert_eq!(line.parse::<Op>().map(|op| op.to_string()), Ok(line.to_owned()));
        }
    }

    #[test]
    fn a_line_that_cannot_be_read_says_what_is_wrong() {
        for (line, expected) in [
            ("", "'': no operation ''"),
            ("fsink 1", "'fsink 1': no operation 'fsink'"),
            ("fsync", "'fsync': the file is missing or no number"),
            ("create 1", "'create 1': a path is missing"),
            (
                "write 1 0 8 fast",
                "'write 1 0 8 fast': no word 'fast': leave it out, or give direct, dsync, \
                 dontcache",
            ),
            ("write 1 0 99999999999", "'write 1 0 99999999999': a number is more than 1048576"),
            (
                "allocate 1 half 0 8",
                "'allocate 1 half 0 8': no mode 'half': give one of extend, keep-size, \
                 punch, zero, \
                 collapse, insert",
            ),
        ] {
            assert_eq!(line.parse::<Op>(), Err(expected.to_owned()));
        }
    }
}
