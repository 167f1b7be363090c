//! Makes an ext4 volume that holds a tree, as `mke2fs -d` does, and finds the size that it needs.

use std::ops::Range;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_ext4::mkfs::populate;

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
    population: populate::Population,
    threads: Arc<Threads>,
}

impl Population {
    /// Looks at all nodes of a tree. Size and number of inodes are those of `options`; without
    /// inodes, as many as the tree needs.
    ///
    /// # Errors
    /// The format is not ext4, an option does not fit, or a node cannot be stored.
    pub fn new(
        image: &ImageSpec,
        source: Arc<dyn Source>,
        options: &MkfsOptions,
    ) -> Result<Self, PopulateError> {
        if options.format != Format::Ext4 {
            let why = format!("{} volumes are filled through a mount", options.format);
            return Err(Error::new(image, Cause::Option(why)).into());
        }
        let threads = Threads::new();
        let ext4 = format::ext4::mkfs_options(options).map_err(|cause| Error::new(image, cause))?;
        let population = populate::Population::new(source, &ext4, 0, &*threads);
        let population = population.map_err(|error| sort(image, error))?;
        Ok(Self { image: image.clone(), options: options.clone(), population, threads })
    }

    /// The size of the smallest volume with the tree and `free` more bytes. The blocks that are
    /// reserved for root are a part of these.
    ///
    /// # Errors
    /// The options allow no volume of that size.
    pub fn required_bytes(&self, free: u64) -> Result<u64, PopulateError> {
        self.population.required_bytes(free).map_err(|error| sort(&self.image, error))
    }

    /// Writes the volume, with this many threads, to an image of `size` bytes, which is created if
    /// it does not exist; a part of an image has `size` bytes already. The bytes do not depend on
    /// the number of threads. Returns the ranges of bytes that nothing uses: what they hold does
    /// not matter.
    ///
    /// # Errors
    /// The tree does not fit, the image cannot be created or is in use, contents cannot be read, or
    /// the device fails.
    pub fn write(&self, size: u64, threads: usize) -> Result<Vec<Range<u64>>, PopulateError> {
        let size = (self.image.part == Part::Whole).then_some(size);
        let options = MkfsOptions { size, ..self.options.clone() };
        let device = device_for(&self.image, &options)?;
        let written = self.population.write(device, threads, &*self.threads);
        let made = written.map_err(|error| sort(&self.image, error))?;
        let bytes = |block: u64| block.saturating_mul(made.block_size.into());
        Ok(made.free.iter().map(|run| bytes(run.start)..bytes(run.end)).collect())
    }
}

fn sort(image: &ImageSpec, error: populate::PopulateError) -> PopulateError {
    match error {
        populate::PopulateError::Tree(error) => PopulateError::Tree(error),
        populate::PopulateError::Ext4(error) => Error::new(image, format::ext4::cause(error)).into(),
        error => Error::new(image, Cause::Option(error.to_string())).into(),
    }
}
