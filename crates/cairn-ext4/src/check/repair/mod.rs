//! Repairs what a check has found: in memory, round by round ([`cairn_check::repair`]).
//!
//! A round examines the volume, and mends the findings of the earliest *stage* that has some: what
//! lies in a later stage follows from the earlier ones, so it is found anew in the next round.
//! Blocks are written through `Mender`, with their checksums.
//!
//! If defects that lose something are to be left, so is what follows from them: then only those
//! are mended that say nothing of the others (`stage::is_independent`).

mod attributes;
mod bits;
mod contents;
mod directory;
mod encryption;
mod groups;
mod indexed;
mod inode;
mod left;
mod links;
mod lost_found;
mod mender;
mod mmp;
mod orphans;
mod paths;
mod pointers;
mod policy;
mod quota;
mod rebuild;
mod recover;
mod remains;
mod rewrite;
mod room;
mod runs;
mod stage;
mod tree;
mod twice;
mod volume;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cairn_base::Ino;
use cairn_base::runtime::Runtime;
use cairn_base::units::as_u64;
use cairn_block::BlockDevice;
use cairn_check::repair::{Mend, Plan, Scope, Step, Steps};
use cairn_check::{Finding, Findings, Kind, Observer, Report, Severity};

use super::claims::Owners;
use super::evidence::Candidate;
use super::examine::{Examined, examine};
use super::kinds;
use super::proved::Proved;
use super::state::State;
use crate::error::{Error, Result};
use crate::info;
use left::Left;
use mender::Mender;
use paths::Paths;
use stage::Stage;

/// So many losses, if no more files are left, are hardly those of single defects.
const SUSPICIOUS: u64 = 100;
/// Findings of each kind that a round mends at most.
const KEPT: usize = 200_000;

/// Plans the repair of the volume on a device, which is only read.
///
/// # Errors
/// As [`super::check()`]; [`Error::Refused`] if more would be lost than left.
pub fn plan(
    device: &Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
    scope: Scope,
) -> Result<Plan> {
    let repair = Repair {
        runtime,
        observer,
        wants_journal: AtomicBool::new(false),
        is_begun: AtomicBool::new(false),
        left: Left::default(),
    };
    let plan = cairn_check::repair::plan(&repair, device, scope)?;
    let ((mut files, names), kept) = (losses(&plan), plan.after.usage.files);
    if files.saturating_add(names) > 0 {
        files = files.max(left::forgotten(&plan.before));
    }
    let lost = files.saturating_add(names);
    if !plan.is_refused && lost >= SUSPICIOUS && lost >= kept {
        return Err(Error::Refused(format!(
            "a repair would lose parts of {files} files and {names} names, and leave {kept} files: \
             a field that says where everything else is may be wrong, and nothing says which; copy \
             what can be read, or try e2fsck with a backup (-b) on a copy"
        )));
    }
    Ok(plan)
}

/// Files that lose something, and names that are lost. One wrong pointer can cost a file very many
/// parts.
fn losses(plan: &Plan) -> (u64, u64) {
    let (mut files, mut names) = (BTreeSet::new(), 0_u64);
    let is_loss = |step: &&Step| step.kind.severity == Severity::Losing && step.loss.is_some();
    for step in plan.steps.losing().filter(is_loss) {
        match (step.place.inode, &step.place.name) {
            (Some(ino), None) => _ = files.insert(ino),
            _ => names = names.saturating_add(1),
        }
    }
    (as_u64(files.len()), names)
}

struct Repair {
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
    /// A journal could not be kept, and is made anew when all else is sound.
    wants_journal: AtomicBool,
    /// Something was mended besides the superblock, and is no witness any more.
    is_begun: AtomicBool,
    /// Blocks of no file that were found before anything was mended.
    left: Left,
}

impl Mend for Repair {
    type Error = Error;

    fn round(
        &self,
        device: &Arc<dyn BlockDevice>,
        scope: Scope,
        steps: &mut Steps,
    ) -> Result<Report> {
        let mended = recover::replay(device, &self.runtime, &self.observer, scope, steps)?;
        let mut report = self.examined(device, scope, steps)?;
        for finding in mended {
            report.add(finding);
        }
        Ok(report)
    }
}

