//! What must be right before anything else can be read: the first superblock, and the journal.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::units::{as_index, as_u64};
use cairn_base::{Ino, Pba};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_check::repair::{Scope, Step, Steps};
use cairn_check::{Finding, Findings, Observer, Place, Report, Usage, Value};
use cairn_jbd2::MIN_JOURNAL_BLOCKS;
use zerocopy::little_endian::U32;

use super::super::backup::restore;
use super::super::kinds;
use super::super::unsealed::with_right_bit;
use super::super::{log, orphan_inode, plain_bit};
use super::mender::{DAMAGED, Mender, step};
use super::remains::{self, Context};
use super::runs;
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::features::{Access, Compat, Incompat};
use crate::format::layout::{Layout, inodes};
use crate::format::superblock::{OFFSET, SIZE, Superblock};
use crate::groups::GroupTable;
use crate::info;
use crate::journal_area::journal_area;
use crate::mkfs::journal as new_journal;
use crate::probe;
use crate::redo;
use crate::tune::journal::restore as restore_journal;

/// Bytes of buffers for the replay.
const BUDGET: u64 = 64 << 20;

/// Finds the journal of a volume, and mends what leads to it. Replays that of a volume that was not
/// unmounted cleanly: in whole, or, if the scope allows losses, what is intact of it. What cannot
/// be replayed else is left, so that the check finds it. Returns what was found and mended.
pub(super) fn replay(
    device: &Arc<dyn BlockDevice>,
    runtime: &Arc<dyn Runtime>,
    observer: &Arc<dyn Observer>,
    scope: Scope,
    steps: &mut Steps,
) -> Result<Vec<Finding>> {
    redo::finish(&**device)?;
    let found = match probe::probe(&**device) {
        Ok(Some(found)) if found.backup.is_none() => found.superblock,
        Err(error @ Error::Device(_)) => return Err(error),
        _ => return Ok(Vec::new()),
    };
    let features = found.features();
    let is_known = !matches!(features.access(), Access::Refuse(_));
    if !is_known || info::names_external_journal(&found) {
        return Ok(Vec::new());
    }
    // What is wrong with the superblock is found by the examination.
    let Ok(layout) = Layout::new(&found, device.geometry().size) else { return Ok(Vec::new()) };
    let mut findings = replay_log(device, runtime, observer, scope, steps, &found, &layout)?;
    // The log may hold another superblock, and another inode.
    if let Ok(Some(found)) = probe::probe(&**device)
        && found.backup.is_none()
        && let Some(finding) = orphan_inode::mend(device, &found.superblock, &layout)?
    {
        steps.add(step(&finding));
        findings.push(finding);
    }
    Ok(findings)
}

fn replay_log(
    device: &Arc<dyn BlockDevice>,
    runtime: &Arc<dyn Runtime>,
    observer: &Arc<dyn Observer>,
    scope: Scope,
    steps: &mut Steps,
    found: &Superblock,
    layout: &Layout,
) -> Result<Vec<Finding>> {
    let mut log = match log::find(device, found, layout) {
        Ok(Some(log)) => log,
        Err(error @ Error::Device(_)) => return Err(error),
        Ok(None) | Err(_) => return Ok(Vec::new()),
    };
    let is_unclean = log.is_pending;
    let refused = match is_unclean {
        true => log::replay(&mut log, device, layout, runtime)?,
        false => None,
    };
    let is_left = refused.is_some() && !scope.allows(&kinds::JOURNAL_REPLAY);
    if is_left && !found.features().incompat(Incompat::RECOVER) {
        // With the flag that it lacks, Linux would replay what is intact of it.
        device.write_at(OFFSET, found.encode().to_vec())?;
        log.findings.retain(|finding| finding.kind.code != kinds::SUPERBLOCK_CONTRADICTED.code);
    }
    log.findings.iter().for_each(|finding| steps.add(step(finding)));
    if !is_unclean || is_left {
        return Ok(log.findings);
    }
    if let Some(refused) = refused {
        let context = Context { device, layout, runtime, observer };
        let step = remains::apply(&context, &log.area, &refused)?;
        let finding = Finding::new(step.kind, step.place.clone());
        log.findings.push(finding.stored(Value::text(refused.why)));
        steps.add(step);
    } else {
        cairn_jbd2::forget_error(&log.area)?;
    }
    settle(device, layout, false)?;
    Ok(log.findings)
}

