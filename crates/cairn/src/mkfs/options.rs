//! What a new volume is to be.

use std::path::PathBuf;
use std::sync::Arc;

use cairn_block::BlockDevice;
use uuid::Uuid;

use crate::error::Cause;
use crate::format::Format;

/// A device and its path.
pub(crate) type Named = (PathBuf, Arc<dyn BlockDevice>);

/// Parameters of a new volume.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Format.
    pub format: Format,
    /// Label: at most 16 bytes on ext4, 511 UTF-16 units on F2FS.
    pub label: Option<String>,
    /// UUID; random if absent.
    pub uuid: Option<Uuid>,
    /// Features to add, or with `^` to leave out, relative to the defaults; in mke2fs's or
    /// mkfs.f2fs's words.
    pub features: Vec<String>,
    /// F2FS: how names are compared in directories that ignore case, as `utf8` or `utf8:strict`;
    /// asks for the feature `casefold`.
    pub casefold: Option<String>,
    /// Bytes a block; chosen by size if absent.
    pub block_size: Option<u32>,
    /// ext4: number of inodes; by size if absent.
    pub inodes: Option<u32>,
    /// ext4: percentage of the blocks reserved for root; 5 if absent.
    pub reserved_percent: Option<f64>,
    /// ext4: what is rarely asked for.
    pub tuning: Tuning,
    /// Size of the image file in bytes: needed to create one, and resizes one that is there.
    pub size: Option<u64>,
    /// F2FS: per cent of the main area kept for cleaning; what leaves users most if absent.
    pub overprovision: Option<f64>,
    /// F2FS: segments a section; 1 if absent.
    pub segments_per_section: Option<u32>,
    /// F2FS: sections a zone; 1 if absent.
    pub sections_per_zone: Option<u32>,
    /// F2FS: more nodes on a large volume.
    pub large_nat_bitmap: bool,
    /// F2FS: for devices with zones that must be written in order.
    pub zoned: bool,
    /// F2FS on such devices: sections kept for cleaning.
    pub reserved_sections: Option<u32>,
    /// Make the image one with zones, all empty.
    pub zones: Option<ImageZones>,
    /// F2FS: devices behind the first one, as the next mount shall find them.
    pub devices: Vec<PathBuf>,
    /// Owner and group of the root directory; 0 and 0 if absent.
    pub root_owner: Option<(u32, u32)>,
    /// Time of all timestamps, in seconds since 1970; now if absent. If given, nothing is left to
    /// chance: the same options make the same bytes, the UUID (if it is absent) following from
    /// time, label and size.
    pub time: Option<i64>,
    /// Replace the contents of the devices; without it, whatever is found there is
    /// [`Cause::WouldOverwrite`].
    pub overwrite: bool,
}

/// What is rarely asked for of an ext4 volume. Without a value mkfs decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Bytes of an inode record.
    pub inode_size: Option<u32>,
    /// Bytes of the volume for each inode.
    pub inode_ratio: Option<u64>,
    /// Bytes of the journal.
    pub journal_size: Option<u64>,
    /// Seed of directory hashes.
    pub hash_seed: Option<Uuid>,
}

/// The zones of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageZones {
    /// Bytes of each.
    pub size: u64,
    /// Bytes of a sequential one that can be written; all of them if absent.
    pub capacity: Option<u64>,
    /// Those that can be written anywhere; they come first.
    pub conventional: u32,
    /// Zones that can be open at once; 0: any number.
    pub max_open: u32,
    /// Zones that can be neither empty nor full at once; 0: any number.
    pub max_active: u32,
}

impl MkfsOptions {
    /// The defaults of `format`.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self {
            format,
            label: None,
            uuid: None,
            features: Vec::new(),
            casefold: None,
            block_size: None,
            inodes: None,
            reserved_percent: None,
            tuning: Tuning::default(),
            size: None,
            overprovision: None,
            segments_per_section: None,
            sections_per_zone: None,
            large_nat_bitmap: false,
            zoned: false,
            reserved_sections: None,
            zones: None,
            devices: Vec::new(),
            root_owner: None,
            time: None,
            overwrite: false,
        }
    }

    /// For a format that has neither inode tables nor blocks reserved for root.
    #[cfg(feature = "f2fs")]
    pub(crate) fn refuse_ext4_options(&self) -> Result<(), Cause> {
        let given = [
            (self.inodes.is_some(), "number of inodes"),
            (self.reserved_percent.is_some(), "blocks reserved for root"),
            (self.tuning.inode_size.is_some(), "size of inodes"),
            (self.tuning.inode_ratio.is_some(), "bytes for each inode"),
            (self.tuning.journal_size.is_some(), "size of a journal"),
            (self.tuning.hash_seed.is_some(), "seed of directory hashes"),
        ];
        match given.into_iter().find(|(given, _)| *given) {
            Some((_, what)) => Err(Cause::Option(format!(
                "{} has no {what}: that is an option of ext4",
                self.format
            ))),
            None => Ok(()),
        }
    }

    /// For a format that has no segments.
    pub(crate) fn refuse_f2fs_options(&self) -> Result<(), Cause> {
        let given = [
            (self.overprovision.is_some(), "overprovision"),
            (self.segments_per_section.is_some(), "segments per section"),
            (self.sections_per_zone.is_some(), "sections per zone"),
            (self.casefold.is_some(), "encoding of names without case"),
            (self.large_nat_bitmap, "large NAT bitmap"),
            (self.zoned, "zones"),
            (self.reserved_sections.is_some(), "reserved sections"),
            (!self.devices.is_empty(), "further devices"),
        ];
        match given.into_iter().find(|(given, _)| *given) {
            Some((_, what)) => Err(Cause::Option(format!(
                "{} has no {what}: that is an option of f2fs",
                self.format
            ))),
            None => Ok(()),
        }
    }
}
