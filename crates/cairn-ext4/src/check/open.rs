//! Opens a volume for a check: the device is only read; what a recovery would write is kept in
//! memory.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::units::as_index;
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_check::{Finding, Place, Value};
use cairn_jbd2::{Images, JournalArea};

use super::backup::restore;
use super::kinds;
use crate::error::{Error, Result};
use crate::fast_commit::ReplayTarget;
use crate::format::features::{Access, Incompat};
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;
use crate::info;
use crate::mount;
use crate::probe::{self, Probe};
use crate::recovery;

/// Bytes of buffers for the replay.
const BUDGET: u64 = 64 << 20;

/// A volume to check.
pub(super) struct Opened {
    /// The device, with what was recovered.
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) superblock: Superblock,
    pub(super) layout: Layout,
    /// The volume was not unmounted cleanly.
    pub(super) is_unclean: bool,
    /// The log was replayed.
    pub(super) is_replayed: bool,
    /// What was found on the way.
    pub(super) findings: Vec<Finding>,
}

/// Opens a volume, and replays its log in memory.
///
/// # Errors
/// There is no volume that can be read, its features are unknown, or the device failed.
pub(super) fn open(device: Arc<dyn BlockDevice>, runtime: &Arc<dyn Runtime>) -> Result<Opened> {
    let found = match probe::probe(&*device)? {
        Some(found) => found,
        None => probe::probe_backups(&*device)?
            .ok_or_else(|| Error::NotExt4 { found: probe::found_magic(&*device) })?,
    };
    let mut findings = Vec::new();
    let (device, superblock) = with_backup(device, &found, &mut findings)?;
    if let Access::Refuse(reason) = superblock.features().access() {
        return Err(Error::Feature(reason));
    }
    let layout = Layout::new(&superblock, device.geometry().size)?;
    let is_unclean = superblock.features().incompat(Incompat::RECOVER);
    let mut opened =
        Opened { device, superblock, layout, is_unclean, is_replayed: false, findings };
    if is_unclean {
        opened.replay(runtime)?;
    } else {
        opened.check_journal()?;
    }
    Ok(opened)
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
        if info::has_external_journal(&self.superblock) {
            self.findings.push(lost(info::EXTERNAL_JOURNAL.to_owned()));
            return Ok(());
        }
        let overlay: Arc<dyn BlockDevice> = Arc::new(Overlay::new(self.device.clone())?);
        let budget = Budget::new(BUDGET);
        let buffers = BufferCache::new(overlay.clone(), self.layout.block_size, budget.clone());
        let images: Images = HashMap::new();
        let target = ReplayTarget { device: &overlay, budget: &budget, runtime, images: &images };
        let replayed = mount::journal_area(&self.superblock, &self.layout, &buffers, &overlay)
            .and_then(|area| match area {
                Some(area) => recovery::replay(&area, &target, buffers, self.layout, true),
                None => Err(Error::Option("there is no journal".into())),
            });
        match replayed {
            Ok(done) => {
                if let Some(why) = done.refused {
                    self.findings.push(lost(why.to_string()));
                }
            }
            Err(error @ Error::Device(_)) => return Err(error),
            Err(error) => {
                self.findings.push(lost(error.to_string()));
                return Ok(());
            }
        }
        // The log may hold another superblock.
        if let Some(found) = probe::probe(&*overlay)? {
            self.layout = Layout::new(&found.superblock, overlay.geometry().size)?;
            self.superblock = found.superblock;
        }
        self.device = overlay;
        self.is_replayed = true;
        Ok(())
    }

    /// An empty journal has a valid superblock, too.
    fn check_journal(&mut self) -> Result<()> {
        if info::has_external_journal(&self.superblock) {
            return Ok(());
        }
        let budget = Budget::new(BUDGET);
        let buffers = BufferCache::new(self.device.clone(), self.layout.block_size, budget);
        let area = mount::journal_area(&self.superblock, &self.layout, &buffers, &self.device);
        let read = area.and_then(|area| match area {
            Some(area) => {
                let found = cairn_jbd2::read_superblock(&area)?;
                if found.errno != 0 {
                    let why = format!("it records the error {}", found.errno.cast_signed());
                    return Err(Error::Option(why));
                }
                match users(&area, &*self.device)? {
                    0 | 1 => Ok(()),
                    users => {
                        let why = format!("it has {users} users, and one is possible");
                        Err(Error::Option(why))
                    }
                }
            }
            None => Ok(()),
        });
        match read {
            Ok(()) => Ok(()),
            Err(error @ Error::Device(_)) => Err(error),
            Err(error) => {
                let place = Place::inode(self.layout.journal_ino.get());
                let finding = Finding::new(&kinds::JOURNAL_INVALID, place);
                self.findings.push(finding.stored(Value::text(error.to_string())));
                Ok(())
            }
        }
    }
}

/// `s_nr_users` of a journal's superblock: the volumes that have their journal there.
fn users(area: &JournalArea, device: &dyn BlockDevice) -> Result<u32> {
    const AT: usize = 64;
    let Some((_, pba, _)) = area.extents.first() else { return Ok(0) };
    let at = pba.get().saturating_mul(area.block_size.into());
    let block = device.read_block(at, as_index(area.block_size))?;
    let word = block.get(AT..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
    Ok(u32::from_be_bytes(word))
}
