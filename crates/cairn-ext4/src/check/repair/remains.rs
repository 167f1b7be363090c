//! What is intact of a log that cannot be replayed, on the volume.
//!
//! Where a block of the log is lost that says what others are, there are two ways: all that is
//! intact, or only what lies before it. The first has newer contents, but the parts that are lost
//! may leave a directory with names of nothing. If they do, both are examined, and the one that
//! keeps more files is taken.
//!
//! Fast commits follow the last transaction. What that lacks need not concern them: they are
//! applied if they fit, and if no file is lost by them.
//!
//! A doubtful copy ([`Remains`]) is not written over what is a file's data by now, unless the
//! volume logs that, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::{Ino, Pba};
use cairn_block::BlockDevice;
use cairn_block::wrap::Overlay;
use cairn_cache::block::Image;
use cairn_check::repair::Step;
use cairn_check::{Findings, Observer, Place, Report, Severity};
use cairn_jbd2::fast_commit::{FastCommit, Operation};
use cairn_jbd2::{Images, JournalArea, Remains};

use super::super::examine::examine;
use super::super::kinds;
use super::super::log::{self, Refused};
use crate::checksum::InodeSeed;
use crate::error::Result;
use crate::format::dir_entry::{DirFormat, entries};
use crate::format::extent::MAGIC as EXTENT_MAGIC;
use crate::format::features::Incompat;
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

/// Inodes that the text of a loss names.
const MOST_SHOWN: usize = 100;

/// What else an examination needs.
pub(super) struct Context<'a> {
    pub(super) device: &'a Arc<dyn BlockDevice>,
    pub(super) layout: &'a Layout,
    pub(super) runtime: &'a Arc<dyn Runtime>,
    pub(super) observer: &'a Arc<dyn Observer>,
}

/// Writes what is intact of a log to the volume, with the fast commits behind it, and empties the
/// log. Returns the step.
///
/// # Errors
/// The device failed.
pub(super) fn apply(context: &Context<'_>, area: &JournalArea, refused: &Refused) -> Result<Step> {
    let Context { device, layout, .. } = context;
    let remains = &refused.remains;
    if let Some(doubt) = &refused.doubt {
        // The volume stays as it is: so does Linux leave it.
        cairn_jbd2::mark_empty(area, doubt.next)?;
        let mut lost = "what the log holds, if it is newer than the volume".to_owned();
        if !doubt.inodes.is_empty() {
            let inodes = doubt.inodes.iter().map(|ino| (*ino, None)).collect();
            lost = format!("{lost}, of the inodes {}", shown(&inodes));
        }
        return Ok(replay_step(lost));
    }
    let (commits, is_damaged) =
        cairn_jbd2::fast_commits_of(area, remains.end).unwrap_or((Vec::new(), true));
    let mut lost = Lost { is_damaged, ..Lost::new(remains, layout) };
    let is_of_fast_commits = remains.is_whole() && remains.corrected.is_empty();
    if is_of_fast_commits && log::replay_prefix(area, device, layout, context.runtime)? {
        cairn_jbd2::forget_error(area)?;
        return Ok(lost.step());
    }
    let mut images = sure(context, remains)?;
    let mut is_newest = true;
    if !remains.unknown.is_empty() {
        let (all, lost) = kept(context, area, &images)?;
        // A newer state with fewer files that lacks nothing is right: files may have been removed.
        if lost > 0 {
            let before = cairn_jbd2::salvage_in_memory(area)?;
            if kept(context, area, &before)?.0 > all {
                (images, is_newest) = (before, false);
            }
        }
    }
    log::write(&***device, layout, &images)?;
    cairn_jbd2::mark_empty(area, remains.next)?;
    // They follow the newest state.
    let is_followed = is_newest && (commits.is_empty() || follow(context, area, &commits)?);
    if !is_followed {
        lost.dropped = commits;
    }
    Ok(lost.step())
}

