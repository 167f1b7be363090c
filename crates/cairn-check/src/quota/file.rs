//! [`QuotaFile`]: the entries of a quota file, read whatever its bytes are, and written anew.

use std::collections::{BTreeMap, HashSet};

use cairn_base::units::as_u64;
use zerocopy::{FromBytes, IntoBytes};

use super::format::{
    BLOCK, ENTRIES, LEVELS, REFERENCES, ROOT, RawEntriesHead, RawEntry, RawHead, VERSION, entries,
    magic, reference,
};
use super::owners::{OwnerKind, Usage};

/// Seconds between the soft limit and the hard one that a new file has: a week.
const GRACE: u32 = 7 * 24 * 60 * 60;

/// What a quota file says of an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// What the owner uses.
    pub usage: Usage,
    limits: Limits,
}

/// Limits are of inodes and of kilobytes; times are when a soft limit was exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Limits {
    inodes: [u64; 2],
    space: [u64; 2],
    times: [u64; 2],
}

impl Entry {
    /// Without a limit the entry says what the files say.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        self.limits.inodes != [0; 2] || self.limits.space != [0; 2]
    }

    fn decode(raw: &RawEntry) -> Self {
        Self {
            usage: Usage { inodes: raw.dqb_curinodes.get(), space: raw.dqb_curspace.get() },
            limits: Limits {
                inodes: [raw.dqb_ihardlimit.get(), raw.dqb_isoftlimit.get()],
                space: [raw.dqb_bhardlimit.get(), raw.dqb_bsoftlimit.get()],
                times: [raw.dqb_btime.get(), raw.dqb_itime.get()],
            },
        }
    }

    fn encode(&self, id: u32) -> RawEntry {
        let Limits { inodes, space, times } = self.limits;
        let raw = RawEntry {
            dqb_id: id.into(),
            dqb_pad: 0.into(),
            dqb_ihardlimit: inodes[0].into(),
            dqb_isoftlimit: inodes[1].into(),
            dqb_curinodes: self.usage.inodes.into(),
            dqb_bhardlimit: space[0].into(),
            dqb_bsoftlimit: space[1].into(),
            dqb_curspace: self.usage.space.into(),
            dqb_btime: times[0].into(),
            dqb_itime: times[1].into(),
        };
        // An entry of zeros is one that is not in use: this is how root's shows that it is.
        match raw == RawEntry::default() {
            true => RawEntry { dqb_itime: 1.into(), ..raw },
            false => raw,
        }
    }
}

/// The contents of a quota file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaFile {
    /// By the number of the owner.
    pub entries: BTreeMap<u32, Entry>,
    /// The first defect; the entries are those that were found nevertheless.
    pub damage: Option<String>,
    bgrace: u32,
    igrace: u32,
    flags: u32,
}

impl Default for QuotaFile {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), damage: None, bgrace: GRACE, igrace: GRACE, flags: 0 }
    }
}

impl QuotaFile {
    /// An empty one in place of a file that cannot be read.
    #[must_use]
    pub fn damaged(why: impl Into<String>) -> Self {
        Self { damage: Some(why.into()), ..Self::default() }
    }

    /// Reads a file of so many blocks of [`BLOCK`] bytes. A block that cannot be read is `None`.
    pub fn read(
        kind: OwnerKind,
        blocks: u32,
        block: &mut dyn FnMut(u32) -> Option<Vec<u8>>,
    ) -> Self {
        let mut file = Self::default();
        let head = block(0).filter(|_| blocks > 0);
        let head = head.and_then(|bytes| Some(RawHead::read_from_prefix(&bytes).ok()?.0));
        let Some(head) = head else { return Self::damaged("its header cannot be read") };
        match wrong_head(&head, kind, blocks) {
            Some(why) => file.damage = Some(why),
            None => {
                file.bgrace = head.dqi_bgrace.get();
                file.igrace = head.dqi_igrace.get();
                file.flags = head.dqi_flags.get();
            }
        }
        let (seen, leaves) = (HashSet::new(), BTreeMap::new());
        let mut walk = Walk { file: &mut file, blocks, block, seen, leaves, last: None };
        walk.node(ROOT, LEVELS, 0);
        walk.strays();
        file
    }

