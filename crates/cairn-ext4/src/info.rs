//! [`Info`]: what `cairn info` shows of a volume's superblock.

use std::sync::Arc;

use cairn_block::BlockDevice;

use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::features::{Access, Compat, Incompat};
use crate::format::layout::Layout;
use crate::format::superblock::{STATE_ERROR, STATE_VALID, Superblock};
use crate::probe::{Probe, probe};
use crate::redo;
use crate::root;

/// [`Info::state`] of a volume of which something is finished when it is opened.
const NEEDS_RECOVERY: &str = "needs recovery";
/// What to do with a volume of which a change was interrupted.
const INTERRUPTED: &str = "a change of the volume was interrupted: opening it for writing \
    finishes the change; let no other program write or check the volume before";
/// [`Info::access`] of a volume that can be written.
const READ_WRITE: &str = "read-write";

/// The contents of a superblock.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Info {
    /// "ext2", "ext3" or "ext4".
    pub kind: &'static str,
    /// Label.
    pub label: String,
    /// UUID.
    pub uuid: String,
    /// Bytes of a block.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Free blocks, by the superblock.
    pub free_blocks: u64,
    /// Blocks reserved for root.
    pub reserved_blocks: u64,
    /// Number of inodes.
    pub inodes: u32,
    /// Free inodes, by the superblock.
    pub free_inodes: u32,
    /// Bytes of an inode record.
    pub inode_size: u16,
    /// Feature names.
    pub features: Vec<String>,
    /// "clean", "needs recovery", "not clean", "has errors" or "truncated" (the image is shorter
    /// than the volume).
    pub state: &'static str,
    /// How Cairn opens the volume: "read-write", or why it does not.
    pub access: String,
    /// Creation time, in seconds since 1970.
    pub created: u64,
    /// Time of the last mount, in seconds since 1970.
    pub last_mounted: u64,
    /// Time of the last write, in seconds since 1970.
    pub last_written: u64,
    /// Mounts since the last check.
    pub mount_count: u16,
    /// Why the volume should be checked before it is written, and what to do.
    #[serde(skip)]
    pub needs_check: Option<String>,
}

impl Info {
    /// The information of the volume on this device, if there is one, `now` seconds after 1970:
    /// with a change that was interrupted as it will be when it is finished.
    ///
    /// # Errors
    /// The device cannot be read, or the superblock is damaged and there is no backup.
    pub fn of_device(device: &Arc<dyn BlockDevice>, now: u64) -> Result<Option<Self>> {
        let unfinished = redo::in_memory(device)?;
        let seen = unfinished.as_ref().unwrap_or(device);
        let Some(probe) = probe(&**seen)? else { return Ok(None) };
        probe.warn();
        let mut info = Self::of_probe(&probe, seen, now);
        if unfinished.is_some() && info.access == READ_WRITE {
            info.state = NEEDS_RECOVERY;
            info.needs_check = Some(INTERRUPTED.to_owned());
        }
        Ok(Some(info))
    }

    /// The information of a probe on this device, `now` seconds after 1970. The root's inode is
    /// read to see whether the volume can be opened.
    #[must_use]
    pub fn of_probe(probe: &Probe, device: &Arc<dyn BlockDevice>, now: u64) -> Self {
        let mut info = Self::of(&probe.superblock, device.geometry().size, now);
        if let Some(reason) = probe.read_only_reason().filter(|_| info.access == READ_WRITE) {
            info.access = format!("read-only: {reason}");
        }
        if !info.access.starts_with("none")
            && let Err(error) = root::check_unopened(probe, device)
        {
            let advice = match error {
                Error::Corrupt(_) => ": copy out what is left",
                _ => "",
            };
            info.access = format!("none: {error}{advice}");
        }
        // Why a volume cannot be written matters more.
        let needs_check = info.needs_check.filter(|_| info.access == READ_WRITE);
        Self { needs_check, ..info }
    }

