//! The parts of a volume that are there once: superblocks, checkpoint packs, journals, the list of
//! orphans.

use std::sync::Arc;

use cairn_base::units::stored;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_check::{Finding, Findings, Place};

use super::{journals, kinds, report, superblocks};
use crate::checkpoint::summaries::{self, CurrentSummaries, Journals};
use crate::checkpoint::{self, Loaded};
use crate::error::{Error, Result};
use crate::format::layout::Layout;
use crate::format::summary::SummaryBlock;
use crate::format::superblock::Superblock;
use crate::format::units::{BLOCK_SIZE, Nid, SegNo};
use crate::format::{CheckpointFlags, Features, Log, SitEntry, sit};
use crate::probe::probe;
use crate::zones;

/// Memory for blocks of metadata that are read one by one.
const CACHE_BYTES: u64 = 4 << 20;

/// The parts of a volume that the walk starts from.
pub(super) struct Volume {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) buffers: Arc<BufferCache>,
    pub(super) superblock: Superblock,
    pub(super) layout: Arc<Layout>,
    pub(super) loaded: Loaded,
    pub(super) journals: Journals,
    /// It was recovered in memory: quota files have the counts from before.
    pub(super) is_recovered: bool,
    /// Segments of which the journal has an impossible entry.
    unknown: Vec<SegNo>,
}

impl Volume {
    /// Reads them. `None` if one of them is damaged, which is a finding then.
    ///
    /// # Errors
    /// There is no such filesystem, or the device failed.
    pub(super) fn open(device: Arc<dyn BlockDevice>, findings: &Findings) -> Result<Option<Self>> {
        let probe = match probe(&*device) {
            Ok(Some(probe)) => probe,
            Ok(None) => return Err(Error::NotF2fs { found: 0 }),
            Err(Error::Corrupt(why)) => match superblocks::merged(&device)? {
                Some(merged) => {
                    findings.add(report::of(&kinds::SUPERBLOCK_BOTH, &why));
                    return Self::open(merged, findings);
                }
                None => return unreadable(why.into(), findings),
            },
            Err(error) => return Err(error),
        };
        let (superblock, mut layout) = (probe.superblock, probe.layout);
        if superblock.features.contains(Features::BLKZONED) {
            match zones::unusable(&*device, &layout) {
                Ok(unusable) => layout.unusable_per_section = unusable,
                Err(Error::Feature(text)) => {
                    findings.add(Finding::new(&kinds::ZONE, Place::volume()).stored(&*text));
                }
                Err(error) => return Err(error),
            }
        }
        let budget = Budget::new(CACHE_BYTES);
        let buffers = BufferCache::new(device.clone(), stored(BLOCK_SIZE), budget);
        let parts = checkpoint::load(&buffers, &layout)
            .and_then(|loaded| Ok((journals::read(&loaded, &buffers, &layout, findings)?, loaded)));
        let ((journals, unknown), loaded) = match parts {
            Ok(parts) => parts,
            Err(error) => return unreadable(error, findings),
        };
        let layout = Arc::new(layout);
        let is_recovered = false;
        Ok(Some(Self {
            device,
            buffers,
            superblock,
            layout,
            loaded,
            journals,
            is_recovered,
            unknown,
        }))
    }

