//! [`Names`]: the entries of a directory, and what each says of an inode.

use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;

use cairn_base::Ino;
use cairn_base::units::as_u64;
use cairn_check::{Finding, Kind, Place, Value};
use cairn_vfs::FileKind;

use super::dir_blocks::Directory;
use super::disputes;
use super::htree::{Hashes, Role};
use super::kinds;
use crate::form::context;
use crate::format::dir_entry::{self, Defect, Entry};
use crate::format::inode::{Inode as Record, InodeFlags};

/// Equal names of a directory that are looked for.
const MOST_TWINS: u32 = 1000;

/// Inodes that together prove the policy of their directory.
const LEAST_WITNESSES: usize = 2;

/// The byte behind the name `.`, and that behind `..`.
const DOT_END: usize = 9;
const DOTDOT_END: usize = 22;

/// A name, by its hash, and its place.
type Seen = (u64, u64, usize);

/// The names of a directory, while its blocks are read.
pub(super) struct Names<'a> {
    directory: &'a Directory<'a>,
    seen: Vec<Seen>,
    is_encrypted: bool,
    /// Names of inodes that are not encrypted as the directory is, each with its inode; and is
    /// there one that is?
    strange: Vec<(Finding, Ino)>,
    has_alike: bool,
    is_folded: bool,
    /// Names must be UTF-8.
    is_strict: bool,
}

impl<'a> Names<'a> {
    pub(super) fn new(directory: &'a Directory<'a>) -> Self {
        let flags = directory.record.flags;
        Self {
            directory,
            seen: Vec::new(),
            is_encrypted: flags.contains(InodeFlags::ENCRYPT),
            strange: Vec::new(),
            has_alike: false,
            is_folded: flags.contains(InodeFlags::CASEFOLD),
            is_strict: directory.needs_utf8(),
        }
    }

    fn number(&self) -> u32 {
        u32::try_from(self.directory.ino.get()).unwrap_or(0)
    }

    fn defect(&self, kind: &'static Kind, block: u64, defect: &Defect) {
        let Defect { offset, what, value } = *defect;
        let place = self.directory.place(block).at_offset(as_u64(offset));
        let finding = Finding::new(kind, place);
        let finding = finding.stored(Value::text(format!("{what}, value {value}")));
        self.directory.state.findings.add(finding);
    }

    fn wrong(&self, kind: &'static Kind, block: u64, entry: &Entry<'_>) {
        self.directory.state.findings.add(self.finding(kind, block, entry));
    }

    fn finding(&self, kind: &'static Kind, block: u64, entry: &Entry<'_>) -> Finding {
        let place = self.directory.place(block).at_offset(as_u64(entry.offset));
        Finding::new(kind, place.named(entry.name)).stored(entry.ino)
    }

    /// The two first entries of a directory with blocks.
    pub(super) fn dots(&mut self, bytes: &[u8], region: Range<usize>) {
        let dots = dir_entry::dots(bytes, &self.directory.format);
        match dots {
            Ok(dots) => {
                if dots.this != self.number() {
                    let defect = Defect { offset: 0, what: "`.`", value: dots.this.into() };
                    self.defect(&kinds::DIRECTORY_DOTS, 0, &defect);
                }
                self.parent(dots.parent);
            }
            Err(defect) => self.defect(&kinds::DIRECTORY_DOTS, 0, &defect),
        }
        // A NUL ends each of the two names.
        for offset in [DOT_END, DOTDOT_END] {
            if let Some(value) = bytes.get(offset).filter(|byte| **byte != 0) {
                let what = "`.` or `..` without a NUL behind it";
                let defect = Defect { offset, what, value: (*value).into() };
                self.defect(&kinds::DIRECTORY_DOTS, 0, &defect);
            }
        }
        let state = self.directory.state;
        if let Some(facts) = state.facts(self.directory.ino) {
            facts.add_name();
        }
        let entries = dir_entry::entries_in(bytes, region, &self.directory.format);
        let kind = FileKind::Directory.entry_code();
        let has_types = self.directory.format.filetype;
        let possible: &[u8] = if has_types { &[0, kind] } else { &[0] };
        for entry in entries.take(2).flatten().filter(|entry| is_dot(entry.name)) {
            if !possible.contains(&entry.file_type) {
                let place = self.directory.place(0).at_offset(as_u64(entry.offset));
                let finding = Finding::new(&kinds::ENTRY_TYPE, place.named(entry.name));
                let right = if has_types { kind } else { 0 };
                let finding = finding.stored(u32::from(entry.file_type));
                self.directory.state.findings.add(finding.computed(u32::from(right)));
            }
        }
    }

