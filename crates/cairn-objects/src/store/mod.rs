//! [`Store`]: the few requests that a volume makes to an object store.
//!
//! A store holds immutable byte strings under names. Names have letters, digits, `.`, `_`, `-` and
//! `/`. Calls block, and any number of threads may be in one.

pub mod connect;
mod counted;
mod directory;
mod memory;
#[cfg(feature = "remote")]
mod remote;
mod trouble;

use std::fmt;
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;

pub use counted::{Counted, Counters};
pub use directory::DirectoryStore;
pub use memory::MemoryStore;
pub use trouble::{Moment, Trouble};

/// Which version of an object a name has. Never given again for other contents of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag(pub String);

/// When a PUT may take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// No object has the name.
    IfAbsent,
    /// The object has this tag.
    IfMatch(&'a Tag),
}

/// An object in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub size: u64,
}

/// An object's contents.
#[derive(Clone, Debug)]
pub struct Object {
    /// All bytes.
    pub bytes: Bytes,
    /// Their version.
    pub tag: Tag,
}

/// What lies among the objects of a store and is none: a link of another user, what cannot be read
/// or removed. It is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// Its name in the store.
    pub name: String,
    /// Why it is left alone.
    pub reason: String,
}

/// What a sweep has removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many files.
    pub files: u64,
    /// What could not be removed.
    pub left: Vec<Stranger>,
}

/// What a failed request means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No object has the name, or there is no such bucket.
    Missing,
    /// The condition of a PUT does not hold.
    Conflict,
    /// The credentials are missing, wrong or not enough.
    Denied,
    /// The store cannot do this.
    Unsupported,
    /// The store is full.
    Full,
    /// No answer, or one that asks to come again. A PUT or DELETE may have been done.
    Transient,
    /// Anything else.
    Failed,
}

/// A failed request.
#[derive(Clone, Debug)]
pub struct Error {
    /// What to match on.
    pub kind: ErrorKind,
    /// The reason in words, with what to do.
    pub detail: String,
}

impl Error {
    /// An error.
    #[must_use]
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Error {}

/// What to do about an object that has lost bytes, or is lost.
pub(crate) const RESTORE: &str = "restore it from a copy of the store, or use a snapshot; to learn \
                                  what else is lost, verify the pool";

/// The result of a request.
pub type Result<T> = std::result::Result<T, Error>;

/// An object store.
pub trait Store: Send + Sync {
    /// Stores the parts, one after the other, as one object. It appears as a whole or not at all.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the condition does not hold; others.
    fn put(&self, name: &str, parts: &[Bytes], condition: Condition<'_>) -> Result<Tag>;

    /// The whole object.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`]; others.
    fn get(&self, name: &str) -> Result<Object>;

    /// The bytes of a range. An object that ends earlier gives what it has, at least one byte.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if there is no object, [`ErrorKind::Failed`] if it ends before the
    /// range; others.
    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes>;

    /// The objects whose names begin with `prefix` and are greater than `after`, sorted by name.
    ///
    /// # Errors
    /// See [`ErrorKind`]; no object is no error.
    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Vec<Listed>>;

    /// Removes an object. One that is not there is no error.
    ///
    /// # Errors
    /// See [`ErrorKind`].
    fn delete(&self, name: &str) -> Result<()>;

    /// Removes what PUTs of killed processes have left and is no object.
    ///
    /// # Errors
    /// See [`ErrorKind`].
    fn sweep(&self) -> Result<Swept> {
        Ok(Swept::default())
    }

    /// What lists leave out.
    ///
    /// # Errors
    /// See [`ErrorKind`].
    fn strangers(&self) -> Result<Vec<Stranger>> {
        Ok(Vec::new())
    }

    /// True if an object belongs to another user, so that a DELETE may be refused for it alone.
    fn is_foreign(&self, _name: &str) -> bool {
        false
    }

    /// True if a path of this host is that of something in the store.
    fn holds(&self, _path: &Path) -> bool {
        false
    }

    /// True if somebody has made volumes here, although there may be no object now. Where nothing
    /// but objects tells, this is false.
    ///
    /// # Errors
    /// See [`ErrorKind`].
    fn is_made(&self) -> Result<bool> {
        Ok(false)
    }
}

impl<S: Store + ?Sized> Store for std::sync::Arc<S> {
    fn put(&self, name: &str, parts: &[Bytes], condition: Condition<'_>) -> Result<Tag> {
        (**self).put(name, parts, condition)
    }

    fn get(&self, name: &str) -> Result<Object> {
        (**self).get(name)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        (**self).get_range(name, range)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Vec<Listed>> {
        (**self).list(prefix, after)
    }

    fn delete(&self, name: &str) -> Result<()> {
        (**self).delete(name)
    }

    fn sweep(&self) -> Result<Swept> {
        (**self).sweep()
    }

    fn strangers(&self) -> Result<Vec<Stranger>> {
        (**self).strangers()
    }

    fn is_foreign(&self, name: &str) -> bool {
        (**self).is_foreign(name)
    }

    fn holds(&self, path: &Path) -> bool {
        (**self).holds(path)
    }

    fn is_made(&self) -> Result<bool> {
        (**self).is_made()
    }
}

/// The bytes of the parts.
pub(crate) fn total(parts: &[Bytes]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

#[cfg(test)]
mod tests;
