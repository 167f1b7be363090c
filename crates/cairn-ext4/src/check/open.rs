//! Opens a volume for a check: the device is only read; what a recovery would write is kept in
//! memory.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::{Finding, Place, Value};
use cairn_jbd2::MIN_JOURNAL_BLOCKS;

use super::backup::restore;
use super::features::refuse_unknown;
use super::kinds;
use super::unsealed::{reseal, with_right_bit};
use super::{log, orphan_inode, plain_bit};
use crate::error::{Error, Result};
use crate::format::features::{Compat, Incompat};
use crate::format::layout::Layout;
use crate::format::superblock::{OFFSET, Superblock};
use crate::info;
use crate::probe::{self, Probe};
use crate::redo;

/// A volume to check.
pub(super) struct Opened {
    /// The device, with what was recovered.
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) superblock: Superblock,
    pub(super) layout: Layout,
    /// The volume was not unmounted cleanly.
    pub(super) is_unclean: bool,
    /// The log was replayed, or what is intact of it.
    pub(super) is_replayed: bool,
    /// A change that was interrupted was finished in memory.
    pub(super) is_finished: bool,
    /// What was found on the way.
    pub(super) findings: Vec<Finding>,
}

/// Opens a volume, and replays its log in memory.
///
/// # Errors
/// There is no volume that can be read, its features are unknown, or the device failed.
pub(super) fn open(device: Arc<dyn BlockDevice>, runtime: &Arc<dyn Runtime>) -> Result<Opened> {
    let mut findings = Vec::new();
    let unfinished = redo::in_memory(&device)?;
    let is_finished = unfinished.is_some();
    let device = unfinished.unwrap_or(device);
    let (device, found) = find(device, &mut findings)?;
    let (device, superblock) = with_backup(device, &found, &mut findings)?;
    refuse_unknown(&superblock)?;
    let layout = Layout::new(&superblock, device.geometry().size)?;
    let device = Overlay::if_smaller(device, layout.block_size)?;
    let is_unclean = superblock.features().incompat(Incompat::RECOVER);
    let mut opened = Opened {
        device,
        superblock,
        layout,
        is_unclean,
        is_replayed: false,
        is_finished,
        findings,
    };
    if is_unclean {
        opened.replay(runtime)?;
    } else {
        opened.check_journal(runtime)?;
    }
    opened.check_orphan_inode()?;
    Ok(opened)
}

/// The superblock, and the device with another checksum or revision of it if there is no other way.
fn find(
    device: Arc<dyn BlockDevice>,
    findings: &mut Vec<Finding>,
) -> Result<(Arc<dyn BlockDevice>, Probe)> {
    let none = |device: &dyn BlockDevice| Error::NotExt4 { found: probe::found_magic(device) };
    if let Some(right) = with_right_bit(&*device)? {
        let device: Arc<dyn BlockDevice> = Arc::new(Overlay::new(device)?);
        device.write_at(OFFSET, right)?;
        findings.push(Finding::new(&kinds::SUPERBLOCK_BIT, Place::volume()));
        let found = probe::probe(&*device)?.ok_or_else(|| none(&*device))?;
        return Ok((device, found));
    }
    let why = match probe::probe(&*device) {
        Ok(Some(found)) => {
            let is_possible = Layout::new(&found.superblock, device.geometry().size).is_ok();
            let right = match is_possible || found.backup.is_some() {
                true => None,
                false => with_plain_bit(&device, findings)?,
            };
            return Ok(right.unwrap_or((device, found)));
        }
        Ok(None) => match probe::probe_all_backups(&*device)? {
            Some(found) => return Ok((device, found)),
            None => none(&*device),
        },
        Err(Error::Corrupt(why)) => {
            if let Some((sealed, finding)) = reseal(&device, &why)? {
                findings.push(finding);
                let found = probe::probe(&*sealed)?.ok_or_else(|| none(&*sealed))?;
                return Ok((sealed, found));
            }
            why.into()
        }
        Err(error) => return Err(error),
    };
    with_plain_bit(&device, findings)?.ok_or(why)
}

/// With the one bit right by which a superblock without a checksum describes no volume. `None` if
/// there is no such bit.
///
/// # Errors
/// The device failed.
fn with_plain_bit(
    device: &Arc<dyn BlockDevice>,
    findings: &mut Vec<Finding>,
) -> Result<Option<(Arc<dyn BlockDevice>, Probe)>> {
    let Some(right) = plain_bit::right(&**device)? else { return Ok(None) };
    let device: Arc<dyn BlockDevice> = Arc::new(Overlay::new(device.clone())?);
    device.write_at(OFFSET, right)?;
    findings.push(Finding::new(&kinds::SUPERBLOCK_BIT, Place::volume()));
    Ok(probe::probe(&*device)?.map(|found| (device, found)))
}

/// With the blocks of a backup in place of the damaged ones.
fn with_backup(
    device: Arc<dyn BlockDevice>,
    found: &Probe,
    findings: &mut Vec<Finding>,
) -> Result<(Arc<dyn BlockDevice>, Superblock)> {
    let Some(reason) = found.read_only_reason() else {
        return Ok((device, found.superblock.clone()));
    };
    let finding = Finding::new(&kinds::SUPERBLOCK_DAMAGED, Place::volume());
    findings.push(finding.stored(Value::text(reason)));
    let overlay: Arc<dyn BlockDevice> = Arc::new(Overlay::new(device)?);
    let superblock = restore(&overlay, found)?;
    Ok((overlay, superblock))
}

