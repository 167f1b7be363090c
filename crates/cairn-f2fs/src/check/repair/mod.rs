//! `check --repair`: a volume in memory is checked and mended, round after round, until nothing is
//! found. `cairn_check::repair` then writes what has changed as one step.
//!
//! A round mends what the rest depends on, and leaves the rest to the next one:
//!
//! 1. what was fsynced is recovered, if a mount can do that without harm (`recovery`);
//! 2. types of inodes are set (`types`), because what they hold is read by them;
//! 3. nodes that the NAT does not lead to are looked for (`lost`), before anything is given up; a
//!    root that is not found is made (`root`);
//! 4. forms of inodes, pointers (`pointers`), fields of inodes (`inode`), attributes
//!    (`attributes`), and entries (`entries`, `lengths`), with all that they lose;
//! 5. entries with a wrong number (`turned`), counts, and names for inodes that have none
//!    (`counts`, `reconnect`, `names`);
//! 6. quota files (`quota`);
//! 7. the tables: NAT, SIT, summaries, checkpoint (`tables`), or entries of them alone
//!    (`in_place`).
//!
//! Invariant: while something is damaged that may hide what is in use, no block becomes free.

mod attributes;
mod clusters;
mod counts;
mod edit;
mod entries;
mod in_place;
mod inode;
mod lengths;
mod lost;
mod names;
mod partial;
mod pointers;
mod quota;
mod reconnect;
mod recovery;
mod root;
mod superblocks;
mod symlink;
mod tables;
mod turned;
mod types;

use std::collections::BTreeSet;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_check::repair::{Mend, Plan, Scope, Steps};
use cairn_check::{Finding, Findings, Kind, Observer, Report, Severity, Usage};

use super::context::Context;
use super::examine::{examine, usage};
use super::notes::Notes;
use super::volume::Volume;
use super::{choice, deleted, features, kinds, links, packs, paths};
use crate::error::{Error, Result};
use crate::format::NatEntry;
use crate::format::units::Nid;
use edit::{Edit, ino_of, is_one, nid_of, paths_of};
use recovery::THREADS;

/// Plans the repair of the volume on a device, which is only read.
///
/// # Errors
/// There is no such filesystem, Cairn does not write one with its features, the device has zones or
/// failed, or the volume has no room for what a repair adds.
pub fn plan(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
    scope: Scope,
) -> Result<Plan> {
    let freed = Mutex::new(Rank::Leaf, BTreeSet::new());
    cairn_check::repair::plan(&Mender { runtime, observer, freed }, &device, scope)
}

/// Why a volume is not repaired, whatever is wrong with it.
pub(super) fn refusal(volume: &Volume) -> Option<String> {
    let reason = match volume.device.as_zoned() {
        Some(_) => "it is on a device with zones".into(),
        None => volume.layout.features.read_only_reason()?,
    };
    Some(format!("{reason}: use fsck.f2fs"))
}

struct Mender {
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
    /// Inodes without a name whose blocks the SIT called free in a round: they may be deleted ones.
    freed: Mutex<BTreeSet<Nid>>,
}

/// Findings about nodes and pointers.
const POINTERS: [&Kind; 7] = [
    &kinds::NAT_ENTRY,
    &kinds::NODE_FOOTER,
    &kinds::NODE_MISSING,
    &kinds::NODE_SHARED,
    &kinds::BLOCK_SHARED,
    &kinds::BLOCK_ADDRESS,
    &kinds::BLOCK_FREE,
];

/// Findings about inodes that need nothing else.
const FIELDS: [&Kind; 9] = [
    &kinds::INODE_FIELD,
    &kinds::INODE_TAIL,
    &kinds::INODE_CHECKSUM,
    &kinds::INODE_EXTENT,
    &kinds::INODE_INLINE,
    &kinds::INODE_COMPRESSION,
    &kinds::INODE_SIZE,
    &kinds::INODE_TARGET,
    &kinds::INODE_PARENT,
];

/// Findings that a new checkpoint, with its tables, mends.
const TABLES: [&Kind; 17] = [
    &kinds::CHECKPOINT_FLAGS,
    &kinds::CHECKPOINT_PACK,
    &kinds::CHECKPOINT_COUNT,
    &kinds::CHECKPOINT_LOG,
    &kinds::CHECKPOINT_SUMMARIES,
    &kinds::CHECKPOINT_JOURNAL,
    &kinds::CHECKPOINT_JOURNAL_LOST,
    &kinds::NAT_BITS,
    &kinds::ORPHAN_BLOCK,
    &kinds::ORPHAN,
    &kinds::NAT_RESERVED,
    &kinds::NAT_REPLACED,
    &kinds::SIT_ENTRY,
    &kinds::SIT_BITS,
    &kinds::SUMMARY_TYPE,
    &kinds::SUMMARY_OWNER,
    &kinds::RECOVERY,
];

