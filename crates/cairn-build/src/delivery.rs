//! [`Delivery`]: the image while it is written, and what becomes of it: a file, a sparse image, a
//! qcow2 disk, a stream, an object volume, what a device or a part of a disk holds.

use std::ops::Range;
use std::path::{Path, PathBuf};

use cairn::objects::{self, Address};
use cairn::{ImageSpec, Overwriting, keeps_size};
use cairn_base::names::Escaped;

use crate::error::{Error, Result};
use crate::estimate::BLOCK;
use crate::output::{STDOUT, Unfinished, is_stdout};
use crate::{qcow2, sparse};

/// What an image is written as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// As it is; a file has holes where zeros are.
    #[default]
    Raw,
    /// As a sparse image of Android.
    AndroidSparse {
        /// With a checksum.
        crc: bool,
    },
    /// As a qcow2 disk.
    Qcow2,
}

/// An image that is not delivered yet.
pub(crate) struct Delivery {
    pub(crate) image: Unfinished,
    /// The file that is made of the image, if it is not the image itself.
    packed: Option<Unfinished>,
    /// The name of the output.
    path: PathBuf,
    /// The volume in an object store that the name stands for.
    volume: Option<Address>,
    /// The device or the part of a disk that the name stands for.
    device: Option<Overwriting>,
    shape: Shape,
    overwrite: bool,
}

impl Delivery {
    /// Creates the files that are needed; for standard output, object volumes and devices one in
    /// `TMPDIR`.
    ///
    /// # Errors
    /// `path` exists and `overwrite` is not set, or a file cannot be created.
    pub(crate) fn new(path: &Path, shape: Shape, overwrite: bool) -> Result<Self> {
        let device = device(path, shape, overwrite)?;
        let volume = match device {
            Some(_) => None,
            None => object_volume(path, shape, overwrite)?,
        };
        let (image, packed) = match shape {
            _ if is_stdout(path) || volume.is_some() || device.is_some() => {
                (Unfinished::hidden()?, None)
            }
            Shape::Raw => (Unfinished::create(path, overwrite)?, None),
            Shape::AndroidSparse { .. } | Shape::Qcow2 => {
                let image = Unfinished::create(path, overwrite)?;
                (image, Some(Unfinished::create(path, overwrite)?))
            }
        };
        Ok(Self { image, packed, path: path.to_owned(), volume, device, shape, overwrite })
    }

    /// Bytes that the image can have at most, if it goes where there are so many. All of them are
    /// used if nothing else is asked for.
    pub(crate) fn room(&self) -> Option<u64> {
        self.device.as_ref().map(|device| device.size() / BLOCK * BLOCK)
    }

    /// Device and inode of files that are being written.
    pub(crate) fn own(&self) -> Vec<(u64, u64)> {
        let packed = self.packed.iter().flat_map(Unfinished::own);
        self.image.own().into_iter().chain(packed).collect()
    }

    /// Delivers an image of `size` bytes. What the ranges `free` hold does not matter.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn finish(self, size: u64, free: &[Range<u64>]) -> Result<()> {
        let Self { image, packed, path, volume, device, shape, overwrite } = self;
        if let Some(device) = device {
            if size > device.size() {
                return Err(too_small(&path, device.size(), size));
            }
            let place = (image.path(), size);
            return device.write(place, &image.data(size)?, free).map_err(Error::image);
        }
        if let Some(address) = volume {
            let place = (image.path(), size);
            return objects::upload(&address, place, &image.data(size)?, overwrite)
                .map_err(Error::image);
        }
        let stdout = || std::io::stdout().lock();
        let form = |crc| sparse::Form { block: BLOCK as u32, crc, free };
        match (shape, packed) {
            (Shape::Raw, _) if is_stdout(&path) => image.stream(&mut stdout(), Path::new(STDOUT)),
            (Shape::Raw, _) => image.finish(),
            (Shape::AndroidSparse { crc }, Some(packed)) => {
                sparse::write(image.file(), size, form(crc), &mut packed.file(), &path)?;
                packed.finish()
            }
            (Shape::Qcow2, Some(packed)) => {
                qcow2::write(image.file(), size, &mut packed.file(), &path)?;
                packed.finish()
            }
            (Shape::Qcow2, None) => {
                qcow2::write(image.file(), size, &mut stdout(), Path::new(STDOUT))
            }
            (Shape::AndroidSparse { crc }, None) => {
                let to = &mut stdout();
                sparse::write(image.file(), size, form(crc), to, Path::new(STDOUT))
            }
        }
    }
}

/// The error for an image that does not fit where it is to go.
pub(crate) fn too_small(path: &Path, room: u64, need: u64) -> Error {
    let name = path.escaped();
    Error::Usage(format!(
        "{name}: has {room} bytes, and the image needs {need}: give a larger place, or less to \
         put in"
    ))
}

/// The device, or the part of a disk, that a name stands for.
fn device(path: &Path, shape: Shape, overwrite: bool) -> Result<Option<Overwriting>> {
    if is_stdout(path) {
        return Ok(None);
    }
    let image = ImageSpec::parse(path.as_os_str()).map_err(Error::image)?;
    if !keeps_size(&image) {
        return Ok(None);
    }
    if shape != Shape::Raw {
        let why = "holds the image as it is, without another form: leave that out";
        return Err(Error::Usage(format!("{}: {why}", path.escaped())));
    }
    Overwriting::open(&image, overwrite).map(Some).map_err(Error::image)
}

/// The volume that a name stands for, if it is an address.
fn object_volume(path: &Path, shape: Shape, overwrite: bool) -> Result<Option<Address>> {
    if !path.to_str().is_some_and(objects::is_address) {
        return Ok(None);
    }
    let refused = |why: &str| Error::Usage(format!("{}: {why}", path.escaped()));
    let image = ImageSpec::parse(path.as_os_str()).map_err(Error::image)?;
    let address = objects::address(&image).map_err(Error::image)?;
    match shape {
        Shape::Raw => {}
        Shape::AndroidSparse { .. } => {
            return Err(refused("an object volume has no form of Android: leave that out"));
        }
        Shape::Qcow2 => {
            let why = "an object volume is no qcow2 disk: leave that out, or give it a name \
                       without .qcow2";
            return Err(refused(why));
        }
    }
    if overwrite {
        objects::check_replaceable(address).map_err(Error::image)?;
    } else if objects::exists(address).map_err(Error::image)? {
        return Err(Error::Exists { subject: path.escaped() });
    }
    Ok(Some(address.clone()))
}