fn replay_step(lost: String) -> Step {
    let place = Place::field("s_feature_incompat");
    Step::new(&kinds::JOURNAL_REPLAY, place).losing(*b"", lost)
}

/// What is lost of a log.
#[derive(Default)]
struct Lost {
    /// Blocks of the volume, and of the journal.
    blocks: usize,
    unknown: usize,
    /// The log has blocks that the volume does not have.
    is_beyond: bool,
    /// Fast commits that are whole, and that the volume does not get.
    dropped: Vec<FastCommit>,
    /// One of the fast commits is damaged.
    is_damaged: bool,
}

impl Lost {
    fn new(remains: &Remains, layout: &Layout) -> Self {
        Self {
            blocks: remains.lost.len(),
            unknown: remains.unknown.len(),
            is_beyond: remains.images.keys().any(|pba| !layout.contains(*pba, 1)),
            ..Self::default()
        }
    }

    fn step(&self) -> Step {
        replay_step(self.text())
    }

    fn text(&self) -> String {
        let mut parts = Vec::new();
        if self.blocks > 0 {
            parts.push(format!("the last contents of {} blocks of the volume", self.blocks));
        }
        if self.unknown > 0 {
            parts.push(format!("what {} blocks of the journal held", self.unknown));
        }
        if self.is_beyond {
            parts.push("what the log would change where the volume has no blocks".into());
        }
        if !self.dropped.is_empty() {
            parts.push(of_fast_commits(&self.dropped));
        }
        if self.is_damaged {
            parts.push("the last changes, made by fast commits".into());
        }
        if parts.is_empty() {
            // A commit block, or what one wrong bit was.
            parts.push("nothing that is known of".into());
        }
        parts.join(", and ")
    }
}

/// What fast commits would have changed: inodes, with names that they would have got.
fn of_fast_commits(commits: &[FastCommit]) -> String {
    let mut inodes: BTreeMap<Ino, Option<String>> = BTreeMap::new();
    for operation in commits.iter().flat_map(|commit| &commit.operations) {
        let (ino, name) = match operation {
            Operation::AddRange { ino, .. }
            | Operation::DeleteRange { ino, .. }
            | Operation::Inode { ino, .. } => (*ino, None),
            Operation::Create(name) | Operation::Link(name) | Operation::Unlink(name) => {
                (name.ino, Some(name.name.escape_ascii().to_string()))
            }
        };
        let known = inodes.entry(ino).or_default();
        if known.is_none() {
            *known = name;
        }
    }
    let count = commits.len();
    format!("the changes of {count} fast commits, to the inodes {}", shown(&inodes))
}

/// Inodes, with the names that are known.
fn shown(inodes: &BTreeMap<Ino, Option<String>>) -> String {
    let shown = inodes.iter().take(MOST_SHOWN).map(|(ino, name)| match name {
        Some(name) => format!("{ino} ({name})"),
        None => ino.to_string(),
    });
    let shown: Vec<String> = shown.collect();
    let more = match inodes.len().saturating_sub(MOST_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", shown.join(", "))
}

/// Applies the fast commits behind a log that has lost something, if they fit what is left: no file
/// gets lost by them. False if they do not.
fn follow(context: &Context<'_>, area: &JournalArea, commits: &[FastCommit]) -> Result<bool> {
    let Context { device, layout, runtime, .. } = *context;
    let (without, _) = kept(context, area, &Images::new())?;
    let trial: Arc<dyn BlockDevice> = Arc::new(Overlay::new(device.clone())?);
    let on_trial = JournalArea { device: trial.clone(), ..area.clone() };
    if !log::apply_fast_commits(&on_trial, &trial, layout, runtime, commits)? {
        return Ok(false);
    }
    let (with, _) = kept(&Context { device: &trial, ..*context }, &on_trial, &Images::new())?;
    if with < without {
        return Ok(false);
    }
    log::apply_fast_commits(area, device, layout, runtime, commits)
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
