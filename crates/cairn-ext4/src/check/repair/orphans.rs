//! Orphans: deletions and truncations that have begun are ended, and the lists are emptied.

use cairn_base::units::as_index;
use cairn_base::{Ino, Pba};
use cairn_check::Finding;

use super::super::map::has_map;
use super::super::orphans::hole;
use super::super::visitor::Run;
use super::mender::Mender;
use super::policy::Truncate;
use super::{rewrite, runs};
use crate::error::Result;
use crate::format::features::{Compat, RoCompat};
use crate::format::orphan;

/// Ends what the orphans wait for.
pub(super) fn mend(mender: &mut Mender<'_>, findings: &[&Finding]) -> Result<()> {
    let state = mender.state;
    for (number, facts) in state.inodes.iter() {
        let ino = Ino(number);
        if facts.is_orphan() && facts.is_in_use() {
            end(mender, ino)?;
        }
    }
    // A deleted inode with a number in place of its deletion time.
    for finding in findings {
        let is_time = finding.place.field == Some("i_dtime");
        if let Some(ino) = finding.place.inode.filter(|_| is_time) {
            let now = mender.now;
            mender.edit(Ino(ino), |record| record.dtime = now)?;
        }
    }
    empty_file(mender)?;
    mender.edit_superblock(|superblock| {
        superblock.raw.s_last_orphan = 0.into();
        let mut features = superblock.features();
        features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
        superblock.set_features(features);
    })?;
    findings.iter().for_each(|finding| mender.step(finding));
    Ok(())
}

/// Removes the file of orphans. Its blocks are counted as free later. Another file, to which the
/// superblock refers by mistake, stays, and gets a name if it has none.
pub(super) fn remove_file(mender: &mut Mender<'_>, findings: &[&Finding]) -> Result<()> {
    let ino = Ino(mender.superblock().raw.s_orphan_file_inum.get().into());
    if is_orphan_file(mender, ino)? {
        mender.clear(ino)?;
    }
    mender.edit_superblock(|superblock| {
        superblock.raw.s_orphan_file_inum = 0.into();
        let mut features = superblock.features();
        features.compat.remove(Compat::ORPHAN_FILE);
        features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
        superblock.set_features(features);
    })?;
    findings.iter().for_each(|finding| mender.step(finding));
    Ok(())
}

/// Does the inode hold a file of orphans, without a name?
fn is_orphan_file(mender: &Mender<'_>, ino: Ino) -> Result<bool> {
    let state = mender.state;
    let has_name = state.inodes.get(ino.get()).is_none_or(|facts| facts.names() > 0);
    let record = state.record(ino).filter(|record| record.is_regular() && has_map(record));
    let Some(record) = record.filter(|_| !has_name && !state.is_reserved(ino)) else {
        return Ok(false);
    };
    let found = runs::collect(state, ino, &record);
    let Some(first) = found.runs.first() else { return Ok(false) };
    let block = mender.read(first.pba)?;
    Ok(orphan::decode(&block, first.pba, record.seed(ino, &state.layout)).is_ok())
}

/// Deletes an orphan without a link, and cuts another one to its size.
fn end(mender: &Mender<'_>, ino: Ino) -> Result<()> {
    let Some(mut record) = mender.state.record(ino) else { return Ok(()) };
    if record.links == 0 {
        mender.clear(ino)?;
        return Ok(());
    }
    if record.is_regular() && has_map(&record) {
        let blocks = record.size.div_ceil(u64::from(mender.state.layout.block_size));
        rewrite::rewrite(mender, ino, &mut record, &mut Truncate { blocks })?;
    }
    mender.edit(ino, |stored| (stored.block, stored.dtime) = (record.block, 0))?;
    Ok(())
}

/// Makes every block of the orphan file an empty one. Where the file has holes, its blocks move
/// together: they are empty, so that their order says nothing.
fn empty_file(mender: &Mender<'_>) -> Result<()> {
    let state = mender.state;
    let ino = Ino(state.superblock.raw.s_orphan_file_inum.get().into());
    if !state.layout.features.compat(Compat::ORPHAN_FILE) || state.strangers.contains(&ino) {
        return Ok(());
    }
    let Some(mut record) = state.record(ino) else { return Ok(()) };
    let found = runs::collect(state, ino, &record);
    let seed = record.seed(ino, &state.layout);
    if found.is_sound && hole(&found.runs).is_some() {
        let (runs, blocks) = together(&found.runs);
        if runs::store(mender, ino, &mut record, &runs)? {
            let size = blocks.saturating_mul(state.layout.block_size.into());
            mender.edit(ino, |stored| (stored.block, stored.size) = (record.block, size))?;
        }
    }
    for run in found.runs.iter().filter(|_| found.is_sound) {
        for at in 0..run.len {
            let pba = Pba(run.pba.get().saturating_add(at));
            let mut block = vec![0; as_index(state.layout.block_size)];
            orphan::init(&mut block, pba, seed);
            if mender.read(pba)? != block {
                mender.write(pba, block)?;
            }
        }
    }
    Ok(())
}

/// The runs one behind the other, and how many blocks they have.
fn together(runs: &[Run]) -> (Vec<Run>, u64) {
    let mut end = 0_u64;
    let mut moved = Vec::with_capacity(runs.len());
    for run in runs {
        moved.push(Run { start: end, unwritten: false, ..*run });
        end = end.saturating_add(run.len);
    }
    (moved, end)
}
