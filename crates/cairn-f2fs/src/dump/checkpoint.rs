//! Both checkpoint packs: fields, and the journals and orphans of the one in use.

use cairn_check::{Detail, Fields};

use crate::checkpoint::{Loaded, read_pack};
use crate::format::Log;
use crate::format::layout::Side;
use crate::format::log::AllocType;
use crate::raw::RawVolume;

/// Both packs.
pub(crate) fn show(volume: &RawVolume) -> Fields {
    let packs = [Side::First, Side::Second].map(|side| pack(volume, side));
    Fields::new().with("packs", packs.to_vec())
}

/// The name of a log, as it is in F2FS.
pub(crate) fn log_name(log: Log) -> &'static str {
    match log {
        Log::HotData => "hot data",
        Log::WarmData => "warm data",
        Log::ColdData => "cold data",
        Log::HotNode => "hot node",
        Log::WarmNode => "warm node",
        Log::ColdNode => "cold node",
    }
}

fn pack(volume: &RawVolume, side: Side) -> Fields {
    let start = volume.layout.pack_start(side);
    let number: u32 = if side == Side::First { 1 } else { 2 };
    let mut fields = Fields::new().with("pack", number).with("block", start.get());
    let is_used = volume.loaded.as_ref().is_some_and(|loaded| loaded.side == side);
    fields.put("used", is_used);
    match read_pack(&volume.buffers, &volume.layout, side) {
        Ok(loaded) => put(&loaded, &mut fields),
        Err(error) => {
            fields.put("valid", false);
            fields.put("error", error.to_string());
        }
    }
    fields
}

fn put(loaded: &Loaded, fields: &mut Fields) {
    let cp = &loaded.checkpoint;
    let flags = cp.flags.iter_names().map(|(name, _)| name.to_ascii_lowercase());
    fields.put("valid", true);
    fields.put("checkpoint_ver", Detail::Hex(cp.version));
    fields.put("ckpt_flags", Detail::Hex(cp.flags.bits().into()));
    fields.put("flags", flags.collect::<Vec<_>>());
    fields.put("user_block_count", cp.user_block_count);
    fields.put("valid_block_count", cp.valid_block_count);
    fields.put("rsvd_segment_count", cp.rsvd_segment_count);
    fields.put("overprov_segment_count", cp.overprov_segment_count);
    fields.put("free_segment_count", cp.free_segment_count);
    fields.put("valid_node_count", cp.valid_node_count);
    fields.put("valid_inode_count", cp.valid_inode_count);
    fields.put("next_free_nid", cp.next_free_nid.get());
    fields.put("cp_pack_total_block_count", cp.pack_total_blocks);
    fields.put("cp_pack_start_sum", cp.pack_start_sum);
    fields.put("sit_ver_bitmap_bytesize", cp.sit_bitmap.len());
    fields.put("nat_ver_bitmap_bytesize", cp.nat_bitmap.len());
    fields.put("elapsed_time", cp.elapsed_time);
    fields.put("checksum_offset", cp.checksum_offset);
    // A pack with another checksum is not valid.
    fields.checksum(cp.crc, cp.crc);
    let logs = Log::ALL.map(|log| {
        let position = cp.log(log);
        Fields::new()
            .with("log", log_name(log))
            .with("segno", position.segno.get())
            .with("blkoff", position.blkoff)
            .with("alloc_type", if position.alloc == AllocType::Ssr { "ssr" } else { "lfs" })
    });
    fields.put("logs", logs.to_vec());
}
