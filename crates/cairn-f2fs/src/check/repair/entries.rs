//! The entries of a block of a directory: each is made right where it is, moved, or removed.

use std::collections::{BTreeMap, BTreeSet};

use cairn_check::{Finding, Kind, Place, Value};
use cairn_vfs::{FileKind, Name};

use super::super::kinds;
use super::super::nodes::NodeState;
use super::edit::{Edit, ino_of};
use super::names::Found;
use super::turned::lacks_name;
use crate::error::Result;
use crate::form::names::Names;
use crate::format::dentry::{
    Dentries, DentriesMut, Dentry, MAX_DEPTH, is_in_bucket, level_blocks, slots_for,
};
use crate::format::inode::InlineFlags;
use crate::format::units::Nid;

/// Most names whose wrong byte is searched for, with up to 65,000 hashes each.
const MAX_SEARCHED: u32 = 1000;
/// Values of `i_dir_level`.
const MAX_LEVEL: u8 = 64;

/// An entry in memory.
#[derive(Clone, Debug)]
struct Entry {
    slot: usize,
    ino: Nid,
    kind: FileKind,
    name: Vec<u8>,
    hash: u32,
}

/// Inodes that lack names.
pub(super) struct Unnamed {
    /// Those without a name, by the parent and the name that they record.
    by_name: BTreeMap<(Nid, Vec<u8>), Nid>,
    /// There are some, or inodes with fewer names than they count.
    is_any: bool,
}

/// What is wrong with directories, by block.
#[derive(Default)]
pub(super) struct Wrong<'f> {
    blocks: BTreeMap<(Nid, u64), Vec<&'f Finding>>,
    /// Entries that are there twice: the slots of the second ones.
    twice: BTreeSet<(Nid, u64, usize)>,
}

