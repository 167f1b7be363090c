//! Manifests: a line of JSON, and a line with its checksum.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::id::{MapId, VOLUMES, hexadecimal};
use super::map::REGION;
use super::{Corrupt, Result, SECTOR, VERSION, checksum};

/// Largest disk: 1 PiB. A hole as long as that is a few hundred entries of an index.
pub(crate) const LARGEST: u64 = 1 << 50;
/// What no counter reaches: with a thousand a second it would take a million centuries.
const LAST: u64 = 1 << 61;
/// Data of an object, smallest and largest.
pub(crate) const OBJECT_SIZES: std::ops::RangeInclusive<u64> = 4096..=1 << 30;

/// What a volume is, and where its blocks are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Version of the layout.
    #[serde(rename = "cairn_object_volume")]
    pub(crate) version: u32,
    /// The volume.
    #[serde(with = "digits")]
    pub(crate) id: u64,
    /// Bytes of the disk.
    pub(crate) size: u64,
    /// Bytes of data after which an object is written without a flush.
    pub(crate) object_size: u64,
    /// Of the last writer.
    pub(crate) epoch: u32,
    /// Raised by every replacement.
    pub(crate) generation: u64,
    /// Who has it open for writing.
    pub(crate) writer: Option<Writer>,
    /// Never opened for writing.
    pub(crate) read_only: bool,
    /// A copy that is not finished.
    pub(crate) incomplete: bool,
    /// Where blocks were at the last checkpoint.
    pub(crate) map: Vec<MapRef>,
    /// Logs that follow it.
    pub(crate) replay: Vec<Replay>,
}

/// A process that has a volume open for writing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Writer {
    /// The host's name, for people.
    pub(crate) host: String,
    /// The process, for people.
    pub(crate) pid: u32,
    /// What no other process has, on any machine.
    pub(crate) process: String,
    /// The nonce of its data objects.
    #[serde(with = "digits")]
    pub(crate) nonce: u64,
    /// Its local log, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) log: Option<String>,
}

/// A map object, and the regions that are valid in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MapRef {
    /// The object.
    pub(crate) name: MapName,
    /// Regions.
    pub(crate) regions: BTreeSet<u64>,
}

/// The name of a map object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapName(pub(crate) MapId);

/// A log that is read behind the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Replay {
    /// The volume that wrote it.
    #[serde(with = "digits")]
    pub(crate) id: u64,
    /// Its epoch.
    pub(crate) epoch: u32,
    /// The first sequence.
    pub(crate) from: u64,
    /// The sequence behind the last; none if the log is open.
    pub(crate) to: Option<u64>,
    /// Records of its writer's local log below this number were durable before. 0: it was not
    /// begun, or has nothing that the store lacks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) recorded: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Serialize for MapName {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for MapName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let id = MapId::parse(&name);
        let id =
            id.ok_or_else(|| serde::de::Error::custom(format!("{name:?} is no map object")))?;
        Ok(Self(id))
    }
}

/// 64-bit numbers as 16 hexadecimal digits.
mod digits {
    use super::{Deserialize, Deserializer, Serializer, hexadecimal};

    pub(super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{number:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = hexadecimal(&text, 16);
        number.ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no number")))
    }
}

/// The object that holds the manifest of the volume of this name.
pub(crate) fn name(volume: &str) -> String {
    format!("{VOLUMES}{volume}")
}

/// Only the version, of any layout.
#[derive(Deserialize)]
struct Version {
    cairn_object_volume: u64,
}

impl Manifest {
    /// The bytes of the object.
    pub(crate) fn encode(&self) -> Bytes {
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        let sum = checksum(&[&text]);
        text.extend_from_slice(format!("\ncrc32c {sum:08x}\n").as_bytes());
        text.into()
    }

    /// Reads the manifest of a volume.
    pub(crate) fn decode(volume: &str, bytes: &[u8]) -> Result<Self> {
        let object = name(volume);
        let bad = |detail: &str| Corrupt::new(&object, detail);
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let (json, sum) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let stored = str::from_utf8(sum).ok().and_then(|line| line.strip_prefix("crc32c "));
        let stored = stored.and_then(|digits| hexadecimal(digits, 8));
        let stored = stored.and_then(|stored| u32::try_from(stored).ok());
        let stored = stored.ok_or_else(|| bad("has no line with a checksum"))?;
        Corrupt::checksum(&object, stored, checksum(&[json]))?;
        let version: Version =
            serde_json::from_slice(json).map_err(|_| bad("does not say its version"))?;
        if version.cairn_object_volume > VERSION.into() {
            return Err(Corrupt::newer(&object, version.cairn_object_volume, VERSION));
        }
        let manifest: Self = serde_json::from_slice(json)
            .map_err(|error| bad(&format!("is no manifest: {error}")))?;
        manifest.validate(&object)?;
        Ok(manifest)
    }

    fn validate(&self, object: &str) -> Result<()> {
        let bad = |detail: String| Err(Corrupt::new(object, detail));
        Corrupt::version(object, self.version, VERSION)?;
        if self.size > LARGEST || !self.size.is_multiple_of(SECTOR) {
            return bad(format!("says a disk of {} bytes", self.size));
        }
        if !OBJECT_SIZES.contains(&self.object_size) {
            return bad(format!("says objects of {} bytes", self.object_size));
        }
        let mut regions = BTreeSet::new();
        for region in self.map.iter().flat_map(|part| &part.regions) {
            if !regions.insert(region) {
                return bad(format!("has the region {region} in two map objects"));
            }
            if *region >= self.size.div_ceil(REGION * SECTOR) {
                return bad(format!("has the region {region}, behind the end of the disk"));
            }
        }
        let counters = self.replay.iter().flat_map(|log| [Some(log.from), log.to]).flatten();
        let counters = counters.chain(self.replay.iter().map(|log| log.recorded));
        if let Some(counter) = counters.chain([self.generation]).find(|value| *value > LAST) {
            return bad(format!("has counted to {counter}, and more than {LAST} is impossible"));
        }
        let reversed = |log: &&Replay| log.to.is_some_and(|to| to < log.from);
        if let Some(log) = self.replay.iter().find(reversed) {
            return bad(format!("has a log of epoch {} that ends before it begins", log.epoch));
        }
        let open = |log: &Replay| log.to.is_none();
        if self
            .replay
            .iter()
            .any(|log| open(log) && (log.id, true) != (self.id, log.epoch <= self.epoch))
        {
            return bad("has an open log of another volume or of a later epoch".to_owned());
        }
        Ok(())
    }
}
