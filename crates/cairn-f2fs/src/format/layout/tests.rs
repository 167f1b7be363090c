use super::*;

/// The superblock that mkfs.f2fs gives a file of 512 MiB.
pub(crate) fn superblock() -> Superblock {
    let mut sb = Superblock::blank();
    sb.block_count = 131_072;
    sb.segment_count = 255;
    sb.section_count = 248;
    (sb.segment_count_ckpt, sb.segment_count_sit, sb.segment_count_nat) = (2, 2, 2);
    (sb.segment_count_ssa, sb.segment_count_main) = (1, 248);
    sb.segment0_blkaddr = BlockAddr(512);
    sb.cp_blkaddr = BlockAddr(512);
    sb.sit_blkaddr = BlockAddr(1536);
    sb.nat_blkaddr = BlockAddr(2560);
    sb.ssa_blkaddr = BlockAddr(3584);
    sb.main_blkaddr = BlockAddr(4096);
    sb
}

const SIZE: u64 = 512 << 20;

#[test]
fn addresses_go_both_ways() {
    let layout = Layout::new(&superblock(), SIZE).unwrap();
    assert_eq!(layout.address(SegNo(0), 0), BlockAddr(4096));
    assert_eq!(layout.segment_of(BlockAddr(4096 + 513)), Some((SegNo(1), 1)));
    assert_eq!(layout.segment_of(BlockAddr(4096 + 248 * 512)), None);
    for special in [BlockAddr::NULL, BlockAddr::NEW, BlockAddr::COMPRESS, BlockAddr(4095)] {
        assert_eq!(layout.segment_of(special), None);
    }
    assert_eq!(layout.max_nid(), 455 * 512);
    assert!(!layout.is_nid(Nid(0)) && layout.is_nid(Nid(1)) && !layout.is_nid(Nid(455 * 512)));
    assert_eq!(layout.pack_start(Side::Second), Pba(1024));
    assert_eq!(layout.summary_address(SegNo(5)), Pba(3589));
    assert_eq!(
        (layout.nat_bitmap_bytes(), layout.sit_bitmap_bytes(), layout.sit_blocks_used()),
        (64, 64, 5)
    );
}

#[test]
fn nat_copies_are_interleaved_and_sit_copies_are_not() {
    let mut layout = Layout::new(&superblock(), SIZE).unwrap();
    (layout.nat_segments, layout.sit_segments) = (8, 8);
    assert_eq!(layout.nat_address(513, Side::First), Pba(2560 + 1024 + 1));
    assert_eq!(layout.nat_address(513, Side::Second), Pba(2560 + 1024 + 512 + 1));
    assert_eq!(layout.sit_address(513, Side::First), Pba(1536 + 513));
    assert_eq!(layout.sit_address(513, Side::Second), Pba(1536 + 2048 + 513));
    assert_eq!(Layout::nat_place(Nid(456)), (1, 1));
    assert_eq!(Layout::sit_place(SegNo(54)), (0, 54));
}

#[test]
fn contradictions_are_named() {
    type Change = fn(&mut Superblock);
    let changes: [(&str, Change); 15] = [
        ("segment_count", |sb| sb.segment_count = 8),
        ("segment_count", |sb| sb.block_count = 255 * 512 - 1),
        ("section_count", |sb| sb.section_count = 0),
        ("segs_per_sec", |sb| sb.segs_per_sec = 2),
        ("secs_per_zone", |sb| sb.secs_per_zone = 249),
        ("segment_count_ckpt", |sb| sb.segment_count_ckpt = 3),
        ("segment_count_nat", |sb| sb.segment_count_nat = 3),
        // The blocks of one copy, 512 per segment, exceed 32 bits.
        ("nat_blkaddr", |sb| sb.segment_count_sit = 1 << 24),
        ("nat_blkaddr", |sb| sb.segment_count_sit = u32::MAX - 1),
        ("ssa_blkaddr", |sb| sb.segment_count_nat = u32::MAX - 1),
        ("cp_payload", |sb| sb.cp_payload = 504),
        ("cp_blkaddr", |sb| sb.segment0_blkaddr = BlockAddr(1)),
        ("ssa_blkaddr", |sb| sb.ssa_blkaddr = BlockAddr(3585)),
        ("segment_count_main", |sb| (sb.segment_count_main, sb.section_count) = (249, 249)),
        ("devs", |sb| {
            for part in &mut sb.devs[..2] {
                (part.path[0], part.total_segments) = (b'x', 100);
            }
        }),
    ];
    for (name, change) in changes {
        let mut sb = superblock();
        change(&mut sb);
        match Layout::new(&sb, SIZE) {
            Err(Corrupt::Superblock { field, .. }) => assert_eq!(field, name),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(Layout::new(&superblock(), SIZE - (8 << 20)).is_err(), "a cut device");
}
