//! The entries of one directory.
//!
//! Memory: 16 bytes an entry while the directory is walked, to find names that are there twice.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering::Relaxed;

use cairn_base::units::as_u64;
use cairn_check::{Finding, Kind, Place};
use cairn_vfs::{FileKind, Name};

use super::context::{Context, Scratch};
use super::kinds;
use super::nodes::{NodeState, ORPHAN};
use super::tree::Tree;
use crate::error::Result;
use crate::form::names::Names;
use crate::format::Inode;
use crate::format::dentry::{Dentries, Dentry, is_in_bucket, slots_for};
use crate::format::inode::InlineFlags;
use crate::format::units::{BlockAddr, Nid};

/// Blocks of a directory that are read together.
const PART: usize = 64;

/// The walk through one directory's entries.
struct Walk<'w> {
    context: &'w Context,
    ino: Nid,
    record: &'w Inode,
    node: &'w NodeState,
    names: Names,
    subdirectories: u32,
    dots: [u32; 2],
    /// A key of each name, and its block and slot.
    seen: Vec<(u64, u64)>,
}

/// Checks the directory of a tree.
///
/// # Errors
/// The device's.
pub(super) fn check(tree: Tree<'_>, node: &NodeState, image: &[u8]) -> Result<()> {
    let Tree { context, scratch, ino, record, contents, .. } = tree;
    let names = Names::of(record, context.layout.features);
    let mut walk = Walk {
        context,
        ino,
        record,
        node,
        names,
        subdirectories: 0,
        dots: [0; 2],
        seen: Vec::new(),
    };
    if record.inline.contains(InlineFlags::DENTRY) {
        let bytes = image.get(record.inline_data_range()).unwrap_or_default();
        walk.block(0, bytes);
    } else {
        walk.blocks(scratch, contents.unwrap_or_default())?;
    }
    walk.finish();
    Ok(())
}

