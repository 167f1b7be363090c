//! The superblock of a new volume.

use super::casefold::Encoding;
use super::error::Error;
use super::extensions;
use super::features::Choice;
use super::geometry::Geometry;
use super::identity::Identity;
use super::medium::stored_path;
use crate::format::superblock::{CHECKSUM_OFFSET, DevicePart};
use crate::format::units::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, BlockAddr};
use crate::format::{Features, Nid, Superblock};

/// The program that made the volume. Other tools store the kernel's version in this field.
const VERSION: &str = concat!("Cairn ", env!("CARGO_PKG_VERSION"));
/// Segments of the two checkpoint packs.
const CKPT_SEGMENTS: u32 = 2;

/// `sector` is the device's, in bytes; `quota` are the inodes of quota files.
pub(super) fn build(
    geometry: &Geometry,
    (choice, quota): (&Choice, [Nid; 3]),
    identity: &Identity,
    label: Option<&str>,
    sector: u32,
    paths: &[String],
) -> Result<Superblock, Error> {
    let mut superblock = Superblock::blank();
    if !superblock.set_label(label.unwrap_or_default()) {
        return Err(Error::Option(
            "the label is longer than 511 UTF-16 units: give a shorter one".into(),
        ));
    }
    let features = choice.features;
    superblock.features = features;
    superblock.qf_ino = quota;
    if let Some(Encoding { encoding, flags }) = choice.encoding {
        (superblock.s_encoding, superblock.s_encoding_flags) = (encoding, flags);
    }
    superblock.uuid = *identity.uuid.as_bytes();
    if features.contains(Features::SB_CHECKSUM) {
        superblock.checksum_offset = CHECKSUM_OFFSET as u32;
    }
    let whole_block = BLOCK_SIZE.trailing_zeros();
    superblock.log_sectorsize =
        sector.next_power_of_two().clamp(512, BLOCK_SIZE as u32).trailing_zeros();
    superblock.log_sectors_per_block = whole_block - superblock.log_sectorsize;
    place_areas(&mut superblock, geometry);
    if paths.len() > superblock.devs.len() {
        return Err(Error::Option(format!(
            "a volume can have at most {} devices",
            superblock.devs.len()
        )));
    }
    if paths.len() > 1 {
        for ((part, path), segments) in
            superblock.devs.iter_mut().zip(paths).zip(&geometry.device_segments)
        {
            *part = DevicePart { path: stored_path(path)?, total_segments: *segments };
        }
    }
    for text in [&mut superblock.version, &mut superblock.init_version] {
        text[..VERSION.len()].copy_from_slice(VERSION.as_bytes());
    }
    superblock.extension_count = extensions::COLD.len() as u32;
    superblock.hot_ext_count = extensions::HOT.len() as u8;
    let names = extensions::COLD.iter().chain(&extensions::HOT);
    for (place, name) in superblock.extension_list.iter_mut().zip(names) {
        place[..name.len()].copy_from_slice(name.as_bytes());
    }
    Ok(superblock)
}

fn place_areas(superblock: &mut Superblock, geometry: &Geometry) {
    superblock.segs_per_sec = geometry.segs_per_sec;
    superblock.secs_per_zone = geometry.secs_per_zone;
    superblock.block_count = geometry.block_count;
    superblock.section_count = geometry.sections;
    superblock.segment_count = geometry.segment_count;
    superblock.segment_count_ckpt = CKPT_SEGMENTS;
    superblock.segment_count_sit = geometry.sit_segments;
    superblock.segment_count_nat = geometry.nat_segments;
    superblock.segment_count_ssa = geometry.ssa_segments;
    superblock.segment_count_main = geometry.main_segments;
    superblock.cp_payload = geometry.cp_payload;
    let mut at = geometry.segment0;
    let mut area = |segments: u32| {
        let start = BlockAddr(at);
        at += segments * BLOCKS_PER_SEGMENT;
        start
    };
    superblock.segment0_blkaddr = area(0);
    superblock.cp_blkaddr = area(CKPT_SEGMENTS);
    superblock.sit_blkaddr = area(geometry.sit_segments);
    superblock.nat_blkaddr = area(geometry.nat_segments);
    superblock.ssa_blkaddr = area(geometry.ssa_segments);
    superblock.main_blkaddr = area(0);
    assert_eq!(
        superblock.main_blkaddr.get(),
        geometry.main,
        "the areas end where the main area begins"
    );
}
