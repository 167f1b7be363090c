//! Lists a directory from a position that stays valid while the directory changes.
//!
//! With dir_index a position is a hash, for linear directories too, so that it survives the
//! conversion to an index and every split. It has 31 bits of the major hash, 28 bits of the minor
//! hash, and 4 bits that number (by name) the names with equal hashes. 0 and 1 are `.` and `..`.
//! The next position is the entry's plus one. Without dir_index names do not move, and a position
//! is the byte offset behind the entry.
//!
//! Names are collected and sorted in batches, so the memory is bounded for directories of any size.
//!
//! An invalid entry or block is skipped. Where the index is damaged, or a name is not in the leaf
//! of its hash, all blocks are read in order, with the same positions. The call returns the first
//! damage at its end.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use cairn_base::checksum::crc32c;
use cairn_base::units::{as_index, as_u64};
use cairn_base::{FileBlock, Ino};
use cairn_vfs::{DirEntry, FileKind, Name, PastDamage};

use super::blocks::{DirBlocks, DirSettings, load_leaf, uses_index};
use super::hash::{LEGACY, LEGACY_UNSIGNED, NameHash};
use super::index::{Path, read_root};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::dir_entry::{self, Entry};

/// Names that are sorted at a time.
const BATCH: usize = 4096;
/// After this many names the batch of an indexed directory ends with the leaf.
const ENOUGH: usize = 128;
/// Bits that number names with equal hashes.
const ORDINAL_BITS: u32 = 4;
const ORDINALS: usize = 1 << ORDINAL_BITS;
const ORDINAL_MASK: u64 = (1 << ORDINAL_BITS) - 1;
const MINOR_BITS: u32 = 28;
const FIRST_NAME: u64 = 2;
/// In a directory without an index, or whose index has other hashes, a name may be in any block.
const EVERY_HASH: RangeInclusive<u32> = 0..=u32::MAX;

/// Lists entries from `position` on, `.` and `..` first, until `emit` returns false.
///
/// # Errors
/// The directory is damaged or cannot be read; all readable entries have been passed to `emit`.
pub(crate) fn readdir(
    dir: &dyn DirBlocks,
    position: u64,
    emit: &mut dyn FnMut(DirEntry) -> bool,
) -> Result<()> {
    let settings = dir.settings();
    let mut damage = Damage::default();
    let listed = match settings.dir_index {
        true => by_hash(dir, &settings, position, &mut damage, emit),
        false => by_offset(dir, &settings, position, &mut damage, emit),
    };
    damage.end(listed)
}

/// The damage that a listing has skipped.
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
        Some(dots) => {
            emit_dots(Ino(u64::from(dots.this)), Ino(u64::from(dots.parent)), kind, position, emit)
        }
        None => {
            position > 0
                || emit(DirEntry { ino: settings.ino, kind, name: Name::DOT.to_buf(), next: 1 })
        }
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

/// Fills a batch. Returns the position of the next one.
fn collect(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    batch: &mut Batch,
    damage: &mut Damage,
) -> Result<Option<u64>> {
    let mut version = settings.hash.default_version;
    if uses_index(dir, settings) {
        let collected = match dir.folded() {
            true => collect_folded(dir, settings, batch, damage),
            false => collect_indexed(dir, settings, batch, damage),
        };
        if let Some(next) = damage.pass(collected)? {
            return Ok(next);
        }
        *batch = Batch::from(batch.from);
        // The positions stay the same if the root still tells the hash version.
        let known = read_root(dir, settings).map(|(_, info)| info.hash_version);
        version =
            known.ok().filter(|version| settings.hash(*version, b"a").is_ok()).unwrap_or(version);
    }
    collect_linear(dir, settings, version, batch, damage)?;
    Ok(None)
}

fn stuck_at(settings: &DirSettings, position: u64) -> Corrupt {
    let what = "index has no next leaf at this position";
    Corrupt::Directory { ino: settings.ino, block: FileBlock(0), offset: 0, what, value: position }
}

/// Lists `.` and `..` if the position is before them. False if `emit` returned false.
pub(super) fn emit_dots(
    this: Ino,
    parent: Ino,
    kind: Option<FileKind>,
    position: u64,
    emit: &mut dyn FnMut(DirEntry) -> bool,
) -> bool {
    let dot = |ino, name: Name<'_>, next| DirEntry { ino, kind, name: name.to_buf(), next };
    (position > 0 || emit(dot(this, Name::DOT, 1)))
        && (position > 1 || emit(dot(parent, Name::DOT_DOT, FIRST_NAME)))
}

/// The position of a name, before names with equal hashes are numbered.
fn base_position(version: u8, name: &[u8], hash: NameHash) -> u64 {
    // The legacy hash has no minor part.
    let minor =
        if matches!(version, LEGACY | LEGACY_UNSIGNED) { crc32c(!0, name) } else { hash.minor };
    // It is not the smallest value, because 0 and 1 are in use, and not the largest, because a
    // position has 63 bits.
    let minor = (minor >> (32 - MINOR_BITS)).clamp(1, (1 << MINOR_BITS) - 2);
    major_position(hash.major) | u64::from(minor) << ORDINAL_BITS
}

/// The position before all names of this hash.
const fn major_position(major: u32) -> u64 {
    as_u64(as_index(major >> 1)) << 32
}

/// The major hash of a position.
fn position_major(position: u64) -> u32 {
    u32::try_from(position >> 32).unwrap_or(u32::MAX >> 1) << 1
}

/// The names with the smallest positions from `from` on.
pub(super) struct Batch {
    from: u64,
    names: BTreeMap<u64, Vec<DirEntry>>,
    count: usize,
    /// Positions from this one on were dropped.
    cut: Option<u64>,
}