impl Opened {
    fn replay(&mut self, runtime: &Arc<dyn Runtime>) -> Result<()> {
        let lost = |why: String| {
            let place = Place::field("s_feature_incompat");
            Finding::new(&kinds::JOURNAL_REPLAY, place).stored(Value::text(why))
        };
        if info::names_external_journal(&self.superblock) {
            self.findings.push(lost(info::EXTERNAL_JOURNAL.to_owned()));
            return Ok(());
        }
        let overlay: Arc<dyn BlockDevice> = Arc::new(Overlay::new(self.device.clone())?);
        let found = match log::find(&overlay, &self.superblock, &self.layout) {
            Err(error @ Error::Device(_)) => return Err(error),
            found => found
                .and_then(|found| found.ok_or_else(|| Error::Option("there is no journal".into()))),
        };
        let mut found = match found {
            Ok(found) => found,
            Err(error) => {
                self.findings.push(lost(error.to_string()));
                return Ok(());
            }
        };
        let refused = log::replay(&mut found, &overlay, &self.layout, runtime)?;
        self.findings.extend(found.findings);
        self.is_replayed = refused.as_ref().is_none_or(|refused| refused.doubt.is_none());
        if let Some(refused) = refused {
            self.findings.push(lost(refused.why));
            // What a repair would go on with.
            log::write(&*overlay, &self.layout, &refused.remains.images)?;
        }
        // The log may hold another superblock.
        if let Some(found) = probe::probe(&*overlay)? {
            refuse_unknown(&found.superblock)?;
            self.layout = Layout::new(&found.superblock, overlay.geometry().size)?;
            self.superblock = found.superblock;
        }
        self.device = overlay;
        Ok(())
    }

    /// The volume is read with the inode of the file of orphans as that is mended.
    fn check_orphan_inode(&mut self) -> Result<()> {
        let overlay: Arc<dyn BlockDevice> = Arc::new(Overlay::new(self.device.clone())?);
        if let Some(finding) = orphan_inode::mend(&overlay, &self.superblock, &self.layout)? {
            self.device = overlay;
            self.findings.push(finding);
        }
        Ok(())
    }

    /// An empty journal has a valid superblock, too.
    fn check_journal(&mut self, runtime: &Arc<dyn Runtime>) -> Result<()> {
        if info::has_external_journal(&self.superblock) {
            let raw = &self.superblock.raw;
            if raw.s_journal_dev.get() == 0 && raw.s_journal_uuid == [0; 16] {
                let finding = Finding::new(&kinds::JOURNAL_INVALID, Place::field("s_journal_inum"));
                self.findings.push(finding.stored(Value::text("the superblock names none")));
            }
            return Ok(());
        }
        let overlay: Arc<dyn BlockDevice> = Arc::new(Overlay::new(self.device.clone())?);
        let read = log::find(&overlay, &self.superblock, &self.layout).and_then(|found| {
            let Some(found) = found else { return Ok(()) };
            self.is_unclean = found.is_pending;
            if !found.findings.is_empty() {
                self.device = overlay.clone();
                self.findings.extend(found.findings);
            }
            if found.is_pending {
                return Ok(());
            }
            let journal = cairn_jbd2::read_superblock(&found.area)?;
            if let Some(why) = oddity(&journal) {
                return Err(Error::Option(why));
            }
            self.findings.extend(needless_fast_commits(&self.superblock, &journal));
            Ok(())
        });
        match read {
            Ok(()) if self.is_unclean => {
                let found = probe::probe(&*self.device)?;
                self.superblock = found.map_or(self.superblock.clone(), |found| found.superblock);
                self.replay(runtime)
            }
            Ok(()) => Ok(()),
            Err(error @ Error::Device(_)) => Err(error),
            Err(error) => {
                self.is_unclean = false;
                let place = Place::inode(self.layout.journal_ino.get());
                let finding = Finding::new(&kinds::JOURNAL_INVALID, place);
                self.findings.push(finding.stored(Value::text(error.to_string())));
                Ok(())
            }
        }
    }
}

/// Fast commits that Linux has no room for, so that it does not mount the volume.
fn needless_fast_commits(
    superblock: &Superblock,
    journal: &cairn_jbd2::Superblock,
) -> Option<Finding> {
    let (compat, fast) = (superblock.features().compat, Compat::FAST_COMMIT);
    let place = Place::field("s_feature_compat");
    let finding = Finding::new(&kinds::SUPERBLOCK_FIELD, place);
    let is_wrong = compat.contains(fast) && !journal.has_room_for_fast_commits();
    is_wrong.then(|| finding.hex(compat.bits(), compat.difference(fast).bits()))
}

/// What a journal cannot have that is read nevertheless.
fn oddity(journal: &cairn_jbd2::Superblock) -> Option<String> {
    let (log, errno) = (journal.end_of_log(), journal.errno.cast_signed());
    if errno != 0 {
        return Some(format!("it records the error {errno}"));
    }
    if journal.users > 1 {
        return Some(format!("it has {} users, and one is possible", journal.users));
    }
    let is_short = log < journal.blocks && log < MIN_JOURNAL_BLOCKS;
    is_short.then(|| format!("its fast commits leave {log} blocks for the log"))
}
