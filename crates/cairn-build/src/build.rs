//! [`build`]: sources to an image.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn::populate::{PopulateError, Population};
use cairn::{Format, ImageSpec, MkfsOptions, OpenOptions, Tuning, Volume};
use cairn_vfs::{Timestamp, VolumeStats};
use uuid::Uuid;

use crate::delivery::{Delivery, Shape};
use crate::direct::{Inodes, failed};
use crate::error::{Error, Result};
use crate::estimate::{self, BLOCK, Need};
use crate::output::{self, Unfinished};
use crate::read::{Source, assemble};
use crate::rules::Rules;
use crate::sink::{FillError, fill};
use crate::store::Limits;
use crate::tree::Tree;

/// Tries to find the size for a number of free blocks.
const SIZE_TRIES: usize = 64;
/// Times that the image is written until it is as small as it can be.
const SHRINK_TRIES: usize = 8;
/// Inodes of a new ext4 volume that no file can have.
const RESERVED_INODES: u64 = 11;
/// Bytes of free space for each free inode, as mke2fs has it.
const INODE_RATIO: u64 = 16_384;

/// How large the image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// As large as the sources and the free space need, computed in advance.
    Auto,
    /// As small as it can be. The image is written several times.
    Min,
    /// This many bytes.
    Exact(u64),
}

/// Free space that is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Free {
    /// Bytes.
    Bytes(u64),
    /// Per cent of the volume.
    Percent(f64),
}

/// What to build.
#[derive(Debug)]
pub struct Options {
    /// The image; `-` is standard output.
    pub output: PathBuf,
    /// Sources, later ones over earlier ones.
    pub sources: Vec<Source>,
    /// Format.
    pub format: Format,
    /// Size.
    pub size: Size,
    /// Free space, unless the size is exact.
    pub free: Free,
    /// Label.
    pub label: Option<String>,
    /// UUID. Without it, it follows from names, attributes and sizes.
    pub uuid: Option<Uuid>,
    /// Features, as for mkfs.
    pub features: Vec<String>,
    /// ext4: inodes; without it, as many as the sources need, and some for the free space.
    pub inodes: Option<u32>,
    /// ext4: per cent of the blocks that are reserved for root.
    pub reserved_percent: f64,
    /// Changes of attributes, and what is left out.
    pub rules: Rules,
    /// Time of the volume. Without it, the newest time in the sources that is not later than `now`.
    pub time: Option<i64>,
    /// The present time.
    pub now: Timestamp,
    /// Replaces an image that exists.
    pub overwrite: bool,
    /// What the image is written as.
    pub shape: Shape,
    /// ext4: what is rarely asked for.
    pub tuning: Tuning,
    /// Owner of the root directory; that of the sources if absent.
    pub root_owner: Option<(u32, u32)>,
    /// ext4: nobody will write the volume. It has neither a journal nor room to grow, no inodes
    /// and no blocks that are free, unless the size is exact, and is marked.
    pub read_only: bool,
    /// Blocks of zeros in files become holes. All files are read once more for that.
    pub dig_holes: bool,
}

/// What was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    /// Bytes of the image.
    pub size: u64,
    /// UUID of the volume.
    pub uuid: Uuid,
    /// Inodes, the root included.
    pub inodes: u64,
    /// How often the image was written.
    pub passes: usize,
}

/// Builds an image. It gets its name when it is whole; after an error there is none, or the old
/// one.
///
/// # Errors
/// A source cannot be read or is damaged, the image cannot be made, or the sources do not fit.
pub fn build(mut options: Options) -> Result<Built> {
    if options.read_only {
        mark_read_only(&mut options)?;
    }
    let output = Delivery::new(&options.output, options.shape, options.overwrite)?;
    let _claim = output::claim(&options.output)?;
    let limits = match options.size {
        Size::Exact(size) => Limits { bytes: size, nodes: size / 256 },
        Size::Auto | Size::Min => Limits::UNBOUNDED,
    };
    let rules = Rules { own: output.own(), ..std::mem::take(&mut options.rules) };
    let spool = output::directory(output.image.path());
    let mut tree = assemble(&options.sources, rules, limits, spool)?;
    if let Some(owner) = options.root_owner {
        tree.set_root_owner(owner);
    }
    if options.dig_holes {
        tree.dig_holes()?;
    }
    let tree = Arc::new(tree);
    let builder = Builder::new(&options, &tree, &output.image);
    let mut free = Vec::new();
    let (size, passes) = match options.size {
        _ if builder.needs_no_mount() => (builder.write_tree(&mut free)?, 1),
        Size::Exact(size) => {
            builder.make(size)?;
            match builder.fill() {
                Ok(()) => (size, 1),
                Err(FillError::Full) => return Err(Error::TooSmall { size, need: None }),
                Err(FillError::Other(error)) => return Err(error),
            }
        }
        Size::Auto => builder.auto()?,
        Size::Min => builder.min()?,
    };
    let inodes = tree.nodes().len() as u64;
    let uuid = builder.uuid;
    output.finish(size, &free)?;
    Ok(Built { size, uuid, inodes, passes })
}

