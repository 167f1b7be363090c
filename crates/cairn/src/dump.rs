//! Shows single structures of a volume, and its journal. Nothing is written, and the volume need
//! not mount.

use std::path::PathBuf;

use cairn_check::Fields;

use crate::error::{Cause, Error, Result};
use crate::format::{self, Format};
use crate::image::ImageSpec;
use crate::recognise::recognise;
use crate::volume::open_device;

/// Which copies of superblock and checkpoint are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// The block of the superblock.
    pub superblock: Option<u64>,
    /// ext4: the group of the superblock.
    pub group: Option<u32>,
    /// F2FS: the checkpoint pack, 1 or 2.
    pub pack: Option<u8>,
}

/// A structure. Words for inodes are a number or a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Structure {
    /// The superblock.
    Superblock,
    /// ext4: a group descriptor, or all.
    Groups(Option<u32>),
    /// A block.
    Block(u64),
    /// An inode.
    Inode(Vec<u8>),
    /// The block map of an inode.
    Extents(Vec<u8>),
    /// ext4: the index of a directory.
    Htree(Vec<u8>),
    /// The extended attributes of an inode.
    Xattrs(Vec<u8>),
    /// F2FS: both checkpoint packs.
    Checkpoint,
    /// F2FS: the nodes of an inode.
    Nodes(Vec<u8>),
    /// F2FS: the address of a node.
    Nat(u32),
    /// F2FS: what is valid in a segment.
    Sit(u32),
    /// F2FS: the segments in use.
    Segments,
    /// F2FS: the owners of a segment's blocks.
    Summary(u32),
}

/// Shows a structure of the volume in `image`. `devices`: see [`crate::OpenOptions::devices`].
///
/// # Errors
/// The image cannot be opened or is in use, holds no volume of a known format, or no such
/// structure.
pub fn dump(
    image: &ImageSpec,
    devices: &[PathBuf],
    copies: Copies,
    structure: &Structure,
) -> Result<(Format, Fields)> {
    let error = |cause| Error::new(image, cause);
    let device = open_device(image, devices, false)?;
    let format = format_of(&*device, copies).map_err(error)?;
    Ok((format, format::dump(format, device, copies, structure).map_err(error)?))
}

/// Shows the journal of the volume in `image`, or what F2FS has in its place.
///
/// # Errors
/// As [`dump`]; the volume has no journal.
pub fn journal(image: &ImageSpec, devices: &[PathBuf], copies: Copies) -> Result<(Format, Fields)> {
    let error = |cause| Error::new(image, cause);
    let device = open_device(image, devices, false)?;
    let format = format_of(&*device, copies).map_err(error)?;
    Ok((format, format::journal(format, device, copies).map_err(error)?))
}

/// The format of a volume, of which the first superblock may be damaged or gone.
pub(crate) fn format_of(
    device: &dyn cairn_block::BlockDevice,
    copies: Copies,
) -> Result<Format, Cause> {
    if copies.group.is_some() {
        return Ok(Format::Ext4);
    }
    if copies.pack.is_some() {
        return Ok(Format::F2fs);
    }
    // A damaged superblock is an error of the probe, but still says what the volume is.
    match format::probe(device) {
        Ok(Some(format)) | Err(Cause::Format { format, .. }) => Ok(format),
        Ok(None) => Err(Cause::UnknownFormat { hint: recognise(device) }),
        Err(error) => Err(error),
    }
}
