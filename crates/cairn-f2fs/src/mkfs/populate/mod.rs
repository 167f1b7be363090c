//! Fills a new volume with a tree, as sload.f2fs does after mkfs.f2fs: without a mount, checkpoints
//! or a cache.
//!
//! The tree is a [`Source`]. First a *survey* looks at every node: what it needs, and whether it
//! can be stored. Then everything gets its place in the six logs, as Linux chooses the logs, and
//! the logs get segments that follow each other. Only then is anything written: by several threads
//! that read contents and encode nodes, summaries and the NAT; at the end the SIT, both checkpoint
//! packs and the superblocks, so that an interrupted run leaves no filesystem.
//!
//! | module | knows |
//! |---|---|
//! | `survey` | what nodes need, and whether they can be stored |
//! | `settings`, `attributes`, `directory`, `nodes` | the form of nodes |
//! | `lost_found`, `quota` | the directory and the hidden files that features add |
//! | `places`, `volume`, `plan` | where everything is: in the logs, on the volume |
//! | `units`, `writer` | parts that threads write; `records`, `owners` their bytes |
//! | `tables` | the SIT and the checkpoint |
//!
//! Invariant: the bytes of the volume follow from tree, options and size alone, whatever the number
//! of threads.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;

mod attributes;
mod directory;
mod error;
mod lost_found;
mod nodes;
mod owners;
mod places;
mod plan;
mod quota;
mod records;
mod settings;
mod survey;
mod tables;
mod units;
mod volume;
mod writer;

use super::created::CreatedVolume;
use super::error::Error;
use super::features::{self, Choice};
use super::geometry::Geometry;
use super::identity::Identity;
use super::medium::{Medium, NamedDevice};
use super::options::MkfsOptions;
use super::output::Output;
use super::super_block;
use crate::format::{Features, Log, Nid};
use lost_found::{LOST_FOUND, WithLostFound};
use places::Places;
use plan::Plan;
use settings::Settings;
use survey::Survey;
use volume::Volume;

pub use cairn_vfs::new_tree::{Kind, Node, ReadResult, Source, TreeError};
pub use error::{PopulateError, PopulateResult};

/// Bytes of the volume that is planned to learn the form of nodes.
const PROBE_BYTES: u64 = 1 << 40;
/// Bytes of a sector, if there is no device yet.
const SECTOR: u32 = 512;

/// A tree that is ready to be written.
pub struct Population {
    survey: Arc<Survey>,
    places: Arc<Places>,
    options: MkfsOptions,
    choice: Choice,
    identity: Identity,
}

impl Population {
    /// Looks at all nodes of a tree.
    ///
    /// # Errors
    /// A node cannot be stored; the options contradict each other, or ask for zones.
    pub fn new(
        source: Arc<dyn Source>,
        options: &MkfsOptions,
        runtime: &dyn Runtime,
    ) -> PopulateResult<Self> {
        options.check()?;
        if options.zoned {
            let why = "a volume with zones is filled through a mount: leave the zones out";
            return Err(Error::Option(why.into()).into());
        }
        let choice = features::choose(options)?;
        let features = choice.features;
        let identity = Identity::new(options, runtime);
        let probe = MkfsOptions { size: None, ..options.clone() };
        let geometry = Geometry::of_bytes(PROBE_BYTES, &probe)?;
        let label = options.label.as_deref();
        let superblock = super_block::build(
            &geometry,
            (&choice, [Nid::NONE; 3]),
            &identity,
            label,
            SECTOR,
            &[],
        )?;
        let adds = features.contains(Features::LOST_FOUND)
            && cairn_vfs::new_tree::find(&*source, cairn_vfs::new_tree::ROOT, LOST_FOUND).is_none();
        let source: Arc<dyn Source> = match adds {
            true => Arc::new(WithLostFound::new(source, identity.now)),
            false => source,
        };
        let survey = Survey::new(source, Settings::new(superblock))?;
        let survey = Arc::new(survey.with_quota(&choice.owners, &identity)?);
        let places = Arc::new(Places::new(&survey));
        Ok(Self { survey, places, options: options.clone(), choice, identity })
    }

    /// The smallest volume, in bytes, that holds the tree and `free` more bytes.
    ///
    /// # Errors
    /// The options allow no volume of that size.
    pub fn required_bytes(&self, free: u64) -> PopulateResult<u64> {
        volume::required_bytes(&self.options, &self.places, free)
    }

    /// Writes the volume to `device` and replaces its contents.
    ///
    /// # Errors
    /// [`TreeError::NoSpace`] or [`TreeError::NoNodes`] before anything is written; the options do
    /// not fit the device, contents cannot be read, or the device failed.
    pub fn write(
        &self,
        device: Arc<dyn BlockDevice>,
        threads: usize,
        runtime: &dyn Runtime,
    ) -> PopulateResult<CreatedVolume> {
        let Self { options, choice, identity, .. } = self;
        let named = NamedDevice { path: String::new(), device: device.clone() };
        let medium = Medium::of(&[named], options.size)?;
        let geometry = Geometry::new(medium, options)?;
        let bytes = options.size.unwrap_or(device.geometry().size);
        let sector = device.geometry().logical_block;
        let places = &self.places;
        let volume = Volume::new(geometry, options, choice, identity, sector, bytes, places)?;
        let geometry = volume.geometry.clone();
        let (layout, superblock) = (volume.layout, volume.superblock.clone());
        let output = Output { device: &*device, geometry: &geometry, layout: &layout, identity };
        let trimmed = output.prepare(bytes, volume.last_segment(Log::WarmNode, places))?;
        let plan = Plan { survey: self.survey.clone(), places: places.clone(), volume };
        let plan = writer::write(plan, device.clone(), threads, runtime)?;
        plan.write_sit(&output)?;
        output.finish(&plan.checkpoint(), &superblock, options.large_nat_bitmap, trimmed)?;
        Ok(CreatedVolume::new(&geometry, choice.features, identity))
    }
}