    /// This file with other usage. Who has neither limits nor usage has no entry.
    #[must_use]
    pub fn with_usage(&self, counted: &BTreeMap<u32, Usage>) -> Self {
        let kept = self.entries.iter().filter(|(_, entry)| entry.has_limits());
        let mut entries: BTreeMap<u32, Entry> = kept
            .map(|(id, entry)| (*id, Entry { usage: Usage::default(), limits: entry.limits }))
            .collect();
        for (id, usage) in counted {
            let limits = self.entries.get(id).map(|entry| entry.limits).unwrap_or_default();
            entries.insert(*id, Entry { usage: *usage, limits });
        }
        Self { entries, damage: None, ..*self }
    }

    /// The bytes of the file: whole blocks.
    #[must_use]
    pub fn encode(&self, kind: OwnerKind) -> Vec<u8> {
        let mut blocks = Blocks { bytes: vec![0; BLOCK.saturating_mul(2)] };
        // The way to the last entry: blocks below the root, and the numbers' bytes that lead there.
        let mut way: Vec<(u32, u32)> = Vec::new();
        let mut leaf = (0_u32, ENTRIES);
        for (id, entry) in &self.entries {
            let mut at = ROOT;
            for level in 1..LEVELS {
                let prefix = id >> (LEVELS.saturating_sub(level).saturating_mul(8));
                let depth = usize::try_from(level.saturating_sub(1)).unwrap_or(usize::MAX);
                if way.get(depth).is_none_or(|(known, _)| *known != prefix) {
                    way.truncate(depth);
                    let below = blocks.add();
                    blocks.refer(at, prefix, below);
                    way.push((prefix, below));
                }
                at = way.get(depth).map_or(ROOT, |(_, block)| *block);
            }
            if leaf.1 == ENTRIES {
                leaf = (blocks.add(), 0);
            }
            blocks.refer(at, *id, leaf.0);
            blocks.put(leaf, &entry.encode(*id));
            leaf.1 = leaf.1.saturating_add(1);
        }
        let head = RawHead {
            dqh_magic: magic(kind).into(),
            dqh_version: VERSION.into(),
            dqi_bgrace: self.bgrace.into(),
            dqi_igrace: self.igrace.into(),
            dqi_flags: self.flags.into(),
            dqi_blocks: blocks.count().into(),
            dqi_free_blk: 0.into(),
            dqi_free_entry: if leaf.1 < ENTRIES { leaf.0.into() } else { 0.into() },
        };
        blocks.set(0, 0, head.as_bytes());
        blocks.bytes
    }
}

/// What is wrong with a header.
fn wrong_head(head: &RawHead, kind: OwnerKind, blocks: u32) -> Option<String> {
    let stored = head.dqi_blocks.get();
    let checks = [
        ("dqh_magic", head.dqh_magic.get(), head.dqh_magic.get() == magic(kind)),
        ("dqh_version", head.dqh_version.get(), head.dqh_version.get() == VERSION),
        ("dqi_blocks", stored, stored <= blocks),
        ("dqi_free_blk", head.dqi_free_blk.get(), head.dqi_free_blk.get() < stored.max(1)),
        ("dqi_free_entry", head.dqi_free_entry.get(), head.dqi_free_entry.get() < stored.max(1)),
    ];
    let wrong = checks.iter().find(|(_, _, is_right)| !is_right);
    wrong.map(|(field, value, _)| format!("{field} is {value:#x}"))
}

/// The walk through the tree: each block of it is read once.
struct Walk<'a> {
    file: &'a mut QuotaFile,
    blocks: u32,
    block: &'a mut dyn FnMut(u32) -> Option<Vec<u8>>,
    seen: HashSet<u32>,
    /// Blocks of entries, and how many of each block's entries were looked up.
    leaves: BTreeMap<u32, u64>,
    /// The last block of entries.
    last: Option<(u32, Vec<u8>)>,
}