impl Repair {
    /// Examines the volume, whose log is empty unless it cannot be replayed, and mends what it
    /// finds.
    fn examined(
        &self,
        device: &Arc<dyn BlockDevice>,
        scope: Scope,
        steps: &mut Steps,
    ) -> Result<Report> {
        let findings = || Findings::keeping(KEPT);
        let tries = !self.is_begun.load(Relaxed);
        let examined = examine(device.clone(), &self.runtime, &self.observer, findings, tries);
        let examined = match examined {
            Err(Error::Corrupt(why)) => return recover::mend_geometry(device, why, steps),
            other => other?,
        };
        let Examined { state, mut report, correction } = examined;
        self.left.keep(&mut report, tries);
        if report.cancelled {
            return Ok(report);
        }
        if let Some(why) = report.no_repair.as_ref().filter(|_| state.user.is_some())
            && !report.counts.is_empty()
        {
            return Err(Error::Refused(why.clone()));
        }
        let is_allowed = |correction: &Candidate| {
            correction.findings.iter().all(|finding| scope.allows(finding.kind))
        };
        if let Some(correction) = correction.filter(is_allowed) {
            // What else was found is found again, and more, when this is right.
            correction.write(&**device)?;
            correction.findings.iter().for_each(|finding| steps.add(corrected(&state, finding)));
            shorten(&mut report);
            return Ok(report);
        }
        let waits = |(kind, _): &(&'static Kind, u64)| kind.code == kinds::ORPHAN_JOURNAL.code;
        if report.counts.iter().all(waits) && self.wants_journal.swap(false, Relaxed) {
            recover::make_journal(device, &self.runtime, steps);
            return Ok(report);
        }
        let proved = Proved::find(&state)?;
        if scope == Scope::All && Owners::are_too_many(&state) {
            return Err(Error::Refused(
                "so many blocks belong to several files that nothing says whose they are: copy \
                 what can be read, or try e2fsck on a copy"
                    .into(),
            ));
        }
        let mut mender = Mender::new(&state, device, &*self.runtime, (scope, proved), steps);
        mender.wants_journal = self.wants_journal.load(Relaxed);
        mend(&mut mender, &report)?;
        self.wants_journal.store(mender.wants_journal, Relaxed);
        if !report.counts.iter().any(|(kind, _)| is_of_superblock(kind)) {
            self.is_begun.store(true, Relaxed);
        }
        shorten(&mut report);
        Ok(report)
    }
}

/// The step of a correction.
fn corrected(state: &State, finding: &Finding) -> Step {
    let step = mender::step(finding);
    match finding.place.inode.filter(|_| finding.kind.severity == Severity::Losing) {
        Some(ino) => {
            let path = Paths::find(state).of(Ino(ino));
            step.losing(path, "its contents, if the bitmap is an old one")
        }
        None => step,
    }
}

/// A report keeps as many findings as one of a check.
fn shorten(report: &mut Report) {
    const SHOWN: u32 = 200;
    let mut shown: BTreeMap<&str, u32> = BTreeMap::new();
    report.findings.retain(|finding| {
        let count = shown.entry(finding.kind.code).or_default();
        *count = count.saturating_add(1);
        *count <= SHOWN
    });
}

/// A superblock with a wrong checksum or revision may be read only if nothing else is lost by what
/// it says: a wrong size, for example, would cut files.
fn may_read_superblock(mender: &Mender<'_>, report: &Report) -> bool {
    let unproved = [kinds::SUPERBLOCK_CHECKSUM.code, kinds::SUPERBLOCK_REVISION.code];
    let is_seal = |kind: &Kind| unproved.contains(&kind.code);
    let is_other = |kind: &Kind| kind.severity != Severity::Accounting && !is_seal(kind);
    let is_wrong = report.counts.iter().any(|(kind, _)| is_seal(kind));
    let is_lost = report.counts.iter().any(|(kind, _)| is_other(kind));
    !is_wrong || (mender.scope == Scope::All && !is_lost)
}

/// Is all of the superblock another one when the defect is mended?
fn is_of_superblock(kind: &Kind) -> bool {
    let anew = [
        &kinds::SUPERBLOCK_BIT,
        &kinds::SUPERBLOCK_DAMAGED,
        &kinds::SUPERBLOCK_CHECKSUM,
        &kinds::SUPERBLOCK_REVISION,
    ];
    anew.iter().any(|other| other.code == kind.code)
}

/// Is the descriptor sound that says where a bitmap is? Else something else may lie there.
fn is_placed(mender: &Mender<'_>, finding: &Finding) -> bool {
    let group = finding.place.group.and_then(|group| usize::try_from(group).ok());
    let is_bitmap = finding.kind.code.contains("_bitmap.");
    let known = group.and_then(|group| mender.state.groups.get(group));
    !is_bitmap || known.is_some_and(|known| known.is_sealed)
}

/// Does the finding say which of two attribute blocks an inode has, or whose blocks are those of
/// no file? That is in doubt.
fn is_disputed(report: &Report, finding: &Finding) -> bool {
    let is_same = |other: &Finding| {
        let is_doubt = other.kind.code == kinds::XATTR_DISPUTED.code;
        is_doubt && other.place.group.is_some() && other.place.group == finding.place.group
    };
    let is_left = |other: &Finding| {
        other.kind.code == kinds::BLOCK_BITMAP_LEFT.code && other.place.group == finding.place.group
    };
    let is_of_bitmap = finding.kind.code.contains("_bitmap.");
    finding.kind.code == kinds::BLOCK_BITMAP_FREE.code && report.findings.iter().any(is_same)
        // A bitmap that changes no longer agrees with the count.
        || is_of_bitmap && report.findings.iter().any(is_left)
}

/// Mends the earliest stage in which something can be mended.
fn mend(mender: &mut Mender<'_>, report: &Report) -> Result<()> {
    let is_unreplayed = |(kind, _): &(&'static Kind, u64)| kind.code == kinds::JOURNAL_REPLAY.code;
    let is_elsewhere = info::has_external_journal(mender.superblock());
    let waits = is_elsewhere || !mender.scope.allows(&kinds::JOURNAL_REPLAY);
    // What was found is of a state that the device does not have without the log.
    if waits && report.counts.iter().any(is_unreplayed) || !may_read_superblock(mender, report) {
        let is_copied = |found: &&Finding| found.kind.code == kinds::SUPERBLOCK_DAMAGED.code;
        let damaged: Vec<_> = report.findings.iter().filter(is_copied).collect();
        if is_elsewhere && !damaged.is_empty() {
            // With the superblock, who has the device of the journal can replay it.
            recover::mend(mender, &damaged)?;
            recover::settle(mender.device, &mender.state.layout, true)?;
        }
        return Ok(());
    }
    let is_blocked = report.counts.iter().any(|(kind, _)| !mender.scope.allows(kind));
    let is_rootless = |(kind, _): &(&'static Kind, u64)| kind.code == kinds::INODE_ROOT.code;
    // Without the root nothing shows that the superblock is that of this volume.
    if is_blocked && report.counts.iter().any(is_rootless) {
        return Ok(());
    }
    let mut stages: BTreeMap<Stage, Vec<&Finding>> = BTreeMap::new();
    for finding in &report.findings {
        let is_independent = stage::is_independent(finding) && !is_disputed(report, finding);
        let is_free = !is_blocked || is_independent && is_placed(mender, finding);
        if mender.scope.allows(finding.kind) && is_free {
            stages.entry(Stage::of(finding)).or_default().push(finding);
        }
    }
    for (stage, findings) in stages {
        let before = mender.steps.made();
        match stage {
            Stage::Bits => bits::mend(mender, &findings)?,
            Stage::Base => recover::mend(mender, &findings)?,
            Stage::Groups => groups::mend(mender, &findings)?,
            Stage::Fields => volume::mend(mender, &findings)?,
            Stage::Protection => mmp::mend(mender, &findings)?,
            Stage::Inodes => inode::mend(mender, &findings)?,
            Stage::Twice => twice::mend(mender, &findings)?,
            Stage::Directories => directory::mend(mender, &findings)?,
            Stage::Links => links::mend(mender, &findings)?,
            Stage::Counts => groups::count(mender, &findings, is_blocked)?,
            Stage::Quota => quota::mend(mender, &findings)?,
            Stage::Journal => recover::mend_journal(mender, &findings)?,
            Stage::OrphanFile => orphans::remove_file(mender, &findings)?,
        }
        if findings.iter().any(|found| is_of_superblock(found.kind)) {
            // What is known of the volume comes from the damaged superblock.
            return Ok(());
        }
        if mender.steps.made() > before {
            // With something left, the volume stays one that has errors.
            return if is_blocked { Ok(()) } else { mender.finish() };
        }
    }
    Ok(())
}
