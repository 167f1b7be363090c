//! The tree from the root on, and then the inodes that no directory leads to.

use cairn_base::Ino;
use cairn_base::units::as_index;
use cairn_check::salvage::{Entry, LOST, Receiver, Tree, Walk};
use cairn_vfs::FileKind;

use super::attributes;
use super::contents::{contents, describe};
use super::proof::{Judged, judge};
use super::records::{FoundRecord, Records};
use crate::corrupt::Corrupt;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::inodes;
use crate::raw::RawVolume;
use crate::raw::directory::{Named, kind_of};

/// Steps from a directory without a name up to the first of its kind.
const HIGHEST: usize = 1000;

/// Hands out everything that can be found.
pub(super) fn walk(volume: &RawVolume, receiver: &mut dyn Receiver) {
    let inodes = u64::from(volume.layout.inodes_count);
    let Some(mut walk) = Walk::new(receiver, inodes.saturating_add(1), inodes) else { return };
    let records = Records::new(volume);
    root(&records, &mut walk);
    unnamed(&records, &mut walk);
}

fn root(records: &Records<'_>, walk: &mut Walk<'_>) {
    let ino = inodes::ROOT;
    walk.see(ino.get());
    let found = records.of(ino);
    let (bytes, other) = found.map_or((None, None), |found| (Some(found.bytes), found.other));
    tell(walk, b"/", ino, other);
    let layout = &records.volume.layout;
    let wrong = bytes.as_ref().and_then(|bytes| Record::verify(bytes, ino, layout).err());
    tell(walk, b"/", ino, wrong.map(|why| damaged(&why)));
    match bytes.and_then(|bytes| judge(records.volume, ino, &bytes, Some(FileKind::Directory))) {
        Some(Judged { record, wrong }) if is_directory(&record) => {
            tell(walk, b"/", ino, wrong);
            walk.below(records, &(ino, record), Vec::new());
        }
        Some(_) => walk.lost(b"/", ino.get(), "the root's inode is no directory"),
        None => walk.lost(b"/", ino.get(), "the root's inode cannot be read"),
    }
}

fn damaged(why: &Corrupt) -> String {
    format!("its inode is damaged, and so may be the copy: {why}")
}

/// Tells what is wrong with a record.
fn tell(walk: &mut Walk<'_>, path: &[u8], ino: Ino, wrong: Option<String>) {
    if let Some(wrong) = wrong {
        walk.lost(path, ino.get(), wrong);
    }
}

fn is_directory(record: &Record) -> bool {
    kind_of(record) == Some(FileKind::Directory)
}

impl Tree for Records<'_> {
    type Directory = (Ino, Record);

    fn list(&self, walk: &mut Walk<'_>, (ino, record): &(Ino, Record), path: &[u8]) -> Vec<Entry> {
        let listing = self.volume.list(*ino, record);
        for what in listing.faults.into_list() {
            walk.lost(path, ino.get(), what);
        }
        let entry = |one: Named| Entry { name: one.name, ino: one.ino.get(), code: one.code };
        listing.names.into_iter().map(entry).collect()
    }

    fn named(
        &self,
        walk: &mut Walk<'_>,
        entry: &Entry,
        path: &[u8],
        is_deep: bool,
    ) -> Option<(Ino, Record)> {
        let (number, ino) = (entry.ino, Ino(entry.ino));
        let volume = self.volume;
        let Some(FoundRecord { bytes, other: replaced }) = self.of(ino) else {
            walk.lost(path, number, "its inode cannot be read");
            return None;
        };
        let said = FileKind::of_entry_code(entry.code);
        let Judged { record, wrong: other } = judge(volume, ino, &bytes, said)?;
        let wrong = Record::verify(&bytes, ino, &volume.layout).err();
        let Some(kind) = kind_of(&record).filter(|_| record.links > 0 && record.dtime == 0) else {
            let why = wrong.map_or("its inode is not in use".to_owned(), |why| why.to_string());
            walk.lost(path, number, why);
            return None;
        };
        if let Some(why) = wrong {
            walk.lost(path, number, damaged(&why));
        }
        if !walk.has_seen(number) {
            tell(walk, path, ino, replaced);
            tell(walk, path, ino, other);
        }
        if kind == FileKind::Directory {
            if is_deep {
                walk.lost(path, number, "it is too deep in the tree: it is in lost/");
                return None;
            }
            if !walk.see(number) {
                walk.lost(path, number, "another name leads to the same directory");
                return None;
            }
            hand_out(volume, walk, ino, &record, path);
            return Some((ino, record));
        }
        if !walk.see(number) {
            if walk.link(number, path) {
                return None;
            }
        } else if record.links > 1 {
            walk.remember(number, path);
        }
        hand_out(volume, walk, ino, &record, path);
        None
    }
}

