//! [`build`]: sources to an image.

use std::fs;
use std::path::PathBuf;

use cairn::Format;
use cairn_base::names::Escaped;

use crate::delivery::{Delivery, too_small};
use crate::disk::Plan;
use crate::disk::options::Contents;
use crate::error::{Error, Result};
use crate::options::{Built, Free, Options, Size};
use crate::output;
use crate::volume::{self, Place};

/// Builds an image. It gets its name when it is whole; after an error there is none, or the old
/// one. A block device, an export or a part of a disk is written when all else is done; without a
/// size, the image is as large.
///
/// # Errors
/// A source cannot be read or is damaged, the image cannot be made, or the sources do not fit.
pub fn build(mut options: Options) -> Result<Built> {
    if options.read_only {
        mark_read_only(&mut options)?;
    }
    let others = others(&options);
    output::check_name(&options.output)?;
    let output = Delivery::new(&options.output, options.shape, options.overwrite)?;
    let (name, room) = (options.output.clone(), output.room());
    match (options.size, room) {
        (Size::Auto, Some(room)) if options.free == Free::Bytes(0) && !options.read_only => {
            options.size = Size::Exact(room);
        }
        (Size::Exact(size), Some(room)) if size > room => {
            return Err(too_small(&options.output, room, size));
        }
        _ => {}
    }
    build_in(options, others, output).map_err(|error| match (error, room) {
        (Error::TooSmall { size, need: Some(need) }, Some(room)) if size == room => {
            too_small(&name, room, need)
        }
        (error, _) => error,
    })
}

/// As [`build`], of an image that goes to `output`.
fn build_in(mut options: Options, others: Vec<PathBuf>, output: Delivery) -> Result<Built> {
    let disk = options.disk.take().map(|disk| Plan::new(disk, &options)).transpose()?;
    let _claim = output::claim(&options.output)?;
    options.rules.own = output.own();
    for path in others {
        options.rules.refuse_output(&path.escaped(), fs::metadata(&path))?;
    }
    let Some(disk) = disk else {
        let made = volume::make(&options, Place { file: &output.image, offset: 0 }, "")?;
        output.finish(made.size, &made.free)?;
        let inodes = made.tree.nodes().len() as u64;
        return Ok(Built { size: made.size, uuid: made.uuid, inodes, passes: made.passes });
    };
    let (built, free) = disk.write(&options, &output.image)?;
    output.finish(built.size, &free)?;
    Ok(built)
}

/// The files that are read beside the sources.
fn others(options: &Options) -> Vec<PathBuf> {
    let partitions = options.disk.iter().flat_map(|disk| &disk.partitions);
    let files = partitions.filter_map(|partition| match &partition.contents {
        Contents::File(path) => Some(path),
        _ => None,
    });
    files.chain(&options.rules.manifests).cloned().collect()
}

/// Asks for the features of a volume that nobody writes.
fn mark_read_only(options: &mut Options) -> Result<()> {
    if options.format != Format::Ext4 || !volume::has_extents(&options.features) {
        let why = "the read-only layout is for ext4 with extents: leave it out";
        return Err(Error::Usage(why.into()));
    }
    let features = ["^has_journal", "^resize_inode", "read-only"];
    options.features.extend(features.map(str::to_owned));
    Ok(())
}
