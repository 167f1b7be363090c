//! Finds the superblock to read a volume with.

use std::sync::Arc;

use cairn_base::Pba;
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_check::salvage::{ANY_SIZE, Allowance};

use super::RawVolume;
use super::choice::SuperblockChoice;
use crate::backups::{self, Found};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::backup::BackupLocation;
use crate::format::features::Access;
use crate::format::group_desc::GroupDesc;
use crate::format::layout::Layout;
use crate::format::superblock::{self, Superblock};

/// Bytes of buffers.
const BUDGET: u64 = 32 << 20;

/// The largest `s_log_block_size`.
const MOST_LOG: u32 = 6;

/// A superblock that was found.
struct Candidate {
    superblock: Superblock,
    layout: Layout,
    at: u64,
    backup: Option<u32>,
}

impl From<Found> for Candidate {
    fn from(found: Found) -> Self {
        let Found { place, superblock, layout, .. } = found;
        Self { superblock, layout, at: place.offset(), backup: Some(place.group) }
    }
}

impl RawVolume {
    /// Opens a volume.
    ///
    /// # Errors
    /// There is no superblock as asked for, its features are unknown, or the device failed.
    pub(crate) fn open(device: Arc<dyn BlockDevice>, choice: SuperblockChoice) -> Result<Self> {
        let mut notes = Vec::new();
        let found = match choice {
            SuperblockChoice::Best => best(&*device, &mut notes)?,
            SuperblockChoice::Block(0 | 1) | SuperblockChoice::Group(0) => primary(&*device)??,
            SuperblockChoice::Block(block) => named(&*device, |place| place.block == Pba(block))
                .or_else(|| in_block(&*device, block))
                .ok_or_else(|| none(&format!("block {block}")))?,
            SuperblockChoice::Group(group) => named(&*device, |place| place.group == group)
                .ok_or_else(|| none(&format!("group {group}")))?,
        };
        if let Access::Refuse(reason) = found.superblock.features().access() {
            notes.push(reason);
        }
        let size = device.geometry().size;
        let volume = found.layout.blocks_count.saturating_mul(found.layout.block_size.into());
        if volume > size {
            notes.push(Corrupt::TooShort { volume, device: size }.to_string());
        }
        let device = Overlay::if_smaller(device, found.layout.block_size)?;
        let allowance = Allowance::new(found.layout.blocks_count);
        let budget = Budget::new(BUDGET);
        let buffers = BufferCache::new(device.clone(), found.layout.block_size, budget);
        Ok(Self {
            device,
            buffers,
            superblock: found.superblock,
            layout: found.layout,
            superblock_at: found.at,
            backup: found.backup,
            notes,
            lacks_log: false,
            allowance,
        })
    }
}

fn none(place: &str) -> Error {
    Error::Option(format!(
        "no sound superblock is in {place}: `mke2fs -n` lists the places of backups, and without \
         this option one is looked for"
    ))
}

/// The first superblock; a backup; the first one although its checksum is wrong; a backup anywhere.
fn best(device: &dyn BlockDevice, notes: &mut Vec<String>) -> Result<Candidate> {
    let first = primary(device)?;
    let why = match first {
        Ok(found) => return Ok(own_or_backup(device, found, notes)),
        Err(why) => why,
    };
    let bytes = read(device, superblock::OFFSET)?;
    if let Some(found) = unmarked(device, &bytes) {
        notes.push(format!("the superblock is damaged ({why}): its magic number is set"));
        return Ok(found);
    }
    let unsealed = Superblock::decode_unsealed(&bytes);
    let layout = unsealed.as_ref().and_then(|found| Layout::new(found, ANY_SIZE).ok());
    let unsealed = unsealed.zip(layout);
    // What was left of an older volume is not as good as what is damaged.
    let is_older = |found: &Found| {
        unsealed.as_ref().is_some_and(|(first, _)| {
            first.uuid() != found.superblock.uuid() && first.made() > found.superblock.made()
        })
    };
    let found = backups::all(device, &bytes, ANY_SIZE).into_iter().next();
    if let Some(found) = found.filter(|found| !is_older(found)) {
        notes.push(instead(&found, &why));
        return Ok(found.into());
    }
    if let Some((superblock, layout)) = unsealed {
        notes.push(format!("the superblock is damaged ({why}), and there is no backup"));
        return Ok(Candidate { superblock, layout, at: superblock::OFFSET, backup: None });
    }
    let Some(found) = backups::farther(device, ANY_SIZE) else { return Err(why.into()) };
    notes.push(instead(&found, &why));
    Ok(found.into())
}

/// Names a backup that is used for the first superblock, and its place if nobody would look there.
fn instead(found: &Found, why: &Corrupt) -> String {
    let (group, at) = (found.place.group, found.place.offset());
    let at = if found.is_usual { String::new() } else { format!(", at byte {at},") };
    format!("the first superblock is damaged ({why}): that of group {group}{at} is used")
}