fn hand_out(volume: &RawVolume, walk: &mut Walk<'_>, ino: Ino, record: &Record, path: &[u8]) {
    walk.found(
        describe(ino, record, path.to_vec()),
        |found, receiver| attributes::add(volume, record, false, found, receiver),
        || contents(volume, ino, record),
    );
}

/// Inodes in use that no name led to: directories first, so that their files have names.
fn unnamed(records: &Records<'_>, walk: &mut Walk<'_>) {
    let volume = records.volume;
    for wants_directories in [true, false] {
        let layout = &volume.layout;
        let per_block = layout.block_size.checked_div(layout.inode_size).unwrap_or(1);
        for group in 0..layout.groups {
            let Some(table) = volume.table(group) else { continue };
            for index in 0..layout.inode_table_blocks() {
                if !walk.goes_on() {
                    return;
                }
                let at = cairn_base::Pba(table.get().saturating_add(index.into()));
                let Ok(block) = volume.block(at) else { continue };
                let first = index.saturating_mul(per_block);
                let size = as_index(layout.inode_size);
                for (slot, bytes) in (first..).zip(block.chunks_exact(size)) {
                    if slot < layout.inodes_per_group {
                        self::slot(
                            records,
                            walk,
                            layout.ino(group, slot),
                            bytes,
                            wants_directories,
                        );
                    }
                }
            }
        }
    }
}

fn slot(records: &Records<'_>, walk: &mut Walk<'_>, ino: Ino, bytes: &[u8], wants_directory: bool) {
    let volume = records.volume;
    if walk.has_seen(ino.get()) || !walk.goes_on() {
        return;
    }
    let judged = live(volume, ino, bytes).and_then(|_| judge(volume, ino, bytes, None));
    let Some(Judged { record, wrong }) = judged else { return };
    if is_directory(&record) != wants_directory {
        return;
    }
    let (top, record) = match wants_directory {
        true => top(volume, walk, ino, record),
        false => (ino, record),
    };
    walk.see(top.get());
    let path = [LOST, b"/", top.to_string().as_bytes()].concat();
    walk.lost(&path, top.get(), "its name, because no directory leads to it");
    tell(walk, &path, ino, wrong);
    hand_out(volume, walk, top, &record, &path);
    if wants_directory {
        walk.below(records, &(top, record), path);
    }
}

/// The highest directory above one that no name leads to, as far as their `..` lead.
fn top(volume: &RawVolume, walk: &Walk<'_>, ino: Ino, record: Record) -> (Ino, Record) {
    let (mut top, mut record) = (ino, record);
    for _ in 0..HIGHEST {
        let parent = volume.list(top, &record).parent;
        let Some(parent) = parent.filter(|parent| !walk.has_seen(parent.get())) else { break };
        let bytes = volume.record_bytes(parent);
        let above = bytes.and_then(|bytes| live(volume, parent, &bytes));
        let Some(above) = above.filter(is_directory) else { break };
        let leads = volume.list(parent, &above).names.iter().any(|one| one.ino == top);
        if parent == ino || !leads {
            break;
        }
        (top, record) = (parent, above);
    }
    (top, record)
}

/// The record of an inode that a user's file may have, if it is in use and sound.
pub(super) fn live(volume: &RawVolume, ino: Ino, bytes: &[u8]) -> Option<Record> {
    let (mode, links) = Record::mode_and_links(bytes);
    if mode == 0 || links == 0 || is_system(volume, ino) {
        return None;
    }
    Record::verify(bytes, ino, &volume.layout).ok()?;
    let record = Record::decode_unchecked(bytes, &volume.layout)?;
    let is_file = kind_of(&record).is_some()
        && record.dtime == 0
        && !record.flags.contains(InodeFlags::EA_INODE);
    // A checksum tells more than a bitmap does.
    let is_sure =
        volume.layout.checksum.seed().is_some() || volume.is_inode_in_use(ino) != Some(false);
    (is_file && is_sure).then_some(record)
}

/// Is the inode one of the volume's own?
pub(super) fn is_system(volume: &RawVolume, ino: Ino) -> bool {
    let raw = &volume.superblock.raw;
    let named = [
        raw.s_journal_inum,
        raw.s_usr_quota_inum,
        raw.s_grp_quota_inum,
        raw.s_prj_quota_inum,
        raw.s_orphan_file_inum,
    ];
    let number = ino.get();
    (number < u64::from(volume.layout.first_ino) && ino != inodes::ROOT)
        || named.iter().any(|word| u64::from(word.get()) == number)
}