/// Asks for the features of a volume that nobody writes.
fn mark_read_only(options: &mut Options) -> Result<()> {
    if options.format != Format::Ext4 || !has_extents(&options.features) {
        let why = "--read-only is for ext4 with extents: leave it out";
        return Err(Error::Usage(why.into()));
    }
    let features = ["^has_journal", "^resize_inode", "read-only"];
    options.features.extend(features.map(str::to_owned));
    Ok(())
}

/// True if a volume of ext4 with these features has extents.
fn has_extents(features: &[String]) -> bool {
    features.iter().fold(true, |has, word| match word.as_str() {
        "extent" | "extents" => true,
        "^extent" | "^extents" | "none" => false,
        _ => has,
    })
}

struct Builder<'a> {
    options: &'a Options,
    tree: &'a Arc<Tree>,
    image: ImageSpec,
    path: &'a Path,
    output: &'a Unfinished,
    need: Need,
    uuid: Uuid,
    time: i64,
}

impl<'a> Builder<'a> {
    fn new(options: &'a Options, tree: &'a Arc<Tree>, output: &'a Unfinished) -> Self {
        let parameters = format!(
            "{} {:?} {:?} {:?} {:?}",
            options.format, options.label, options.size, options.free, options.features
        );
        Self {
            options,
            tree,
            image: ImageSpec::whole(output.path()),
            path: &options.output,
            output,
            need: estimate::need(options.format, tree),
            uuid: options.uuid.unwrap_or_else(|| tree.uuid(&parameters)),
            time: options.time.unwrap_or_else(|| tree.newest(options.now).seconds.max(0)),
        }
    }

    /// An error about the temporary name, as one about the image.
    fn renamed(&self, error: cairn::Error) -> Error {
        let (from, to) = (self.output.path().display(), self.path.display());
        let text = error.to_string().replace(&from.to_string(), &to.to_string());
        Error::Image { text, source: Box::new(error) }
    }

    /// Makes an empty volume of this size.
    fn make(&self, size: u64) -> Result<()> {
        self.output.empty()?;
        let options = MkfsOptions { size: Some(size), ..self.mkfs_options(size) };
        cairn::mkfs(&self.image, &options).map_err(|error| self.renamed(error))
    }

    /// The options of mkfs for a volume of about this size.
    fn mkfs_options(&self, size: u64) -> MkfsOptions {
        let ext4 = self.options.format == Format::Ext4;
        let root = self.tree.nodes().first().map(|root| (root.metadata.uid, root.metadata.gid));
        MkfsOptions {
            label: self.options.label.clone(),
            uuid: Some(self.uuid),
            features: self.options.features.clone(),
            block_size: ext4.then_some(4096),
            inodes: ext4.then(|| self.inodes(size)),
            reserved_percent: ext4.then_some(self.options.reserved_percent),
            tuning: self.options.tuning,
            root_owner: root,
            time: Some(self.time),
            overwrite: true,
            ..MkfsOptions::new(self.options.format)
        }
    }

    /// True if the volume can be written without a mount: ext4 with extents.
    fn needs_no_mount(&self) -> bool {
        self.options.format == Format::Ext4 && has_extents(&self.options.features)
    }

    /// Writes the tree and the volume in one go. Returns the size, and in `free` the bytes that
    /// nothing uses.
    fn write_tree(&self, free: &mut Vec<Range<u64>>) -> Result<u64> {
        let exact = match self.options.size {
            Size::Exact(size) => Some(size),
            Size::Auto | Size::Min => None,
        };
        let failed = |error| failed(error, exact, |error| self.renamed(error));
        let created = Timestamp { seconds: self.time, nanoseconds: 0 };
        let source = Arc::new(Inodes { tree: self.tree.clone(), created });
        // The number of inodes follows from the size, and the size from their number.
        let tree = self.need.blocks.saturating_mul(BLOCK);
        let mut size = exact.unwrap_or_else(|| tree.saturating_add(self.free_bytes(tree)));
        for _ in 0..SIZE_TRIES {
            let options = self.mkfs_options(size);
            let population = Population::new(&self.image, source.clone(), &options);
            let population = population.map_err(failed)?;
            if exact.is_none() {
                size = self.size_for(&population).map_err(failed)?;
            }
            if exact.is_some() || Some(self.inodes(size)) <= options.inodes {
                let need = || population.required_bytes(0).ok().filter(|need| *need > size);
                let written = population.write(size, threads()).map_err(failed);
                *free = written.map_err(|error| match error {
                    Error::TooSmall { size, .. } => Error::TooSmall { size, need: need() },
                    error => error,
                })?;
                return Ok(size);
            }
        }
        Err(Error::Usage("no size has this much free space: ask for less with --free".into()))
    }

