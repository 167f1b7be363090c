//! Listing a directory from a position that outlives changes.
//!
//! With dir_index a position is a hash, for linear directories too, so that it survives the conversion to an index and
//! every split: 31 bits of the major hash, 28 of the minor one, 4 that number (by name) the names with equal hashes. 0
//! and 1 are `.` and `..`. The next position is one more than the entry's. Without dir_index names never move, and a
//! position is the byte offset behind the entry.
//!
//! Names are collected and sorted in batches, so the memory is bounded whatever the directory's size.
//!
//! Damage hides what is damaged and nothing else: a bad entry or block is passed by, and where the index does not lead on,
//! all blocks are read in turn, with the same positions. The first damage is the error of the call.

use std::collections::BTreeMap;

use cairn_base::checksum::crc32c;
use cairn_base::{FileBlock, Ino};
use cairn_vfs::{DirEntry, FileKind, Name, PastDamage};

use super::blocks::{DirBlocks, DirSettings, load_leaf, uses_index};
use super::hash::{LEGACY, LEGACY_UNSIGNED};
use super::index::{Path, read_root};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::dir_entry::{self, Entry};

/// Names that are sorted at a time.
const BATCH: usize = 4096;
/// Names after which an indexed directory's batch ends with the leaf.
const ENOUGH: usize = 128;
/// Bits that tell names of equal hashes apart.
const ORDINAL_BITS: u32 = 4;
const ORDINALS: usize = 1 << ORDINAL_BITS;
const MINOR_BITS: u32 = 28;
const FIRST_NAME: u64 = 2;

/// Entries from `position` on, `.` and `..` first, until `emit` returns false.
///
/// # Errors
/// If the directory is damaged or cannot be read; what can be listed has been given.
pub fn readdir(dir: &dyn DirBlocks, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
    let settings = dir.settings();
    let mut damage = Damage::default();
    let listed = match settings.dir_index {
        true => by_hash(dir, &settings, position, &mut damage, emit),
        false => by_offset(dir, &settings, position, &mut damage, emit),
    };
    damage.end(listed)
}

/// What a listing has passed by.
pub(super) type Damage = PastDamage<Error>;

fn by_hash(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    position: u64,
    damage: &mut Damage,
    emit: &mut dyn FnMut(DirEntry) -> bool,
) -> Result<()> {
    let kind = settings.format.filetype.then_some(FileKind::Directory);
    let goes_on = match damage.pass(super::dots(dir))? {
        Some(dots) => emit_dots(Ino(u64::from(dots.this)), Ino(u64::from(dots.parent)), kind, position, emit),
        None => position > 0 || emit(DirEntry { ino: settings.ino, kind, name: Name::DOT.to_buf(), next: 1 }),
    };
    if !goes_on {
        return Ok(());
    }
    let mut from = position.max(FIRST_NAME);
    loop {
        let mut batch = Batch::from(from);
        let next = collect(dir, settings, &mut batch, damage)?;
        let cut = batch.cut_at();
        if !batch.emit(emit) {
            return Ok(());
        }
        match cut.or(next) {
            Some(next) if next > from => from = next,
            Some(stuck) => return Err(stuck_at(settings, stuck).into()),
            None => return Ok(()),
        }
    }
}

/// Fills a batch; tells where the next one starts.
fn collect(dir: &dyn DirBlocks, settings: &DirSettings, batch: &mut Batch, damage: &mut Damage) -> Result<Option<u64>> {
    let mut version = settings.hash.default_version;
    if uses_index(dir, settings) {
        let collected = collect_indexed(dir, settings, batch, damage);
        if let Some(next) = damage.pass(collected)? {
            return Ok(next);
        }
        *batch = Batch::from(batch.from);
        // The positions stay what they were, if that can be known.
        let known = read_root(dir, settings).map(|(_, info)| info.hash_version);
        version = known.ok().filter(|version| settings.hash(*version, b"a").is_ok()).unwrap_or(version);
    }
    collect_linear(dir, settings, version, batch, damage)?;
    Ok(None)
}

