//! Fills a new volume with a tree, as `mke2fs -d` does: without a mount, a journal or a cache.
//!
//! The tree is a [`Source`]. First a *survey* looks at every node: what it needs, and whether it
//! can be stored. Then the volume is planned as mkfs does, and each node gets its place in the free
//! blocks. Only then is anything written: by several threads that read contents and encode
//! metadata, and at the end bitmaps, descriptors and superblocks, so that an interrupted run leaves
//! no filesystem.
//!
//! | module | knows |
//! |---|---|
//! | `survey` | what nodes need, and whether they can be stored |
//! | `same` | files with equal contents, which may share their blocks |
//! | `attributes`, `values`, `directory`, `regular`, `inline` | the form of nodes |
//! | `volume`, `stream` | the planned volume, and its free blocks as one sequence |
//! | `places` | where each node is |
//! | `units`, `writer` | parts that threads write; `records`, `contents` their bytes |
//!
//! Invariant: the bytes of the volume follow from tree, options and size alone, whatever the number
//! of threads.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;

mod attributes;
mod contents;
mod directory;
mod error;
mod inline;
mod places;
mod records;
mod regular;
mod same;
mod settings;
mod stream;
mod survey;
mod units;
mod values;
mod volume;
mod writer;

use super::created::CreatedVolume;
use super::groups;
use super::identity::Identity;
use super::options::MkfsOptions;
use super::output::Output;
use crate::format::features::Compat;
use crate::inode::directory::hash_settings;
use places::Places;
use settings::Settings;
use survey::Survey;
use values::Values;
use volume::EmptyVolume;
use writer::Writer;

pub use cairn_vfs::new_tree::{Kind, Node, ReadResult, Source, TreeError};
pub use error::{PopulateError, PopulateResult};

/// Block size if the options give none. It does not depend on the size of the volume.
const BLOCK_SIZE: u32 = 4096;
/// By how many blocks a volume grows until mkfs accepts its last group.
const LAST_GROUP_STEP: u64 = 64;
/// Inodes of a volume without the tree: the reserved ones, `lost+found` and the orphan file.
const OWN_INODES: u32 = 12;

/// A tree that is ready to be written.
pub struct Population {
    survey: Arc<Survey>,
    options: MkfsOptions,
    identity: Identity,
}

impl Population {
    /// Looks at all nodes of a tree. The number of inodes is that of `options`, or as many as the
    /// tree needs and `free_inodes` more.
    ///
    /// # Errors
    /// A node cannot be stored; the options contradict each other, or leave out `extent`.
    pub fn new(
        source: Arc<dyn Source>,
        options: &MkfsOptions,
        free_inodes: u32,
        runtime: &dyn Runtime,
    ) -> PopulateResult<Self> {
        let mut options = options.clone();
        options.block_size.get_or_insert(BLOCK_SIZE);
        let identity = Identity::new(&options, runtime);
        let probe = volume::probe(&options, &identity)?;
        let layout = &probe.layout;
        if !layout.features.incompat(crate::format::features::Incompat::EXTENTS) {
            let why = "a tree can be written only with the feature extent: leave ^extent out";
            return Err(crate::Error::Option(why.into()).into());
        }
        let settings = Settings::new(layout, hash_settings(&probe.superblock));
        if settings.shared_blocks() && layout.features.compat(Compat::HAS_JOURNAL) {
            let why = "files that share blocks (shared_blocks) are never written: leave the \
                       journal out with ^has_journal";
            return Err(crate::Error::Option(why.into()).into());
        }
        let mut survey = Survey::new(source, settings, Values::new(layout))?;
        if survey.settings.shared_blocks() {
            survey.same = same::find(&survey)?;
        }
        let survey = Arc::new(survey);
        let values = survey.values.list.len() as u32;
        let needed = survey.source.count().saturating_add(values).saturating_add(OWN_INODES);
        match options.inodes {
            Some(available) if available < needed - 1 => {
                let (needed, available) = (needed.into(), available.into());
                return Err(TreeError::NoInodes { needed, available }.into());
            }
            Some(_) => {}
            None => options.inodes = Some(needed.saturating_add(free_inodes)),
        }
        Ok(Self { survey, options, identity })
    }

