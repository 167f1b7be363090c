//! What is intact of a log that cannot be replayed, on the volume.
//!
//! Where a block of the log is lost that says what others are, there are two ways: all that is
//! intact, or only what lies before it. The first has newer contents, but the parts that are lost
//! may leave a directory with names of nothing. If they do, both are examined, and the one that
//! keeps more files is taken.
//!
//! A doubtful copy ([`Remains`]) is not written over what is a file's data by now, unless the
//! volume logs that, too.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::{Ino, Pba};
use cairn_block::BlockDevice;
use cairn_block::wrap::Overlay;
use cairn_cache::block::Image;
use cairn_check::repair::Step;
use cairn_check::{Findings, Observer, Place, Report, Severity};
use cairn_jbd2::{Images, JournalArea, Remains};

use super::super::examine::examine;
use super::super::kinds;
use super::super::log::{self, Refused};
use crate::checksum::InodeSeed;
use crate::error::Result;
use crate::format::dir_entry::{DirFormat, entries};
use crate::format::extent::MAGIC as EXTENT_MAGIC;
use crate::format::features::{Compat, Incompat};
use crate::format::inode::InodeFlags;
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;
use crate::format::xattr::MAGIC as XATTR_MAGIC;
use crate::probe;
use crate::raw::map::{Extents, walk};
use crate::raw::{RawVolume, SuperblockChoice};

/// `s_default_mount_opts`: all data is logged.
const JMODE: u32 = 0x60;
const JMODE_DATA: u32 = 0x20;

/// What else an examination needs.
pub(super) struct Context<'a> {
    pub(super) device: &'a Arc<dyn BlockDevice>,
    pub(super) layout: &'a Layout,
    pub(super) runtime: &'a Arc<dyn Runtime>,
    pub(super) observer: &'a Arc<dyn Observer>,
}

/// Writes what is intact of a log to the volume, and empties the log. Returns the step.
///
/// # Errors
/// The device failed.
pub(super) fn apply(context: &Context<'_>, area: &JournalArea, refused: &Refused) -> Result<Step> {
    let Context { device, layout, .. } = context;
    let remains = &refused.remains;
    let step = Step::new(&kinds::JOURNAL_REPLAY, Place::field("s_feature_incompat"))
        .losing(*b"", loss(remains, layout.features.compat(Compat::FAST_COMMIT)));
    let is_of_fast_commits = remains.is_whole() && remains.corrected.is_empty();
    if is_of_fast_commits && log::replay_prefix(area, device, layout, context.runtime)? {
        cairn_jbd2::forget_error(area)?;
        return Ok(step);
    }
    let mut images = sure(context, remains)?;
    if !remains.unknown.is_empty() {
        let (all, lost) = kept(context, area, &images)?;
        // A newer state with fewer files that lacks nothing is right: files may have been removed.
        if lost > 0 {
            let before = cairn_jbd2::salvage_in_memory(area)?;
            if kept(context, area, &before)?.0 > all {
                images = before;
            }
        }
    }
    log::write(&***device, layout, &images)?;
    cairn_jbd2::mark_empty(area, remains.next)?;
    Ok(step)
}

fn loss(remains: &Remains, has_fast_commits: bool) -> String {
    match (remains.is_whole(), has_fast_commits) {
        (true, true) => "the last changes, made by fast commits".into(),
        (true, false) => "what the log would change where the volume has no blocks".into(),
        (false, _) => {
            let (lost, unknown) = (remains.lost.len(), remains.unknown.len());
            let behind = match has_fast_commits {
                true => ", and all changes that fast commits made behind it",
                false => "",
            };
            format!(
                "the last contents of {lost} blocks of the volume, \
                 and what {unknown} blocks of the journal held{behind}"
            )
        }
    }
}