fn stuck_at(settings: &DirSettings, position: u64) -> Corrupt {
    let what = "index does not lead on from this position";
    Corrupt::Directory { ino: settings.ino, block: FileBlock(0), offset: 0, what, value: position }
}

/// Gives `.` and `..` if the position is before them; false if `emit` has had enough.
pub(super) fn emit_dots(
    this: Ino,
    parent: Ino,
    kind: Option<FileKind>,
    position: u64,
    emit: &mut dyn FnMut(DirEntry) -> bool,
) -> bool {
    let dot = |ino, name: Name<'_>, next| DirEntry { ino, kind, name: name.to_buf(), next };
    (position > 0 || emit(dot(this, Name::DOT, 1))) && (position > 1 || emit(dot(parent, Name::DOT_DOT, FIRST_NAME)))
}

/// The position of a name, before names of equal hashes are numbered.
fn base_position(settings: &DirSettings, version: u8, name: &[u8]) -> Result<u64, Corrupt> {
    let hash = settings.hash(version, name)?;
    // The legacy hash has no minor part.
    let minor = if matches!(version, LEGACY | LEGACY_UNSIGNED) { crc32c(!0, name) } else { hash.minor };
    // Not the lowest value: 0 and 1 are taken; not the highest: a position must fit 63 bits.
    let minor = (minor >> (32 - MINOR_BITS)).clamp(1, (1 << MINOR_BITS) - 2);
    Ok(major_position(hash.major) | u64::from(minor) << ORDINAL_BITS)
}

/// The position before all names of this hash.
const fn major_position(major: u32) -> u64 {
    ((major >> 1) as u64) << 32
}

/// The major hash of a position.
fn position_major(position: u64) -> u32 {
    u32::try_from(position >> 32).unwrap_or(u32::MAX >> 1) << 1
}

/// The names with the smallest positions from one on.
pub(super) struct Batch {
    from: u64,
    names: BTreeMap<u64, Vec<DirEntry>>,
    count: usize,
    /// Positions from here on were dropped.
    cut: Option<u64>,
}

impl Batch {
    pub(super) fn from(from: u64) -> Self {
        Self { from, names: BTreeMap::new(), count: 0, cut: None }
    }

    fn cut_at(&self) -> Option<u64> {
        self.cut
    }

    /// Takes one live entry, if it belongs to the batch.
    pub(super) fn offer(
        &mut self,
        settings: &DirSettings,
        version: u8,
        (name, entry): &LiveEntry<'_>,
    ) -> Result<(), Corrupt> {
        let base = base_position(settings, version, name)?;
        if base | (ORDINALS as u64 - 1) < self.from || self.cut.is_some_and(|cut| base >= cut) {
            return Ok(());
        }
        let group = self.names.entry(base).or_default();
        let at = group.partition_point(|other| other.name.name() < *name);
        if at >= ORDINALS {
            return Ok(());
        }
        let ino = Ino(u64::from(entry.ino));
        group.insert(at, DirEntry { ino, kind: entry.kind(&settings.format), name: name.to_buf(), next: 0 });
        self.count += 1;
        if group.len() > ORDINALS {
            group.pop();
            self.count -= 1;
        }
        while self.count > BATCH && self.names.len() > 1 {
            let Some((base, group)) = self.names.pop_last() else { break };
            self.count -= group.len();
            self.cut = Some(base);
        }
        Ok(())
    }

    /// Gives the names in order; false if `emit` has had enough.
    pub(super) fn emit(self, emit: &mut dyn FnMut(DirEntry) -> bool) -> bool {
        for (base, group) in self.names {
            for (position, mut entry) in (base..).zip(group) {
                entry.next = position + 1;
                if position >= self.from && !emit(entry) {
                    return false;
                }
            }
        }
        true
    }
}