    /// Compares the copies of the superblock, and looks for records of errors.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn check_superblocks(&self, findings: &Findings) -> Result<()> {
        let size = self.device.geometry().size;
        let blocks = self.device.read_at(0, BLOCK_SIZE.saturating_mul(2))?;
        let resizes = self.loaded.checkpoint.flags.contains(CheckpointFlags::RESIZEFS);
        let copies = (0_u64..).zip(blocks.chunks_exact(BLOCK_SIZE)).map(|(number, block)| {
            let decoded = Superblock::decode(block);
            let sound = decoded.and_then(|found| Layout::new(&found, size).map(|_| found));
            (number, sound)
        });
        for (number, copy) in copies {
            match copy {
                Err(error) => {
                    let found = report::of(&kinds::SUPERBLOCK, &error);
                    findings.add(Finding { place: found.place.clone().at_block(number), ..found });
                }
                Ok(copy) => {
                    let copy = match resizes {
                        true => with_size_of(copy, &self.superblock),
                        false => copy,
                    };
                    if with_words_of(copy, &self.superblock) != self.superblock {
                        findings.add(Finding::new(&kinds::SUPERBLOCK_COPIES, Place::block(number)));
                    }
                }
            }
        }
        self.check_fields(findings);
        if self.superblock.has_errors() {
            findings.add(Finding::new(&kinds::SUPERBLOCK_ERRORS, Place::field("s_errors")));
        }
        Ok(())
    }

    /// Checks what the superblock in use says of quota files and devices.
    pub(super) fn check_fields(&self, findings: &Findings) {
        let impossible = self.superblock.qf_ino.into_iter().filter(|ino| is_no_quota(*ino, self));
        for ino in impossible {
            let place = Place::field("qf_ino");
            findings.add(Finding::new(&kinds::SUPERBLOCK_FIELD, place).stored(ino.get()));
        }
        let parts = self.superblock.device_segments();
        let (total, segments) = (u64::from(self.superblock.segment_count), parts.iter().sum());
        if !parts.is_empty() && total != segments {
            let place = Place::field("devs");
            let finding = Finding::new(&kinds::SUPERBLOCK_FIELD, place);
            findings.add(finding.stored(segments).computed(total));
        }
    }

    /// Checks the flags of the checkpoint.
    pub(super) fn check_flags(&self, findings: &Findings) {
        let flags = self.loaded.checkpoint.flags;
        let asks = flags.intersection(CheckpointFlags::ERROR | CheckpointFlags::FSCK);
        if !asks.is_empty() {
            let place = Place::field("ckpt_flags");
            findings.add(
                Finding::new(&kinds::CHECKPOINT_FLAGS, place)
                    .hex(flags.bits(), flags.difference(asks).bits()),
            );
        }
    }

    /// Has the journal an impossible entry of the segment? That in the area is older.
    pub(super) fn is_unknown(&self, segno: SegNo) -> bool {
        self.unknown.contains(&segno)
    }

    /// The SIT's entry of a segment, if it is possible.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn sit_entry(&self, segno: SegNo) -> Result<Option<SitEntry>> {
        if self.is_unknown(segno) {
            return Ok(None);
        }
        if let Some((_, entry)) = self.journals.sit.0.iter().find(|(known, _)| *known == segno) {
            return Ok(Some(entry.clone()));
        }
        let (block, index) = Layout::sit_place(segno);
        let side = self.loaded.checkpoint.sit_side(block);
        let image = self.buffers.get(self.layout.sit_address(block, side))?.image();
        Ok(sit::entry(&image, index, segno).ok())
    }

    /// The orphan inodes. A damaged list is a finding.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn orphans(&self, findings: &Findings) -> Result<Vec<Nid>> {
        match self.loaded.orphans(&self.buffers, &self.layout) {
            Ok(orphans) => Ok(orphans),
            Err(Error::Corrupt(error)) => {
                findings.add(report::of(&kinds::ORPHAN_BLOCK, &error));
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    /// The owners of the blocks in the current segments; `None` if they are damaged, which is a
    /// finding.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn current(&self, findings: &Findings) -> Result<Option<CurrentSummaries>> {
        if self.layout.features.contains(Features::RO) {
            return Ok(None);
        }
        self.check_types(findings)?;
        match summaries::current(&self.loaded, &self.buffers, &self.layout) {
            Ok(current) => Ok(Some(current)),
            Err(Error::Corrupt(error)) => {
                findings.add(report::of(&kinds::CHECKPOINT_SUMMARIES, &error));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Checks the types of the pack's full summary blocks.
    fn check_types(&self, findings: &Findings) -> Result<()> {
        for log in Log::ALL {
            let Some(offset) = self.loaded.map.summary(log) else { continue };
            let address = self.loaded.address(&self.layout, offset);
            let block = SummaryBlock::decode(&self.buffers.get(address)?.image());
            if !block.is_ok_and(|block| block.is_node == log.is_node()) {
                let segno = self.loaded.checkpoint.log(log).segno;
                let place = Place::segment(segno.get()).at_block(address.get());
                findings.add(Finding::new(&kinds::SUMMARY_TYPE, place));
            }
        }
        Ok(())
    }
}

/// Is it a number, and none of a quota file?
pub(super) fn is_no_quota(ino: Nid, volume: &Volume) -> bool {
    let has_quota = volume.layout.features.contains(Features::QUOTA_INO);
    !ino.is_none() && (!has_quota || ino <= Nid::ROOT || !volume.layout.is_nid(ino))
}

/// Damage here is a finding; anything else ends the check.
fn unreadable<T>(error: Error, findings: &Findings) -> Result<Option<T>> {
    match error {
        Error::Corrupt(error) => {
            findings.add(report::of(&kinds::VOLUME, &error));
            Ok(None)
        }
        error => Err(error),
    }
}

/// A copy of the superblock with the size and the areas of another one. While the size changes the
/// second copy is written first.
pub(super) fn with_size_of(copy: Superblock, other: &Superblock) -> Superblock {
    Superblock {
        block_count: other.block_count,
        section_count: other.section_count,
        segment_count: other.segment_count,
        segment_count_sit: other.segment_count_sit,
        segment_count_nat: other.segment_count_nat,
        segment_count_ssa: other.segment_count_ssa,
        segment_count_main: other.segment_count_main,
        segment0_blkaddr: other.segment0_blkaddr,
        cp_blkaddr: other.cp_blkaddr,
        sit_blkaddr: other.sit_blkaddr,
        nat_blkaddr: other.nat_blkaddr,
        ssa_blkaddr: other.ssa_blkaddr,
        main_blkaddr: other.main_blkaddr,
        cp_payload: other.cp_payload,
        ..copy
    }
}

/// A copy of the superblock with the words of another one that mounts and `cairn tune` change. A
/// power cut between the writes of the two copies leaves them different, and either is right.
pub(super) fn with_words_of(copy: Superblock, other: &Superblock) -> Superblock {
    Superblock {
        uuid: other.uuid,
        volume_name: other.volume_name,
        extension_count: other.extension_count,
        hot_ext_count: other.hot_ext_count,
        extension_list: other.extension_list,
        version: other.version,
        s_stop_reason: other.s_stop_reason,
        s_errors: other.s_errors,
        crc: other.crc,
        ..copy
    }
}