impl Batch {
    pub(super) fn from(from: u64) -> Self {
        Self { from, names: BTreeMap::new(), count: 0, cut: None }
    }

    fn cut_at(&self) -> Option<u64> {
        self.cut
    }

    /// Adds an entry, if it belongs to the batch. Its hash is `version`'s.
    pub(super) fn offer(
        &mut self,
        settings: &DirSettings,
        (version, hash): (u8, NameHash),
        (name, entry): &LiveEntry<'_>,
    ) {
        let base = base_position(version, name, hash);
        if base | ORDINAL_MASK < self.from || self.cut.is_some_and(|cut| base >= cut) {
            return;
        }
        let group = self.names.entry(base).or_default();
        let at = group.partition_point(|other| other.name.name() < *name);
        if at >= ORDINALS {
            return;
        }
        let ino = Ino(u64::from(entry.ino));
        group.insert(
            at,
            DirEntry { ino, kind: entry.kind(&settings.format), name: name.to_buf(), next: 0 },
        );
        self.count = self.count.strict_add(1);
        if group.len() > ORDINALS {
            group.pop();
            self.count = self.count.strict_sub(1);
        }
        while self.count > BATCH && self.names.len() > 1 {
            let Some((base, group)) = self.names.pop_last() else { break };
            self.count = self.count.strict_sub(group.len());
            self.cut = Some(base);
        }
    }

    /// Passes the names to `emit` in order. False if `emit` returned false.
    pub(super) fn emit(self, emit: &mut dyn FnMut(DirEntry) -> bool) -> bool {
        for (base, group) in self.names {
            for (position, mut entry) in (base..).zip(group) {
                entry.next = position.saturating_add(1);
                if position >= self.from && !emit(entry) {
                    return false;
                }
            }
        }
        true
    }
}

/// Offers all names of a block. Fails if a name does not have one of the `hashes`.
fn offer_block(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    block: FileBlock,
    (version, hashes): (u8, &RangeInclusive<u32>),
    batch: &mut Batch,
    damage: &mut Damage,
) -> Result<()> {
    let Some(leaf) = damage.pass(load_leaf(dir, settings, block))? else { return Ok(()) };
    for entry in dir_entry::entries(&leaf.image, &settings.format) {
        let live = entry
            .map_err(|defect| settings.corrupt(block, defect))
            .and_then(|it| live_entry(settings, block, it));
        if let Some(listed) = damage.pass(live.map_err(Error::from))?.flatten() {
            let hash = settings.hash(version, listed.0.bytes())?;
            if !hashes.contains(&hash.major) {
                return Err(settings.misplaced(block, listed.1.offset, hash).into());
            }
            batch.offer(settings, (version, hash), &listed);
        }
    }
    Ok(())
}

/// An entry in use, with its name.
pub(super) type LiveEntry<'a> = (Name<'a>, Entry<'a>);

/// The name of an entry, unless it is `.` or `..`. Fails if the name is invalid.
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
        Corrupt::Directory {
            ino: settings.ino,
            block,
            offset,
            what: bad.what(),
            value: bad.value(),
        }
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
        offer_block(dir, settings, FileBlock(block), (version, &EVERY_HASH), batch, damage)?;
    }
    Ok(())
}

/// Collects some leaves. Returns the position of the next batch.
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
        let hashes = path.hashes(settings)?;
        offer_block(dir, settings, path.leaf, (version, &hashes), batch, damage)?;
        match path.next_hash(settings)? {
            None => return Ok(None),
            // A leaf that continues the one before belongs to the same batch, because names are
            // sorted across both.
            Some(hash) if hash & 1 == 0 && batch.count >= ENOUGH => {
                return Ok(Some(major_position(hash)));
            }
            Some(_) => {}
        }
        if !path.advance(dir, settings)? {
            return Ok(None);
        }
    }
}

/// Collects all leaves. The hashes in the index are those of folded names.
fn collect_folded(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    batch: &mut Batch,
    damage: &mut Damage,
) -> Result<Option<u64>> {
    let version = settings.hash.default_version;
    let mut path = Path::to(dir, settings, read_root(dir, settings)?, 0)?;
    loop {
        offer_block(dir, settings, path.leaf, (version, &EVERY_HASH), batch, damage)?;
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
    let block_size = as_u64(settings.format.block_size);
    if position == 0 {
        damage.pass(super::dots(dir))?;
    }
    for block in position.strict_div(block_size)..dir.count() {
        let start = block.saturating_mul(block_size);
        let block = FileBlock(block);
        let Some(leaf) = damage.pass(load_leaf(dir, settings, block))? else { continue };
        for entry in dir_entry::entries(&leaf.image, &settings.format) {
            let entry = entry.map_err(|defect| settings.corrupt(block, defect).into());
            let Some(entry) = damage.pass(entry)? else { continue };
            let at = start.saturating_add(as_u64(entry.offset));
            if at < position || entry.ino == 0 {
                continue;
            }
            let dot = [Name::DOT, Name::DOT_DOT]
                .into_iter()
                .find(|dot| start == 0 && dot.bytes() == entry.name);
            let name = match dot {
                Some(dot) => dot,
                None => match damage
                    .pass(live_entry(settings, block, entry).map_err(Error::from))?
                    .flatten()
                {
                    Some((name, _)) => name,
                    None => continue,
                },
            };
            // A name may be inserted into the gap behind this one, so the next position is right
            // behind the name.
            let next = at.saturating_add(as_u64(entry.used()));
            let ino = Ino(u64::from(entry.ino));
            if !emit(DirEntry {
                ino,
                kind: entry.kind(&settings.format),
                name: name.to_buf(),
                next,
            }) {
                return Ok(());
            }
        }
    }
    Ok(())
}
