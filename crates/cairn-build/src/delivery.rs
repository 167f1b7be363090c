//! [`Delivery`]: the image while it is written, and what becomes of it: a file, a sparse image, a
//! stream.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::estimate::BLOCK;
use crate::output::{STDOUT, Unfinished, is_stdout};
use crate::sparse;

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
}

/// An image that is not delivered yet.
pub(crate) struct Delivery {
    pub(crate) image: Unfinished,
    /// The file that is made of the image, if it is not the image itself.
    packed: Option<Unfinished>,
    /// The name of the output.
    path: PathBuf,
    shape: Shape,
}

impl Delivery {
    /// Creates the files that are needed; for standard output one in `TMPDIR`.
    ///
    /// # Errors
    /// `path` exists and `overwrite` is not set, or a file cannot be created.
    pub(crate) fn new(path: &Path, shape: Shape, overwrite: bool) -> Result<Self> {
        let (image, packed) = match shape {
            _ if is_stdout(path) => (Unfinished::hidden()?, None),
            Shape::Raw => (Unfinished::create(path, overwrite)?, None),
            Shape::AndroidSparse { .. } => {
                let image = Unfinished::create(path, overwrite)?;
                (image, Some(Unfinished::create(path, overwrite)?))
            }
        };
        Ok(Self { image, packed, path: path.to_owned(), shape })
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
        let Self { image, packed, path, shape } = self;
        let stdout = || std::io::stdout().lock();
        let form = |crc| sparse::Form { block: BLOCK as u32, crc, free };
        match (shape, packed) {
            (Shape::Raw, _) if is_stdout(&path) => image.stream(&mut stdout(), Path::new(STDOUT)),
            (Shape::Raw, _) => image.finish(),
            (Shape::AndroidSparse { crc }, Some(packed)) => {
                sparse::write(image.file(), size, form(crc), &mut packed.file(), &path)?;
                packed.finish()
            }
            (Shape::AndroidSparse { crc }, None) => {
                let to = &mut stdout();
                sparse::write(image.file(), size, form(crc), to, Path::new(STDOUT))
            }
        }
    }
}