/// Offers all names of one block.
fn offer_block(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    block: FileBlock,
    version: u8,
    batch: &mut Batch,
    damage: &mut Damage,
) -> Result<()> {
    let Some(leaf) = damage.pass(load_leaf(dir, settings, block))? else { return Ok(()) };
    for entry in dir_entry::entries(&leaf.image, &settings.format) {
        let live =
            entry.map_err(|defect| settings.corrupt(block, defect)).and_then(|it| live_entry(settings, block, it));
        if let Some(listed) = damage.pass(live.map_err(Error::from))?.flatten() {
            batch.offer(settings, version, &listed)?;
        }
    }
    Ok(())
}

/// A live entry with its name.
pub(super) type LiveEntry<'a> = (Name<'a>, Entry<'a>);

/// The name of a live entry that is not a dot; an error for a name no program could use.
pub(super) fn live_entry<'a>(
    settings: &DirSettings,
    block: FileBlock,
    entry: Entry<'a>,
) -> Result<Option<LiveEntry<'a>>, Corrupt> {
    if entry.ino == 0 {
        return Ok(None);
    }
    let name = Name::check(entry.name).map_err(|bad| {
        let offset = u32::try_from(entry.offset).unwrap_or(u32::MAX);
        Corrupt::Directory { ino: settings.ino, block, offset, what: bad.what(), value: bad.value() }
    })?;
    Ok((!name.is_dots()).then_some((name, entry)))
}

fn collect_linear(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    version: u8,
    batch: &mut Batch,
    damage: &mut Damage,
) -> Result<()> {
    for block in 0..dir.count() {
        offer_block(dir, settings, FileBlock(block), version, batch, damage)?;
    }
    Ok(())
}

/// Collects a few leaves; tells where the next batch starts.
fn collect_indexed(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    batch: &mut Batch,
    damage: &mut Damage,
) -> Result<Option<u64>> {
    let root = read_root(dir, settings)?;
    let version = root.1.hash_version;
    let mut path = Path::to(dir, settings, root, position_major(batch.from))?;
    loop {
        offer_block(dir, settings, path.leaf, version, batch, damage)?;
        match path.next_hash(settings)? {
            None => return Ok(None),
            // A leaf that continues the one before belongs to the same batch: names are sorted across both.
            Some(hash) if hash & 1 == 0 && batch.count >= ENOUGH => return Ok(Some(major_position(hash))),
            Some(_) => {}
        }
        if !path.advance(dir, settings)? {
            return Ok(None);
        }
    }
}

fn by_offset(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    position: u64,
    damage: &mut Damage,
    emit: &mut dyn FnMut(DirEntry) -> bool,
) -> Result<()> {
    let block_size = settings.format.block_size as u64;
    for block in position / block_size..dir.count() {
        let start = block * block_size;
        let block = FileBlock(block);
        let Some(leaf) = damage.pass(load_leaf(dir, settings, block))? else { continue };
        for entry in dir_entry::entries(&leaf.image, &settings.format) {
            let entry = entry.map_err(|defect| settings.corrupt(block, defect).into());
            let Some(entry) = damage.pass(entry)? else { continue };
            let at = start + entry.offset as u64;
            if at < position || entry.ino == 0 {
                continue;
            }
            let dot = [Name::DOT, Name::DOT_DOT].into_iter().find(|dot| start == 0 && dot.bytes() == entry.name);
            let name = match dot {
                Some(dot) => dot,
                None => match damage.pass(live_entry(settings, block, entry).map_err(Error::from))?.flatten() {
                    Some((name, _)) => name,
                    None => continue,
                },
            };
            // The gap behind the name belongs to it, but a name may be put there: go on right behind the name.
            let next = at + entry.used() as u64;
            let ino = Ino(u64::from(entry.ino));
            if !emit(DirEntry { ino, kind: entry.kind(&settings.format), name: name.to_buf(), next }) {
                return Ok(());
            }
        }
    }
    Ok(())
}
