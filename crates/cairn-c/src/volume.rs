//! Volumes: made, opened, closed.

#![allow(unsafe_code, reason = "names that the linker sees; unsafe blocks are in `raw`")]

use std::ffi::{c_char, c_int, c_uint, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use cairn::{FileSystem, Format, ImageSpec, MkfsOptions, OpenOptions};

use crate::failure::{enter, Failure};
use crate::raw::Text;

/// Opens a volume for reading: nothing is written to the image.
pub const CAIRN_READ: c_uint = 0;
/// Opens a volume for reading and writing.
pub const CAIRN_WRITE: c_uint = 1;
/// Keeps changes in memory, and drops them with the volume.
pub const CAIRN_EPHEMERAL: c_uint = 2;
/// Lets cairn_mkfs() replace what the image holds.
pub const CAIRN_OVERWRITE: c_uint = 1;

/// An open volume.
pub struct Volume {
    pub(crate) open: Arc<cairn::Volume>,
}

impl Volume {
    pub(crate) fn filesystem(&self) -> &dyn FileSystem {
        &**self.open.filesystem()
    }
}

/// The volume behind a handle, and what a panic stops.
pub(crate) fn stops(volume: Option<&Volume>) -> Option<&dyn FileSystem> {
    volume.map(Volume::filesystem)
}

pub(crate) fn given(volume: Option<&Volume>) -> Result<&Volume, Failure> {
    let volume =
        volume.ok_or_else(|| Failure::invalid("the volume is NULL: open one with cairn_open()"))?;
    match volume.open.is_here() {
        true => Ok(volume),
        false => Err(Failure::new(libc::EPERM, cairn::Volume::FORKED)),
    }
}

pub(crate) fn place<'a, T>(
    what: &str,
    out: Option<&'a mut MaybeUninit<T>>,
) -> Result<&'a mut MaybeUninit<T>, Failure> {
    out.ok_or_else(|| Failure::invalid(format!("{what} is NULL: give a place for the result")))
}

pub(crate) fn image_of(text: &Text) -> Result<ImageSpec, Failure> {
    Ok(ImageSpec::parse(OsStr::from_bytes(text.get("image")?))?)
}

/// The version of the library: "0.1.0".
#[no_mangle]
pub extern "C" fn cairn_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Makes a volume in `image` ("disk.img", "disk.img#2"). `format` is "ext4" or "f2fs". `size` is
/// that of the image file in bytes, which is made if it is missing; 0 keeps the size it has.
/// `label` may be NULL. `flags` is 0 or CAIRN_OVERWRITE, without which -EEXIST keeps what is found
/// there.
#[no_mangle]
pub extern "C" fn cairn_mkfs(
    image: Text,
    format: Text,
    size: u64,
    label: Text,
    flags: c_uint,
) -> c_int {
    enter(None, || {
        let format = std::str::from_utf8(format.get("format")?).ok().and_then(Format::from_name);
        let format =
            format.ok_or_else(|| Failure::invalid("the format is neither ext4 nor f2fs"))?;
        let label = match label.find().map(std::str::from_utf8) {
            None => None,
            Some(Ok(label)) => Some(label.to_owned()),
            Some(Err(_)) => return Err(Failure::invalid("the label is not UTF-8")),
        };
        let overwrite = match flags {
            0 => false,
            CAIRN_OVERWRITE => true,
            _ => return Err(Failure::invalid("flags of cairn_mkfs(): 0 or CAIRN_OVERWRITE")),
        };
        let size = Some(size).filter(|size| *size > 0);
        let options = MkfsOptions { label, size, overwrite, ..MkfsOptions::new(format) };
        Ok(cairn::mkfs(&image_of(&image)?, &options)?)
    })
}