    /// A directory in its inode has no entry for itself.
    pub(super) fn inline_dots(&mut self, parent: u32) {
        if let Some(facts) = self.directory.state.facts(self.directory.ino) {
            facts.add_name();
        }
        self.parent(parent);
    }

    /// `..` is a name of the parent.
    fn parent(&self, parent: u32) {
        let state = self.directory.state;
        if let Some(facts) = state.facts(self.directory.ino) {
            facts.set_dotdot(parent);
        }
        let is_inode = parent <= state.layout.inodes_count;
        if let Some(facts) = state.facts(Ino(parent.into())).filter(|_| is_inode) {
            facts.add_name();
        }
    }

    /// A block of entries.
    pub(super) fn leaf(&mut self, block: u64, bytes: &[u8], role: Option<Role>) {
        let hashes = match role {
            Some(Role::Leaf(hashes)) if !self.is_folded => Some(hashes),
            _ => None,
        };
        if block == 0 {
            self.dots(bytes, 0..bytes.len());
        }
        let len = self.directory.format.leaf_len();
        self.entries(block, bytes, 0..len, hashes);
    }

    /// A part of an inode with entries.
    pub(super) fn region(&mut self, block: u64, bytes: &[u8], region: Range<usize>) {
        self.entries(block.saturating_add(1), bytes, region, None);
    }

    fn entries(&mut self, block: u64, bytes: &[u8], region: Range<usize>, hashes: Option<Hashes>) {
        let format = self.directory.format;
        for (number, entry) in dir_entry::entries_in(bytes, region, &format).enumerate() {
            match entry {
                Err(defect) => self.defect(&kinds::DIRECTORY_ENTRY, block, &defect),
                Ok(entry) if entry.ino == 0 => {}
                // `.` and `..`, which have been looked at.
                Ok(entry) if block == 0 && number < 2 && is_dot(entry.name) => {}
                Ok(entry) => self.entry(block, &entry, hashes),
            }
        }
    }

    fn entry(&mut self, block: u64, entry: &Entry<'_>, hashes: Option<Hashes>) {
        let is_text = !entry.name.iter().any(|byte| matches!(byte, b'/' | 0));
        // Names are encrypted in whole blocks of 16 bytes.
        let is_short = self.is_encrypted && entry.name.len() < 16;
        let is_foreign = self.is_strict && std::str::from_utf8(entry.name).is_err();
        if is_dot(entry.name) || is_short || (!is_text && !self.is_encrypted) || is_foreign {
            self.wrong(&kinds::ENTRY_NAME, block, entry);
        }
        if let Some(hashes) = hashes {
            self.check_hash(block, entry, hashes);
        }
        let mut hasher = DefaultHasher::new();
        hasher.write(entry.name);
        self.seen.push((hasher.finish(), block, entry.offset));
        self.target(block, entry);
    }

    fn check_hash(&self, block: u64, entry: &Entry<'_>, hashes: Hashes) {
        let hash = self.directory.state.hash.hash(hashes.version, entry.name);
        let Some(hash) = hash.map(|hash| hash.major) else { return };
        if hash < hashes.from || hash > hashes.to {
            let place = self.directory.place(block).at_offset(as_u64(entry.offset));
            let finding = Finding::new(&kinds::HTREE_RANGE, place.named(entry.name));
            self.directory.state.findings.add(finding.hex(hashes.from, hash));
        }
    }