    /// The same of a superblock.
    #[must_use]
    pub(crate) fn of(superblock: &Superblock, size: u64, now: u64) -> Self {
        let raw = &superblock.raw;
        let features = superblock.features();
        let block_size = 1024_u32.checked_shl(raw.s_log_block_size.get()).unwrap_or(0);
        let is_short = superblock.blocks_count().saturating_mul(block_size.into()) > size;
        Self {
            kind: kind(superblock),
            label: superblock.label(),
            uuid: superblock.uuid().to_string(),
            block_size,
            blocks: superblock.blocks_count(),
            free_blocks: superblock.free_blocks(),
            reserved_blocks: superblock.reserved_blocks(),
            inodes: raw.s_inodes_count.get(),
            free_inodes: raw.s_free_inodes_count.get(),
            inode_size: raw.s_inode_size.get(),
            features: features.names(),
            state: if is_short { "truncated" } else { state(superblock) },
            access: match (Layout::new(superblock, size), features.access()) {
                (_, Access::Refuse(reason)) => format!("none: {reason}"),
                _ if has_external_journal(superblock) => format!("none: {EXTERNAL_JOURNAL}"),
                (Err(short @ Corrupt::TooShort { .. }), _) => {
                    format!("none: {short}: copy it again, whole")
                }
                (Err(corrupt), _) => format!("none: {corrupt}"),
                (Ok(_), Access::ReadWrite) => READ_WRITE.to_owned(),
                (Ok(_), Access::ReadOnly(reason)) => format!("read-only: {reason}"),
            },
            created: time(raw.s_mkfs_time.get(), raw.s_mkfs_time_hi),
            last_mounted: time(raw.s_mtime.get(), raw.s_mtime_hi),
            last_written: time(raw.s_wtime.get(), raw.s_wtime_hi),
            mount_count: raw.s_mnt_count.get(),
            needs_check: needs_check(superblock, now).map(str::to_owned),
        }
    }
}

/// Why Linux recommends e2fsck when it mounts the volume for writing. A program that has the volume
/// mounted now and keeps no journal leaves the same mark as one that crashed.
fn needs_check(superblock: &Superblock, now: u64) -> Option<&'static str> {
    let (raw, state) = (&superblock.raw, superblock.raw.s_state.get());
    // A negative number, or none, means that mounts are not counted.
    let most = raw.s_max_mnt_count.get().cast_signed();
    let is_counted_out = most > 0 && raw.s_mnt_count.get() >= most.cast_unsigned();
    let interval = u64::from(raw.s_checkinterval.get());
    let checked = time(raw.s_lastcheck.get(), raw.s_lastcheck_hi);
    let is_overdue = interval > 0 && checked.saturating_add(interval) <= now;
    if state & STATE_VALID == 0 {
        Some(
            "the volume was not unmounted cleanly, or another program (fuse2fs takes no lock) uses \
             it now: check /proc/mounts, or run e2fsck -f",
        )
    } else if state & STATE_ERROR != 0 {
        Some("errors were found on the volume earlier: check and repair it")
    } else if is_counted_out {
        Some("the volume has been mounted as often as it may be without a check: run e2fsck -f")
    } else if is_overdue {
        Some("the time between two checks of the volume has passed: run e2fsck -f")
    } else {
        None
    }
}

fn time(low: u32, high: u8) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Why a volume with an external journal is not opened.
pub(crate) const EXTERNAL_JOURNAL: &str = "the journal is on another device, which cairn does not \
    open: move it into the volume first (tune2fs -O ^has_journal, then tune2fs -j)";

/// True if the journal is on another device.
pub(crate) fn names_external_journal(superblock: &Superblock) -> bool {
    let raw = &superblock.raw;
    let is_named = raw.s_journal_dev.get() != 0 || raw.s_journal_uuid != [0; 16];
    has_external_journal(superblock) && is_named
}

/// True if the superblock names no inode of a journal that the volume should have.
pub(crate) fn has_external_journal(superblock: &Superblock) -> bool {
    superblock.features().compat(Compat::HAS_JOURNAL) && superblock.raw.s_journal_inum.get() == 0
}

fn kind(superblock: &Superblock) -> &'static str {
    let features = superblock.features();
    let newer = features.incompat.difference(
        Incompat::FILETYPE | Incompat::RECOVER | Incompat::META_BG | Incompat::JOURNAL_DEV,
    );
    if !newer.is_empty() || features.has_group_checksums() {
        "ext4"
    } else if features.compat(Compat::HAS_JOURNAL) {
        "ext3"
    } else {
        "ext2"
    }
}

fn state(superblock: &Superblock) -> &'static str {
    let state = superblock.raw.s_state.get();
    if state & STATE_ERROR != 0 {
        "has errors"
    } else if superblock.features().incompat(Incompat::RECOVER) {
        NEEDS_RECOVERY
    } else if state & STATE_VALID == 0 {
        "not clean"
    } else {
        "clean"
    }
}
