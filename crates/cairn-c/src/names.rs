//! Calls that take a path.

#![allow(unsafe_code, reason = "names that the linker sees; unsafe blocks are in `raw`")]

use std::ffi::{c_int, c_uint};
use std::mem::MaybeUninit;

use cairn::fs::OpenOptions;
use cairn::{FileKind, NewInode, Timestamp};

use crate::failure::{count, enter, Failure};
use crate::metadata::Metadata;
use crate::raw::{Buffer, Text};
use crate::volume::{given, place, stops, Volume};

/// Runs a call about one path.
fn at(
    volume: Option<&Volume>,
    path: &Text,
    call: impl FnOnce(&cairn::Volume, &[u8]) -> std::io::Result<()>,
) -> c_int {
    enter(stops(volume), || {
        let path = path.get("path")?;
        call(&given(volume)?.open, path).map_err(Failure::at(path))
    })
}

fn tell(
    volume: Option<&Volume>,
    path: &Text,
    metadata: Option<&mut MaybeUninit<Metadata>>,
    call: impl FnOnce(&cairn::Volume, &[u8]) -> std::io::Result<cairn::fs::Metadata>,
) -> c_int {
    enter(stops(volume), || {
        let (path, out) = (path.get("path")?, place("metadata", metadata)?);
        let found = call(&given(volume)?.open, path).map_err(Failure::at(path))?;
        out.write(Metadata::from(&found));
        Ok(())
    })
}

/// What the volume knows about a file. Symbolic links are followed.
#[no_mangle]
pub extern "C" fn cairn_stat(
    volume: Option<&Volume>,
    path: Text,
    metadata: Option<&mut MaybeUninit<Metadata>>,
) -> c_int {
    tell(volume, &path, metadata, |volume, path| volume.metadata(path))
}

/// As cairn_stat(), of a symbolic link itself.
#[no_mangle]
pub extern "C" fn cairn_lstat(
    volume: Option<&Volume>,
    path: Text,
    metadata: Option<&mut MaybeUninit<Metadata>>,
) -> c_int {
    tell(volume, &path, metadata, |volume, path| volume.symlink_metadata(path))
}

/// The target of a symbolic link: its bytes, without a NUL. Gives its length, which is larger than
/// `len` if only a part had room; it is at most 4095.
#[no_mangle]
pub extern "C" fn cairn_readlink(
    volume: Option<&Volume>,
    path: Text,
    buffer: Buffer,
    len: usize,
) -> i64 {
    let mut buffer = buffer;
    count(stops(volume), || {
        let path = path.get("path")?;
        let target = given(volume)?.open.read_link(path).map_err(Failure::at(path))?;
        fill(buffer.get("buffer", len)?, &target);
        Ok(target.len() as u64)
    })
}