    /// The inode that an entry refers to.
    fn target(&mut self, block: u64, entry: &Entry<'_>) {
        let state = self.directory.state;
        let ino = Ino(entry.ino.into());
        let known = state.inodes.get(ino.get());
        if state.is_nameless(ino) {
            return self.wrong(&kinds::DIRECTORY_LINKED, block, entry);
        }
        let Some(facts) = known.filter(|facts| facts.is_in_use()) else {
            return self.wrong(&kinds::ENTRY_TARGET, block, entry);
        };
        facts.add_name();
        // Devices, FIFOs and sockets have nothing to encrypt.
        let has_contents = matches!(facts.kind_code(), 1 | 2 | 7);
        if self.is_encrypted && has_contents {
            let is_alike = facts.is_encrypted() && state.have_same_policy(self.directory.ino, ino);
            self.has_alike |= is_alike;
            if !is_alike {
                state.doubted_marks.is_inside(ino);
                let finding = self.finding(&kinds::ENCRYPTION_NAME, block, entry);
                self.strange.push((finding, ino));
            }
        }
        if facts.is_directory() && !facts.set_parent(self.number()) {
            self.wrong(&kinds::DIRECTORY_LINKED, block, entry);
        }
        let expected = if self.directory.format.filetype { facts.kind_code() } else { 0 };
        // 0 is "unknown", which readers look up in the inode.
        if facts.kind_code() != 0 && entry.file_type != 0 && entry.file_type != expected {
            let place = self.directory.place(block).at_offset(as_u64(entry.offset));
            let finding = Finding::new(&kinds::ENTRY_TYPE, place.named(entry.name));
            let (found, expected) = (u64::from(entry.file_type), u64::from(expected));
            let finding = finding.stored(found).computed(expected);
            let said = FileKind::of_entry_code(entry.file_type);
            let said = said.filter(|_| self.directory.format.filetype);
            disputes::name_differs(state, ino, said, finding);
        }
    }

    /// Names of inodes that are not encrypted as the directory is. If all agree with each other, it
    /// is the directory that has another policy.
    fn judge_policies(&mut self) {
        let state = self.directory.state;
        let strange = std::mem::take(&mut self.strange);
        let policies = || strange.iter().map(|(_, ino)| state.policy(*ino));
        let first = policies().next().flatten();
        let agree = first.is_some() && policies().all(|policy| policy == first);
        if let Some((_, ino)) = strange.first()
            && agree
            && strange.len() >= LEAST_WITNESSES
            && !self.has_alike
        {
            let place = Place::inode(self.directory.ino.get());
            let finding = Finding::new(&kinds::ENCRYPTION_POLICY, place).computed(ino.get());
            return state.findings.add(finding);
        }
        for (finding, ino) in strange {
            state.findings.add(match self.has_alike && self.has_one_wrong_byte(ino) {
                true => {
                    let finding =
                        Finding::new(&kinds::ENCRYPTION_INHERITED, Place::inode(ino.get()));
                    finding.computed(self.directory.ino.get())
                }
                false => finding,
            });
        }
    }

    /// Does the policy of an inode differ from that of the directory in one byte? Others are no
    /// damage: a name may lead to a wrong inode.
    fn has_one_wrong_byte(&self, ino: Ino) -> bool {
        let policy = |ino: Ino, record: &Record| {
            let (_, context) = context::inside(ino, record)?;
            let len = context.len().checked_sub(context::NONCE)?;
            Some(context.get(..len)?.to_vec())
        };
        let own = policy(self.directory.ino, &self.directory.record);
        let other = self.directory.state.record(ino).and_then(|record| policy(ino, &record));
        let (Some(own), Some(other)) = (own, other) else { return false };
        let wrong = own.iter().zip(&other).filter(|(one, other)| one != other).count();
        own.len() == other.len() && wrong == 1
    }

    /// Compares names whose hashes are equal.
    pub(super) fn finish(mut self) {
        self.judge_policies();
        self.seen.sort_unstable();
        let mut left = MOST_TWINS;
        for pair in self.seen.windows(2) {
            if let [(hash, block, offset), (other, next, at)] = pair
                && hash == other
                && let (Some(name), Some(twin)) =
                    (self.name(*block, *offset), self.name(*next, *at))
                && name == twin
            {
                let place = self.directory.place(*next).at_offset(as_u64(*at));
                let finding = Finding::new(&kinds::DIRECTORY_DUPLICATE, place.named(&name));
                self.directory.state.findings.add(finding);
                left = left.saturating_sub(1);
                if left == 0 {
                    break;
                }
            }
        }
    }

    /// Reads a name again. In an inode, equal hashes are taken for equal names.
    fn name(&self, block: u64, offset: usize) -> Option<Vec<u8>> {
        if self.directory.record.flags.contains(InodeFlags::INLINE_DATA) {
            return Some(Vec::new());
        }
        let bytes = self.directory.block(block)?;
        let region = offset..self.directory.format.leaf_len();
        let entry = dir_entry::entries_in(&bytes, region, &self.directory.format).next()?.ok()?;
        Some(entry.name.to_vec())
    }
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
