//! The fields of a superblock.

use cairn_base::units::as_index;
use cairn_check::{Detail, Fields};

use crate::format::Features;
use crate::format::checksum::{MAGIC, crc32};
use crate::format::superblock::{OFFSET, SIZE};
use crate::format::units::BLOCK_BYTES;
use crate::raw::RawVolume;

/// The superblock in use.
pub(super) fn show(volume: &RawVolume) -> Fields {
    let sb = &volume.superblock;
    let offset = volume.superblock_block.saturating_mul(BLOCK_BYTES);
    let offset = offset.saturating_add(u64::try_from(OFFSET).unwrap_or(0));
    let mut fields = Fields::new()
        .with("block", volume.superblock_block)
        .with("offset", offset)
        .with("magic", Detail::Hex(MAGIC.into()))
        .with("major_ver", sb.major_ver)
        .with("minor_ver", sb.minor_ver)
        .with("uuid", uuid(&sb.uuid))
        .with("volume_name", sb.label())
        .with("features", sb.features.names())
        .with("feature", Detail::Hex(sb.features.bits().into()))
        .with("log_sectorsize", sb.log_sectorsize)
        .with("log_sectors_per_block", sb.log_sectors_per_block)
        .with("log_blocksize", sb.log_blocksize)
        .with("log_blocks_per_seg", sb.log_blocks_per_seg)
        .with("segs_per_sec", sb.segs_per_sec)
        .with("secs_per_zone", sb.secs_per_zone)
        .with("block_count", sb.block_count)
        .with("section_count", sb.section_count)
        .with("segment_count", sb.segment_count)
        .with("segment_count_ckpt", sb.segment_count_ckpt)
        .with("segment_count_sit", sb.segment_count_sit)
        .with("segment_count_nat", sb.segment_count_nat)
        .with("segment_count_ssa", sb.segment_count_ssa)
        .with("segment_count_main", sb.segment_count_main)
        .with("segment0_blkaddr", sb.segment0_blkaddr.get())
        .with("cp_blkaddr", sb.cp_blkaddr.get())
        .with("sit_blkaddr", sb.sit_blkaddr.get())
        .with("nat_blkaddr", sb.nat_blkaddr.get())
        .with("ssa_blkaddr", sb.ssa_blkaddr.get())
        .with("main_blkaddr", sb.main_blkaddr.get())
        .with("root_ino", sb.root_ino.get())
        .with("node_ino", sb.node_ino.get())
        .with("meta_ino", sb.meta_ino.get())
        .with("cp_payload", sb.cp_payload)
        .with("extension_count", sb.extension_count)
        .with("hot_ext_count", sb.hot_ext_count)
        .with("version", text(&sb.version))
        .with("init_version", text(&sb.init_version))
        .with("s_encoding", sb.s_encoding)
        .with("s_encoding_flags", sb.s_encoding_flags);
    let (cold, hot) = sb.extensions();
    for (key, list) in [("cold_extensions", cold), ("hot_extensions", hot)] {
        let names: Vec<Detail> = list.iter().map(|name| Detail::Name(name.to_vec())).collect();
        fields.put(key, Detail::List(names));
    }
    fields.put("qf_ino", sb.qf_ino.iter().map(|ino| ino.get()).collect::<Vec<_>>());
    fields.put("devices", sb.device_paths());
    fields.put("checksum_offset", sb.checksum_offset);
    if sb.features.contains(Features::SB_CHECKSUM)
        && let Ok(block) = volume.block(cairn_base::Pba(volume.superblock_block))
    {
        let end = OFFSET.saturating_add(as_index(sb.checksum_offset).min(SIZE));
        let covered = block.get(OFFSET..end).unwrap_or_default();
        fields.checksum(sb.crc, crc32(MAGIC, covered));
    }
    fields
}

fn text(bytes: &[u8]) -> Detail {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let bytes = bytes.get(..end).unwrap_or_default();
    Detail::Name(bytes.trim_ascii_end().to_vec())
}

fn uuid(bytes: &[u8; 16]) -> String {
    uuid::Uuid::from_bytes(*bytes).to_string()
}
