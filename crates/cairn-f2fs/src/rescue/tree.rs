//! The tree from the root on, and then the inodes that no directory leads to. F2FS stores a name
//! and a parent in each inode, so that most of these have a path, too.

use cairn_cache::block::Image;
use cairn_check::salvage::{DEEPEST, Entry, LOST, Receiver, Tree, Walk, join};
use cairn_vfs::FileKind;

use super::attributes;
use super::contents::{contents, describe};
use super::proof;
use super::scan::Version;
use super::source::{Source, Unrecovered};
use crate::form::names::Names;
use crate::format::Inode;
use crate::format::inode::Advise;
use crate::format::layout::Layout;
use crate::format::units::Nid;
use crate::raw::directory::Named;

/// Hands out everything that can be found.
pub(super) fn walk(source: &Source, receiver: &mut dyn Receiver) {
    let checkpoint = source.volume.loaded.as_ref().map(|loaded| &loaded.checkpoint);
    let total = checkpoint.map_or(0, |checkpoint| u64::from(checkpoint.valid_inode_count));
    let end = source.volume.layout.max_nid().into();
    let Some(mut walk) = Walk::new(receiver, end, total) else { return };
    root(source, &mut walk);
    unnamed(source, &mut walk);
    unrecovered(source, &mut walk);
}

/// Lists what was fsynced and is not recovered.
fn unrecovered(source: &Source, walk: &mut Walk<'_>) {
    let volume = &source.volume;
    for Unrecovered { ino, record, why } in &source.unrecovered {
        let before = volume.inode(*ino).ok().map(|(_, _, record)| record);
        let directory = |above| Some(volume.inode(above).ok()?.2);
        let record = record.as_ref().or(before.as_ref());
        let path = match record.and_then(|record| path_of(*ino, record, directory)) {
            Some(path) => path,
            None if *ino == Nid::ROOT => b"/".to_vec(),
            None => [LOST, b"/", ino.to_string().as_bytes()].concat(),
        };
        let name = record.map(|record| String::from_utf8_lossy(&record.name));
        let of = name.filter(|name| !name.is_empty()).map(|name| format!(" of {name}"));
        let of = of.unwrap_or_default();
        walk.lost(&path, number(*ino), format!("what was fsynced{of} is not recovered: {why}"));
    }
}

fn number(ino: Nid) -> u64 {
    ino.get().into()
}

fn root(source: &Source, walk: &mut Walk<'_>) {
    let ino = Nid::ROOT;
    walk.see(number(ino));
    match source.inode(ino) {
        Ok((image, record, wrong)) if record.kind == FileKind::Directory => {
            if let Some(wrong) = wrong {
                walk.lost(b"/", number(ino), wrong);
            }
            walk.below(source, &(ino, record, image), Vec::new());
        }
        Ok(_) => walk.lost(b"/", number(ino), "the root's inode is no directory"),
        Err(why) => walk.lost(b"/", number(ino), why),
    }
}

impl Tree for Source {
    type Directory = (Nid, Inode, Image);

    fn list(
        &self,
        walk: &mut Walk<'_>,
        (ino, record, image): &(Nid, Inode, Image),
        path: &[u8],
    ) -> Vec<Entry> {
        let fetch = |below| self.fetch(below);
        let listing = self.volume.list_by(*ino, record, image, &fetch);
        for what in listing.faults.into_list() {
            walk.lost(path, number(*ino), what);
        }
        tell_older(self, walk, *ino, path);
        if record.advise.contains(Advise::ENCRYPT) {
            walk.lost(path, number(*ino), "its names are encrypted");
        }
        let names = Names::of(record, self.volume.layout.features);
        let entry = |mut one: Named| {
            match right_name(self, (*ino, names), &one) {
                Some(Ok(name)) => one.name = name,
                Some(Err(what)) => {
                    let path = join(path, &one.name).unwrap_or_default();
                    walk.lost(&path, number(one.ino), what);
                }
                None => {}
            }
            Entry { name: one.name, ino: number(one.ino), code: 0 }
        };
        listing.names.into_iter().map(entry).collect()
    }

