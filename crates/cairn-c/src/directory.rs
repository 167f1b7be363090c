//! Open directories.

#![allow(unsafe_code, reason = "names that the linker sees; unsafe blocks are in `raw`")]

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::Arc;

use cairn::fs::ReadDir;
use cairn_base::ranked_lock::{Mutex, Rank};

use crate::failure::{enter, Failure};
use crate::raw::Text;
use crate::volume::{given, place, stops, Volume};

/// An open directory.
pub struct Directory {
    // Closed before the volume is let go.
    entries: Mutex<ReadDir>,
    volume: Arc<cairn::Volume>,
    /// The path that it was opened by, which errors name.
    path: Vec<u8>,
}

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Inode number.
    pub ino: u64,
    /// Kind as in `mode` of cairn_metadata (S_IFREG, S_IFDIR, ...); 0 if the directory does not
    /// say.
    pub kind: u32,
    /// Bytes of the name, without the NUL.
    pub name_len: u32,
    /// The name.
    pub name: [c_char; 256],
}

/// Opens a directory.
#[no_mangle]
pub extern "C" fn cairn_dir_open(
    volume: Option<&Volume>,
    path: Text,
    directory: Option<&mut MaybeUninit<Option<Box<Directory>>>>,
) -> c_int {
    enter(stops(volume), || {
        let out = place("directory", directory)?;
        out.write(None);
        let (volume, path) = (given(volume)?, path.get("path")?);
        let entries = volume.open.read_dir(path).map_err(Failure::at(path))?;
        let entries = Mutex::new(Rank::Position, entries);
        let (volume, path) = (volume.open.clone(), path.to_vec());
        out.write(Some(Box::new(Directory { entries, volume, path })));
        Ok(())
    })
}

/// The next entry, without "." and "..", in the directory's own order. Gives 1 if there is one and
/// 0 at the end.
#[no_mangle]
pub extern "C" fn cairn_dir_next(
    directory: Option<&Directory>,
    entry: Option<&mut MaybeUninit<Entry>>,
) -> c_int {
    let mut found = 0;
    let filesystem = directory.map(|directory| &**directory.volume.filesystem());
    let status = enter(filesystem, || {
        let missing = || Failure::invalid("the directory is NULL: open one with cairn_dir_open()");
        let directory = directory.ok_or_else(missing)?;
        let out = place("entry", entry)?;
        if let Some(next) = directory.entries.lock().next() {
            let next = next.map_err(Failure::at(&directory.path))?;
            let mut name = [0; 256];
            for (to, byte) in name.iter_mut().zip(next.name()) {
                *to = c_char::from_ne_bytes([*byte]);
            }
            let kind = next.kind().map_or(0, |kind| kind.mode_bits());
            let name_len = u32::try_from(next.name().len()).unwrap_or(0);
            out.write(Entry { ino: next.ino().get(), kind, name_len, name });
            found = 1;
        }
        Ok(())
    });
    if status == 0 {
        found
    } else {
        status
    }
}

/// Closes a directory. NULL is allowed.
#[no_mangle]
pub extern "C" fn cairn_dir_close(directory: Option<Box<Directory>>) -> c_int {
    let volume = match &directory {
        Some(directory) => directory.volume.clone(),
        None => return 0,
    };
    enter(Some(&**volume.filesystem()), || {
        drop(directory);
        Ok(())
    })
}
