//! Makes a volume that holds a tree, as `mke2fs -d` and sload.f2fs do, and finds the size that it
//! needs.

use std::ops::Range;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_ext4::mkfs::populate as ext4;
#[cfg(feature = "f2fs")]
use cairn_f2fs::mkfs::populate as f2fs;

use crate::error::{Cause, Error};
use crate::format::{self, Format};
use crate::image::{ImageSpec, Part};
use crate::mkfs::{MkfsOptions, device_for};

pub use cairn_vfs::new_tree::{Kind, Node, ReadResult, Source, TreeError};

/// Why no volume with the tree was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PopulateError {
    /// The image or the options.
    #[error(transparent)]
    Image(#[from] Error),
    /// The tree.
    #[error(transparent)]
    Tree(TreeError),
}

/// A tree, ready to be written to an image.
pub struct Population {
    image: ImageSpec,
    options: MkfsOptions,
    tree: Tree,
    threads: Arc<Threads>,
}

/// The tree in the form of a format.
enum Tree {
    Ext4(ext4::Population),
    #[cfg(feature = "f2fs")]
    F2fs(f2fs::Population),
}

impl Population {
    /// Looks at all nodes of a tree. Size and, on ext4, number of inodes are those of `options`;
    /// without inodes, as many as the tree needs.
    ///
    /// # Errors
    /// An option does not fit, or a node cannot be stored.
    pub fn new(
        image: &ImageSpec,
        source: Arc<dyn Source>,
        options: &MkfsOptions,
    ) -> Result<Self, PopulateError> {
        let threads = Threads::new();
        let refused = |cause| Error::new(image, cause);
        let tree = match options.format {
            Format::Ext4 => {
                let ext4 = format::ext4::mkfs_options(options).map_err(refused)?;
                ext4::Population::new(source, &ext4, 0, &*threads)
                    .map(Tree::Ext4)
                    .map_err(|error| of_ext4(image, error))?
            }
            #[cfg(not(feature = "f2fs"))]
            Format::F2fs => return Err(refused(format::f2fs::absent()).into()),
            #[cfg(feature = "f2fs")]
            Format::F2fs => {
                let f2fs = format::f2fs::mkfs_options(options).map_err(refused)?;
                f2fs::Population::new(source, &f2fs, &*threads)
                    .map(Tree::F2fs)
                    .map_err(|error| of_f2fs(image, error))?
            }
        };
        Ok(Self { image: image.clone(), options: options.clone(), tree, threads })
    }

    /// The size of the smallest volume with the tree and `free` more bytes. The blocks that ext4
    /// reserves for root are a part of these.
    ///
    /// # Errors
    /// The options allow no volume of that size.
    pub fn required_bytes(&self, free: u64) -> Result<u64, PopulateError> {
        match &self.tree {
            Tree::Ext4(tree) => {
                tree.required_bytes(free).map_err(|error| of_ext4(&self.image, error))
            }
            #[cfg(feature = "f2fs")]
            Tree::F2fs(tree) => {
                tree.required_bytes(free).map_err(|error| of_f2fs(&self.image, error))
            }
        }
    }

    /// Writes the volume, with this many threads, to an image of `size` bytes, which is created if
    /// it does not exist; a part of an image has `size` bytes already. The bytes do not depend on
    /// the number of threads. Returns the ranges of bytes that nothing uses, and whose contents do
    /// not matter: F2FS has none, because after a crash it could take old nodes for its own.
    ///
    /// # Errors
    /// The tree does not fit, the image cannot be created or is in use, contents cannot be read, or
    /// the device fails.
    pub fn write(&self, size: u64, threads: usize) -> Result<Vec<Range<u64>>, PopulateError> {
        let size = (self.image.part == Part::Whole).then_some(size);
        let options = MkfsOptions { size, ..self.options.clone() };
        let device = device_for(&self.image, &options)?;
        match &self.tree {
            Tree::Ext4(tree) => {
                let written = tree.write(device, threads, &*self.threads);
                let made = written.map_err(|error| of_ext4(&self.image, error))?;
                let bytes = |block: u64| block.saturating_mul(made.block_size.into());
                Ok(made.free.iter().map(|run| bytes(run.start)..bytes(run.end)).collect())
            }
            #[cfg(feature = "f2fs")]
            Tree::F2fs(tree) => {
                let written = tree.write(device, threads, &*self.threads);
                written.map(|_| Vec::new()).map_err(|error| of_f2fs(&self.image, error))
            }
        }
    }
}

fn of_ext4(image: &ImageSpec, error: ext4::PopulateError) -> PopulateError {
    match error {
        ext4::PopulateError::Tree(error) => PopulateError::Tree(error),
        ext4::PopulateError::Ext4(error) => Error::new(image, format::ext4::cause(error)).into(),
        error => Error::new(image, Cause::Option(error.to_string())).into(),
    }
}

#[cfg(feature = "f2fs")]
fn of_f2fs(image: &ImageSpec, error: f2fs::PopulateError) -> PopulateError {
    match error {
        f2fs::PopulateError::Tree(error) => PopulateError::Tree(error),
        f2fs::PopulateError::F2fs(error) => {
            Error::new(image, format::f2fs::mkfs_cause(error)).into()
        }
        error => Error::new(image, Cause::Option(error.to_string())).into(),
    }
}
