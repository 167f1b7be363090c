//! Changes of a volume that nobody has mounted, as tune2fs makes them.
//!
//! Most change the superblock alone: one block, written durably, so that a crash leaves the state
//! before it or behind it. Backups follow. The module `journal` has the exception.

mod draft;
mod features;
pub(crate) mod journal;
mod mount_options;
mod options;

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32};

use crate::error::{Error, Result};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::superblock::Superblock;
use crate::offline::Offline;
use crate::superblock::{LABEL_MAX, split_time};

pub use options::{OnErrors, Reserved, TuneOptions};

/// Changes a volume. What can be refused is refused before anything is written.
///
/// # Errors
/// [`Error::Option`] if the volume cannot have what is asked for; it is damaged or cannot be
/// recovered; the device failed. If it failed in the middle, the error says what was done.
pub fn tune(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &TuneOptions,
) -> Result<()> {
    let mut volume = Offline::open(device, runtime.clone())?;
    let changed = |superblock| changed(superblock, options, &*runtime);
    let superblock = changed(volume.dated())?;
    match journal::Wish::of(&volume, options)? {
        Some(wish) => volume = journal::change(volume, wish, &changed)?,
        None => volume.write_superblock(superblock)?,
    }
    volume.write_backups().map_err(|error| {
        let left = "the volume is changed, and clean, but not all backups of its superblock are: \
                    make room on the host or replace the device, and try again";
        Error::unfinished(error, left)
    })
}

/// The superblock with what is asked for, but for the journal.
fn changed(
    mut superblock: Superblock,
    options: &TuneOptions,
    runtime: &dyn Runtime,
) -> Result<Superblock> {
    if let Some(label) = &options.label {
        set_label(&mut superblock, label)?;
    }
    features::add(&mut superblock, &options.features, runtime)?;
    if let Some(uuid) = options.uuid {
        set_uuid(&mut superblock, uuid)?;
    }
    features::remove(&mut superblock, &options.features)?;
    if let Some(reserved) = options.reserved {
        set_reserved(&mut superblock, reserved)?;
    }
    mount_options::change(&mut superblock, &options.mount_options)?;
    let raw = &mut superblock.raw;
    if let Some(uid) = options.reserved_uid {
        (raw.s_def_resuid, raw.s_def_resuid_hi) = halves(uid);
    }
    if let Some(gid) = options.reserved_gid {
        (raw.s_def_resgid, raw.s_def_resgid_hi) = halves(gid);
    }
    if let Some(errors) = options.errors {
        raw.s_errors = U16::new(match errors {
            OnErrors::Continue => 1,
            OnErrors::RemountReadOnly => 2,
            OnErrors::Panic => 3,
        });
    }
    if let Some(mounts) = options.max_mounts {
        // -1, in the 16 bits of the field, is never.
        raw.s_max_mnt_count = U16::new(if mounts == 0 { u16::MAX } else { mounts });
    }
    if let Some(mounts) = options.mounts {
        raw.s_mnt_count = U16::new(mounts);
    }
    if let Some(seconds) = options.check_interval {
        raw.s_checkinterval = U32::new(seconds);
    }
    if let Some(time) = options.last_check {
        let (low, high) = split_time(time);
        (raw.s_lastcheck, raw.s_lastcheck_hi) = (U32::new(low), high);
    }
    if let Some(blocks) = options.stride {
        raw.s_raid_stride = U16::new(blocks);
    }
    if let Some(blocks) = options.stripe_width {
        raw.s_raid_stripe_width = U32::new(blocks);
    }
    Ok(superblock)
}

fn halves(value: u32) -> (U16, U16) {
    let [a, b, c, d] = value.to_le_bytes();
    (U16::from_bytes([a, b]), U16::from_bytes([c, d]))
}

fn set_label(superblock: &mut Superblock, label: &str) -> Result<()> {
    let mut name = [0; LABEL_MAX];
    let Some(place) = name.get_mut(..label.len()) else {
        let why = format!("label {label:?} has {} bytes: give at most 16", label.len());
        return Err(Error::Option(why));
    };
    place.copy_from_slice(label.as_bytes());
    superblock.raw.s_volume_name = name;
    Ok(())
}

fn set_uuid(superblock: &mut Superblock, uuid: Uuid) -> Result<()> {
    let features = superblock.features();
    let refuse = |why: &str| Err(Error::Option(format!("the UUID cannot be changed: {why}")));
    if features.incompat(Incompat::ENCRYPT) || features.compat(Compat::STABLE_INODES) {
        return refuse("keys of encrypted files follow from it");
    }
    if features.ro_compat(RoCompat::METADATA_CSUM) {
        if !features.incompat(Incompat::CSUM_SEED) && uuid != superblock.uuid() {
            return refuse(
                "all checksums of the volume follow from it: add the feature metadata_csum_seed, \
                 which keeps their seed (Linux 4.4 and later read it)",
            );
        }
    } else if features.ro_compat(RoCompat::GDT_CSUM) && uuid != superblock.uuid() {
        return refuse(
            "checksums of the group descriptors follow from it (feature uninit_bg): use \
                       tune2fs -U",
        );
    }
    superblock.raw.s_uuid = *uuid.as_bytes();
    Ok(())
}

fn set_reserved(superblock: &mut Superblock, reserved: Reserved) -> Result<()> {
    let all = superblock.blocks_count();
    let blocks = match reserved {
        Reserved::Blocks(blocks) => blocks,
        Reserved::Percent(percent) if (0.0..=50.0).contains(&percent) => {
            // The precision suffices for a percentage.
            (all as f64 * percent / 100.0) as u64
        }
        Reserved::Percent(percent) => {
            let why = format!("{percent} percent cannot be reserved: give 0 to 50, such as 5");
            return Err(Error::Option(why));
        }
    };
    if blocks > all / 2 {
        return Err(Error::Option(format!(
            "{blocks} of {all} blocks cannot be reserved: give {} or fewer",
            all / 2
        )));
    }
    superblock.set_reserved_blocks(blocks);
    Ok(())
}