/// The first superblock; or a backup of another volume, if that leads to a root, and nothing shows
/// that the first one is of this volume; or a backup of this volume, if the root is where that
/// says, and not where the first one does.
fn own_or_backup(device: &dyn BlockDevice, found: Candidate, notes: &mut Vec<String>) -> Candidate {
    if first_descriptor(device, &found).is_some() {
        return right_field(device, &found, notes).unwrap_or(found);
    }
    let uuid = found.superblock.uuid();
    let backups = backups(device, |_| true);
    let is_own = backups.iter().any(|backup| backup.superblock.uuid() == uuid);
    let other = backups.into_iter().find(|backup| !is_own && leads_to_root(device, backup));
    let Some(other) = other else { return found };
    let group = other.backup.unwrap_or_default();
    notes.push(format!(
        "the first superblock does not belong to this volume: that of group {group} is used"
    ));
    other
}

/// A backup of this volume that contradicts the first superblock, if the first descriptors lead to
/// the root by it, and do not otherwise.
fn right_field(
    device: &dyn BlockDevice,
    first: &Candidate,
    notes: &mut Vec<String>,
) -> Option<Candidate> {
    if leads_to_root(device, first) {
        return None;
    }
    let is_right = |other: &Candidate| {
        let (superblock, layout) = (other.superblock.clone(), other.layout);
        let read = Candidate { superblock, layout, at: first.at, backup: None };
        other.superblock.uuid() == first.superblock.uuid() && leads_to_root(device, &read)
    };
    let other = backups(device, |_| true).into_iter().find(is_right)?;
    let group = other.backup.unwrap_or_default();
    notes.push(format!(
        "a field of the first superblock is wrong, so that there is no root: that of group {group} \
         is used"
    ));
    Some(other)
}

fn primary(device: &dyn BlockDevice) -> Result<std::result::Result<Candidate, Corrupt>> {
    Ok(decode(&read(device, superblock::OFFSET)?))
}

fn decode(bytes: &[u8]) -> std::result::Result<Candidate, Corrupt> {
    let superblock = Superblock::decode(bytes)?;
    let layout = Layout::new(&superblock, ANY_SIZE)?;
    Ok(Candidate { superblock, layout, at: superblock::OFFSET, backup: None })
}

/// The first superblock, if it has no magic number, and its checksum is right with it, or it leads
/// to a root.
fn unmarked(device: &dyn BlockDevice, bytes: &[u8]) -> Option<Candidate> {
    let found = decode(&superblock::with_magic(bytes)?).ok()?;
    (found.superblock.is_sealed() || leads_to_root(device, &found)).then_some(found)
}

/// The first sound backup in such a place, of the volume that was made last.
fn named(
    device: &dyn BlockDevice,
    is_asked: impl Fn(&BackupLocation) -> bool,
) -> Option<Candidate> {
    backups(device, is_asked).into_iter().next()
}

/// The sound backups in such places; the one to take comes first.
fn backups(device: &dyn BlockDevice, is_asked: impl Fn(&BackupLocation) -> bool) -> Vec<Candidate> {
    let first = read(device, superblock::OFFSET).unwrap_or_default();
    let found = backups::all(device, &first, ANY_SIZE).into_iter();
    found.filter(|found| is_asked(&found.place)).map(Candidate::from).collect()
}

/// The first descriptor, if it is sound.
fn first_descriptor(device: &dyn BlockDevice, found: &Candidate) -> Option<GroupDesc> {
    backups::descriptor(device, &found.layout, 0, found.backup)
}

/// Does the superblock lead to a sound root?
fn leads_to_root(device: &dyn BlockDevice, found: &Candidate) -> bool {
    backups::leads_to_root(device, &found.layout, found.backup)
}

/// The backup in a block, whose size the backup itself says.
fn in_block(device: &dyn BlockDevice, block: u64) -> Option<Candidate> {
    let mut offsets = (0..=MOST_LOG).map(|log| block.saturating_mul(1024_u64.wrapping_shl(log)));
    offsets.find_map(|at| backups::described(device, at, ANY_SIZE)).map(Candidate::from)
}

/// Is there a backup of a superblock in an unusual place? Reads up to 4 GiB.
pub(crate) fn has_unusual(device: &dyn BlockDevice) -> bool {
    backups::anywhere(device, ANY_SIZE).is_some()
}

/// The 1024 bytes of a superblock; fewer at the end of the device.
fn read(device: &dyn BlockDevice, offset: u64) -> Result<Vec<u8>> {
    let left = device.geometry().size.saturating_sub(offset);
    let len = usize::try_from(left).map_or(superblock::SIZE, |left| left.min(superblock::SIZE));
    if len == 0 {
        return Ok(Vec::new());
    }
    Ok(device.read_bytes(offset, len)?.to_vec())
}
