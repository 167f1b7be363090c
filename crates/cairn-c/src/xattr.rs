//! Extended attributes, by their full names ("user.note"); those of a symbolic link are its own.

#![allow(unsafe_code, reason = "names that the linker sees; unsafe blocks are in `raw`")]

use std::ffi::c_int;

use crate::failure::{count, enter, Failure};
use crate::names::fill;
use crate::raw::{Buffer, Bytes, Text};
use crate::volume::{given, stops, Volume};

/// What fits, or its size if there is no room asked for.
fn answer(buffer: &mut Buffer, len: usize, value: &[u8]) -> Result<u64, Failure> {
    if len != 0 {
        if value.len() > len {
            let what = format!("{} bytes have no room in {len}: give more", value.len());
            return Err(Failure::new(libc::ERANGE, what));
        }
        fill(buffer.get("buffer", len)?, value);
    }
    Ok(value.len() as u64)
}

/// The value of an extended attribute ("user.note"; of a symbolic link its own). Gives its size;
/// with a `len` of 0 nothing else. -ENODATA: there is none of this name; -ERANGE: it does not fit.
#[no_mangle]
pub extern "C" fn cairn_getxattr(
    volume: Option<&Volume>,
    path: Text,
    name: Text,
    buffer: Buffer,
    len: usize,
) -> i64 {
    let mut buffer = buffer;
    count(stops(volume), || {
        let (path, name) = (path.get("path")?, name.get("name")?);
        let found = given(volume)?.open.xattr(path, name).map_err(Failure::at(path))?;
        let none = || {
            let (path, name) = (path.escape_ascii(), name.escape_ascii());
            Failure::new(libc::ENODATA, format!("{path}: no attribute {name}"))
        };
        answer(&mut buffer, len, &found.ok_or_else(none)?)
    })
}

/// The names of all extended attributes, each with a NUL behind it. Gives their size; with a `len`
/// of 0 nothing else. -ERANGE: they do not fit.
#[no_mangle]
pub extern "C" fn cairn_listxattr(
    volume: Option<&Volume>,
    path: Text,
    buffer: Buffer,
    len: usize,
) -> i64 {
    let mut buffer = buffer;
    count(stops(volume), || {
        let path = path.get("path")?;
        let mut names = given(volume)?.open.list_xattrs(path).map_err(Failure::at(path))?;
        names.iter_mut().for_each(|name| name.push(0));
        answer(&mut buffer, len, &names.concat())
    })
}

/// Makes or replaces an extended attribute.
#[no_mangle]
pub extern "C" fn cairn_setxattr(
    volume: Option<&Volume>,
    path: Text,
    name: Text,
    value: Bytes,
    len: usize,
) -> c_int {
    enter(stops(volume), || {
        let (path, name, value) = (path.get("path")?, name.get("name")?, value.get("value", len)?);
        given(volume)?.open.set_xattr(path, name, Some(value)).map_err(Failure::at(path))
    })
}

/// Removes an extended attribute.
#[no_mangle]
pub extern "C" fn cairn_removexattr(volume: Option<&Volume>, path: Text, name: Text) -> c_int {
    enter(stops(volume), || {
        let (path, name) = (path.get("path")?, name.get("name")?);
        given(volume)?.open.set_xattr(path, name, None).map_err(Failure::at(path))
    })
}