impl Walk<'_> {
    fn damage(&mut self, why: impl FnOnce() -> String) {
        self.file.damage.get_or_insert_with(why);
    }

    /// A block of the tree, `levels` above the entries. The depth of the calls is that number.
    fn node(&mut self, number: u32, levels: u32, prefix: u32) {
        if !self.seen.insert(number) {
            return self.damage(|| format!("two references lead to block {number} of the tree"));
        }
        let Some(bytes) = (self.block)(number) else {
            return self.damage(|| format!("block {number} of the tree cannot be read"));
        };
        let below = levels.saturating_sub(1);
        for index in 0..REFERENCES {
            let child = reference(&bytes, index);
            if child == 0 {
                continue;
            }
            let id = prefix << 8 | u32::try_from(index).unwrap_or(0);
            if child <= ROOT || child >= self.blocks {
                self.damage(|| format!("block {number} of the tree refers to block {child}"));
            } else if below == 0 {
                self.entry(id, child);
            } else {
                self.node(child, below, id);
            }
        }
    }

    fn entry(&mut self, id: u32, number: u32) {
        if self.last.as_ref().is_none_or(|(known, _)| *known != number) {
            self.last = (self.block)(number).map(|bytes| (number, bytes));
        }
        let found = self
            .last
            .as_ref()
            .and_then(|(_, bytes)| entries(bytes).find(|entry| entry.dqb_id.get() == id));
        match found {
            Some(raw) => {
                let known = self.leaves.entry(number).or_default();
                *known = known.saturating_add(1);
                self.file.entries.insert(id, Entry::decode(&raw));
            }
            None => self.damage(|| format!("block {number} has no entry of {id}")),
        }
    }

    /// Entries to which no reference leads: readers of whole blocks take them for entries.
    fn strays(&mut self) {
        for (number, known) in std::mem::take(&mut self.leaves) {
            let bytes = (self.block)(number).unwrap_or_default();
            let stored = as_u64(entries(&bytes).count());
            if stored > known {
                self.damage(|| {
                    format!("block {number} has {stored} entries, and references lead to {known}")
                });
            }
        }
    }
}

/// A file that grows block by block.
struct Blocks {
    bytes: Vec<u8>,
}

impl Blocks {
    fn count(&self) -> u32 {
        let count = self.bytes.len().checked_div(BLOCK).unwrap_or(0);
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// One more block, of zeros.
    fn add(&mut self) -> u32 {
        let number = self.count();
        self.bytes.resize(self.bytes.len().saturating_add(BLOCK), 0);
        number
    }

    fn set(&mut self, block: u32, at: usize, new: &[u8]) {
        let start = cairn_base::units::as_index(block).saturating_mul(BLOCK).saturating_add(at);
        let end = start.saturating_add(new.len());
        debug_assert!(as_u64(end) <= as_u64(self.bytes.len()), "block {block} was added");
        if let Some(place) = self.bytes.get_mut(start..end) {
            place.copy_from_slice(new);
        }
    }

    /// Sets the reference for the last byte of a number.
    fn refer(&mut self, block: u32, number: u32, child: u32) {
        let index = usize::from(number.to_le_bytes()[0]);
        self.set(block, index.saturating_mul(size_of::<u32>()), &child.to_le_bytes());
    }

    /// Puts an entry to its place in a block of entries, which counts it.
    fn put(&mut self, (block, index): (u32, usize), entry: &RawEntry) {
        let head = RawEntriesHead {
            dqdh_entries: u16::try_from(index.saturating_add(1)).unwrap_or(u16::MAX).into(),
            ..RawEntriesHead::default()
        };
        self.set(block, 0, head.as_bytes());
        let at =
            size_of::<RawEntriesHead>().saturating_add(index.saturating_mul(size_of::<RawEntry>()));
        self.set(block, at, entry.as_bytes());
    }
}
