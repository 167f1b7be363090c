use super::*;
use crate::format::checkpoint::tests::{checkpoint, layout};

fn space(valid: u64) -> Arc<Space> {
    let layout = layout();
    let mut cp = checkpoint(&layout);
    (cp.user_block_count, cp.valid_block_count, cp.valid_node_count, cp.valid_inode_count) =
        (1000, valid, 2, 1);
    (cp.rsvd_segment_count, cp.overprov_segment_count) = (4, 12);
    Space::new(&cp, &layout)
}

#[test]
fn reservations_bound_what_is_used() {
    let space = space(990);
    let mut reservation = space.reserve(10).unwrap();
    assert!(space.reserve(1).is_err() && space.reserve(u64::MAX).is_err());
    reservation.take(3);
    reservation.take_node(true);
    assert_eq!(space.counts(), Counts { valid_blocks: 994, valid_nodes: 3, valid_inodes: 2 });
    assert_eq!((reservation.left(), space.free_blocks(), space.is_dirty()), (6, 0, true));
    let half = reservation.split(4);
    drop(reservation);
    assert_eq!((half.left(), space.free_blocks()), (4, 2));
    drop(half.join(space.reserve(2).unwrap()));
    assert_eq!(space.free_blocks(), 6);
    space.release_node(true);
    space.release(3);
    space.committed();
    assert_eq!((space.counts().valid_blocks, space.is_dirty()), (990, false));
}

#[test]
fn root_has_an_eighth_at_most_to_itself() {
    let space = space(800);
    assert_eq!((space.keep_for_root(100), space.keep_for_root(126)), (100, 125));
    assert_eq!((space.available(true), space.available(false)), (200, 75));
    root_reserved::denied_if(true, || {
        assert!(space.reserve(76).is_err());
        let taken = space.reserve(75).unwrap();
        assert!(space.reserve(1).is_err());
        drop(taken);
    });
    let _all = space.reserve(200).unwrap();
    assert_eq!(space.available(false), 0);
}

#[test]
fn counters_that_were_wrong_on_disk_are_noticed() {
    let space = space(3);
    space.release_node(true);
    space.release(2);
    assert!(!space.is_wrong());
    space.release_node(true);
    assert_eq!((space.is_wrong(), space.counts().valid_blocks), (true, 0));
}

#[test]
fn what_is_pending_takes_sections() {
    let space = space(2);
    let pending = Pending { nodes: 512, ..Pending::default() };
    let required = |pending| {
        let RequiredSections { lower, upper } = space.required_sections(pending);
        (lower, upper)
    };
    assert_eq!(required(pending), (1, 1));
    assert_eq!(required(Pending { nodes: 511, ..pending }), (0, 1));
    assert_eq!(required(Pending { nodes: 500, inodes: 100, dentries: 3, ..pending }), (1, 3));
    assert_eq!(required(Pending::default()), (0, 0));
    // There are eight spare sections beyond the reserve of four. Half of them are for data.
    assert_eq!(required(Pending { data: 513, ..Pending::default() }), (1, 2));
    assert_eq!(required(Pending { data: 1 << 30, ..Pending::default() }), (4, 4));
    assert_eq!(space.reuse_below(Pending { nodes: 1, dentries: 1, ..Pending::default() }), 11);
}

#[test]
fn many_threads_never_exceed_the_limit() {
    let space = space(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..3000_u64 {
                    let Ok(mut reservation) = space.reserve(1 + round % 300) else { continue };
                    let half = reservation.left() / 2;
                    reservation.take(half);
                    let counts = space.counts();
                    assert!(counts.valid_blocks <= 1000);
                    space.release(half);
                }
            });
        }
    });
    assert_eq!((space.counts().valid_blocks, space.free_blocks()), (0, 1000));
}

#[test]
fn no_more_is_kept_than_users_may_have() {
    let space = space(998);
    space.keep(1);
    assert_eq!((space.counts().valid_blocks, space.is_wrong()), (999, false));
    space.keep(2);
    assert_eq!((space.counts().valid_blocks, space.is_wrong()), (1000, true));
}
