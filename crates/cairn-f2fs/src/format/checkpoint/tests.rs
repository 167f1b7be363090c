use super::*;
use crate::format::layout::tests::superblock;

pub(crate) fn layout() -> Layout {
    Layout::new(&superblock(), 512 << 20).unwrap()
}

pub(crate) fn checkpoint(layout: &Layout) -> Checkpoint {
    let mut logs = [LogPosition::default(); Log::COUNT];
    for (at, position) in (0..).zip(&mut logs) {
        *position = LogPosition { segno: SegNo(at * 7), blkoff: at as u16, alloc: AllocType::Lfs };
    }
    Checkpoint {
        version: 0x6b8b_4567,
        user_block_count: 101_376,
        valid_block_count: 2,
        rsvd_segment_count: 28,
        overprov_segment_count: 50,
        free_segment_count: 242,
        logs,
        flags: CheckpointFlags::UMOUNT | CheckpointFlags::CRC_RECOVERY,
        pack_total_blocks: 6,
        pack_start_sum: 1 + layout.cp_payload,
        valid_node_count: 1,
        valid_inode_count: 1,
        next_free_nid: Nid(4),
        checksum_offset: 0,
        elapsed_time: 77,
        sit_bitmap: (0..layout.sit_bitmap_bytes()).map(|n| n as u8).collect(),
        nat_bitmap: (0..layout.nat_bitmap_bytes()).map(|n| !n as u8).collect(),
        crc: 0,
    }
}

#[test]
fn every_placement_of_the_bitmaps_survives_the_disk() {
    let normal = layout();
    let mut payload = normal;
    (payload.cp_payload, payload.sit_segments) = (1, 100);
    let mut large = normal;
    (large.cp_payload, large.nat_segments) = (2, 150);
    let cases =
        [(normal, 4092, false), (payload, 4092, false), (normal, 192, true), (large, 192, true)];
    for (layout, checksum_at, is_large) in cases {
        let mut written = checkpoint(&layout);
        written.flags.set(CheckpointFlags::LARGE_NAT_BITMAP, is_large);
        let blocks = written.encode(&layout);
        let read = Checkpoint::decode(&blocks, 512, &layout).unwrap();
        assert_eq!(read, written);
        assert_eq!(
            (read.checksum_offset, blocks.len()),
            (checksum_at, 4096 * (1 + layout.cp_payload as usize))
        );
        assert_ne!(read.crc, 0);
    }
}

#[test]
fn a_changed_byte_is_noticed_on_both_sides_of_the_checksum() {
    let layout = layout();
    let mut written = checkpoint(&layout);
    written.flags.insert(CheckpointFlags::LARGE_NAT_BITMAP);
    for at in [0, 191, 193, 200, 4095] {
        let mut blocks = written.encode(&layout);
        blocks[at] ^= 0x10;
        assert!(
            matches!(
                Checkpoint::decode(&blocks, 512, &layout),
                Err(Corrupt::Checksum { place: 512, .. })
            ),
            "{at}"
        );
    }
}

#[test]
fn impossible_fields_are_named() {
    type Change = fn(&mut Checkpoint);
    let changes: [(&str, Change); 8] = [
        ("cur_segno", |cp| cp.logs[1].segno = SegNo(248)),
        ("cur_segno", |cp| cp.logs[1].segno = cp.logs[5].segno),
        ("cur_blkoff", |cp| cp.logs[5].blkoff = 512),
        ("user_block_count", |cp| cp.user_block_count = 248 * 512),
        ("valid_block_count", |cp| cp.valid_block_count = 101_377),
        ("valid_node_count", |cp| cp.valid_node_count = 3),
        ("rsvd_segment_count", |cp| cp.rsvd_segment_count = 0),
        ("free_segment_count", |cp| cp.free_segment_count = 250),
    ];
    let layout = layout();
    for (name, change) in changes {
        let mut cp = checkpoint(&layout);
        change(&mut cp);
        match Checkpoint::decode(&cp.encode(&layout), 512, &layout) {
            Err(Corrupt::Checkpoint { field, .. }) => assert_eq!(field, name),
            other => panic!("{name}: {other:?}"),
        }
    }
    let mut other = layout;
    other.nat_segments = 4;
    assert!(
        Checkpoint::decode(&checkpoint(&layout).encode(&layout), 512, &other).is_err(),
        "bitmap size"
    );
}

#[test]
fn versions_of_nodes() {
    let layout = layout();
    let mut cp = checkpoint(&layout);
    let _ = cp.encode(&layout);
    assert_eq!(cp.node_version(), u64::from(cp.crc) << 32 | 0x6b8b_4567);
    assert!(cp.is_node_version(cp.node_version()) && !cp.is_node_version(0x6b8b_4567));
    cp.flags = CheckpointFlags::NOCRC_RECOVERY;
    assert!(cp.is_node_version(0x6b8b_4567 | 9 << 32) && !cp.is_node_version(0x6b8b_4568));
    let mut later = cp.clone();
    (cp.version, later.version) = (u64::MAX, 1);
    assert!(later.is_after(&cp) && !cp.is_after(&later) && !cp.is_after(&cp));
}
