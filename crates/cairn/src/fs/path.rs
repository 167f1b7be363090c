//! What can be given as a path.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path on a volume: bytes, with slashes between its components.
pub trait AsPath {
    /// Its bytes.
    fn as_path_bytes(&self) -> &[u8];
}

impl<T: AsPath + ?Sized> AsPath for &T {
    fn as_path_bytes(&self) -> &[u8] {
        (**self).as_path_bytes()
    }
}

macro_rules! path {
    ($($type:ty => |$path:ident| $bytes:expr;)*) => {
        $(impl AsPath for $type {
            fn as_path_bytes(&self) -> &[u8] {
                let $path = self;
                $bytes
            }
        })*
    };
}

path! {
    [u8] => |path| path;
    Vec<u8> => |path| path;
    str => |path| path.as_bytes();
    String => |path| path.as_bytes();
    OsStr => |path| path.as_bytes();
    OsString => |path| path.as_bytes();
    Path => |path| path.as_os_str().as_bytes();
    PathBuf => |path| path.as_os_str().as_bytes();
}

impl<const N: usize> AsPath for [u8; N] {
    fn as_path_bytes(&self) -> &[u8] {
        self
    }
}

/// `directory/name`, with one slash between them.
pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") || name.is_empty() { b"" } else { b"/" };
    [directory, slash, name].concat()
}