/// The files that a volume with these blocks keeps, and what it loses.
fn kept(context: &Context<'_>, area: &JournalArea, images: &Images) -> Result<(u64, u64)> {
    let overlay: Arc<dyn BlockDevice> = Arc::new(Overlay::new(context.device.clone())?);
    log::write(&*overlay, context.layout, images)?;
    let area = JournalArea { device: overlay.clone(), ..area.clone() };
    cairn_jbd2::mark_empty(&area, cairn_base::Tid(1))?;
    let examined = examine(overlay, context.runtime, context.observer, Findings::new, false);
    Ok(examined.map_or((0, u64::MAX), |examined| named(&examined.report)))
}

/// Files without those that a repair cuts, removes, or moves to lost+found, and how many these are.
fn named(report: &Report) -> (u64, u64) {
    let is_loss = |kind: &cairn_check::Kind| {
        kind.severity == Severity::Losing || kind.code == kinds::INODE_UNREACHABLE.code
    };
    let lost = report.counts.iter().filter(|(kind, _)| is_loss(kind));
    let lost = lost.map(|(_, count)| count).sum();
    (report.usage.files.saturating_sub(lost), lost)
}

/// The copies without those that may be of blocks that hold a file's data by now.
fn sure(context: &Context<'_>, remains: &Remains) -> Result<Images> {
    let mut images = remains.images.clone();
    if remains.doubtful.is_empty() {
        return Ok(images);
    }
    let overlay: Arc<dyn BlockDevice> = Arc::new(Overlay::new(context.device.clone())?);
    log::write(&*overlay, context.layout, &images)?;
    let Some(found) = probe::probe(&*overlay)? else { return Ok(images) };
    let Ok(volume) = RawVolume::open(overlay, SuperblockChoice::Best) else { return Ok(images) };
    let of_files = data(&volume, &images);
    let is_logged =
        logs_data(&found.superblock) || of_files.iter().any(|pba| !remains.doubtful.contains(pba));
    for pba in of_files.iter().filter(|pba| remains.doubtful.contains(pba)) {
        if !is_logged || images.get(pba).is_some_and(|image| is_metadata(image, &volume)) {
            images.remove(pba);
        }
    }
    Ok(images)
}

fn logs_data(superblock: &Superblock) -> bool {
    superblock.raw.s_default_mount_opts.get() & JMODE == JMODE_DATA
}

/// Is the copy a block of a directory, a map or attributes, as far as its bytes tell?
fn is_metadata(image: &Image, volume: &RawVolume) -> bool {
    let format = DirFormat {
        block_size: image.len(),
        filetype: false,
        seed: InodeSeed(None),
        inodes_count: volume.layout.inodes_count,
    };
    let is_map = image.first_chunk() == Some(&EXTENT_MAGIC.to_le_bytes());
    let is_attributes = image.first_chunk() == Some(&XATTR_MAGIC.to_le_bytes());
    is_map || is_attributes || entries(image, &format).all(|entry| entry.is_ok())
}

/// Those of the blocks that are data of files whose data is not logged.
fn data(volume: &RawVolume, images: &Images) -> Vec<Pba> {
    let mut blocks: Vec<u64> = images.keys().map(|pba| pba.get()).collect();
    blocks.sort_unstable();
    let mut found = Vec::new();
    let layout = &volume.layout;
    let has_values = layout.features.incompat(Incompat::EA_INODE);
    for number in u64::from(layout.first_ino)..=u64::from(layout.inodes_count) {
        let ino = Ino(number);
        let Some(record) = volume.record(ino).filter(|record| record.links > 0) else { continue };
        let is_value = has_values && record.flags.contains(InodeFlags::EA_INODE);
        let is_inline = record.flags.contains(InodeFlags::INLINE_DATA);
        let is_logged = record.flags.contains(InodeFlags::JOURNAL_DATA);
        if !record.is_regular() || is_value || is_inline || is_logged {
            continue;
        }
        let mut map = Extents::default();
        walk(volume, ino, &record, &mut map);
        for extent in &map.extents {
            let (from, end) = (extent.pba.get(), extent.pba.get().saturating_add(extent.len));
            let first = blocks.partition_point(|block| *block < from);
            let inside = blocks.iter().skip(first).take_while(|block| **block < end);
            found.extend(inside.map(|block| Pba(*block)));
        }
    }
    found
}
