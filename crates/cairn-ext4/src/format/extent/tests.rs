//! Round trips, the place of the checksum, and every defect of a node.

use cairn_base::{Ino, Pba};

use super::*;

const SITE: Site = Site { ino: Ino(12), pba: Pba(99) };
const BOUNDS: Bounds<'_> = Bounds {
    start: 0,
    end: MAX_FILE_BLOCKS,
    volume_start: 1,
    volume_end: 1 << 40,
    system: SystemBlocks::NONE,
};

fn extent(start: u64, len: u64, pba: u64, unwritten: bool) -> Extent {
    Extent { start, len, pba: Pba(pba), unwritten }
}

fn leaf(extents: Vec<Extent>) -> Vec<u8> {
    let mut block = vec![0; 1024];
    Node { depth: 0, entries: Entries::Leaf(extents) }.encode_block(&mut block, InodeSeed(Some(7)));
    block
}

fn what(result: Result<(), Corrupt>) -> &'static str {
    match result {
        Err(Corrupt::Mapping { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nodes_round_trip() {
    let extents = vec![
        extent(0, 32768, 0x1234_5678_9abc, false),
        extent(32768, 32767, 5, true),
        extent(90000, 1, 9, true),
    ];
    let block = leaf(extents.clone());
    let view = NodeView::parse(&block, Some(0), SITE).unwrap();
    view.verify_checksum(&block, InodeSeed(Some(7)), SITE).unwrap();
    assert_eq!(view.decode(), Node { depth: 0, entries: Entries::Leaf(extents) });

    let inner = Node {
        depth: 3,
        entries: Entries::Inner(vec![Index { start: 7, child: Pba(0xffff_0000_0001) }]),
    };
    let mut root = [0xee; ROOT_BYTES];
    inner.encode_root(&mut root);
    assert_eq!(NodeView::parse(&root, None, SITE).unwrap().decode(), inner);
}

#[test]
fn bytes_are_those_of_the_format() {
    let block = leaf(vec![extent(0x0102, 3, 0x0004_0000_0005, false), extent(0x0200, 2, 6, true)]);
    assert_eq!(block[..12], [0x0a, 0xf3, 2, 0, 84, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(block[12..24], [2, 1, 0, 0, 3, 0, 4, 0, 5, 0, 0, 0]);
    assert_eq!(block[24..36], [0, 2, 0, 0, 2, 0x80, 0, 0, 6, 0, 0, 0]);
    assert_eq!(block[1020..], crc32c(7, &block[..1020]).to_le_bytes());
}

#[test]
fn capacities_leave_room_for_the_checksum() {
    for (size, entries) in [(1024, 84), (2048, 169), (4096, 340), (65536, 5460)] {
        assert_eq!(block_capacity(size), entries);
        assert!(12 + entries * 12 + 4 <= size as usize);
    }
}

#[test]
fn headers_are_checked() {
    let good = leaf(vec![extent(0, 1, 5, false)]);
    for (at, byte, fault) in [
        (0, 0, "extent node has a wrong magic"),
        (2, 85, "extent node has an impossible number of entries"),
        (4, 0, "extent node has an impossible capacity"),
        (4, 85, "extent node has an impossible capacity"),
        (6, 1, "extent node has a wrong depth"),
        (6, 6, "extent node has a wrong depth"),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert_eq!(what(NodeView::parse(&bad, Some(0), SITE).map(|_| ())), fault);
    }
    let mut empty_inner = good.clone();
    (empty_inner[2], empty_inner[6]) = (0, 1);
    assert!(NodeView::parse(&empty_inner, Some(1), SITE).is_err());
    assert!(NodeView::parse(&good[..11], Some(0), SITE).is_err());
}

#[test]
fn a_changed_byte_fails_the_checksum() {
    let mut block = leaf(vec![extent(0, 1, 5, false)]);
    block[500] ^= 1;
    let view = NodeView::parse(&block, Some(0), SITE).unwrap();
    let error = view.verify_checksum(&block, InodeSeed(Some(7)), SITE).unwrap_err();
    assert!(matches!(error, Corrupt::Checksum { what: "extent block", place: 99, .. }));
    view.verify_checksum(&block, InodeSeed(None), SITE).unwrap();
}

#[test]
fn entries_are_checked() {
    let check = |extents: Vec<Extent>, bounds: &Bounds<'_>| {
        let block = leaf(extents);
        NodeView::parse(&block, Some(0), SITE).unwrap().validate(bounds, SITE)
    };
    let overlap = "extent overlaps or leaves its node's range";
    assert_eq!(what(check(vec![extent(0, 2, 5, false), extent(1, 1, 9, false)], &BOUNDS)), overlap);
    assert_eq!(what(check(vec![extent(9, 1, 5, false), extent(1, 1, 9, false)], &BOUNDS)), overlap);
    let narrow = Bounds { start: 10, end: 20, ..BOUNDS };
    assert_eq!(what(check(vec![extent(9, 1, 5, false)], &narrow)), overlap);
    assert_eq!(what(check(vec![extent(19, 2, 5, false)], &narrow)), overlap);
    let outside = "extent lies outside the volume or in its metadata";
    assert_eq!(what(check(vec![extent(0, 1, 0, false)], &BOUNDS)), outside);
    assert_eq!(what(check(vec![extent(0, 2, (1 << 40) - 1, false)], &BOUNDS)), outside);
    check(vec![extent(10, 4, 5, false), extent(14, 6, 9, true)], &narrow).unwrap();
}

#[test]
fn find_names_extent_hole_and_child() {
    let block = leaf(vec![extent(10, 5, 50, false), extent(20, 5, 90, true)]);
    let view = NodeView::parse(&block, Some(0), SITE).unwrap();
    let bounds = Bounds { start: 5, end: 40, ..BOUNDS };
    let find = |at| view.find(at, &bounds, SITE).unwrap();
    assert_eq!(find(7), Found::Hole { start: 5, end: 10 });
    assert_eq!(find(14), Found::Extent(extent(10, 5, 50, false)));
    assert_eq!(find(15), Found::Hole { start: 15, end: 20 });
    assert_eq!(find(30), Found::Hole { start: 25, end: 40 });

    let mut root = [0; ROOT_BYTES];
    let indexes = vec![Index { start: 10, child: Pba(3) }, Index { start: 20, child: Pba(4) }];
    Node { depth: 1, entries: Entries::Inner(indexes) }.encode_root(&mut root);
    let view = NodeView::parse(&root, None, SITE).unwrap();
    let find = |at| view.find(at, &bounds, SITE).unwrap();
    assert_eq!(find(5), Found::Hole { start: 5, end: 10 });
    assert_eq!(
        find(19),
        Found::Child(Index { start: 10, child: Pba(3) }, Bounds { start: 10, end: 20, ..BOUNDS })
    );
    assert_eq!(
        find(39),
        Found::Child(Index { start: 20, child: Pba(4) }, Bounds { start: 20, end: 40, ..BOUNDS })
    );
}

#[test]
fn unsorted_entries_give_an_error_or_an_answer_in_bounds() {
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    let bounds = Bounds { start: 100, end: 5000, volume_end: 1 << 20, ..BOUNDS };
    for round in 0..20_000_u64 {
        let mut block =
            leaf((0..20).map(|i| extent(100 + i * 7, 3, 10 + i * 9, i % 2 == 0)).collect());
        for _ in 0..4 {
            let at = 12 + usize::from(random());
            block[at] = random();
        }
        block[6] = (round % 2) as u8;
        let view = NodeView::parse(&block, None, SITE).unwrap();
        let at = 100 + round % 4900;
        match view.find(at, &bounds, SITE) {
            Ok(Found::Extent(extent)) => {
                assert!(extent.start <= at && at < extent.end() && extent.end() <= bounds.end)
            }
            Ok(Found::Hole { start, end }) => {
                assert!(bounds.start <= start && start <= at && at < end && end <= bounds.end)
            }
            Ok(Found::Child(_, child)) => {
                assert!(bounds.start <= child.start && child.end <= bounds.end)
            }
            Err(error) => assert!(matches!(error, Corrupt::Mapping { .. })),
        }
    }
}
