//! Two sound copies of the superblock that describe different volumes. The one with which the rest
//! of the volume agrees is used, whatever their order: the volume is checked with each.
//!
//! The first one is used if both agree, and if the volume has zones, of which no copy in memory is
//! made.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::{Finding, Findings, Observer, Place, Report, Severity};

use super::context::Totals;
use super::examine::{examine, usage};
use super::volume::{Volume, with_size_of, with_words_of};
use super::{kinds, superblocks};
use crate::error::{Error, Result};
use crate::format::superblock::Superblock;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{CheckpointFlags, Features, Layout};
use crate::sizes::is_between;

/// How much speaks against a copy: what is fatal, what loses something, and everything; and then,
/// that it has features, or an encoding of names, with which Cairn does not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Weight {
    pub(super) fatal: u64,
    pub(super) losing: u64,
    all: u64,
    is_limited: bool,
}

const UNREADABLE: Weight =
    Weight { fatal: u64::MAX, losing: u64::MAX, all: u64::MAX, is_limited: true };

/// What a check has found.
pub(super) struct Seen {
    pub(super) weight: Weight,
    /// The inodes of the volume, and how many of them have a wrong checksum, or no room for one.
    inodes: u64,
    wrong_sums: u64,
}

/// The device with the second copy of the superblock in place of both, if the volume agrees with
/// it, and not with the first one. That is a finding.
///
/// # Errors
/// The device failed.
pub(super) fn second(
    device: &Arc<dyn BlockDevice>,
    (runtime, observer): (&Arc<dyn Runtime>, &Arc<dyn Observer>),
    threads: usize,
    findings: &Findings,
) -> Result<Option<Arc<dyn BlockDevice>>> {
    let Some([first, second]) = copies(device)? else { return Ok(None) };
    let same = with_words_of(second.clone(), &first) == first;
    if same || device.as_zoned().is_some() || is_resized(device, &first, &second)? {
        return Ok(None);
    }
    // A feature without another one that it needs is not looked for in the inodes.
    match (first.features.is_possible(), second.features.is_possible()) {
        (true, false) => return Ok(None),
        (false, true) => {
            findings.add(second_used());
            return superblocks::in_both(device, &second.encode()).map(Some);
        }
        _ => {}
    }
    let see = |copy: &Superblock| {
        let above = superblocks::in_both(device, &copy.encode())?;
        Ok::<_, Error>((see(above.clone(), (runtime, observer), threads)?, above))
    };
    let ((one, _), (other, above)) = (see(&first)?, see(&second)?);
    // A volume without the feature has no right checksums, except by chance.
    let has_sums = |copy: &Superblock| copy.features.contains(Features::INODE_CHECKSUM);
    let (first, second) = (has_sums(&first), has_sums(&second));
    let with_sums = if first { &one } else { &other };
    let is_there = with_sums.wrong_sums.saturating_mul(2) < with_sums.inodes;
    let is_lie = |has: bool| first != second && with_sums.inodes > 0 && has != is_there;
    let weight = |seen: &Seen, has| if is_lie(has) { UNREADABLE } else { seen.weight };
    if weight(&other, second) >= weight(&one, first) {
        return Ok(None);
    }
    findings.add(second_used());
    Ok(Some(above))
}

fn second_used() -> Finding {
    let finding = Finding::new(&kinds::SUPERBLOCK_COPIES, Place::block(0_u64));
    finding.stored("the second one is used")
}

/// Both copies, if both are sound.
fn copies(device: &Arc<dyn BlockDevice>) -> Result<Option<[Superblock; 2]>> {
    let size = device.geometry().size;
    if size < BLOCK_BYTES.saturating_mul(2) {
        return Ok(None);
    }
    let blocks = device.read_at(0, BLOCK_SIZE.saturating_mul(2))?;
    let sound = blocks.chunks_exact(BLOCK_SIZE).filter_map(|block| {
        let found = Superblock::decode(block).ok()?;
        Layout::new(&found, size).ok().map(|_| found)
    });
    Ok(sound.collect::<Vec<_>>().try_into().ok())
}

/// While the size changes the second copy is written first, and either is right.
fn is_resized(
    device: &Arc<dyn BlockDevice>,
    first: &Superblock,
    second: &Superblock,
) -> Result<bool> {
    let resized = with_size_of(second.clone(), first);
    if with_words_of(resized, first) != *first {
        return Ok(false);
    }
    let opened = Volume::open(device.clone(), &Findings::new());
    Ok(match opened {
        Ok(Some(volume)) => {
            let checkpoint = &volume.loaded.checkpoint;
            checkpoint.flags.contains(CheckpointFlags::RESIZEFS)
                || is_between(checkpoint, &volume.layout)
        }
        Ok(None) => false,
        Err(Error::Device(error)) => return Err(Error::Device(error)),
        Err(_) => false,
    })
}

/// Checks a volume.
///
/// # Errors
/// The device failed.
pub(super) fn see(
    device: Arc<dyn BlockDevice>,
    (runtime, observer): (&Arc<dyn Runtime>, &Arc<dyn Observer>),
    threads: usize,
) -> Result<Seen> {
    let unreadable = Seen { weight: UNREADABLE, inodes: 0, wrong_sums: 0 };
    let findings = Findings::new();
    let volume = match Volume::open(device, &findings) {
        Ok(Some(volume)) => volume,
        Ok(None) => return Ok(unreadable),
        Err(Error::Device(error)) => return Err(Error::Device(error)),
        Err(_) => return Ok(unreadable),
    };
    volume.check_fields(&findings);
    let context = examine(volume, findings, (runtime, observer.clone()), threads, None)?;
    let inodes = Totals::get(&context.totals.inodes);
    let count_of = |kind| context.findings.count_of(kind);
    let wrong_sums = count_of(&kinds::INODE_CHECKSUM).saturating_add(count_of(&kinds::INODE_FIELD));
    let wrong_fields = count_of(&kinds::SUPERBLOCK_FIELD);
    let report = Report::new(context.findings.take(), usage(&context));
    let count = |is_one: fn(Severity) -> bool| -> u64 {
        let counts = report.counts.iter().filter(|(kind, _)| is_one(kind.severity));
        counts.fold(0, |all, (_, count)| all.saturating_add(*count))
    };
    let weight = Weight {
        fatal: count(|severity| severity == Severity::Fatal),
        // A quota file that is not compared has no findings.
        losing: count(|severity| severity == Severity::Losing).saturating_add(wrong_fields),
        all: report.count(),
        is_limited: context.volume.superblock.read_only_reason().is_some(),
    };
    Ok(Seen { weight, inodes, wrong_sums })
}
