//! [`Link`]: one layer of an image.

use std::fmt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use cairn_block::BlockDevice;
use cairn_images::qcow2::Qcow2;
use rustix::fs::{major, minor};

use crate::image::{ImageSpec, Location};

/// One layer of an image.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Link {
    /// `file`, `block device`, `NBD export`, `object volume`, `qcow2`, `zstd`, `LUKS`, `zones`,
    /// `partition` or `offset`.
    pub kind: &'static str,
    /// Name, number or properties; may be empty.
    pub detail: String,
    /// Bytes.
    pub size: u64,
}

impl Link {
    pub(crate) fn new(kind: &'static str, detail: String, device: &dyn BlockDevice) -> Self {
        Self { kind, detail, size: device.geometry().size }
    }

    /// What holds the bytes, and the way to them.
    pub(crate) fn base(image: &ImageSpec, device: &dyn BlockDevice, way: Option<String>) -> Self {
        let path = match &image.location {
            Location::File(path) => path,
            Location::Nbd(address) => return Self::new("NBD export", address.to_string(), device),
            Location::Objects(volume) => {
                let detail = format!("{}, a flush is one PUT", volume.address);
                return Self::new("object volume", detail, device);
            }
        };
        let number =
            std::fs::metadata(path).ok().filter(|found| found.file_type().is_block_device());
        match number.map(|found| found.rdev()) {
            None => Self::new("file", way.unwrap_or_default(), device),
            Some(number) => {
                let told = [cache(number), way.unwrap_or_default()];
                let told = told.into_iter().filter(|text| !text.is_empty());
                Self::new("block device", told.collect::<Vec<_>>().join("; "), device)
            }
        }
    }

    pub(crate) fn qcow2(disk: &Qcow2) -> Self {
        let mut detail =
            format!("version {}, clusters of {} bytes", disk.version(), disk.cluster_size());
        if let Some(backing) = disk.backing_name() {
            detail.push_str(&format!(", over {backing}"));
        }
        if disk.snapshots() > 0 {
            detail.push_str(&format!(", {} snapshots", disk.snapshots()));
        }
        Self::new("qcow2", detail, disk)
    }
}

/// Whether a block device has a cache that writes must be flushed from.
fn cache(number: u64) -> String {
    let base = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    // A partition has the queue of the whole device.
    let read = |name: &str| {
        ["queue", "../queue"].iter().find_map(|queue| {
            let text = std::fs::read_to_string(format!("{base}/{queue}/{name}")).ok()?;
            Some(text.trim().to_owned())
        })
    };
    match (read("write_cache").as_deref(), read("fua").as_deref()) {
        (Some("write back"), Some("1")) => "with a write cache, flushes and forced writes".into(),
        (Some("write back"), _) => "with a write cache and flushes".into(),
        (Some("write through"), _) => "without a write cache".into(),
        _ => String::new(),
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}