/// Opens the volume in `image`: "disk.img", its partition 2 as "disk.img#2", or
/// "disk.img?offset=BYTES". `flags` is CAIRN_READ, CAIRN_WRITE or CAIRN_EPHEMERAL.
/// `mount_options` are the kernel's names, separated by commas; NULL for none. A volume that a
/// crash has left is recovered, by CAIRN_READ in memory. One that can only be read is opened by
/// CAIRN_READ alone: with the others it is -EROFS.
#[no_mangle]
pub extern "C" fn cairn_open(
    image: Text,
    flags: c_uint,
    mount_options: Text,
    volume: Option<&mut MaybeUninit<Option<Box<Volume>>>>,
) -> c_int {
    enter(None, || {
        let out = place("volume", volume)?;
        out.write(None);
        let mount_options = match mount_options.find().map(std::str::from_utf8) {
            None => String::new(),
            Some(Ok(options)) => options.to_owned(),
            Some(Err(_)) => return Err(Failure::invalid("the mount options are not UTF-8")),
        };
        let defaults = OpenOptions { mount_options, must_write: true, ..OpenOptions::default() };
        let options = match flags {
            CAIRN_READ => OpenOptions { read_only: true, ..defaults },
            CAIRN_WRITE => defaults,
            CAIRN_EPHEMERAL => OpenOptions { ephemeral: true, ..defaults },
            _ => {
                let what = "flags of cairn_open(): CAIRN_READ, CAIRN_WRITE or CAIRN_EPHEMERAL";
                return Err(Failure::invalid(what));
            }
        };
        let open = Arc::new(cairn::open(&image_of(&image)?, &options)?);
        out.write(Some(Box::new(Volume { open })));
        Ok(())
    })
}

/// Writes everything, marks the volume clean and closes it. The handle is gone afterwards, also
/// after an error, which says that something is not on the medium. While files or directories of
/// the volume are open, nothing happens but -EBUSY. NULL is allowed. In a child of fork() it frees
/// the handle, and the volume stays open in the parent; no other call is possible there (-EPERM).
#[no_mangle]
pub extern "C" fn cairn_close(volume: Option<Box<Volume>>) -> c_int {
    let volume = match volume {
        Some(volume) => volume,
        None => return 0,
    };
    if Arc::strong_count(&volume.open) > 1 {
        // The caller keeps the handle.
        Box::leak(volume);
        return enter(None, || Err(busy()));
    }
    let filesystem = volume.open.filesystem().clone();
    enter(Some(&*filesystem), || {
        let open = Arc::try_unwrap(volume.open).map_err(|_| busy())?;
        open.close().map_err(|error| std::io::Error::from(error).into())
    })
}

fn busy() -> Failure {
    Failure::new(libc::EBUSY, "files or directories of the volume are open: close them first")
}

/// Makes everything durable that was written so far.
#[no_mangle]
pub extern "C" fn cairn_sync(volume: Option<&Volume>) -> c_int {
    enter(stops(volume), || Ok(given(volume)?.open.sync()?))
}

/// The format of a volume: "ext4" or "f2fs". NULL for NULL.
#[no_mangle]
pub extern "C" fn cairn_format(volume: Option<&Volume>) -> *const c_char {
    let name = match volume.map(|volume| volume.open.format()) {
        Some(Format::Ext4) => "ext4\0",
        Some(Format::F2fs) => "f2fs\0",
        Some(_) => "unknown\0",
        None => return std::ptr::null(),
    };
    name.as_ptr().cast()
}

/// How much room a volume has.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Blocks for data.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks that are not reserved for root.
    pub available_blocks: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Longest name in bytes.
    pub name_max: u32,
}

/// How much room a volume has.
#[no_mangle]
pub extern "C" fn cairn_statfs(
    volume: Option<&Volume>,
    space: Option<&mut MaybeUninit<Space>>,
) -> c_int {
    enter(stops(volume), || {
        let found = given(volume)?.filesystem().statfs().map_err(std::io::Error::from)?;
        place("space", space)?.write(Space {
            blocks: found.blocks,
            free_blocks: found.free_blocks,
            available_blocks: found.available_blocks,
            inodes: found.inodes,
            free_inodes: found.free_inodes,
            block_size: found.block_size,
            name_max: found.name_max,
        });
        Ok(())
    })
}