    fn named(
        &self,
        walk: &mut Walk<'_>,
        entry: &Entry,
        path: &[u8],
        is_deep: bool,
    ) -> Option<(Nid, Inode, Image)> {
        let number = entry.ino;
        let ino = u32::try_from(number).map(Nid).ok();
        let Some(ino) = ino.filter(|ino| self.volume.layout.is_nid(*ino)) else {
            walk.lost(path, number, "the name leads to an impossible inode");
            return None;
        };
        if walk.has_seen(number) {
            if !walk.link(number, path) {
                walk.lost(path, number, "another name leads to the same inode");
            }
            return None;
        }
        let (image, record, wrong) = match self.inode(ino) {
            Ok(found) => found,
            Err(why) => {
                walk.lost(path, number, why);
                return None;
            }
        };
        if let Some(wrong) = wrong {
            walk.lost(path, number, wrong);
        }
        let is_directory = record.kind == FileKind::Directory;
        if is_directory && is_deep {
            walk.lost(path, number, "it is too deep in the tree: it is in lost/");
            return None;
        }
        hand_out(self, walk, ino, (&record, &image), path);
        is_directory.then_some((ino, record, image))
    }
}

/// The name that an entry had, if its hash is not that of its name: what its inode, or the hash
/// itself, says. The text says that it is not known.
fn right_name(
    source: &Source,
    (directory, names): (Nid, Names),
    entry: &Named,
) -> Option<Result<Vec<u8>, &'static str>> {
    names.hash(&entry.name).filter(|hash| *hash != entry.hash)?;
    let record = source.volume.inode(entry.ino).ok().map(|(_, _, record)| record);
    let own = record.filter(|record| record.pino == directory && !record.name.is_empty());
    let own = own.map(|record| record.name.to_vec());
    let is_right = |name: &Vec<u8>| *name == entry.name || names.hash(name) == Some(entry.hash);
    if let Some(own) = own.filter(is_right) {
        return Some(Ok(own));
    }
    let near = names.with_hash(&entry.name, entry.hash);
    Some(near.ok_or("the hash of its name is that of another name: the name may be wrong"))
}

fn hand_out(
    source: &Source,
    walk: &mut Walk<'_>,
    ino: Nid,
    (record, image): (&Inode, &[u8]),
    path: &[u8],
) {
    let record = &source.recovered(ino, record);
    walk.see(number(ino));
    if record.links > 1 && record.kind != FileKind::Directory {
        walk.remember(number(ino), path);
    }
    let fetch = |below| source.fetch(below);
    walk.found(
        describe(ino, record, image, path.to_vec()),
        |found, receiver| attributes::add(ino, (record, image), &fetch, found, receiver),
        || contents(&source.volume, ino, record, image, &fetch),
    );
    tell_older(source, walk, ino, path);
}

/// Lists the nodes of an inode of which an older version was taken.
fn tell_older(source: &Source, walk: &mut Walk<'_>, ino: Nid, path: &[u8]) {
    for below in source.take_older() {
        let what = format!("of its node {} an older version was copied", below.nid);
        walk.lost(path, number(ino), what);
    }
}

