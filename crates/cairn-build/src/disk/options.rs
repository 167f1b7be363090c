//! What a disk is to be.

use std::path::PathBuf;

use cairn::Format;
use cairn::partition::{Flags, PartitionKind, TableKind};
use uuid::Uuid;

use crate::read::Source;

/// A disk.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// The kind of its table.
    pub table: TableKind,
    /// Its UUID, of which an MBR has the first four bytes. Without it, it follows from the
    /// partitions.
    pub uuid: Option<Uuid>,
    /// The platform, as `linux/arm64`, whose root a partition of the type [`KindWish::Root`] is.
    pub platform: Option<String>,
    /// The partitions. If none of them gets the sources of the build, and there are sources, one
    /// that does is added as the last one.
    pub partitions: Vec<PartitionOptions>,
}

/// A partition.
#[derive(Clone, Debug)]
pub struct PartitionOptions {
    /// Its type.
    pub kind: KindWish,
    /// What it holds.
    pub contents: Contents,
    /// Bytes; what its contents need, if absent.
    pub size: Option<u64>,
    /// Its name, in a GPT.
    pub name: String,
    /// Its UUID, in a GPT. Without it, it follows from that of the disk.
    pub uuid: Option<Uuid>,
    /// Its marks.
    pub flags: Flags,
}

/// The type of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindWish {
    /// The root of the platform that was asked for. Without one, of the platform that most programs
    /// in the volume are for.
    Root,
    /// This type.
    Is(PartitionKind),
}

/// What a partition holds.
#[derive(Clone, Debug)]
pub enum Contents {
    /// The volume with the sources of the build.
    Sources,
    /// A volume of its own.
    Volume {
        /// What is in it.
        sources: Vec<Source>,
        /// Format.
        format: Format,
        /// Label.
        label: Option<String>,
    },
    /// The bytes of a file, such as the image of an EFI system partition.
    File(PathBuf),
    /// A swap area.
    Swap,
    /// Zeros.
    Nothing,
}
