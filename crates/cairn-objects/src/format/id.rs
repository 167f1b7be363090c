//! [`ObjectId`], and the names of objects.

use std::fmt;

/// Begins the names of manifests.
pub(crate) const VOLUMES: &str = "volumes/";
/// Begins the names of data objects and fences.
pub(crate) const LOG: &str = "log/";
/// Begins the names of map objects.
pub(crate) const MAP: &str = "map/";

/// A data object or a fence: `log/ID/EPOCH-SEQUENCE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectId {
    /// The volume that wrote it.
    pub(crate) log: u64,
    /// The epoch of its writer.
    pub(crate) epoch: u32,
    /// Its place in the epoch's log.
    pub(crate) sequence: u64,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { log, epoch, sequence } = self;
        write!(f, "{LOG}{log:016x}/{epoch:08x}-{sequence:016x}")
    }
}

/// A number in a name, of exactly so many hexadecimal digits.
pub(crate) fn hexadecimal(text: &str, digits: usize) -> Option<u64> {
    let good = text.len() == digits && text.bytes().all(|byte| b"0123456789abcdef".contains(&byte));
    if good { u64::from_str_radix(text, 16).ok() } else { None }
}

impl ObjectId {
    /// Reads a name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (log, rest) = name.strip_prefix(LOG)?.split_once('/')?;
        let (epoch, sequence) = rest.split_once('-')?;
        Some(Self {
            log: hexadecimal(log, 16)?,
            epoch: u32::try_from(hexadecimal(epoch, 8)?).ok()?,
            sequence: hexadecimal(sequence, 16)?,
        })
    }

    /// What the names of an epoch's objects begin with.
    pub(crate) fn prefix(log: u64, epoch: u32) -> String {
        format!("{LOG}{log:016x}/{epoch:08x}-")
    }
}

/// A map object: `map/ID/EPOCH-GENERATION-PART`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MapId {
    /// The volume that wrote it.
    pub(crate) log: u64,
    /// The epoch of its writer.
    pub(crate) epoch: u32,
    /// The manifest's generation that refers to it first.
    pub(crate) generation: u64,
    /// Counts the map objects of a checkpoint.
    pub(crate) part: u32,
}

impl fmt::Display for MapId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { log, epoch, generation, part } = self;
        write!(f, "{MAP}{log:016x}/{epoch:08x}-{generation:016x}-{part:04x}")
    }
}

impl MapId {
    /// Reads a name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (log, rest) = name.strip_prefix(MAP)?.split_once('/')?;
        let (epoch, rest) = rest.split_once('-')?;
        let (generation, part) = rest.split_once('-')?;
        Some(Self {
            log: hexadecimal(log, 16)?,
            epoch: u32::try_from(hexadecimal(epoch, 8)?).ok()?,
            generation: hexadecimal(generation, 16)?,
            part: u32::try_from(hexadecimal(part, 4)?).ok()?,
        })
    }
}