impl Mend for Mender {
    type Error = Error;

    fn round(
        &self,
        device: &Arc<dyn BlockDevice>,
        scope: Scope,
        steps: &mut Steps,
    ) -> Result<Report> {
        let findings = Findings::new();
        let watch = (&self.runtime, &self.observer);
        // What is found besides counts as found before the repair.
        if let Some(chosen) = choice::second(device, watch, THREADS, &findings)? {
            superblocks::mend_first(&chosen, device, steps)?;
        }
        if let Some(newest) = packs::mended(device, watch, THREADS, &findings)?
            && may_be_written(&newest.device)?
        {
            newest.write(device, steps)?;
        }
        if let Some(proved) = features::proved(device, &findings)?
            && may_be_written(&proved)?
        {
            superblocks::mend_features(&proved, device, steps)?;
        }
        let Some(volume) = Volume::open(device.clone(), &findings)? else {
            return Ok(Report::new(findings, Usage::default()));
        };
        if let Some(reason) = refusal(&volume) {
            return Err(Error::Feature(format!("this volume is not repaired: {reason}")));
        }
        if findings.count_of(&kinds::SUPERBLOCK_BOTH) > 0 {
            superblocks::mend_both(&volume, (device, scope), steps)?;
            return Ok(Report::new(findings, Usage::default()));
        }
        let watch = (&self.runtime, self.observer.clone());
        packs::check(&volume, &findings)?;
        // The checkpoint of a recovery is written over a newer one that is damaged.
        let may_recover = findings.count_of(&kinds::CHECKPOINT_PACK) == 0 || scope == Scope::All;
        let (volume, recovered) = match may_recover {
            true => {
                let found = (&findings, &mut *steps);
                recovery::recover(volume, (device, scope), watch.clone(), found)?
            }
            false => (Some(volume), None),
        };
        let Some(volume) = volume else {
            return Ok(Report::new(findings, Usage::default()));
        };
        volume.check_superblocks(&findings)?;
        volume.check_flags(&findings);
        let has_lost = steps.counts().any(|(kind, _)| links::hides(kind));
        let notes = Notes::new(seeks(scope, steps), has_lost, self.freed.lock().clone());
        let early = findings.copy();
        let context = examine(volume, findings, watch, THREADS, Some(notes))?;
        let watch = (&self.runtime, &self.observer);
        let (context, is_done) = match deleted::proved(&context, watch, THREADS, early)? {
            Some(without) => (without.write(device, steps)?, true),
            None => (context, false),
        };
        let usage = usage(&context);
        let cancelled = context.progress.is_cancelled();
        let recovered = recovered.into_iter().collect();
        let report = Report::new(context.findings.take(), usage);
        let mut report = Report { recovered, cancelled, ..report };
        context.step(|scratch| paths::add(&context, scratch, &mut report.findings));
        context.failure()?;
        if report.count() > 0 && !cancelled && !is_done {
            let more = counts::freed(&context, &report)?;
            let freed = {
                let mut freed = self.freed.lock();
                freed.extend(more);
                freed.clone()
            };
            mend(&context, &report, (device, scope), (steps, freed))?;
        }
        Ok(report)
    }

    fn may_end(&self, before: &Arc<dyn BlockDevice>, after: &Arc<dyn BlockDevice>) -> Result<bool> {
        partial::is_no_worse(before, after, &self.runtime)
    }
}

/// Does Cairn repair the volume on a device?
fn may_be_written(device: &Arc<dyn BlockDevice>) -> Result<bool> {
    let volume = Volume::open(device.clone(), &Findings::new())?;
    Ok(volume.is_some_and(|volume| refusal(&volume).is_none()))
}

