//! Making a volume, as mke2fs does with today's defaults.
//!
//! Everything is decided first (`plan`): features, sizes, the place of every structure. Then it is written: zeros for
//! inode tables and journal, files, bitmaps, descriptors, and the primary superblock last, so that an interrupted run
//! leaves no filesystem. Nothing is left to initialise lazily.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_vfs::types::Timestamp;
use uuid::Uuid;

use crate::error::Result;

mod block_map;
mod features;
mod files;
mod groups;
mod output;
mod plan;
mod ranges;

/// What to make. The defaults are mke2fs's.
#[derive(Clone, Debug, Default)]
pub struct MkfsOptions {
    /// Label, at most 16 bytes.
    pub label: Option<String>,
    /// UUID; random if absent. With a UUID the directory hash seed follows from it, so that the image is reproducible.
    pub uuid: Option<Uuid>,
    /// Features to add, or with `^` to leave out, relative to the defaults; in mke2fs's words. `none` clears the defaults.
    pub features: Vec<String>,
    /// Bytes a block; chosen by size if absent.
    pub block_size: Option<u32>,
    /// Bytes an inode record; 256 if absent.
    pub inode_size: Option<u32>,
    /// Inodes; from the ratio if absent.
    pub inodes: Option<u32>,
    /// Bytes of the volume for each inode; by size if absent.
    pub inode_ratio: Option<u64>,
    /// Journal size in bytes; by size if absent.
    pub journal_size: Option<u64>,
    /// Per cent of the blocks kept for the reserved user; 5 if absent.
    pub reserved_percent: Option<f64>,
    /// Owner and group of the root directory; 0 and 0 if absent.
    pub root_owner: Option<(u32, u32)>,
    /// Bytes of the volume; the whole device if absent.
    pub size: Option<u64>,
    /// Time of all timestamps, in seconds since the epoch; `SOURCE_DATE_EPOCH` or now if absent.
    pub time: Option<i64>,
}

/// What was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// UUID.
    pub uuid: Uuid,
    /// Bytes a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Blocks of the journal; 0: none.
    pub journal_blocks: u64,
    /// Feature names.
    pub features: Vec<String>,
}

/// Makes an ext4 volume on `device`, replacing what is there.
///
/// # Errors
/// Options that do not fit each other or the device, or a device error.
pub fn make(device: Arc<dyn BlockDevice>, options: &MkfsOptions, runtime: &dyn Runtime) -> Result<Made> {
    let identity = identity(options, runtime);
    let mut plan = plan::Plan::new(options, device.geometry().size, &identity)?;
    let mut output = output::Output::new(device, plan.layout.block_size);
    output.erase_signature()?;
    plan.place_tables(&mut output)?;
    files::write(&mut plan, &mut output, &identity)?;
    groups::write(&mut plan, &mut output)?;
    Ok(Made {
        uuid: identity.uuid,
        block_size: plan.layout.block_size,
        blocks: plan.layout.blocks_count,
        inodes: plan.layout.inodes_count,
        journal_blocks: plan.journal_blocks,
        features: plan.layout.features.names(),
    })
}

/// What makes two volumes of the same size different.
struct Identity {
    uuid: Uuid,
    hash_seed: Uuid,
    now: Timestamp,
    owner: (u32, u32),
}

fn identity(options: &MkfsOptions, runtime: &dyn Runtime) -> Identity {
    let random = || {
        let bits = u128::from(runtime.random()) << 64 | u128::from(runtime.random());
        uuid::Builder::from_random_bytes(bits.to_le_bytes()).into_uuid()
    };
    let uuid = options.uuid.unwrap_or_else(random);
    let hash_seed = match options.uuid {
        Some(uuid) => Uuid::new_v5(&uuid, b"directory hash seed"),
        None => random(),
    };
    let from_environment = || std::env::var("SOURCE_DATE_EPOCH").ok()?.trim().parse().ok();
    let now = match options.time.or_else(from_environment) {
        Some(seconds) => Timestamp { seconds, nanoseconds: 0 },
        None => {
            let since = runtime.now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(0), nanoseconds: 0 }
        }
    };
    Identity { uuid, hash_seed, now, owner: options.root_owner.unwrap_or((0, 0)) }
}

#[cfg(test)]
mod tests;