impl Edit<'_> {
    /// Mends blocks of directories. False if nothing could be mended.
    pub(super) fn mend_entries(&mut self, findings: &[Finding]) -> Result<bool> {
        if self.mend_depths(findings)? {
            return Ok(true);
        }
        let mut wrong = self.wrong_blocks(findings)?;
        let unnamed = self.unnamed(findings)?;
        let twice = std::mem::take(&mut wrong.twice);
        let mut changed = false;
        for ((dir, block), found) in wrong.blocks {
            let slots = twice.range((dir, block, 0)..=(dir, block, usize::MAX));
            let slots = slots.map(|(_, _, slot)| *slot).collect();
            if let Some(lost) = self.mend_block((dir, block), slots, &unnamed)? {
                changed = true;
                found.into_iter().for_each(|finding| self.note(finding, lost));
            }
        }
        Ok(changed)
    }

    /// Sets the number of levels of directories that have blocks on further ones.
    fn mend_depths(&mut self, findings: &[Finding]) -> Result<bool> {
        let mut dirs = BTreeMap::new();
        let bucket = kinds::DIRECTORY_BUCKET.code;
        for finding in findings.iter().filter(|found| found.kind.code == bucket) {
            dirs.extend(ino_of(&finding.place).map(|dir| (dir, finding)));
        }
        let mut changed = false;
        for (dir, finding) in dirs {
            if self.mend_level(dir)? {
                self.mended(finding);
                changed = true;
            }
            let Some((record, _)) = self.inode(dir)? else { continue };
            let Some(last) = self.dir_blocks(dir)?.into_iter().max() else { continue };
            let (mut depth, mut end) = (0, 0_u64);
            while end <= last && depth < MAX_DEPTH {
                end = end.saturating_add(level_blocks(depth, record.dir_level));
                depth = depth.saturating_add(1);
            }
            if record.current_depth < depth {
                self.change(dir, |record| record.current_depth = depth)?;
                self.mended(finding);
                changed = true;
            }
        }
        Ok(changed)
    }

    /// Sets the number of buckets of a directory's first level (`i_dir_level`), if all names are
    /// where searches look for them with another one, and only then.
    fn mend_level(&mut self, dir: Nid) -> Result<bool> {
        let Some((record, _)) = self.inode(dir)? else { return Ok(false) };
        let stored = Names::of(&record, self.layout.features);
        let mut names = Vec::new();
        for block in self.dir_blocks(dir)? {
            let bytes = self.dir_block(dir, block)?.unwrap_or_default();
            let entries = Dentries::new(&bytes);
            let entries = entries.iter().flatten();
            let entries = entries.filter(|entry| !matches!(entry.name, b"." | b".."));
            let hash = |entry: &Dentry<'_>| stored.hash(entry.name).unwrap_or(entry.hash);
            names.extend(entries.map(|entry| (block, hash(&entry))));
        }
        let fits = |level: u8| {
            names.iter().all(|(block, hash)| is_in_bucket((MAX_DEPTH, level), *block, *hash))
        };
        if names.is_empty() || fits(record.dir_level) {
            return Ok(false);
        }
        let Some(level) = (0..MAX_LEVEL).find(|level| fits(*level)) else { return Ok(false) };
        self.change(dir, |record| record.dir_level = level)
    }

    /// Notes a finding about a block that has lost so many names.
    fn note(&mut self, finding: &Finding, lost: usize) {
        let lossless = [
            &kinds::DIRECTORY_HASH,
            &kinds::DIRECTORY_BUCKET,
            &kinds::DIRECTORY_DOTS,
            &kinds::DIRECTORY_TYPE,
        ];
        if lost == 0 || lossless.iter().any(|kind| kind.code == finding.kind.code) {
            return self.mended(finding);
        }
        let dir = ino_of(&finding.place).unwrap_or_default();
        let what = match &finding.place.name {
            Some(name) => format!("the name {}", String::from_utf8_lossy(name)),
            None => "a name".to_owned(),
        };
        self.lost((finding.kind, finding.place.clone()), dir, &what);
    }

    /// The blocks that findings are about, as far as they may be mended.
    fn wrong_blocks<'f>(&self, findings: &'f [Finding]) -> Result<Wrong<'f>> {
        let mut wrong = Wrong::default();
        let mut elsewhere: BTreeMap<Nid, &Finding> = BTreeMap::new();
        let mut linked = BTreeSet::new();
        // Blocks that are missing show that names may be lost with them.
        let keeps_dots = !self.may_lose() && self.context.last_names.has_lost();
        for finding in findings.iter().filter(|found| is_of_entry(found)) {
            let Some(ino) = ino_of(&finding.place) else { continue };
            let code = finding.kind.code;
            let is_kept = keeps_dots && code == kinds::DIRECTORY_DOTS.code;
            if is_kept || !self.scope.allows(finding.kind) {
                continue;
            }
            if code == kinds::DIRECTORY_LINKED.code {
                linked.insert(ino);
                elsewhere.insert(ino, finding);
                continue;
            }
            if code == kinds::DIRECTORY_TYPE.code && finding.place.file_block.is_none() {
                elsewhere.insert(ino, finding);
                continue;
            }
            let block = finding.place.file_block.unwrap_or(0);
            wrong.blocks.entry((ino, block)).or_default().push(finding);
            if let (true, Some(Value::Text(text))) =
                (code == kinds::DIRECTORY_DUPLICATE.code, &finding.stored)
            {
                let slot = text.strip_prefix("slot ").and_then(|slot| slot.parse().ok());
                wrong.twice.extend(slot.map(|slot| (ino, block, slot)));
            }
        }
        let wanted = elsewhere.keys().copied().collect();
        let names = self.find_names(&wanted)?;
        let mut kept = BTreeSet::new();
        for ino in &linked {
            kept.extend(
                self.right_name(*ino, &names)?.map(|found| (found.dir, found.block, found.slot)),
            );
        }
        for found in names {
            let place = (found.dir, found.block, found.slot);
            let finding = elsewhere.get(&found.ino).copied();
            wrong.blocks.entry((found.dir, found.block)).or_default().extend(finding);
            if linked.contains(&found.ino) && !kept.contains(&place) {
                wrong.twice.insert(place);
            }
        }
        Ok(wrong)
    }

    /// Of the names of a directory, the one that it records, or else the first one. The root has
    /// none.
    fn right_name(&self, ino: Nid, names: &[Found]) -> Result<Option<Found>> {
        if ino == Nid::ROOT {
            return Ok(None);
        }
        let mine = || names.iter().filter(|found| found.ino == ino);
        if let Some((parent, name)) = self.recorded(ino)? {
            for found in mine().filter(|found| found.dir == parent) {
                let bytes = self.dir_block(found.dir, found.block)?.unwrap_or_default();
                if Dentries::new(&bytes)
                    .next(found.slot)
                    .is_some_and(|entry| entry.is_ok_and(|entry| entry.name == name))
                {
                    return Ok(Some(*found));
                }
            }
        }
        Ok(mine().next().copied())
    }

    fn unnamed(&self, findings: &[Finding]) -> Result<Unnamed> {
        let mut by_name = BTreeMap::new();
        let kind = kinds::INODE_UNREACHABLE.code;
        for finding in findings.iter().filter(|found| found.kind.code == kind) {
            let Some(ino) = ino_of(&finding.place) else { continue };
            if let Some(recorded) = self.recorded(ino)? {
                by_name.insert(recorded, ino);
            }
        }
        Ok(Unnamed { by_name, is_any: findings.iter().any(lacks_name) })
    }

    /// Makes a block right. Returns how many names are lost; `None` if it stays as it is, because
    /// nothing may be lost, or there is no such block.
    fn mend_block(
        &mut self,
        (dir, block): (Nid, u64),
        twice: BTreeSet<usize>,
        unnamed: &Unnamed,
    ) -> Result<Option<usize>> {
        let Some(bytes) = self.dir_block(dir, block)? else {
            let is_made = block == 0 && self.make_first_block(dir)?;
            return Ok(is_made.then_some(0));
        };
        let bytes = self.with_lengths(dir, bytes)?;
        let mut entries = Vec::new();
        let mut lost = 0_usize;
        for entry in Dentries::new(&bytes).iter() {
            match entry {
                Ok(entry) if matches!(entry.name, b"." | b"..") => {}
                Ok(entry) if twice.contains(&entry.slot) && self.may_lose() => {
                    lost = lost.saturating_add(1);
                }
                Ok(entry) => {
                    let stored = (entry.ino, entry.hash, entry.kind);
                    let name = entry.name.to_vec();
                    match self.right_entry(dir, (entry.slot, name), stored, unnamed)? {
                        Some(entry) => entries.push(entry),
                        None if self.may_lose() => lost = lost.saturating_add(1),
                        None => return Ok(None),
                    }
                }
                Err(_) if self.may_lose() => lost = lost.saturating_add(1),
                Err(_) => return Ok(None),
            }
        }
        let more = self.put_entries((dir, block), bytes.len(), entries)?;
        Ok(Some(lost.saturating_add(more)))
    }

    /// What a name was before one of its bytes was damaged. A volume in which all names have wrong
    /// hashes is not searched to its end.
    fn name_before(&mut self, names: Names, name: &[u8], hash: u32) -> Option<Vec<u8>> {
        if self.searched_names >= MAX_SEARCHED {
            return None;
        }
        self.searched_names = self.searched_names.saturating_add(1);
        names.with_hash(name, hash)
    }

    /// The entry as it should be; `None` if it leads nowhere or cannot be read.
    fn right_entry(
        &mut self,
        dir: Nid,
        (slot, mut name): (usize, Vec<u8>),
        (mut ino, hash, kind): (Nid, u32, Option<FileKind>),
        unnamed: &Unnamed,
    ) -> Result<Option<Entry>> {
        if self.context.nodes.inode(ino).is_none() {
            match unnamed.by_name.get(&(dir, name.clone())) {
                Some(found) => ino = *found,
                None => return Ok(None),
            }
        }
        let names = self.names_of(dir)?.unwrap_or(Names::Plain);
        let is_name = matches!(names, Names::Encrypted { .. }) || Name::check(&name).is_ok();
        if !is_name || names.hash(&name).is_some_and(|own| own != hash) {
            match self.recorded(ino)?.filter(|(parent, _)| *parent == dir) {
                Some((_, recorded)) if names.hash(&recorded) == Some(hash) => name = recorded,
                // The hash is what is damaged.
                Some((_, recorded)) if recorded == name => {}
                _ => match self.name_before(names, &name, hash) {
                    Some(near) => name = near,
                    None if is_name && is_in_one_byte(names.hash(&name), hash) => {}
                    None if is_name && self.may_lose() => {
                        self.list_name(&kinds::DIRECTORY_HASH, (dir, &name), ", if it was another");
                    }
                    None => return Ok(None),
                },
            }
        }
        let hash = names.hash(&name).unwrap_or(hash);
        let kind_of = |ino| self.context.nodes.inode(ino).and_then(NodeState::kind);
        let is_turned = kind.is_some() && kind_of(ino).is_some() && kind_of(ino) != kind;
        // A wrong type makes no names too many.
        if is_turned && unnamed.is_any && self.has_too_many_names(ino) {
            let found = unnamed.by_name.get(&(dir, name.clone())).copied();
            match found.filter(|found| kind_of(*found) == kind && !self.freed.contains(found)) {
                Some(found) => ino = found,
                None => {
                    if self.may_lose() {
                        self.list_name(&kinds::DIRECTORY_TYPE, (dir, &name), "");
                    }
                    return Ok(None);
                }
            }
        }
        let real = self.context.nodes.inode(ino).and_then(NodeState::kind);
        let kind = real.or(kind).unwrap_or(FileKind::Regular);
        Ok(Some(Entry { slot, ino, kind, name, hash }))
    }

    /// Lists a name that a directory loses.
    fn list_name(&mut self, kind: &'static Kind, (dir, name): (Nid, &[u8]), more: &str) {
        let what = format!("the name {}{more}", String::from_utf8_lossy(name));
        self.lost((kind, Place::inode(dir.get()).named(name)), dir, &what);
    }

    /// Writes a block with these entries. What has no room there, or is not looked for there, is
    /// inserted elsewhere. Returns how many find no place.
    fn put_entries(
        &mut self,
        (dir, block): (Nid, u64),
        len: usize,
        entries: Vec<Entry>,
    ) -> Result<usize> {
        let mut bytes = vec![0; len];
        let mut room = DentriesMut::new(&mut bytes);
        if block == 0 {
            let parent = self.parent_of(dir)?;
            room.insert(0, b".", 0, dir, FileKind::Directory);
            room.insert(1, b"..", 0, parent, FileKind::Directory);
        }
        let mut others = Vec::new();
        let slots = room.view().slots();
        let mut taken: BTreeSet<usize> = if block == 0 { [0, 1].into() } else { BTreeSet::new() };
        for entry in entries {
            let end = entry.slot.saturating_add(slots_for(entry.name.len()));
            let is_free = end <= slots && !(entry.slot..end).any(|slot| taken.contains(&slot));
            if is_free && self.is_in_bucket(dir, block, entry.hash)? {
                room.insert(entry.slot, &entry.name, entry.hash, entry.ino, entry.kind);
                taken.extend(entry.slot..end);
            } else {
                others.push(entry);
            }
        }
        self.put_dir_block(dir, block, bytes)?;
        let mut lost = 0_usize;
        for entry in others {
            // A name that is there already leads to the other inode.
            let is_new = self.lookup(dir, &entry.name)?.is_none();
            let named = (&*entry.name, entry.hash);
            if !(is_new && self.insert_hashed(dir, named, entry.ino, entry.kind)?) {
                lost = lost.saturating_add(1);
            }
        }
        Ok(lost)
    }

    fn make_first_block(&mut self, dir: Nid) -> Result<bool> {
        if !self.put_new(dir, 0, vec![0; crate::format::units::BLOCK_SIZE])? {
            return Ok(false);
        }
        self.put_entries((dir, 0), crate::format::units::BLOCK_SIZE, Vec::new())?;
        Ok(true)
    }

    /// The directory that has the name of a directory.
    fn parent_of(&self, dir: Nid) -> Result<Nid> {
        if dir == Nid::ROOT {
            return Ok(Nid::ROOT);
        }
        let node = self.context.nodes.inode(dir);
        let known = node.filter(|node| node.links() > 0).map(|node| Nid(node.other()));
        if let Some(known) = known.filter(|parent| self.context.nodes.inode(*parent).is_some()) {
            return Ok(known);
        }
        Ok(self.inode(dir)?.map_or(Nid::ROOT, |(record, _)| record.pino))
    }

    /// Does a search for a name with this hash come to this block?
    fn is_in_bucket(&self, dir: Nid, block: u64, hash: u32) -> Result<bool> {
        let Some((record, _)) = self.inode(dir)? else { return Ok(true) };
        if record.inline.contains(InlineFlags::DENTRY) {
            return Ok(true);
        }
        Ok(is_in_bucket((record.current_depth, record.dir_level), block, hash))
    }
}

/// Is one byte of the hash of a name wrong? A wrong name has another hash in all bytes.
fn is_in_one_byte(right: Option<u32>, stored: u32) -> bool {
    let differs = right.map_or([0; 4], |right| (right ^ stored).to_le_bytes());
    differs.into_iter().filter(|byte| *byte != 0).count() == 1
}

/// Is the finding about an entry?
fn is_of_entry(finding: &Finding) -> bool {
    [
        &kinds::DIRECTORY_ENTRY,
        &kinds::DIRECTORY_HASH,
        &kinds::DIRECTORY_BUCKET,
        &kinds::DIRECTORY_DOTS,
        &kinds::DIRECTORY_DUPLICATE,
        &kinds::DIRECTORY_TYPE,
        &kinds::DIRECTORY_TARGET,
        &kinds::DIRECTORY_LINKED,
    ]
    .iter()
    .any(|kind| kind.code == finding.kind.code)
}