/// Are missing nodes looked for? Not once something was given up: that is no longer in the NAT
/// either, and still counted.
fn seeks(scope: Scope, steps: &Steps) -> bool {
    let first = [
        &kinds::SUPERBLOCK,
        &kinds::SUPERBLOCK_BOTH,
        &kinds::SUPERBLOCK_COPIES,
        &kinds::SUPERBLOCK_ERRORS,
        &kinds::SUPERBLOCK_FEATURES,
        &kinds::CHECKPOINT_END,
        &kinds::NAT_ADDRESS,
        &kinds::NAT_LOST,
        &kinds::NAT_DELETED,
        &kinds::INODE_CHECKSUM,
        &kinds::INODE_SHAPE,
        &kinds::INODE_TYPE,
        &kinds::INODE_DOUBT,
    ];
    let is_first = |kind: &Kind| first.iter().any(|one| one.code == kind.code);
    scope == Scope::Accounting || steps.counts().all(|(kind, _)| is_first(kind))
}

/// Mends what was found.
fn mend(
    context: &Arc<Context>,
    report: &Report,
    on: (&Arc<dyn BlockDevice>, Scope),
    (steps, freed): (&mut Steps, BTreeSet<Nid>),
) -> Result<()> {
    let loses = loses(report);
    let (found, owners) = context.notes.as_ref().map(Notes::take).unwrap_or_default();
    let mut edit = Edit::new(context.clone(), on, owners, steps);
    edit.paths = paths_of(report);
    edit.freed = freed;
    let counts_quota = [&kinds::QUOTA_COUNTS, &kinds::QUOTA_FILE, &kinds::QUOTA];
    edit.is_quota_wrong = found.iter().any(|found| is_one(found, &counts_quota));
    let before = edit.steps.made();
    if edit.mend_superblocks(&report.findings, loses)? || edit.mend_types(&found)? {
        return Ok(());
    }
    let is_found = edit.find_nodes(&found)?;
    if loses && !is_found && !edit.may_lose() {
        // What seems to be accounting may be of what is damaged: an inode that is changed gets a
        // new checksum, and a new checkpoint is written over a damaged one.
        return Ok(());
    }
    let changed = is_found
        || edit.mend_structure(&found)?
        || !edit.may_go_on(&found)
        || edit.mend_nat_journal(&report.findings)?
        || edit.mend_waiting(&report.findings)?
        || edit.mend_counts(&found)?
        || edit.mend_quota(&found)?;
    if changed {
        // What an old version of a node leads to need not be in use: the next round sees what is.
        if is_found && !edit.nat.is_empty() && edit.write_nat_in_place()? {
            return Ok(());
        }
        // A new checkpoint also replaces a pack that is not whole.
        let is_worth = edit.has_tables || (edit.steps.made() > before && !loses);
        edit.decide_later(&found);
        return if is_worth { edit.write_round(&report.findings) } else { Ok(()) };
    }
    let divided = edit.divide(&found)?;
    edit.mend_tables(report, divided)
}

/// Is something found by which files lose something? Directories whose blocks were exchanged may
/// seem to contain each other, until their pointers are set back.
fn loses(report: &Report) -> bool {
    let is_found = |one: &Kind| report.counts.iter().any(|(kind, _)| kind.code == one.code);
    let is_exchanged = is_found(&kinds::BLOCK_UNLINKED);
    report.counts.iter().any(|(kind, _)| {
        let is_cycle = kind.code == kinds::DIRECTORY_CYCLE.code;
        kind.severity > Severity::Accounting && !(is_cycle && is_exchanged)
    })
}

