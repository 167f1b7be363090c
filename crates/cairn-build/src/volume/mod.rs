//! [`make`]: sources to a volume, which is a whole image or a partition of a disk.

mod mounted;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use cairn::populate::{PopulateError, Population};
use cairn::{Format, ImageSpec, MkfsOptions, Part};
use cairn_base::names::Escaped;
use cairn_vfs::Timestamp;
use uuid::Uuid;

use crate::direct::{Inodes, failed};
use crate::error::{Error, Result};
use crate::estimate::{self, BLOCK, Need};
use crate::options::{Free, Options, Size};
use crate::output::{self, Unfinished};
use crate::read::assemble;
use crate::sink::FillError;
use crate::store::Limits;
use crate::times::settle_times;
use crate::tree::Tree;

/// Tries to find the size for a number of free blocks.
const SIZE_TRIES: usize = 64;
/// Inodes of a new ext4 volume that no file can have.
const RESERVED_INODES: u64 = 11;
/// Bytes of free space for each free inode, as mke2fs has it.
const INODE_RATIO: u64 = 16_384;
/// Bytes of the smallest volume of ext4 that gets a journal by itself, and of its journal.
const JOURNALED: u64 = 2048 * BLOCK;
const JOURNAL: u64 = 1024 * BLOCK;

/// Where a volume goes: from this byte on to the end of the file, which gets the size that the
/// volume needs.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) file: &'a Unfinished,
    pub(crate) offset: u64,
}

/// A volume that was made.
pub(crate) struct Made {
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) uuid: Uuid,
    pub(crate) tree: Arc<Tree>,
    /// How often it was written.
    pub(crate) passes: usize,
    /// Bytes of the volume that nothing uses.
    pub(crate) free: Vec<Range<u64>>,
}

/// Makes a volume. `which` tells the UUIDs of equal volumes apart.
///
/// # Errors
/// A source cannot be read or is damaged, the volume cannot be made, or the sources do not fit.
pub(crate) fn make(options: &Options, place: Place<'_>, which: &str) -> Result<Made> {
    let limits = match options.size {
        Size::Exact(size) => Limits { bytes: size, nodes: size / 256 },
        Size::Auto | Size::Min => Limits::UNBOUNDED,
    };
    let spool = output::directory(place.file.path());
    let mut tree = assemble(&options.sources, options.rules.clone(), limits, spool)?;
    if let Some(owner) = options.root_owner {
        tree.set_root_owner(owner);
    }
    if options.dig_holes {
        tree.dig_holes()?;
    }
    let inode_size = options.tuning.inode_size;
    settle_times(&mut tree, &|time| options.format.storable_time(time, inode_size));
    let tree = Arc::new(tree);
    let builder = Builder::new(options, &tree, place, which);
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
    let uuid = builder.uuid;
    Ok(Made { size, uuid, tree, passes, free })
}

/// True if a volume of ext4 with these features has extents.
pub(crate) fn has_extents(features: &[String]) -> bool {
    features.iter().fold(true, |has, word| match word.as_str() {
        "extent" | "extents" => true,
        "^extent" | "^extents" | "none" => false,
        _ => has,
    })
}

/// True if a volume of ext4 with these features has a journal, unless it is too small.
fn has_journal(features: &[String]) -> bool {
    features.iter().fold(true, |has, word| match word.as_str() {
        "has_journal" => true,
        "^has_journal" | "none" => false,
        _ => has,
    })
}

struct Builder<'a> {
    options: &'a Options,
    tree: &'a Arc<Tree>,
    image: ImageSpec,
    path: &'a Path,
    place: Place<'a>,
    need: Need,
    uuid: Uuid,
    time: i64,
}

impl<'a> Builder<'a> {
    fn new(options: &'a Options, tree: &'a Arc<Tree>, place: Place<'a>, which: &str) -> Self {
        let parameters = format!(
            "{} {:?} {:?} {:?} {:?}{which}",
            options.format, options.label, options.size, options.free, options.features
        );
        let part = if place.offset == 0 { Part::Whole } else { Part::Offset(place.offset) };
        Self {
            options,
            tree,
            image: ImageSpec { part, ..ImageSpec::whole(place.file.path()) },
            path: &options.output,
            place,
            need: if options.format == Format::Ext4 {
                estimate::need(tree)
            } else {
                Need::default()
            },
            uuid: options.uuid.unwrap_or_else(|| tree.uuid(&parameters)),
            time: options.time.unwrap_or_else(|| tree.newest(options.now).seconds.max(0)),
        }
    }