/// The superblock of a volume whose journal is empty, or is pending on another device, with the
/// totals of its groups.
pub(super) fn settle(
    device: &Arc<dyn BlockDevice>,
    layout: &Layout,
    is_pending: bool,
) -> Result<()> {
    let Some(found) = probe::probe(&**device)? else { return Ok(()) };
    let mut superblock = found.superblock;
    let mut features = superblock.features();
    features.incompat.set(Incompat::RECOVER, is_pending);
    superblock.set_features(features);
    let size = u64::from(layout.block_size);
    let buffers = BufferCache::new(device.clone(), layout.block_size, Budget::new(BUDGET));
    if let Ok(groups) = GroupTable::open(&buffers, &Arc::new(*layout), &[]) {
        superblock.set_free_blocks(groups.free_blocks_total() << layout.cluster_bits);
        let inodes = u32::try_from(groups.free_inodes_total()).unwrap_or(u32::MAX);
        superblock.raw.s_free_inodes_count = U32::new(inodes);
    }
    let at = OFFSET.checked_div(size).unwrap_or(0).saturating_mul(size);
    let offset = usize::try_from(OFFSET.saturating_sub(at)).unwrap_or(0);
    let mut block = device.read_block(at, as_index(layout.block_size))?.to_vec();
    if let Some(place) = block.get_mut(offset..offset.saturating_add(SIZE)) {
        place.copy_from_slice(&superblock.encode());
    }
    Ok(device.write_at(at, block)?)
}

/// Mends the first superblock and a log that cannot be replayed.
pub(super) fn mend(mender: &mut Mender<'_>, findings: &[&Finding]) -> Result<()> {
    for finding in findings {
        if finding.kind.code == kinds::SUPERBLOCK_BIT.code {
            let right = match with_right_bit(&**mender.device)? {
                None => plain_bit::right(&**mender.device)?,
                right => right,
            };
            if let Some(right) = right {
                mender.device.write_at(OFFSET, right)?;
                mender.step(finding);
            }
            return Ok(());
        }
        if finding.kind.code == kinds::SUPERBLOCK_DAMAGED.code {
            let found = match probe::probe(&**mender.device)? {
                Some(found) => Some(found),
                None => probe::probe_all_backups(&**mender.device)?,
            };
            let Some(found) = found else { continue };
            restore(mender.device, &found)?;
            mender.step(finding);
            // The rest is seen when the right superblock is read.
            return Ok(());
        }
        let unproved = [&kinds::SUPERBLOCK_CHECKSUM, &kinds::SUPERBLOCK_REVISION];
        if unproved.iter().any(|kind| kind.code == finding.kind.code) {
            let bytes = mender.device.read_bytes(OFFSET, SIZE)?;
            if let Some(superblock) = Superblock::decode_unsealed(&bytes) {
                mender.device.write_at(OFFSET, superblock.encode().to_vec())?;
                mender.lose(finding, Ino(0), DAMAGED);
            }
            return Ok(());
        }
        if info::has_external_journal(mender.superblock()) {
            continue;
        }
        if !empty_log(mender)? {
            drop_journal(mender)?;
        }
        mender.edit_superblock(|superblock| {
            let mut features = superblock.features();
            features.incompat.remove(Incompat::RECOVER);
            superblock.set_features(features);
        })?;
        mender.lose(finding, Ino(0), "the changes that the journal holds");
    }
    Ok(())
}

/// Mends a superblock that describes no possible volume, where there is one way to do so.
pub(super) fn mend_geometry(
    device: &Arc<dyn BlockDevice>,
    why: Corrupt,
    steps: &mut Steps,
) -> Result<Report> {
    let Corrupt::Superblock { field: field @ "s_first_meta_bg", .. } = why else {
        return Err(why.into());
    };
    let bytes = device.read_bytes(OFFSET, SIZE)?;
    let mut superblock = Superblock::decode(&bytes)?;
    let stored = superblock.raw.s_first_meta_bg.get();
    superblock.raw.s_first_meta_bg = 0.into();
    Layout::new(&superblock, device.geometry().size)?;
    device.write_at(OFFSET, superblock.encode().to_vec())?;
    let finding = Finding::new(&kinds::SUPERBLOCK_FIELD, Place::field(field));
    steps.add(Step::new(finding.kind, finding.place.clone()));
    let findings = Findings::new();
    findings.add(finding.stored(stored).computed(0_u32));
    Ok(Report::new(findings, Usage::default()))
}

