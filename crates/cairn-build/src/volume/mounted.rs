//! Volumes that are filled through a mount: ext4 without extents. Their size is tried.

use cairn::{OpenOptions, Volume};
use cairn_base::names::Escaped;
use cairn_vfs::VolumeStats;

use super::{Builder, SIZE_TRIES};
use crate::error::{Error, Result};
use crate::estimate::{self, BLOCK};
use crate::sink::{FillError, fill};

/// Times that the image is written until it is as small as it can be.
const SHRINK_TRIES: usize = 8;
/// No volume is smaller.
const LEAST: u64 = 64 * BLOCK;

impl Builder<'_> {
    fn open(&self, read_only: bool) -> Result<Volume> {
        let options =
            OpenOptions { read_only, fixed_time: Some(self.time), ..OpenOptions::default() };
        cairn::open(&self.image, &options).map_err(|error| self.renamed(error))
    }

    fn stats(&self) -> Result<VolumeStats> {
        let volume = self.open(true)?;
        let stats = volume.filesystem().statfs();
        let closed = volume.filesystem().unmount();
        let stats = stats.and_then(|stats| closed.map(|()| stats));
        stats.map_err(|error| Error::volume(self.path.escaped(), error))
    }

    /// Writes the tree to the empty volume.
    pub(super) fn fill(&self) -> Result<(), FillError> {
        let volume = self.open(false)?;
        let filled = fill(&**volume.filesystem(), self.tree);
        let closed = volume.filesystem().unmount();
        filled?;
        closed.map_err(|error| match error {
            cairn_vfs::Error::NoSpace => FillError::Full,
            error => FillError::Other(Error::volume(self.path.escaped(), error)),
        })
    }

    /// Makes the smallest volume with room for the tree, and returns its size.
    fn make_with_room(&self, extra: u64) -> Result<u64> {
        let need = self.need.blocks.saturating_add(extra);
        let inode_tables = self.need.inodes / 16;
        let mut size = need.saturating_add(inode_tables).saturating_mul(BLOCK).max(LEAST);
        for tries in 0..SIZE_TRIES {
            let missing = match self.make(size) {
                Ok(()) => self.missing(size, need)?,
                // mkfs says that the volume is too small for its own structures.
                Err(error) if error.is_refused_size() && tries < SIZE_TRIES / 4 => {
                    (size / BLOCK / 8).max(16)
                }
                Err(error) => return Err(error),
            };
            if missing == 0 {
                return Ok(size);
            }
            size = size.saturating_add(missing.saturating_mul(BLOCK));
        }
        Err(Error::Usage("no size has this much free space: ask for less".into()))
    }

    /// Blocks that the empty volume lacks.
    fn missing(&self, size: u64, need: u64) -> Result<u64> {
        let stats = self.stats()?;
        let free = self.free_bytes(size).div_ceil(BLOCK);
        let need = need.saturating_add(estimate::held_back(size / BLOCK));
        let for_tree = need.saturating_sub(stats.free_blocks);
        let for_users = match free {
            0 => 0,
            free => need.saturating_add(free).saturating_sub(stats.available_blocks),
        };
        Ok(for_tree.max(for_users))
    }

    /// Makes and fills a volume of the computed size. Returns the size, and how often it was
    /// written.
    pub(super) fn auto(&self) -> Result<(u64, usize)> {
        let mut extra = 0;
        for pass in 1..=SHRINK_TRIES {
            let size = self.make_with_room(extra)?;
            match self.fill() {
                Ok(()) => return Ok((size, pass)),
                Err(FillError::Full) => extra += (self.need.blocks / 20).max(64),
                Err(FillError::Other(error)) => return Err(error),
            }
        }
        Err(Error::Usage("the size could not be found: give one".into()))
    }

    /// Builds with room, then removes what is left over, and halves the distance to the largest
    /// size that was too small.
    pub(super) fn min(&self) -> Result<(u64, usize)> {
        let (mut fits, mut passes) = self.auto()?;
        let mut written = fits;
        let left = self.stats()?.free_blocks;
        let mut guess = fits.saturating_sub(left.saturating_mul(BLOCK));
        let mut too_small = guess.saturating_sub(left.saturating_mul(BLOCK).max(64 * BLOCK));
        while passes < SHRINK_TRIES && fits.saturating_sub(too_small) > (fits / 500).max(4 * BLOCK)
        {
            passes += 1;
            written = guess;
            match self.make(guess).map_err(FillError::Other).and_then(|()| self.fill()) {
                Ok(()) => fits = guess,
                Err(FillError::Full) => too_small = guess,
                Err(FillError::Other(error)) if error.is_refused_size() => too_small = guess,
                Err(FillError::Other(error)) => return Err(error),
            }
            guess = (too_small + fits.saturating_sub(too_small) / 2) / BLOCK * BLOCK;
        }
        if written != fits {
            passes += 1;
            self.make(fits)?;
            match self.fill() {
                Ok(()) => {}
                Err(FillError::Full) => return Err(Error::TooSmall { size: fits, need: None }),
                Err(FillError::Other(error)) => return Err(error),
            }
        }
        Ok((fits, passes))
    }
}
