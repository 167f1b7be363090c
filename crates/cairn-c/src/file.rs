//! Open files.

#![allow(unsafe_code, reason = "names that the linker sees; unsafe blocks are in `raw`")]

use std::ffi::{c_int, c_uint};
use std::io::{Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::sync::Arc;

use cairn::fs::OpenOptions;

use crate::failure::{count, enter, Failure};
use crate::metadata::Metadata;
use crate::raw::{Buffer, Bytes, Text};
use crate::volume::{given, place, stops, Volume};

/// An open file.
pub struct File {
    // Closed before the volume is let go.
    open: cairn::fs::File,
    volume: Arc<cairn::Volume>,
    /// The path that it was opened by, which errors name.
    path: Vec<u8>,
}

impl File {
    /// Runs a call on the open file.
    fn call<T>(
        &self,
        call: impl FnOnce(&cairn::fs::File) -> std::io::Result<T>,
    ) -> Result<T, Failure> {
        call(&self.open).map_err(Failure::at(&self.path))
    }
}

fn file(file: Option<&File>) -> Result<&File, Failure> {
    file.ok_or_else(|| Failure::invalid("the file is NULL: open one with cairn_file_open()"))
}

fn behind(file: Option<&File>) -> Option<&dyn cairn::FileSystem> {
    file.map(|file| &**file.volume.filesystem())
}

/// What open(2) is asked for.
fn options(flags: c_int, mode: c_uint) -> Result<OpenOptions, Failure> {
    // Flags that make no difference here.
    let ignored = libc::O_CLOEXEC | libc::O_LARGEFILE | libc::O_NOCTTY;
    let known = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_APPEND;
    if flags & !(libc::O_ACCMODE | known | ignored) != 0 {
        let what =
            "flags of cairn_file_open(): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, \
                    O_TRUNC, O_APPEND";
        return Err(Failure::invalid(what));
    }
    let has = |flag| flags & flag != 0;
    let access = flags & libc::O_ACCMODE;
    let writes = access == libc::O_WRONLY || access == libc::O_RDWR;
    let mut options = OpenOptions::new();
    options
        .read(access == libc::O_RDONLY || access == libc::O_RDWR)
        .write(writes)
        .append(writes && has(libc::O_APPEND))
        .create(has(libc::O_CREAT))
        .create_new(has(libc::O_CREAT) && has(libc::O_EXCL))
        .truncate(has(libc::O_TRUNC))
        .mode(mode & 0o7777);
    Ok(options)
}

/// Opens a file. `flags` are those of open(2) (fcntl.h): O_RDONLY, O_WRONLY or O_RDWR, and of
/// O_CREAT, O_EXCL, O_TRUNC, O_APPEND those that are wanted. `mode` has the permission bits of a
/// file that is made; there is no umask. Directories are not opened: see cairn_dir_open().
#[no_mangle]
pub extern "C" fn cairn_file_open(
    volume: Option<&Volume>,
    path: Text,
    flags: c_int,
    mode: c_uint,
    file: Option<&mut MaybeUninit<Option<Box<File>>>>,
) -> c_int {
    enter(stops(volume), || {
        let out = place("file", file)?;
        out.write(None);
        let (volume, path) = (given(volume)?, path.get("path")?);
        let open = options(flags, mode)?.open(&volume.open, path).map_err(Failure::at(path))?;
        let (volume, path) = (volume.open.clone(), path.to_vec());
        out.write(Some(Box::new(File { open, volume, path })));
        Ok(())
    })
}

/// Closes a file. This does not make it durable: see cairn_file_sync(). NULL is allowed.
#[no_mangle]
pub extern "C" fn cairn_file_close(file: Option<Box<File>>) -> c_int {
    let volume = match &file {
        Some(file) => file.volume.clone(),
        None => return 0,
    };
    enter(Some(&**volume.filesystem()), || {
        drop(file);
        Ok(())
    })
}

/// Reads at the file's position, which moves on. Gives fewer bytes than `len` only at the end.
#[no_mangle]
pub extern "C" fn cairn_file_read(file: Option<&File>, buffer: Buffer, len: usize) -> i64 {
    let mut buffer = buffer;
    count(behind(file), || {
        let (file, buffer) = (self::file(file)?, buffer.get("buffer", len)?);
        Ok(file.call(|mut open| open.read(buffer))? as u64)
    })
}

/// Reads from a byte offset.
#[no_mangle]
pub extern "C" fn cairn_file_pread(
    file: Option<&File>,
    buffer: Buffer,
    len: usize,
    offset: u64,
) -> i64 {
    let mut buffer = buffer;
    count(behind(file), || {
        let (file, buffer) = (self::file(file)?, buffer.get("buffer", len)?);
        Ok(file.call(|open| open.read_at(buffer, offset))? as u64)
    })
}

/// Writes at the file's position, which moves on. Gives fewer bytes than `len` if there is no more
/// room.
#[no_mangle]
pub extern "C" fn cairn_file_write(file: Option<&File>, data: Bytes, len: usize) -> i64 {
    count(behind(file), || {
        let (file, data) = (self::file(file)?, data.get("data", len)?);
        Ok(file.call(|mut open| open.write(data))? as u64)
    })
}

/// Writes at a byte offset; to the end of a file that was opened with O_APPEND.
#[no_mangle]
pub extern "C" fn cairn_file_pwrite(
    file: Option<&File>,
    data: Bytes,
    len: usize,
    offset: u64,
) -> i64 {
    count(behind(file), || {
        let (file, data) = (self::file(file)?, data.get("data", len)?);
        Ok(file.call(|open| open.write_at(data, offset))? as u64)
    })
}

/// Moves the file's position, as lseek(2) with SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA and
/// SEEK_HOLE; gives the new one. -ENXIO: there is no data behind `offset`.
#[no_mangle]
pub extern "C" fn cairn_file_seek(file: Option<&File>, offset: i64, whence: c_int) -> i64 {
    count(behind(file), || {
        let file = self::file(file)?;
        let start = || {
            u64::try_from(offset)
                .map_err(|_| Failure::invalid("a position before the file's start"))
        };
        let to = match whence {
            libc::SEEK_SET => SeekFrom::Start(start()?),
            libc::SEEK_CUR => SeekFrom::Current(offset),
            libc::SEEK_END => SeekFrom::End(offset),
            libc::SEEK_DATA | libc::SEEK_HOLE => {
                let data = whence == libc::SEEK_DATA;
                let what = if data { cairn::Seek::Data } else { cairn::Seek::Hole };
                let start = start()?;
                let found = file.call(|open| open.find(what, start))?;
                let none = "there is nothing but a hole from there to the end of the file";
                SeekFrom::Start(found.ok_or_else(|| Failure::new(libc::ENXIO, none))?)
            }
            _ => return Err(Failure::invalid("whence: SEEK_SET, _CUR, _END, _DATA or _HOLE")),
        };
        file.call(|mut open| open.seek(to))
    })
}

/// Shortens or lengthens an open file. New bytes are zeros.
#[no_mangle]
pub extern "C" fn cairn_file_truncate(file: Option<&File>, size: u64) -> c_int {
    enter(behind(file), || self::file(file)?.call(|open| open.set_len(size)))
}

/// Makes the file durable: contents and attributes, or with `data_only` the contents and what is
/// needed to read them.
#[no_mangle]
pub extern "C" fn cairn_file_sync(file: Option<&File>, data_only: c_int) -> c_int {
    enter(behind(file), || {
        let sync = |open: &cairn::fs::File| match data_only {
            0 => open.sync_all(),
            _ => open.sync_data(),
        };
        self::file(file)?.call(sync)
    })
}

/// What the volume knows about an open file.
#[no_mangle]
pub extern "C" fn cairn_file_stat(
    file: Option<&File>,
    metadata: Option<&mut MaybeUninit<Metadata>>,
) -> c_int {
    enter(behind(file), || {
        let found = self::file(file)?.call(cairn::fs::File::metadata)?;
        place("metadata", metadata)?.write(Metadata::from(&found));
        Ok(())
    })
}