    /// An error about the temporary name, as one about the image.
    fn renamed(&self, error: cairn::Error) -> Error {
        let (from, to) = (self.image.to_string(), self.path.escaped());
        let text = error.to_string().replace(&from, &to);
        let text = text.replace(&self.image.name().escaped(), &to);
        Error::Image { text, source: Box::new(error) }
    }

    /// Makes an empty volume of this size.
    fn make(&self, size: u64) -> Result<()> {
        self.place.file.resize(self.place.offset)?;
        self.make_room(size)?;
        let options =
            MkfsOptions { size: self.is_whole().then_some(size), ..self.mkfs_options(size) };
        cairn::mkfs(&self.image, &options).map_err(|error| self.renamed(error))
    }

    /// True if the volume is the whole image.
    fn is_whole(&self) -> bool {
        self.image.part == Part::Whole
    }

    /// Gives the file this many bytes for the volume. A whole image gets its size from mkfs.
    fn make_room(&self, size: u64) -> Result<()> {
        if self.is_whole() {
            return Ok(());
        }
        self.place.file.resize(self.place.offset.saturating_add(size))
    }

    /// The options of mkfs for a volume of about this size.
    fn mkfs_options(&self, size: u64) -> MkfsOptions {
        let ext4 = self.options.format == Format::Ext4;
        let root = self.tree.nodes().first().map(|root| (root.metadata.uid, root.metadata.gid));
        MkfsOptions {
            label: self.options.label.clone(),
            uuid: Some(self.uuid),
            features: self.options.features.clone(),
            casefold: self.options.casefold.clone(),
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

    /// True for a volume that gets a journal also where its size alone would give it none: who asks
    /// for free space will write to it.
    fn wants_journal(&self) -> bool {
        let options = self.options;
        options.format == Format::Ext4
            && options.size == Size::Auto
            && options.free != Free::Bytes(0)
            && options.tuning.journal_size.is_none()
            && has_journal(&options.features)
    }

    /// True if the volume can be written without a mount: all but ext4 without extents.
    fn needs_no_mount(&self) -> bool {
        self.options.format != Format::Ext4 || has_extents(&self.options.features)
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
        // On ext4 the number of inodes follows from the size, and the size from their number.
        let tree = self.need.blocks.saturating_mul(BLOCK);
        let mut size = exact.unwrap_or_else(|| tree.saturating_add(self.free_bytes(tree)));
        let mut journal = None;
        for _ in 0..SIZE_TRIES {
            let mut options = self.mkfs_options(size);
            options.tuning.journal_size = options.tuning.journal_size.or(journal);
            let population = Population::new(&self.image, source.clone(), &options);
            let population = population.map_err(failed)?;
            if exact.is_none() {
                size = self.size_for(&population).map_err(failed)?;
            }
            if self.wants_journal() && journal.is_none() && size < JOURNALED {
                journal = Some(JOURNAL);
                continue;
            }
            let suffice = options.inodes.is_none_or(|inodes| self.inodes(size) <= inodes);
            if exact.is_some() || suffice {
                self.make_room(size)?;
                let need = || population.required_bytes(0).ok().filter(|need| *need > size);
                let written = population.write(size, threads()).map_err(failed);
                *free = written.map_err(|error| match error {
                    Error::TooSmall { size, .. } => Error::TooSmall { size, need: need() },
                    error => error,
                })?;
                return Ok(size);
            }
        }
        Err(Error::Usage("no size has this much free space: ask for less".into()))
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
    /// of ext4 gives them neither the blocks that are reserved for root nor those that it holds
    /// back.
    fn free_for_users(&self, size: u64) -> u64 {
        let wanted = match self.options.size {
            Size::Auto => self.free_bytes(size),
            Size::Min | Size::Exact(_) => 0,
        };
        if wanted == 0 {
            return 0;
        }
        if self.options.format != Format::Ext4 {
            return wanted;
        }
        let held = estimate::held_back(size / BLOCK).saturating_mul(BLOCK);
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
}

/// Threads that read sources and write the volume.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}