    /// The smallest size with the free space that was asked for.
    fn size_for(&self, population: &Population) -> Result<u64, PopulateError> {
        let mut size = population.required_bytes(0)?;
        for _ in 0..SIZE_TRIES {
            let free = self.free_for_users(size);
            let larger = if free == 0 { size } else { population.required_bytes(free)? };
            if larger <= size {
                break;
            }
            size = larger;
        }
        Ok(size)
    }

    /// Free bytes that a volume of this size needs so that users have what was asked for: a mount
    /// gives them neither the blocks that are reserved for root nor those that it holds back.
    fn free_for_users(&self, size: u64) -> u64 {
        let wanted = match self.options.size {
            Size::Auto => self.free_bytes(size),
            Size::Min | Size::Exact(_) => 0,
        };
        if wanted == 0 {
            return 0;
        }
        let held = estimate::held_back(self.options.format, size / BLOCK).saturating_mul(BLOCK);
        // The precision suffices for a percentage.
        let reserved = (size as f64 * self.options.reserved_percent / 100.0).ceil() as u64;
        wanted.saturating_add(held).saturating_add(reserved)
    }

    /// Inodes of an ext4 volume of this size.
    fn inodes(&self, size: u64) -> u32 {
        let used = self.need.inodes.saturating_add(RESERVED_INODES);
        if self.options.read_only && self.options.inodes.is_none() {
            return u32::try_from(used).unwrap_or(u32::MAX);
        }
        let ratio = self.options.tuning.inode_ratio.unwrap_or(INODE_RATIO).max(1);
        let room = size.saturating_sub(self.need.blocks.saturating_mul(BLOCK));
        let free = match self.options.size {
            Size::Min => 0,
            Size::Auto => self.free_bytes(size).min(room) / ratio,
            Size::Exact(_) => room / ratio,
        };
        let headroom = (used / 20).max(16);
        let all = u32::try_from(used.saturating_add(headroom).saturating_add(free));
        self.options.inodes.unwrap_or_else(|| all.unwrap_or(u32::MAX))
    }

    fn free_bytes(&self, size: u64) -> u64 {
        match self.options.free {
            Free::Bytes(bytes) => bytes,
            // The precision suffices for a percentage.
            Free::Percent(percent) => (size as f64 * percent / 100.0) as u64,
        }
    }

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
        stats.map_err(|error| Error::volume(self.path.display(), error))
    }

    fn fill(&self) -> Result<(), FillError> {
        let volume = self.open(false)?;
        let filled = fill(&**volume.filesystem(), self.tree);
        let closed = volume.filesystem().unmount();
        filled?;
        closed.map_err(|error| match error {
            cairn_vfs::Error::NoSpace => FillError::Full,
            error => FillError::Other(Error::volume(self.path.display(), error)),
        })
    }

    /// Makes the smallest volume with room for the tree, and returns its size.
    fn make_with_room(&self, extra: u64) -> Result<u64> {
        let least = match self.options.format {
            Format::F2fs => F2FS_LEAST,
            _ => 64 * BLOCK,
        };
        let need = self.need.blocks.saturating_add(extra);
        let inode_tables = match self.options.format {
            Format::F2fs => 0,
            _ => self.need.inodes / 16,
        };
        let mut size = need.saturating_add(inode_tables).saturating_mul(BLOCK).max(least);
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
        Err(Error::Usage("no size has this much free space: ask for less with --free".into()))
    }

    /// Blocks that the empty volume lacks.
    fn missing(&self, size: u64, need: u64) -> Result<u64> {
        let stats = self.stats()?;
        let free = self.free_bytes(size).div_ceil(BLOCK);
        let need = need.saturating_add(estimate::held_back(self.options.format, size / BLOCK));
        let for_tree = need.saturating_sub(stats.free_blocks);
        let for_users = match free {
            0 => 0,
            free => need.saturating_add(free).saturating_sub(stats.available_blocks),
        };
        Ok(for_tree.max(for_users))
    }

    fn auto(&self) -> Result<(u64, usize)> {
        let mut extra = 0;
        for pass in 1..=SHRINK_TRIES {
            let size = self.make_with_room(extra)?;
            match self.fill() {
                Ok(()) => return Ok((size, pass)),
                Err(FillError::Full) => extra += (self.need.blocks / 20).max(64),
                Err(FillError::Other(error)) => return Err(error),
            }
        }
        Err(Error::Usage("the size could not be found: give one with --size".into()))
    }

    /// Builds with room, then removes what is left over, and halves the distance to the largest
    /// size that was too small.
    fn min(&self) -> Result<(u64, usize)> {
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

/// No F2FS volume is smaller.
const F2FS_LEAST: u64 = 32 << 20;

/// Threads that read sources and write the volume.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}