impl Edit<'_> {
    /// Mends nodes, pointers, fields, attributes and entries. False if there is nothing to mend.
    fn mend_structure(&mut self, found: &[Finding]) -> Result<bool> {
        if self.mend_shapes(found)? {
            return Ok(true);
        }
        if self.mend_root(found)? {
            return Ok(true);
        }
        let scope = self.scope;
        let mut changed = false;
        let unlinked = [&kinds::BLOCK_UNLINKED, &kinds::BLOCK_DOUBT];
        for finding in found.iter().filter(|found| is_one(found, &unlinked)) {
            changed |= scope.allows(finding.kind) && self.link_block(finding)?;
        }
        for finding in found.iter().filter(|found| is_one(found, &[&kinds::NAT_UNREACHABLE])) {
            changed |= scope.allows(finding.kind) && self.link_node(finding)?;
        }
        if changed {
            return Ok(true);
        }
        let mut pointed = BTreeSet::new();
        for finding in found.iter().filter(|found| scope.allows(found.kind)) {
            let ino = ino_of(&finding.place);
            // The blocks that compression saves are counted by the pointers.
            let is_later = finding.place.file_block.is_none() && pointed.contains(&ino);
            let done = match () {
                () if is_one(finding, &POINTERS) => {
                    let done = self.mend_pointer(finding)?;
                    pointed.extend(done.then_some(ino));
                    done
                }
                () if is_one(finding, &[&kinds::INODE_COMPRESSION]) && is_later => false,
                () if is_one(finding, &FIELDS) => self.mend_inode(finding)?,
                () if is_one(finding, &[&kinds::XATTR]) => self.mend_attributes(finding)?,
                () => false,
            };
            changed |= done;
        }
        if changed {
            return Ok(true);
        }
        if self.mend_entries(found)? {
            return Ok(true);
        }
        for finding in found.iter().filter(|found| is_one(found, &[&kinds::NAT_UNREACHABLE])) {
            if self.scope.allows(finding.kind) {
                changed |= self.mend_pointer(finding)?;
            }
        }
        Ok(changed)
    }

    /// Writes the tables at the end of a round. A new checkpoint drops what was fsynced behind the
    /// last one, and is written over a damaged newer one: while that is there, there is none as
    /// long as that is possible.
    fn write_round(&mut self, found: &[Finding]) -> Result<()> {
        let ends = [&kinds::RECOVERY, &kinds::RECOVERY_WAITS, &kinds::CHECKPOINT_PACK];
        let pending = found.iter().find(|found| is_one(found, &ends));
        let Some(finding) = pending else { return self.write_tables(true) };
        let is_in_place = self.write_nat_in_place()?
            && (self.accepted.is_empty() || self.write_sit_in_place(true)?);
        if is_in_place || !self.may_lose() {
            return Ok(());
        }
        self.drop_later(finding)?;
        self.write_tables(true)
    }

    /// Lists what a new checkpoint drops: a newer one that is damaged, or what was fsynced.
    fn drop_later(&mut self, finding: &Finding) -> Result<()> {
        let waits = is_one(finding, &[&kinds::RECOVERY_WAITS]);
        let kind = if waits { &kinds::RECOVERY } else { finding.kind };
        let what = "the changes since the last whole checkpoint";
        self.lost((kind, finding.place.clone()), Default::default(), what);
        self.list_chain()
    }

    /// Counts and names depend on everything that is damaged: false if some of that stays.
    fn may_go_on(&self, found: &[Finding]) -> bool {
        let later =
            [&kinds::DIRECTORY_CYCLE, &kinds::QUOTA_FILE, &kinds::INODE_NAMES, &kinds::INODE_NAME];
        let waits = |found: &&Finding| !is_one(found, &later);
        let losing = found.iter().filter(|found| found.kind.severity != Severity::Accounting);
        losing.filter(waits).count() == 0
    }

    /// Sets the SIT right where it is, if what was fsynced waits for that: all that is in use is
    /// known now. False if that is not so, or the SIT is right.
    fn mend_waiting(&mut self, found: &[Finding]) -> Result<bool> {
        let waits = found.iter().any(|found| is_one(found, &[&kinds::RECOVERY_WAITS]));
        if !waits || !self.write_sit_in_place(false)? {
            return Ok(false);
        }
        self.write_counts_in_place()?;
        let sit = [&kinds::SIT_ENTRY, &kinds::SIT_BITS, &kinds::SIT_TYPE];
        found.iter().filter(|found| is_one(found, &sit)).for_each(|finding| self.mended(finding));
        Ok(true)
    }

    /// Writes the tables, if something is wrong with them.
    fn mend_tables(&mut self, report: &Report, divided: bool) -> Result<()> {
        let mut wrong = divided;
        let waits = report.findings.iter().find(|found| is_one(found, &[&kinds::RECOVERY_WAITS]));
        if let Some(finding) = waits {
            if !self.may_lose() {
                return Ok(());
            }
            let volume = &self.context.volume;
            if recovery::drop_contradicted(volume, &self.device, self.steps)? {
                return Ok(());
            }
            self.drop_later(finding)?;
            wrong = true;
        }
        let mut kinds = TABLES.to_vec();
        kinds.push(&kinds::SIT_TYPE);
        for finding in report.findings.iter().filter(|found| is_one(found, &kinds)) {
            if !self.scope.allows(finding.kind) {
                continue;
            }
            wrong = true;
            let reserved =
                nid_of(&finding.place).and_then(|nid| Some((nid, NatEntry::reserved(nid)?)));
            if let Some((nid, entry)) = reserved {
                self.set_entry(nid, entry);
            }
            match finding.kind.severity {
                Severity::Accounting => self.mended(finding),
                _ => self.drop_later(finding)?,
            }
        }
        if wrong { self.write_tables(divided) } else { Ok(()) }
    }
}
