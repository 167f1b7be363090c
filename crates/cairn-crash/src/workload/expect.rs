//! Expected and found contents of a path after a power cut.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::Ino;
use cairn_vfs::{FileKind, FileSystem, IoFlags};

use super::pattern;

/// What may stand behind the durable bytes of a file that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Bytes that were appended: the size never covers others.
    Own,
    /// Those or zeros: F2FS, as Linux's, can write a checkpoint with the size before the data.
    OwnOrZeros,
}

/// The durable state of a path.
#[expect(missing_docs, reason = "the names of fields say what they hold")]
#[derive(Clone, Debug)]
pub enum Expect {
    /// The path does not exist.
    Gone,
    /// A directory.
    Directory,
    /// A symbolic link to this.
    Symlink(Vec<u8>),
    /// A file with these bytes (and others behind them, if `tail`), and its attribute if it is
    /// durable.
    File { id: u16, bytes: Arc<Vec<u8>>, tail: Option<Tail>, xattr: Option<Option<Vec<u8>>> },
    /// One of these: a change of the name was not yet durable.
    OneOf(Vec<Expect>),
}

/// The found state of a path.
#[expect(missing_docs, reason = "the names of variants and fields say what they hold")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Directory,
    Symlink(Vec<u8>),
    File { bytes: Vec<u8>, xattr: Option<Vec<u8>> },
}

/// A file that makes a volume nearly full, in the root directory. Nothing is promised of it.
pub const FILLER: &str = "filler";

/// More than a workload writes into a file.
const LARGEST: u64 = 1 << 21;

/// The attribute that the workloads set.
pub(super) const XATTR: &[u8] = b"user.state";

impl Expect {
    /// True if the state contains the contents of file `id`.
    pub(super) fn mentions(&self, id: u16) -> bool {
        match self {
            Self::File { id: other, .. } => *other == id,
            Self::OneOf(all) => all.iter().any(|one| one.mentions(id)),
            _ => false,
        }
    }

    /// The durable state while file `id` grows at its end.
    pub(super) fn appended(&self, id: u16, tail: Tail) -> Self {
        match self {
            Self::File { id: other, bytes, xattr, .. } if *other == id => {
                Self::File { id, bytes: bytes.clone(), tail: Some(tail), xattr: xattr.clone() }
            }
            Self::OneOf(all) => Self::OneOf(all.iter().map(|one| one.appended(id, tail)).collect()),
            other => other.clone(),
        }
    }

    /// Compares.
    ///
    /// # Errors
    /// What is found is not what was promised.
    pub fn check(&self, found: Option<&Found>) -> Result<(), String> {
        match (self, found) {
            (Self::Gone, None) | (Self::Directory, Some(Found::Directory)) => Ok(()),
            (Self::Symlink(target), Some(Found::Symlink(other))) if target == other => Ok(()),
            (
                Self::File { id, bytes, tail, xattr },
                Some(Found::File { bytes: there, xattr: value }),
            ) => {
                if xattr.as_ref().is_some_and(|promised| promised != value) {
                    return Err(format!("attribute {value:?}, promised was {xattr:?}"));
                }
                if there.len() < bytes.len() || (there.len() > bytes.len() && tail.is_none()) {
                    return Err(format!(
                        "{} bytes, promised were {} (tail: {tail:?})",
                        there.len(),
                        bytes.len()
                    ));
                }
                if let Some(at) = (0..bytes.len()).find(|at| there[*at] != bytes[*at]) {
                    return Err(format!(
                        "byte {at} of {} is not what was made durable",
                        bytes.len()
                    ));
                }
                let from = if *tail == Some(Tail::OwnOrZeros) { there.len() } else { bytes.len() };
                pattern::check(*id, there, from)
            }
            (Self::OneOf(all), found) => {
                let failures: Vec<String> =
                    all.iter().filter_map(|one| one.check(found).err()).collect();
                if failures.len() < all.len() {
                    Ok(())
                } else {
                    Err(format!("none of: {}", failures.join("; ")))
                }
            }
            (promised, found) => {
                Err(format!("{} instead of {}", describe(found), promised.describe()))
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::File { id, bytes, .. } => format!("file {id:#x} of {} bytes", bytes.len()),
            other => format!("{other:?}"),
        }
    }
}

fn describe(found: Option<&Found>) -> String {
    match found {
        None => "nothing".into(),
        Some(Found::File { bytes, .. }) => format!("a file of {} bytes", bytes.len()),
        Some(other) => format!("{other:?}"),
    }
}

/// Reads all names, bytes and attributes. Asserts that files of the workloads have only their own
/// bytes.
///
/// # Errors
/// Something cannot be read, or a file has bytes of another one.
pub fn read_all(fs: &dyn FileSystem) -> Result<BTreeMap<String, Found>, String> {
    let mut all = BTreeMap::new();
    let mut left = vec![(String::new(), fs.root())];
    while let Some((path, dir)) = left.pop() {
        for name in names(fs, dir).map_err(|error| format!("listing /{path}: {error}"))? {
            let full = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            let found = read_one(fs, dir, &full, &name, &mut left)
                .map_err(|error| format!("/{full}: {error}"))?;
            all.insert(full, found);
        }
    }
    Ok(all)
}

fn names(fs: &dyn FileSystem, dir: Ino) -> cairn_vfs::Result<Vec<String>> {
    let mut names = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        names.push(String::from_utf8_lossy(&entry.name).into_owned());
        true
    })?;
    names.retain(|name| ![".", "..", "lost+found", FILLER].contains(&&**name));
    Ok(names)
}

fn read_one(
    fs: &dyn FileSystem,
    dir: Ino,
    full: &str,
    name: &str,
    left: &mut Vec<(String, Ino)>,
) -> Result<Found, String> {
    let text = |error: cairn_vfs::Error| error.to_string();
    let attributes = fs.lookup(dir, name.as_bytes()).map_err(text)?;
    let ino = attributes.ino;
    let found = match attributes.kind {
        FileKind::Directory => {
            left.push((full.to_owned(), ino));
            Found::Directory
        }
        FileKind::Symlink => Found::Symlink(fs.readlink(ino).map_err(text)?),
        _ => {
            if attributes.size > LARGEST {
                return Err(format!("{} bytes, more than were written", attributes.size));
            }
            let mut bytes = vec![0; usize::try_from(attributes.size).expect("it is small")];
            let got = fs.read(ino, 0, &mut bytes, IoFlags::empty()).map_err(text)?;
            if got != bytes.len() {
                return Err(format!("{got} of {} bytes read", bytes.len()));
            }
            if let Some(id) = pattern::owner(&bytes) {
                pattern::check(id, &bytes, bytes.len())?;
            }
            let xattr = match fs.getxattr(ino, XATTR) {
                Ok(value) => Some(value),
                Err(cairn_vfs::Error::NoAttribute) => None,
                Err(error) => return Err(text(error)),
            };
            Found::File { bytes, xattr }
        }
    };
    fs.forget(ino, 1);
    Ok(found)
}
