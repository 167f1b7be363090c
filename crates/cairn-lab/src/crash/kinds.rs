//! The volumes of the search: formats, modes, and how they are made and opened.

use std::fmt;
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::zoned::{ZoneLayout, create_image, open_image};
use cairn_crash::nodes::node_blocks_of;
use cairn_crash::opened::Opened;
use cairn_crash::workload::{Churn, FILLER, IsWhole};
use cairn_vfs::types::{Caller, IoFlags, NewInode, SetAttributes};

use crate::error::{Error, Result};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Blocks of a full volume that are overwritten after each operation.
const CHURN: u32 = 40;

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// ext4 and its ancestors.
    Ext4,
    /// F2FS.
    F2fs,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext4 => "ext4",
            Self::F2fs => "f2fs",
        })
    }
}

/// A format and a mode.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The format.
    pub format: Format,
    /// The name of the mode, unique in its format.
    pub mode: &'static str,
    /// Mount options.
    pub options: &'static str,
    features: &'static [&'static str],
    block_size: u32,
    megabytes: u64,
    zoned: bool,
    /// One file leaves so many blocks free, and is overwritten between operations.
    left: Option<u64>,
    /// Synced operations before the part that is cut, so that a small log wraps in it.
    pub(super) laps: u32,
    /// Torn blocks are noticed.
    pub(super) has_checksums: bool,
}

const EXT4: Kind = Kind {
    format: Format::Ext4,
    mode: "default",
    options: "",
    features: &[],
    block_size: 4096,
    megabytes: 16,
    zoned: false,
    left: None,
    laps: 0,
    has_checksums: true,
};

/// A log of 1 MiB that wraps.
const SMALL: Kind = Kind { block_size: 1024, megabytes: 8, laps: 44, ..EXT4 };

const F2FS: Kind = Kind { format: Format::F2fs, megabytes: 64, ..EXT4 };

/// All kinds.
const KINDS: [Kind; 13] = [
    EXT4,
    Kind { mode: "small-log", ..SMALL },
    Kind {
        mode: "checkpoint-ahead",
        options: "async_checkpoint=99,checkpoint_clean=scan",
        ..SMALL
    },
    Kind {
        mode: "checkpoint-when-full",
        options: "noasync_checkpoint,checkpoint_clean=bail_out",
        ..SMALL
    },
    Kind { mode: "small-folios", options: "max_folio=4K,stripe=7", ..EXT4 },
    Kind {
        mode: "no-orphan-file",
        features: &["^orphan_file"],
        options: "nobuffered_iomap",
        ..EXT4
    },
    Kind {
        mode: "no-checksums",
        features: &["^metadata_csum", "^metadata_csum_seed", "^64bit", "^orphan_file"],
        has_checksums: false,
        ..SMALL
    },
    F2FS,
    Kind { mode: "greedy", options: "nocheckpoint_merge,gc_victim=greedy", ..F2FS },
    Kind { mode: "lfs", options: "mode=lfs,gc_victim=data_first,gc_merge", ..F2FS },
    Kind { mode: "full", options: "mode=lfs,cache=4M,gc_victim=greedy", left: Some(1500), ..F2FS },
    Kind {
        mode: "checksums",
        options: "mode=lfs,nocheckpoint_merge",
        features: &["extra_attr", "inode_checksum", "inode_crtime", "sb_checksum"],
        ..F2FS
    },
    Kind { mode: "zoned", zoned: true, megabytes: 80, ..F2FS },
];

/// All kinds of volumes that are searched.
#[must_use]
pub fn kinds() -> &'static [Kind] {
    &KINDS
}

