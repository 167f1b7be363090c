//! An inode's record.

use cairn_base::Ino;
use cairn_base::units::as_index;
use cairn_check::{Detail, Fields};
use cairn_vfs::types::Timestamp;

use super::map;
use super::record::record;
use crate::error::Result;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::raw::RawVolume;
use crate::raw::directory::kind_of;

/// All fields of an inode.
///
/// # Errors
/// Its record cannot be read.
pub(super) fn show(volume: &RawVolume, ino: Ino) -> Result<Fields> {
    let (bytes, record) = record(volume, ino)?;
    let mut fields = Fields::new().with("inode", ino.get());
    if let Some(place) = volume.record_place(ino) {
        let size = u64::from(volume.layout.block_size);
        let at = place.pba.get().saturating_mul(size);
        let at = at.saturating_add(u64::try_from(place.offset).unwrap_or(0));
        fields.put("block", place.pba.get());
        fields.put("offset", place.offset);
        fields.put("byte", at);
    }
    if let Some(in_use) = volume.is_inode_in_use(ino) {
        fields.put("in_use", in_use);
    }
    let kind = kind_of(&record).map_or("none", |kind| kind.words());
    fields.put("type", kind);
    fields.put("i_mode", Detail::Text(format!("{:06o}", record.mode)));
    fields.put("i_uid", record.uid);
    fields.put("i_gid", record.gid);
    fields.put("i_size", record.size);
    fields.put("i_links_count", record.links);
    fields.put("i_blocks", record.blocks_512);
    fields.put("i_flags", Detail::Hex(record.flags.bits().into()));
    let names = record.flags.iter_names().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    fields.put("flags", names);
    fields.put("i_generation", record.generation);
    fields.put("i_version", record.version);
    fields.put("i_file_acl", record.file_acl.get());
    fields.put("i_projid", record.projid);
    fields.put("i_extra_isize", record.extra_isize);
    for (key, stamp) in [
        ("i_atime", record.atime),
        ("i_ctime", record.ctime),
        ("i_mtime", record.mtime),
        ("i_crtime", record.crtime),
    ] {
        fields.put(key, time(stamp));
    }
    if record.dtime != 0 {
        fields.put("i_dtime", Detail::Time(record.dtime.into()));
    }
    if let Some((stored, computed)) = Record::checksums(&bytes, ino, &volume.layout) {
        fields.checksum(stored, computed);
    }
    if record.flags.contains(InodeFlags::INLINE_DATA) {
        let inline = volume.inline_bytes(ino, &record);
        let len = as_index(u32::try_from(record.size).unwrap_or(u32::MAX)).min(inline.len());
        fields.put("inline", Detail::Bytes(inline.get(..len).unwrap_or_default().to_vec()));
    } else if map::has_map(&record) {
        map::put(volume, ino, &record, &mut fields);
    } else {
        fields.put("i_block", Detail::Bytes(record.block.to_vec()));
    }
    Ok(fields)
}

fn time(stamp: Timestamp) -> Fields {
    Fields::new().with("time", Detail::Time(stamp.seconds)).with("nanoseconds", stamp.nanoseconds)
}