/// Copies what has room.
pub(crate) fn fill(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

/// Makes a symbolic link at `path` to `target`, which need not exist.
#[no_mangle]
pub extern "C" fn cairn_symlink(volume: Option<&Volume>, target: Text, path: Text) -> c_int {
    enter(stops(volume), || {
        let (target, path) = (target.get("target")?, path.get("path")?);
        given(volume)?.open.symlink(target, path).map_err(Failure::at(path))
    })
}

/// Makes a directory with these permission bits.
#[no_mangle]
pub extern "C" fn cairn_mkdir(volume: Option<&Volume>, path: Text, mode: c_uint) -> c_int {
    at(volume, &path, |volume, path| volume.create_node(path, NewInode::Directory, mode & 0o7777))
}

/// Makes a file, FIFO, socket or device. `mode` has its kind (S_IFREG, S_IFIFO, S_IFSOCK, S_IFBLK,
/// S_IFCHR) and permission bits. `major` and `minor` are a device's number.
#[no_mangle]
pub extern "C" fn cairn_mknod(
    volume: Option<&Volume>,
    path: Text,
    mode: c_uint,
    major: c_uint,
    minor: c_uint,
) -> c_int {
    let device = cairn::encode_device(major, minor);
    let new = match (FileKind::from_mode(mode), device) {
        (Some(FileKind::Regular), _) => NewInode::Regular,
        (Some(FileKind::Fifo), _) => NewInode::Fifo,
        (Some(FileKind::Socket), _) => NewInode::Socket,
        (Some(FileKind::BlockDevice), Some(device)) => NewInode::BlockDevice(device),
        (Some(FileKind::CharDevice), Some(device)) => NewInode::CharDevice(device),
        (Some(FileKind::BlockDevice | FileKind::CharDevice), None) => {
            let what = "the greatest device is 4095:1048575";
            return enter(None, || Err(Failure::invalid(what)));
        }
        _ => {
            let what = "a directory is made by cairn_mkdir(), a link by cairn_symlink()";
            return enter(None, || Err(Failure::invalid(what)));
        }
    };
    at(volume, &path, |volume, path| volume.create_node(path, new, mode & 0o7777))
}

/// Removes a name that is not a directory's.
#[no_mangle]
pub extern "C" fn cairn_unlink(volume: Option<&Volume>, path: Text) -> c_int {
    at(volume, &path, |volume, path| volume.remove_file(path))
}

/// Removes an empty directory.
#[no_mangle]
pub extern "C" fn cairn_rmdir(volume: Option<&Volume>, path: Text) -> c_int {
    at(volume, &path, |volume, path| volume.remove_dir(path))
}

/// Renames a file or directory. One of the new name is replaced.
#[no_mangle]
pub extern "C" fn cairn_rename(volume: Option<&Volume>, from: Text, to: Text) -> c_int {
    enter(stops(volume), || {
        let (from, to) = (from.get("from")?, to.get("to")?);
        given(volume)?.open.rename(from, to).map_err(Failure::between(from, to))
    })
}

/// Gives a file a second name.
#[no_mangle]
pub extern "C" fn cairn_link(volume: Option<&Volume>, original: Text, path: Text) -> c_int {
    enter(stops(volume), || {
        let (original, path) = (original.get("original")?, path.get("path")?);
        let linked = given(volume)?.open.hard_link(original, path);
        linked.map_err(Failure::between(original, path))
    })
}

/// Shortens or lengthens a file.
#[no_mangle]
pub extern "C" fn cairn_truncate(volume: Option<&Volume>, path: Text, size: u64) -> c_int {
    at(volume, &path, |volume, path| {
        OpenOptions::new().write(true).open(volume, path)?.set_len(size)
    })
}

/// Sets the permission bits.
#[no_mangle]
pub extern "C" fn cairn_chmod(volume: Option<&Volume>, path: Text, mode: c_uint) -> c_int {
    at(volume, &path, |volume, path| volume.set_permissions(path, mode & 0o7777))
}

/// Sets owner and group; a symbolic link's own. (uint32_t)-1 keeps one.
#[no_mangle]
pub extern "C" fn cairn_lchown(volume: Option<&Volume>, path: Text, uid: u32, gid: u32) -> c_int {
    at(volume, &path, |volume, path| volume.set_owner(path, uid, gid))
}

/// Sets the times of the last access and of the last change of the contents.
#[no_mangle]
pub extern "C" fn cairn_utimes(
    volume: Option<&Volume>,
    path: Text,
    atime: i64,
    atime_nsec: u32,
    mtime: i64,
    mtime_nsec: u32,
) -> c_int {
    let times = times(atime, atime_nsec, mtime, mtime_nsec);
    at(volume, &path, |volume, path| {
        let (accessed, modified) = times?;
        volume.set_times(path, accessed, modified)
    })
}

/// As cairn_utimes(); of a symbolic link its own.
#[no_mangle]
pub extern "C" fn cairn_lutimes(
    volume: Option<&Volume>,
    path: Text,
    atime: i64,
    atime_nsec: u32,
    mtime: i64,
    mtime_nsec: u32,
) -> c_int {
    let times = times(atime, atime_nsec, mtime, mtime_nsec);
    at(volume, &path, |volume, path| {
        let (accessed, modified) = times?;
        volume.set_times_nofollow(path, accessed, modified)
    })
}

fn times(
    atime: i64,
    atime_nsec: u32,
    mtime: i64,
    mtime_nsec: u32,
) -> std::io::Result<(Timestamp, Timestamp)> {
    if atime_nsec > 999_999_999 || mtime_nsec > 999_999_999 {
        let kind = std::io::ErrorKind::InvalidInput;
        return Err(std::io::Error::new(kind, "nanoseconds are 0 to 999999999"));
    }
    Ok((
        Timestamp { seconds: atime, nanoseconds: atime_nsec },
        Timestamp { seconds: mtime, nanoseconds: mtime_nsec },
    ))
}