    /// The smallest volume, in bytes, that holds the tree and `free` more bytes. The blocks that
    /// are reserved for root are a part of these.
    ///
    /// # Errors
    /// The options allow no volume of that size.
    pub fn required_bytes(&self, free: u64) -> PopulateResult<u64> {
        let block_size = u64::from(self.options.block_size.unwrap_or(BLOCK_SIZE));
        let free = free.div_ceil(block_size);
        let mut blocks = self.least_blocks(free);
        let enough = self.groups().saturating_mul(self.group_blocks());
        loop {
            let volume = self.empty(blocks * block_size, Output::nowhere);
            let volume = match volume {
                // The inodes that are to be free lie in a last group that is left out, too.
                Ok(volume) if Some(volume.plan.layout.inodes_count) < self.options.inodes => {
                    blocks += LAST_GROUP_STEP;
                    continue;
                }
                Ok(volume) => volume,
                // A last group with little room is left out, with its inodes; the others may be too
                // few for all. A volume of less than a group may have no room for its metadata.
                Err(PopulateError::Tree(TreeError::NoInodes { .. })) => {
                    blocks += LAST_GROUP_STEP;
                    continue;
                }
                Err(_) if blocks < enough => {
                    blocks += LAST_GROUP_STEP;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let needed = match Places::new(&self.survey, &volume.stream) {
                Ok(places) => places.end(),
                Err(needed) => needed,
            };
            let available = volume.stream.blocks();
            if needed + free <= available {
                return Ok(volume.plan.layout.blocks_count * block_size);
            }
            let left_out = volume.plan.layout.blocks_count < blocks;
            blocks += (needed + free - available).max(if left_out { LAST_GROUP_STEP } else { 1 });
        }
    }

    /// A size that is not too large.
    fn least_blocks(&self, free: u64) -> u64 {
        let data = self.survey.data_blocks();
        let full = (self.groups() - 1) * self.group_blocks();
        // A journal takes at most half of the volume.
        let block_size = u64::from(self.options.block_size.unwrap_or(BLOCK_SIZE));
        let journal = self.options.journal_size.unwrap_or(0) / block_size;
        ((data + free).max(full).max(64) + 2).max(2 * journal)
    }

    /// Blocks of a group.
    fn group_blocks(&self) -> u64 {
        (u64::from(self.options.block_size.unwrap_or(BLOCK_SIZE)) * 8).min(65_528)
    }

    /// Groups that have all inodes.
    fn groups(&self) -> u64 {
        let inodes = u64::from(self.options.inodes.unwrap_or(0));
        inodes.div_ceil(self.group_blocks() / 128 * 128).max(1)
    }

    fn empty(&self, bytes: u64, output: impl FnOnce(u32) -> Output) -> PopulateResult<EmptyVolume> {
        let options = MkfsOptions { size: Some(bytes), ..self.options.clone() };
        EmptyVolume::new(&options, bytes, &self.identity, &self.survey, output)
    }

    /// Writes the volume to `device` and replaces its contents.
    ///
    /// # Errors
    /// [`TreeError::NoSpace`] or [`TreeError::NoInodes`] before anything is written; the options
    /// do not fit the device, contents cannot be read, or the device failed.
    pub fn write(
        &self,
        device: Arc<dyn BlockDevice>,
        threads: usize,
        runtime: &dyn Runtime,
    ) -> PopulateResult<CreatedVolume> {
        let bytes = self.options.size.unwrap_or(device.geometry().size);
        if bytes > device.geometry().size {
            let why =
                format!("the device has {} bytes: give a smaller size", device.geometry().size);
            return Err(crate::Error::Option(why).into());
        }
        let volume = self.empty(bytes, Output::held)?;
        let EmptyVolume { mut plan, records, mut output, stream, numbers } = volume;
        let block_size = u64::from(plan.layout.block_size);
        let places = Places::new(&self.survey, &stream).map_err(|needed| {
            let (needed, available) = (needed * block_size, stream.blocks() * block_size);
            TreeError::NoSpace { needed, available }
        })?;
        output.start(device.clone())?;
        let layout = plan.layout;
        let tables = plan.descs.iter().map(|desc| desc.inode_table).collect();
        let survey = self.survey.clone();
        let writer = Writer { survey, places, stream, numbers, layout, tables, records };
        let Writer { places, stream, .. } = writer::write(writer, device, threads, runtime)?;
        plan.used_inodes = numbers.last();
        zero_free_records(&plan, &mut output)?;
        for (start, len) in stream.runs(0, places.end()) {
            plan.used.take(start.get(), len);
        }
        plan.descs[0].used_dirs = u32::from(self.survey.lost_found.is_none());
        for id in (0..self.survey.source.count()).filter(|id| self.survey.names(*id).is_some()) {
            let (group, _) = layout.inode_group(numbers.ino(id)).expect("all numbers fit");
            plan.descs[group as usize].used_dirs += 1;
        }
        groups::write(&mut plan, &mut output)?;
        Ok(CreatedVolume::new(&plan))
    }
}

/// Zeroes the blocks of inode tables that have no record in use.
fn zero_free_records(plan: &super::plan::Plan, output: &mut Output) -> crate::Result<()> {
    let layout = &plan.layout;
    let per_block = u64::from(layout.block_size / layout.inode_size);
    let blocks = u64::from(layout.inode_table_blocks());
    for (desc, group) in plan.descs.iter().zip(0_u64..) {
        let before = group * u64::from(layout.inodes_per_group);
        let used = u64::from(plan.used_inodes).saturating_sub(before).div_ceil(per_block);
        if used < blocks {
            let start = cairn_base::Pba(desc.inode_table.get() + used);
            output.zeros(start, blocks - used)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