impl Kind {
    /// The kind of a format and the name of a mode.
    ///
    /// # Errors
    /// There is none: the modes that there are.
    pub fn find(format: Format, mode: &str) -> Result<&'static Self> {
        let of_format = || KINDS.iter().filter(move |kind| kind.format == format);
        of_format().find(|kind| kind.mode == mode).ok_or_else(|| {
            let modes: Vec<&str> = of_format().map(|kind| kind.mode).collect();
            let modes = modes.join(", ");
            Error::Program(format!("{format} has no mode '{mode}': give one of {modes}"))
        })
    }

    /// The kind of a volume of the user's.
    pub(super) fn of_image(format: Format) -> &'static Self {
        const EXT4_IMAGE: Kind = Kind { mode: "image", has_checksums: false, ..EXT4 };
        const F2FS_IMAGE: Kind = Kind { mode: "image", ..F2FS };
        match format {
            Format::Ext4 => &EXT4_IMAGE,
            Format::F2fs => &F2FS_IMAGE,
        }
    }

    /// A fresh volume. Its bytes are always the same.
    pub(super) fn fresh(&self) -> Result<MemoryDevice> {
        let size = self.megabytes * MIB;
        let device = Arc::new(MemoryDevice::new(size));
        let features = || self.features.iter().map(|name| (*name).to_owned()).collect();
        let (uuid, time) = (Some(uuid::Uuid::from_u128(1)), Some(1_700_000_000));
        match self.format {
            Format::Ext4 => {
                let options = cairn_ext4::mkfs::MkfsOptions {
                    uuid,
                    hash_seed: uuid,
                    time,
                    features: features(),
                    block_size: Some(self.block_size),
                    journal_size: Some(if self.block_size == 4096 { 4 * MIB } else { MIB }),
                    ..Default::default()
                };
                cairn_ext4::mkfs::make(device.clone(), &options, &*Threads::new())?;
            }
            Format::F2fs => {
                let options = cairn_f2fs::mkfs::MkfsOptions {
                    uuid,
                    time,
                    features: features(),
                    zoned: self.zoned,
                    reserved_sections: self.zoned.then_some(8),
                    ..Default::default()
                };
                if self.zoned {
                    return zoned(size, &options);
                }
                cairn_f2fs::mkfs::make(device.clone(), &options, &*Threads::new())?;
            }
        }
        if let Some(left) = self.left {
            self.fill(&device, left)?;
        }
        Ok(device.fork())
    }

    /// Fills a volume with one file, except so many blocks.
    fn fill(&self, device: &Arc<MemoryDevice>, left: u64) -> Result<()> {
        let fs = self.open(device.clone(), Simulated::new(1), "").map_err(Error::Program)?.fs;
        let made =
            fs.create(fs.root(), FILLER.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)?;
        let mut blocks = 0;
        let filled = loop {
            match fs.write(made.ino, blocks * BLOCK, &[1; BLOCK as usize], IoFlags::empty()) {
                Ok(_) => blocks += 1,
                Err(cairn_vfs::Error::NoSpace) => break blocks.saturating_sub(left),
                Err(error) => return Err(error.into()),
            }
        };
        let size = Some(filled * BLOCK);
        fs.setattr(made.ino, &SetAttributes { size, ..SetAttributes::default() })?;
        Ok(fs.unmount()?)
    }

    /// What is overwritten between operations.
    pub(super) fn churn(&self, fresh: &MemoryDevice) -> Result<Option<Churn>> {
        if self.left.is_none() {
            return Ok(None);
        }
        let opened = self.open(Arc::new(fresh.fork()), Simulated::new(1), "");
        let fs = opened.map_err(Error::Program)?.fs;
        let size = fs.lookup(fs.root(), FILLER.as_bytes())?.size;
        fs.unmount()?;
        Ok(Some(Churn { of: size / BLOCK, blocks: CHURN }))
    }

    /// Blocks that are never torn: F2FS needs whole nodes.
    pub(super) fn whole(&self, fresh: &MemoryDevice) -> Result<IsWhole> {
        Ok(match self.format {
            Format::Ext4 => Arc::new(|_: &[u8]| false),
            Format::F2fs => Arc::new(node_blocks_of(fresh)?),
        })
    }

    /// Opens a volume, which must be writable.
    pub(super) fn open(
        &self,
        device: Arc<dyn BlockDevice>,
        runtime: Arc<dyn Runtime>,
        more: &str,
    ) -> Result<Opened, String> {
        let options = [self.options, more].join(",");
        open(self.format, device, runtime, &options)
    }

    /// A volume with zones, or the device itself.
    pub(super) fn device(image: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>, String> {
        let zoned = open_image(&image).map_err(|error| error.to_string())?;
        Ok(zoned.map_or(image, |zoned| Arc::new(zoned)))
    }
}

/// `size` bytes in zones of 2 MiB: conventional ones for the metadata, then sequential ones.
fn zoned(size: u64, options: &cairn_f2fs::mkfs::MkfsOptions) -> Result<MemoryDevice> {
    const ZONE: u64 = 2 * MIB;
    let zones = u32::try_from(size / ZONE).expect("a small volume");
    let layout = ZoneLayout { max_open: 6, max_active: 6, ..ZoneLayout::new(ZONE, 8, zones) };
    let image = Arc::new(MemoryDevice::new(layout.image_size()));
    let zoned = create_image(image.clone(), layout)?;
    cairn_f2fs::mkfs::make(Arc::new(zoned), options, &*Threads::new())?;
    Ok(image.fork())
}

/// Opens a volume of this format.
pub(super) fn open(
    format: Format,
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &str,
) -> Result<Opened, String> {
    let reads_only = options.split(',').any(|option| option == "ro");
    let opened = match format {
        Format::Ext4 => {
            let options = cairn_ext4::MountOptions::parse(options).map_err(|e| e.to_string())?;
            let fs = cairn_ext4::Ext4::open(device, runtime, &options)
                .map_err(|error| format!("opening: {error}"))?;
            (fs.read_only_reason(), {
                let evicted = fs.clone();
                Opened { fs, evict: Arc::new(move || evicted.shrink_inodes()) }
            })
        }
        Format::F2fs => {
            let options = cairn_f2fs::MountOptions::parse(options).map_err(|e| e.to_string())?;
            let fs = cairn_f2fs::F2fs::open(Kind::device(device)?, runtime, &options)
                .map_err(|error| format!("opening: {error}"))?;
            (fs.read_only_reason(), {
                let evicted = fs.clone();
                Opened { fs, evict: Arc::new(move || evicted.inodes().table.shrink()) }
            })
        }
    };
    match opened {
        (Some(reason), _) if !reads_only => Err(format!("opening: it is read-only: {reason}")),
        (_, opened) => Ok(opened),
    }
}