/// Mends a journal without a valid superblock.
pub(super) fn mend_journal(mender: &mut Mender<'_>, findings: &[&Finding]) -> Result<()> {
    if !empty_log(mender)? || !is_journal(mender)? {
        drop_journal(mender)?;
    }
    findings.iter().for_each(|finding| mender.step(finding));
    Ok(())
}

/// Can a mount read the journal? Its inode may have what only this reader refuses.
fn is_journal(mender: &Mender<'_>) -> Result<bool> {
    let (layout, device) = (&mender.state.layout, mender.device);
    let buffers = BufferCache::new(device.clone(), layout.block_size, Budget::new(BUDGET));
    match journal_area(mender.superblock(), layout, &buffers, device) {
        Ok(Some(area)) => Ok(cairn_jbd2::read_superblock(&area).is_ok()),
        Err(error @ Error::Device(_)) => Err(error),
        _ => Ok(false),
    }
}

/// Makes the log an empty one, if its file is sound.
fn empty_log(mender: &Mender<'_>) -> Result<bool> {
    let layout = &mender.state.layout;
    let Some(record) = mender.state.record(layout.journal_ino) else { return Ok(false) };
    let found = runs::collect(mender.state, layout.journal_ino, &record);
    let blocks = found.runs.iter().fold(0, |all: u64, run| all.saturating_add(run.len));
    let is_dense = found.runs.iter().try_fold(0, |at, run| (run.start == at).then(|| run.end()));
    let size = blocks.saturating_mul(layout.block_size.into());
    let is_sound = found.is_sound && record.is_regular() && record.links > 0;
    let is_long = blocks >= u64::from(MIN_JOURNAL_BLOCKS) && size == record.size;
    let Some(first) = found.runs.first() else { return Ok(false) };
    if !is_sound || is_dense.is_none() || !is_long {
        return Ok(false);
    }
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    mender.write(first.pba, new_journal::superblock(layout.block_size, blocks))?;
    Ok(true)
}

/// Removes the journal. It is made anew when the volume is sound.
pub(super) fn drop_journal(mender: &mut Mender<'_>) -> Result<()> {
    mender.wants_journal = true;
    if mender.state.layout.journal_ino == inodes::JOURNAL {
        mender.clear(inodes::JOURNAL)?;
    }
    mender.edit_superblock(leave_out)
}

/// Removes what the superblock says of the journal.
fn leave_out(superblock: &mut Superblock) {
    let mut features = superblock.features();
    features.compat.remove(Compat::HAS_JOURNAL | Compat::FAST_COMMIT);
    features.incompat.remove(Incompat::RECOVER);
    superblock.set_features(features);
    let raw = &mut superblock.raw;
    raw.s_journal_inum = U32::new(0);
    raw.s_jnl_backup_type = 0;
    raw.s_jnl_blocks = [U32::new(0); 17];
}

/// Gives a sound volume a journal of the usual size. One that has no room for it stays without.
pub(super) fn make_journal(
    device: &Arc<dyn BlockDevice>,
    runtime: &Arc<dyn Runtime>,
    steps: &mut Steps,
) {
    let step = Step::new(&kinds::JOURNAL_INVALID, Place::inode(inodes::JOURNAL.get()));
    // A step in any case: what was made is checked, too.
    steps.add(match restore_journal(device.clone(), runtime.clone()) {
        Ok(()) => step,
        Err(why) => step.losing(*b"", format!("the journal, because a new one fails: {why}")),
    });
}

/// Copies the first superblock over the backup of a group.
pub(super) fn write_backup(mender: &Mender<'_>, group: u32) -> Result<()> {
    let pba: Pba = mender.state.layout.superblock_block(group);
    let mut block = mender.read(pba)?;
    let mut copy = mender.superblock().clone();
    // The field has 16 bits; readers accept 65535 for larger numbers.
    copy.raw.s_block_group_nr = u16::try_from(group).unwrap_or(u16::MAX).into();
    debug_assert!(as_u64(block.len()) >= as_u64(SIZE), "a block has at least 1024 bytes");
    if let Some(place) = block.get_mut(..SIZE) {
        place.copy_from_slice(&copy.encode());
    }
    mender.write(pba, block)
}
