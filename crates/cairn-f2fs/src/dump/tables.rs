//! Entries of the NAT and the SIT, and summaries.

use cairn_check::{Detail, Fields};

use super::checkpoint::log_name;
use crate::error::{Error, Result};
use crate::format::layout::{Layout, Side};
use crate::format::nat::NatEntry;
use crate::format::units::{BLOCKS_PER_SEGMENT, Nid, SegNo};
use crate::format::{SitEntry, Summary};
use crate::raw::{RawVolume, Stands};

/// Most segments that are listed.
const MOST: usize = 1 << 20;

fn put_stands(fields: &mut Fields, stands: Stands) {
    match stands {
        Stands::Journal => fields.put("from", "journal"),
        Stands::Area(block) => {
            fields.put("from", "area");
            fields.put("stored_in", block.get());
        }
    }
}

pub(crate) fn put_entry(fields: &mut Fields, entry: NatEntry) {
    fields.put("version", entry.version);
    fields.put("ino", entry.ino.get());
    fields.put("block_addr", entry.block_addr.get());
}

/// The entry of a nid: the one in use, and both copies in the area.
///
/// # Errors
/// There is no such nid, or its entry cannot be read.
pub(super) fn nat(volume: &RawVolume, nid: u32) -> Result<Fields> {
    let nid = Nid(nid);
    let (stands, entry) = volume.nat(nid).map_err(Error::Option)?;
    let mut fields = Fields::new().with("nid", nid.get());
    put_stands(&mut fields, stands);
    put_entry(&mut fields, entry);
    fields.put("free", entry.is_free());
    if let Err(error) = entry.validate(nid, &volume.layout) {
        fields.put("error", error.to_string());
    }
    let (block, index) = Layout::nat_place(nid);
    let used = volume.nat_side(block);
    let copies = [Side::First, Side::Second].map(|side| {
        let mut copy = Fields::new().with("used", side == used).with("index", index);
        match volume.nat_in(nid, side) {
            Ok((pba, entry)) => {
                copy.put("block", pba.get());
                put_entry(&mut copy, entry);
            }
            Err(error) => copy.put("error", error.to_string()),
        }
        copy
    });
    fields.put("copies", copies.to_vec());
    Ok(fields)
}

/// The entry of a segment.
///
/// # Errors
/// There is no such segment, or its entry cannot be read.
pub(super) fn sit(volume: &RawVolume, segno: u32) -> Result<Fields> {
    let segno = SegNo(segno);
    let (stands, entry) = volume.sit(segno).map_err(Error::Option)?;
    let mut fields = segment(volume, segno, &entry);
    put_stands(&mut fields, stands);
    fields.put("valid_map", Detail::Bytes(entry.valid_map.to_vec()));
    Ok(fields)
}

fn segment(volume: &RawVolume, segno: SegNo, entry: &SitEntry) -> Fields {
    let mut fields = Fields::new()
        .with("segno", segno.get())
        .with("block", volume.layout.address(segno, 0).get())
        .with("type", log_name(entry.log))
        .with("valid_blocks", entry.valid_blocks())
        .with("mtime", entry.mtime);
    if let Some(log) = volume.log_in(segno) {
        fields.put("current", log_name(log));
    }
    fields
}

/// All segments with valid blocks or a log.
pub(super) fn segments(volume: &RawVolume) -> Fields {
    let mut list = Vec::new();
    let (mut free, mut errors) = (0_u32, Vec::new());
    for segno in (0..volume.layout.main_segments).map(SegNo) {
        match volume.sit(segno) {
            Ok((_, entry)) if entry.valid_blocks() == 0 && volume.log_in(segno).is_none() => {
                free = free.saturating_add(1);
            }
            Ok((_, entry)) if list.len() < MOST => list.push(segment(volume, segno, &entry)),
            Ok(_) => {}
            Err(error) if errors.len() < MOST => errors.push(error),
            Err(_) => {}
        }
    }
    let mut fields = Fields::new()
        .with("main_segments", volume.layout.main_segments)
        .with("empty_segments", free)
        .with("segments", list);
    if !errors.is_empty() {
        fields.put("errors", errors);
    }
    fields
}

fn owner(fields: &mut Fields, is_node: bool, summary: Summary) {
    fields.put("nid", summary.nid.get());
    if !is_node {
        fields.put("version", summary.version);
        fields.put("ofs_in_node", summary.ofs_in_node);
    }
}

/// The owners of the blocks of a segment.
///
/// # Errors
/// There is no such segment, or its summary cannot be read.
pub(super) fn summary(volume: &RawVolume, segno: u32) -> Result<Fields> {
    let segno = SegNo(segno);
    let (is_node, entries, stands) = volume.summary(segno).map_err(Error::Option)?;
    let mut fields = Fields::new()
        .with("segno", segno.get())
        .with("type", if is_node { "node" } else { "data" });
    match stands {
        Stands::Journal => fields.put("from", "checkpoint"),
        Stands::Area(block) => {
            fields.put("from", "area");
            fields.put("stored_in", block.get());
        }
    }
    let valid = volume.sit(segno).ok().map(|(_, entry)| entry);
    let list: Vec<Fields> = (0_u16..)
        .zip(entries)
        .take(usize::try_from(BLOCKS_PER_SEGMENT).unwrap_or(0))
        .filter(|(_, summary)| !summary.nid.is_none())
        .map(|(offset, summary)| {
            let mut one = Fields::new().with("offset", offset);
            if let Some(valid) = &valid {
                one.put("valid", valid.is_valid(offset));
            }
            owner(&mut one, is_node, summary);
            one
        })
        .collect();
    fields.put("entries", list);
    Ok(fields)
}

/// Adds the owner of a block of the main area.
pub(super) fn put_owner(fields: &mut Fields, is_node: bool, summary: Summary) {
    let mut one = Fields::new().with("type", if is_node { "node" } else { "data" });
    owner(&mut one, is_node, summary);
    fields.put("summary", one);
}