impl Walk<'_> {
    fn place(&self, block: u64) -> Place {
        Place::inode(self.ino.get()).at_file_block(block)
    }

    fn found(&self, kind: &'static Kind, block: u64, entry: &Dentry<'_>) -> Finding {
        Finding::new(kind, self.place(block).named(entry.name))
    }

    fn blocks(&mut self, scratch: &mut Scratch, mut contents: Vec<(u64, BlockAddr)>) -> Result<()> {
        contents.sort_unstable_by_key(|(_, addr)| *addr);
        for part in contents.chunks(PART) {
            let addrs: Vec<BlockAddr> = part.iter().map(|(_, addr)| *addr).collect();
            let read = self.context.read(scratch, &addrs)?;
            for ((block, _), bytes) in part.iter().zip(read.iter()) {
                self.block(*block, bytes);
            }
            scratch.recycle(read);
        }
        Ok(())
    }

    fn block(&mut self, block: u64, bytes: &[u8]) {
        let dentries = Dentries::new(bytes);
        let mut slots = 0_usize;
        let mut sound = true;
        for entry in dentries.iter() {
            match entry {
                Ok(entry) => {
                    slots = slots.saturating_add(slots_for(entry.name.len()));
                    if !dentries.is_whole(&entry) {
                        sound = false;
                        let finding = self.found(&kinds::DIRECTORY_ENTRY, block, &entry);
                        self.context.add(finding.stored("a part of its slots is marked as free"));
                    }
                    self.entry(block, &entry);
                }
                Err(bad) => {
                    sound = false;
                    let finding = Finding::new(&kinds::DIRECTORY_ENTRY, self.place(block));
                    let text = format!("slot {}: a name of {} bytes", bad.slot, bad.name_len);
                    self.context.add(finding.stored(&*text));
                }
            }
        }
        // What has another hash was overwritten in part, and could not be found any more.
        let had_name =
            |entry: &Dentry<'_>| self.names.hash(entry.name).is_none_or(|hash| hash == entry.hash);
        let freed = dentries.freed().filter(had_name);
        for node in freed.filter_map(|entry| self.context.nodes.get(entry.ino)) {
            node.add_trace();
        }
        if block > 0 && dentries.is_blank() {
            self.context.has_blank.store(true, Relaxed);
        }
        if sound && slots != dentries.used_slots() {
            let text = format!("{} slots are marked as used", dentries.used_slots());
            let right = format!("{slots} slots of names");
            let finding = Finding::new(&kinds::DIRECTORY_ENTRY, self.place(block));
            self.context.add(finding.stored(&*text).computed(&*right));
        }
    }

    fn entry(&mut self, block: u64, entry: &Dentry<'_>) {
        match entry.name {
            b"." => self.dot(0, block, entry),
            b".." => self.dot(1, block, entry),
            _ => self.name(block, entry),
        }
    }

    /// `.` and `..`, which are the first two entries.
    fn dot(&mut self, which: usize, block: u64, entry: &Dentry<'_>) {
        if let Some(count) = self.dots.get_mut(which) {
            *count = count.saturating_add(1);
        }
        // The root has no parent.
        if which == 1 && self.ino != Nid::ROOT && self.record.pino != entry.ino {
            let place = Place::inode(self.ino.get()).in_field("i_pino");
            let finding = Finding::new(&kinds::INODE_PARENT, place);
            self.context.add(finding.stored(self.record.pino.get()).computed(entry.ino.get()));
        }
        let leads = match which {
            0 => entry.ino == self.ino,
            _ if self.ino == Nid::ROOT => entry.ino == Nid::ROOT,
            // The parent's entry may have been read before; else it compares with this one.
            _ => {
                matches!(self.node.offer_other(entry.ino.get()), 0)
                    || self.node.other() == entry.ino.get()
            }
        };
        let right = leads
            && (block, entry.slot) == (0, which)
            && entry.kind == Some(FileKind::Directory)
            && entry.hash == 0;
        if !right {
            let finding = self.found(&kinds::DIRECTORY_DOTS, block, entry);
            self.context.add(finding.stored(entry.ino.get()));
        }
    }

    fn name(&mut self, block: u64, entry: &Dentry<'_>) {
        let plain = !matches!(self.names, Names::Encrypted { .. });
        if plain && let Err(wrong) = Name::check(entry.name) {
            let finding = self.found(&kinds::DIRECTORY_ENTRY, block, entry);
            self.context.add(finding.stored(wrong.what()));
        }
        let hash = self.names.hash(entry.name);
        if hash.is_some_and(|hash| hash != entry.hash) {
            let finding = self.found(&kinds::DIRECTORY_HASH, block, entry);
            self.context.add(finding.hex(entry.hash, hash.unwrap_or_default()));
        }
        let levels = (self.record.current_depth, self.record.dir_level);
        if !self.record.inline.contains(InlineFlags::DENTRY)
            && !is_in_bucket(levels, block, entry.hash)
        {
            self.context.add(self.found(&kinds::DIRECTORY_BUCKET, block, entry));
        }
        let mut key = DefaultHasher::new();
        entry.name.hash(&mut key);
        let place = block << 8 | as_u64(entry.slot);
        self.seen.push((key.finish(), place));
        self.target(block, entry);
    }

    /// Notes the entry at its inode.
    fn target(&mut self, block: u64, entry: &Dentry<'_>) {
        let Some(kind) = entry.kind else {
            self.context.add(self.found(&kinds::DIRECTORY_TYPE, block, entry));
            return;
        };
        let Some(target) = self.context.nodes.inode(entry.ino) else {
            let finding = self.found(&kinds::DIRECTORY_TARGET, block, entry);
            self.context.add(finding.stored(entry.ino.get()));
            return;
        };
        if target.add_entry(kind).is_some_and(|real| real != kind) {
            self.context.add(self.found(&kinds::DIRECTORY_TYPE, block, entry));
        }
        if kind != FileKind::Directory {
            return;
        }
        self.subdirectories = self.subdirectories.saturating_add(1);
        // Its `..` may have been read before.
        let before = target.set_other(self.ino.get());
        if before != 0 && before != self.ino.get() && target.links() < 2 {
            let place = Place::inode(entry.ino.get()).named(b"..");
            let finding = Finding::new(&kinds::DIRECTORY_DOTS, place);
            self.context.add(finding.stored(before).computed(self.ino.get()));
        }
    }

    fn finish(mut self) {
        let is_orphan = self.context.nodes.inode(self.ino).is_some_and(|node| node.is(ORPHAN));
        // Linux writes no more blocks of a directory that waits for its deletion.
        if self.dots != [1, 1] && !is_orphan {
            let text = format!("{} times `.`, {} times `..`", self.dots[0], self.dots[1]);
            let place = Place::inode(self.ino.get());
            self.context.add(Finding::new(&kinds::DIRECTORY_DOTS, place).stored(&*text));
        }
        // Nor has it a link.
        let links = if is_orphan { 0 } else { self.subdirectories.saturating_add(2) };
        if self.record.links != links {
            let place = Place::inode(self.ino.get()).in_field("i_links");
            let finding = Finding::new(&kinds::INODE_LINKS, place);
            self.context.add(finding.stored(self.record.links).computed(links));
        }
        self.seen.sort_unstable();
        for pair in self.seen.windows(2) {
            if let [(first, _), (second, place)] = pair
                && first == second
            {
                let (block, slot) = (place >> 8, place & 0xff);
                let text = format!("slot {slot}");
                let finding = Finding::new(&kinds::DIRECTORY_DUPLICATE, self.place(block));
                self.context.add(finding.stored(&*text));
            }
        }
    }
}