/// Inodes that the NAT has, or that are newer, and no name led to. Without a checkpoint, all inodes
/// of the log.
fn unnamed(source: &Source, walk: &mut Walk<'_>) {
    let volume = &source.volume;
    if volume.loaded.is_none() {
        source.scan().inodes().into_iter().for_each(|ino| one(source, walk, ino));
        return;
    }
    let mut newer: Vec<Nid> = volume.newer.keys().copied().collect();
    newer.sort_unstable();
    newer.into_iter().for_each(|ino| one(source, walk, ino));
    volume.journals.nat.0.iter().for_each(|(nid, _)| one(source, walk, *nid));
    for block in 0..volume.layout.nat_blocks() {
        if !walk.goes_on() {
            return;
        }
        let pba = volume.layout.nat_address(block, volume.nat_side(block));
        let Ok(image) = volume.block(pba) else { continue };
        if image.iter().all(|byte| *byte == 0) {
            continue;
        }
        let first = Layout::first_nid(block);
        let entries = (first.get()..).map(Nid).zip(crate::format::nat::entries(&image));
        for (nid, entry) in entries {
            if !entry.is_free() && entry.ino == nid {
                one(source, walk, nid);
            }
        }
    }
    if volume.has_lost_pack {
        later(source, walk);
    }
}

/// Inodes that were written after the checkpoint, which another one followed that is damaged.
fn later(source: &Source, walk: &mut Walk<'_>) {
    let Some(loaded) = &source.volume.loaded else { return };
    let now = u32::try_from(loaded.checkpoint.version & 0xffff_ffff).unwrap_or(0);
    for ino in source.scan().inodes() {
        let is_later = |version: &Version| {
            version.ino == ino && version.checkpoint.wrapping_sub(now).cast_signed() >= 0
        };
        if source.scan().of(ino).iter().any(is_later) {
            one(source, walk, ino);
        }
    }
}

fn one(source: &Source, walk: &mut Walk<'_>, ino: Nid) {
    let volume = &source.volume;
    let is_hidden = ino < Nid::ROOT || volume.layout.quota_inodes.contains(&ino);
    if !walk.goes_on() || is_hidden || walk.has_seen(number(ino)) {
        return;
    }
    let found = if volume.loaded.is_some() && !volume.has_lost_pack {
        proof::inode(volume, ino).or_else(|why| proof::unsealed(volume, ino).ok_or(why))
    } else {
        source.inode(ino)
    };
    // An inode without links was being deleted.
    let Some((image, record, wrong)) = found.ok().filter(|(_, record, _)| record.links > 0) else {
        return;
    };
    let directory = |above| Some(volume.inode(above).ok()?.2);
    let path = path_of(ino, &record, directory)
        .unwrap_or_else(|| [LOST, b"/", ino.to_string().as_bytes()].concat());
    // The recovery of a mount makes the entry of what was fsynced.
    let is_recovered = volume.newer.contains_key(&ino) && !path.starts_with(&[LOST, b"/"].concat());
    if !is_recovered {
        walk.lost(&path, number(ino), "its name, because no directory leads to it");
    }
    if let Some(wrong) = wrong {
        walk.lost(&path, number(ino), wrong);
    }
    hand_out(source, walk, ino, (&record, &image), &path);
    if record.kind == FileKind::Directory {
        walk.below(source, &(ino, record, image), path);
    }
}

/// The path that an inode and the directories above it say they have. `directory` finds one of
/// these; one that is gone is in `lost/`.
pub(super) fn path_of(
    ino: Nid,
    record: &Inode,
    directory: impl Fn(Nid) -> Option<Inode>,
) -> Option<Vec<u8>> {
    let knows = |record: &Inode| {
        !record.advise.intersects(Advise::LOST_PINO | Advise::ENC_NAME) && !record.name.is_empty()
    };
    if !knows(record) || ino == Nid::ROOT {
        return None;
    }
    let mut names = vec![record.name.to_vec()];
    let mut above = record.pino;
    while above != Nid::ROOT {
        match directory(above).filter(|record| record.kind == FileKind::Directory && knows(record))
        {
            Some(record) if names.len() < DEEPEST => {
                names.push(record.name.to_vec());
                above = record.pino;
            }
            _ => {
                names.push(above.to_string().into_bytes());
                names.push(LOST.to_vec());
                break;
            }
        }
    }
    names.iter().rev().try_fold(Vec::new(), |path, name| join(&path, name))
}
