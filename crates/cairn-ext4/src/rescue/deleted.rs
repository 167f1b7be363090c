//! Deleted inodes.
//!
//! Linux clears the size and the map of an inode when it deletes it, and so does Cairn. Their older
//! records are in the copies of inode tables that the log still has. A record that still has its
//! map (`debugfs` leaves it) is used as it is.

use std::cmp::Reverse;

use cairn_base::units::as_index;
use cairn_base::{Ino, Pba, Tid};
use cairn_check::salvage::Receiver;

use super::age::Age;
use super::candidate::Candidate;
use super::names::Names;
use super::old::Old;
use super::remains::Free;
use super::tree::{is_system, live};
use crate::format::inode::Inode as Record;
use crate::raw::RawVolume;
use crate::raw::directory::kind_of;

/// Most deleted inodes that are listed.
const MOST: usize = 1 << 20;

/// Finds deleted inodes, the last deleted one first.
pub(super) fn find(volume: &RawVolume, receiver: &mut dyn Receiver) -> Vec<Candidate> {
    let old = Old::load(volume);
    let mut list = scan(volume, &old, receiver);
    let newest = |one: &Candidate| (one.deleted, one.tid.map_or(0, |tid| tid.0));
    list.sort_by_key(|one| Reverse(newest(one)));
    let mut free = Free::new(volume);
    let mut extents = 0_usize;
    for candidate in &mut list {
        if extents >= MOST {
            candidate.faults.push("too many deleted files: it was not looked at".to_owned());
            continue;
        }
        let map = candidate.map(volume, &old);
        let end = candidate.record.size.div_ceil(volume.layout.block_size.into());
        let within = map.extents.iter().filter_map(|extent| extent.clip(0, end));
        candidate.left = free.left(&within.collect::<Vec<_>>());
        extents = extents.saturating_add(candidate.left.extents.len());
        candidate.faults = map.faults.into_iter().map(|(_, what)| what).collect();
    }
    let paths = Names::find(volume, &old, &list).paths(&list);
    for (candidate, path) in list.iter_mut().zip(paths) {
        candidate.path = path;
    }
    list
}

fn scan(volume: &RawVolume, old: &Old, receiver: &mut dyn Receiver) -> Vec<Candidate> {
    let layout = &volume.layout;
    let mut list = Vec::new();
    let per_block = layout.block_size.checked_div(layout.inode_size).unwrap_or(1);
    let size = as_index(layout.inode_size);
    for group in 0..layout.groups {
        if !receiver.progress("groups", u64::from(group), layout.groups.into()) {
            break;
        }
        let Some(table) = volume.table(group) else { continue };
        for index in 0..layout.inode_table_blocks() {
            let at = Pba(table.get().saturating_add(index.into()));
            let Ok(now) = volume.block(at) else { continue };
            let versions: Vec<(Tid, Vec<u8>)> = old.of(at).collect();
            let first = index.saturating_mul(per_block);
            for (slot, bytes) in (first..).zip(now.chunks_exact(size)) {
                let ino = layout.ino(group, slot.min(layout.inodes_per_group.saturating_sub(1)));
                if slot >= layout.inodes_per_group || is_system(volume, ino) {
                    continue;
                }
                let within = slot.saturating_sub(first);
                let from = as_index(within).saturating_mul(size);
                let past = versions.iter().filter_map(|(tid, block)| {
                    Some((*tid, block.get(from..from.saturating_add(size))?))
                });
                inode(volume, ino, bytes, past, &mut list);
            }
        }
        if list.len() >= MOST {
            break;
        }
    }
    list
}

/// An inode that has or had a number.
struct Life {
    generation: u32,
    /// The transactions of the newest and the oldest copy that the log has of it.
    logged: Option<(Tid, Tid)>,
    /// Its newest record in the log, unless it is in use.
    record: Option<Record>,
}

/// Those that had this number, the last one first.
fn lives<'b>(
    volume: &RawVolume,
    ino: Ino,
    now: &[u8],
    past: impl Iterator<Item = (Tid, &'b [u8])>,
) -> Vec<Life> {
    let mut lives: Vec<Life> = Vec::new();
    if let Some(record) = live(volume, ino, now) {
        lives.push(Life { generation: record.generation, logged: None, record: None });
    }
    for (tid, bytes) in past {
        let Some(record) = live_once(volume, ino, bytes) else { continue };
        let generation = record.generation;
        match lives.iter_mut().find(|life| life.generation == generation) {
            Some(life) => life.logged = Some((life.logged.map_or(tid, |(newest, _)| newest), tid)),
            None => {
                lives.push(Life { generation, logged: Some((tid, tid)), record: Some(record) });
            }
        }
    }
    lives
}

/// Adds the deleted inodes that had this number.
fn inode<'b>(
    volume: &RawVolume,
    ino: Ino,
    now: &[u8],
    past: impl Iterator<Item = (Tid, &'b [u8])>,
    list: &mut Vec<Candidate>,
) {
    let current = Record::decode_unchecked(now, &volume.layout);
    let current = current.filter(|_| Record::verify(now, ino, &volume.layout).is_ok());
    let lives = lives(volume, ino, now, past);
    let mut next: Option<Tid> = None;
    for (at, life) in lives.iter().enumerate() {
        let before = lives.get(at.saturating_add(1)).and_then(|life| life.logged);
        let named = Age::between(before.map(|(newest, _)| newest), next);
        if let (Some(record), Some((newest, _))) = (&life.record, life.logged) {
            let same = current.as_ref().filter(|record| record.generation == life.generation);
            let deleted = same.map_or(0, |record| record.dtime);
            list.push(Candidate::new(ino, record.clone(), Some(newest), deleted, named));
        }
        next = life.logged.map(|(_, oldest)| oldest).or(next);
    }
    let Some(record) = current else { return };
    let is_deleted = record.dtime != 0 && record.links == 0 && kind_of(&record).is_some();
    if is_deleted && lives.iter().all(|life| life.generation != record.generation) {
        let before = lives.first().and_then(|life| life.logged);
        let named = Age::between(before.map(|(newest, _)| newest), None);
        let deleted = record.dtime;
        list.push(Candidate::new(ino, record, None, deleted, named));
    }
}

/// The record of an inode that was in use when this copy was logged.
fn live_once(volume: &RawVolume, ino: Ino, bytes: &[u8]) -> Option<Record> {
    let (mode, links) = Record::mode_and_links(bytes);
    if mode == 0 || links == 0 {
        return None;
    }
    Record::verify(bytes, ino, &volume.layout).ok()?;
    let record = Record::decode_unchecked(bytes, &volume.layout)?;
    (kind_of(&record).is_some() && record.dtime == 0).then_some(record)
}
