//! The allocator against a set of blocks, alone and with threads that contend.

use std::collections::{BTreeSet, HashSet};

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_cache::block::BufferCache;
use proptest::prelude::*;

use super::*;
use crate::format::layout::inodes::ROOT;
use crate::groups::tests::volume;
use crate::mkfs::MkfsOptions;
use crate::txn::Txn;

struct Fixture {
    space: Space,
    txn: Txn,
    buffers: Arc<BufferCache>,
    layout: Arc<Layout>,
}

fn fixture(size: u64) -> Fixture {
    let options =
        MkfsOptions { block_size: Some(1024), reserved_percent: Some(0.0), ..Default::default() };
    let (buffers, groups, layout) = volume(size, &options);
    let space = Space::new(groups, layout.clone(), Simulated::new(3));
    Fixture { space, txn: Txn::Direct(buffers.clone()), buffers, layout }
}

impl Fixture {
    /// What the bitmaps on "disk" say, read by a second table.
    fn free_on_disk(&self) -> u64 {
        let groups =
            GroupTable::open(&self.buffers, &self.layout, &[]).expect("descriptors are valid");
        for number in 0..groups.len() {
            let mut state = groups.group(number).lock();
            let loaded =
                groups.load_map(number, &mut state).expect("bitmap, checksum and counter agree");
            assert!(loaded.is_some());
        }
        groups.free_blocks_total()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Allocate { goal: u64, want: u32 },
    AllocateReserved { goal: u64, want: u32 },
    Mark(usize),
    Cancel(usize),
    Free(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0_u64..40_000, 1_u32..3000).prop_map(|(goal, want)| Op::Allocate { goal, want }),
        3 => (0_u64..40_000, 1_u32..3000).prop_map(|(goal, want)| Op::AllocateReserved { goal,
            want }),
        3 => any::<usize>().prop_map(Op::Mark),
        1 => any::<usize>().prop_map(Op::Cancel),
        2 => any::<usize>().prop_map(Op::Free),
    ]
}

/// Blocks the model holds, each once.
struct Model {
    owned: BTreeSet<u64>,
    allocations: Vec<(Allocation, u64)>,
    marked: Vec<Allocation>,
}

impl Model {
    fn own(&mut self, allocation: &Allocation) {
        for block in allocation.start.get()..allocation.start.get() + u64::from(allocation.len) {
            assert!(self.owned.insert(block), "block {block} was given out twice");
        }
    }

    fn disown(&mut self, allocation: &Allocation) {
        for block in allocation.start.get()..allocation.start.get() + u64::from(allocation.len) {
            assert!(self.owned.remove(&block));
        }
    }

    fn apply(&mut self, fixture: &Fixture, op: Op) {
        let space = &fixture.space;
        match op {
            Op::Allocate { goal, want } => {
                if let Ok(allocation) = space.allocate_for(Pba(goal), want, Class::User) {
                    assert!(allocation.len <= want);
                    self.own(&allocation);
                    self.allocations.push((allocation, 0));
                }
            }
            Op::AllocateReserved { goal, want }
                if space.reserve(want.into(), Class::User).is_ok() =>
            {
                let allocation =
                    space.allocate_reserved(Pba(goal), want).expect("reserved blocks are found");
                space.release(u64::from(want - allocation.len));
                self.own(&allocation);
                self.allocations.push((allocation.clone(), allocation.len.into()));
            }
            Op::Mark(which) if !self.allocations.is_empty() => {
                let (allocation, reserved) =
                    self.allocations.swap_remove(which % self.allocations.len());
                let handle = fixture.txn.begin(8).expect("handle");
                space.mark(&handle, &allocation).expect("marks");
                space.use_reservation(&allocation, reserved);
                self.marked.push(allocation);
            }
            Op::Cancel(which) if !self.allocations.is_empty() => {
                let (allocation, reserved) =
                    self.allocations.swap_remove(which % self.allocations.len());
                self.disown(&allocation);
                space.cancel(allocation);
                space.release(reserved);
            }
            Op::Free(which) if !self.marked.is_empty() => {
                let allocation = self.marked.swap_remove(which % self.marked.len());
                self.disown(&allocation);
                let handle = fixture.txn.begin(8).expect("handle");
                space
                    .free(&handle, allocation.start, allocation.len.into(), Freed::Data)
                    .expect("frees");
                assert!(space.pending_free() >= u64::from(allocation.len), "not before the commit");
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn no_block_is_given_out_twice_and_counters_hold(ops in prop::collection::vec(op(), 1..80)) {
        let fixture = fixture(40 << 20);
        let before = fixture.space.available(Class::Privileged);
        let on_disk = fixture.free_on_disk();
        let mut model = Model { owned: BTreeSet::new(), allocations: Vec::new(),
            marked: Vec::new() };
        for op in ops {
            model.apply(&fixture, op);
            prop_assert_eq!(fixture.space.available(Class::Privileged),
                before.saturating_sub(model.owned.len() as u64));
        }
        let marked: u64 = model.marked.iter().map(|allocation| u64::from(allocation.len)).sum();
        prop_assert_eq!(fixture.free_on_disk(), on_disk - marked);
        prop_assert!(fixture.space.inner.defect.lock().is_none());
    }
}

#[test]
fn contending_threads_never_share_a_block() {
    let fixture = fixture(200 << 20);
    let owned: Vec<Vec<Allocation>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6_u64)
            .map(|worker| {
                let fixture = &fixture;
                scope.spawn(move || {
                    let mut kept = Vec::new();
                    for round in 0..300_u32 {
                        let want =
                            1 + (round * 37 + u32::try_from(worker).expect("small") * 11) % 200;
                        if fixture.space.reserve(want.into(), Class::User).is_err() {
                            continue;
                        }
                        let allocation = fixture
                            .space
                            .allocate_reserved(Pba(worker * 8192), want)
                            .expect("reserved");
                        fixture.space.release(u64::from(want - allocation.len));
                        let handle = fixture.txn.begin(8).expect("handle");
                        fixture.space.mark(&handle, &allocation).expect("marks");
                        fixture.space.use_reservation(&allocation, allocation.len.into());
                        if round % 3 == 0 {
                            fixture
                                .space
                                .free(
                                    &handle,
                                    allocation.start,
                                    allocation.len.into(),
                                    Freed::Metadata,
                                )
                                .expect("frees");
                        } else {
                            kept.push(allocation);
                        }
                    }
                    kept
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    let mut seen = HashSet::new();
    for allocation in owned.iter().flatten() {
        for block in allocation.start.get()..allocation.start.get() + u64::from(allocation.len) {
            assert!(seen.insert(block), "block {block} was given out twice");
        }
    }
    let (free, pending) =
        (fixture.space.inner.groups.free_blocks_total(), fixture.space.pending_free());
    assert_eq!((fixture.free_on_disk(), pending), (free, 0));
}

#[test]
fn every_reserved_block_is_allocated_when_threads_fill_the_volume() {
    let fixture = fixture(24 << 20);
    std::thread::scope(|scope| {
        for worker in 0..4_u64 {
            let fixture = &fixture;
            scope.spawn(move || {
                while fixture.space.reserve(7, Class::User).is_ok() {
                    let mut left = 7;
                    while left > 0 {
                        let allocation = fixture
                            .space
                            .allocate_reserved(Pba(worker * 5000), left)
                            .expect("reserved");
                        fixture.space.use_reservation(&allocation, allocation.len.into());
                        left -= allocation.len;
                    }
                }
            });
        }
    });
    assert!(fixture.space.available(Class::User) < 7);
    assert!(
        fixture
            .space
            .allocate_for(Pba(0), 100, Class::User)
            .is_ok_and(|allocation| allocation.len < 7)
    );
    let handle = fixture.txn.begin(8).expect("handle");
    assert!(
        fixture.space.for_mapping().allocate_block(&handle, Pba(0)).is_ok(),
        "the pool is kept for mapping blocks"
    );
}

#[test]
fn a_free_request_stays_at_its_goal_and_whole() {
    let fixture = fixture(64 << 20);
    let first = fixture.space.allocate_for(Pba(20_000), 500, Class::User).expect("space");
    assert_eq!((first.start, first.len), (Pba(20_000), 500));
    let next = fixture.space.allocate_for(Pba(20_500), 1000, Class::User).expect("space");
    assert_eq!((next.start, next.len), (Pba(20_500), 1000));
    let elsewhere = fixture.space.allocate_for(Pba(20_499), 1000, Class::User).expect("space");
    assert_eq!(elsewhere.len, 1000);
}

#[test]
fn metadata_cannot_be_freed_nor_a_block_twice() {
    let fixture = fixture(16 << 20);
    let handle = fixture.txn.begin(8).expect("handle");
    for (start, count) in
        [(1, 1), (fixture.space.inner.groups.inode_table(0).get(), 1), (u64::MAX, 1), (16_380, 10)]
    {
        assert!(fixture.space.free(&handle, Pba(start), count, Freed::Data).is_err(), "{start}");
    }
    let pba = fixture.space.allocate_block(&handle, Pba(9000)).expect("space");
    fixture.space.free(&handle, pba, 1, Freed::Data).expect("frees");
    assert!(fixture.space.free(&handle, pba, 1, Freed::Data).is_err());
}

#[test]
fn unmark_undoes_a_mark() {
    let fixture = fixture(16 << 20);
    let (available, on_disk) = (fixture.space.available(Class::Privileged), fixture.free_on_disk());
    let allocation = fixture.space.allocate_for(Pba(9000), 10, Class::User).expect("space");
    let handle = fixture.txn.begin(8).expect("handle");
    fixture.space.mark(&handle, &allocation).expect("marks");
    fixture.space.unmark(&handle, allocation).expect("unmarks");
    assert_eq!(
        (fixture.space.available(Class::Privileged), fixture.free_on_disk()),
        (available, on_disk)
    );
}

#[test]
fn inodes_are_unique_reusable_and_counted() {
    let fixture = fixture(64 << 20);
    let total = fixture.space.inner.groups.free_inodes_total();
    let inos: Vec<Ino> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let fixture = &fixture;
                let make = move |n: u32| {
                    let handle = fixture.txn.begin(8).expect("handle");
                    fixture
                        .space
                        .allocate_inode(&handle, ROOT, n.is_multiple_of(10))
                        .expect("an inode")
                };
                scope.spawn(move || (0..400).map(make).collect::<Vec<_>>())
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    assert_eq!(inos.iter().collect::<HashSet<_>>().len(), 1600);
    assert!(inos.iter().all(|ino| ino.get() > 12));
    assert_eq!(fixture.space.inner.groups.free_inodes_total(), total - 1600);
    let handle = fixture.txn.begin(8).expect("handle");
    fixture.space.free_inode(&handle, inos[1], false).expect("frees");
    assert!(fixture.space.free_inode(&handle, inos[1], false).is_err());
    let other = fixture.space.allocate_inode(&handle, inos[1], false).expect("an inode");
    assert_ne!(other, inos[1], "not before the commit");
    drop(handle);
    let handle = fixture.txn.begin(8).expect("handle");
    assert_eq!(fixture.space.allocate_inode(&handle, inos[1], false).expect("an inode"), inos[1]);
    assert!(fixture.space.free_inode(&handle, Ino(8), false).is_err(), "reserved");
    let reopened = GroupTable::open(&fixture.buffers, &fixture.layout, &[]).expect("valid");
    assert!(reopened.inode_in_use(other).expect("the checksum is right"));
}

#[test]
fn top_level_directories_spread_and_others_cluster() {
    let options = MkfsOptions {
        block_size: Some(1024),
        features: vec!["^flex_bg".into()],
        ..Default::default()
    };
    let (buffers, groups, layout) = volume(200 << 20, &options);
    let space = Space::new(groups, layout.clone(), Simulated::new(3));
    let txn = Txn::Direct(buffers);
    let group_of = |ino: Ino| layout.inode_group(ino).expect("valid").0;
    let make = |parent| {
        let handle = txn.begin(8).expect("handle");
        space.allocate_inode(&handle, parent, true).expect("an inode")
    };
    let top: HashSet<u32> = (0..8).map(|_| group_of(make(ROOT))).collect();
    assert!(top.len() >= 7, "{top:?}");
    let parent = make(ROOT);
    assert_eq!(group_of(make(parent)), group_of(parent));
}

#[test]
fn trim_covers_free_blocks_only() {
    let fixture = fixture(16 << 20);
    let allocation = fixture.space.allocate_for(Pba(9000), 100, Class::User).expect("space");
    let mut trimmed = HashSet::new();
    let mut discard = |start: Pba, count: u64| {
        trimmed.extend(start.get()..start.get() + count);
        Ok(())
    };
    let done = fixture.space.trim(Pba(0), u64::MAX, 1, &mut discard).expect("trims");
    assert_eq!(done, trimmed.len() as u64);
    assert_eq!(done, fixture.free_on_disk() - 100);
    assert!(
        (allocation.start.get()..allocation.start.get() + 100)
            .all(|block| !trimmed.contains(&block))
    );
    let none = fixture.space.trim(Pba(0), u64::MAX, 1 << 20, &mut |_, _| Ok(())).expect("trims");
    assert_eq!(none, 0);
}

#[test]
fn trim_passes_over_what_the_device_knows() {
    let fixture = fixture(16 << 20);
    let trim =
        |least| fixture.space.trim(Pba(0), u64::MAX, least, &mut |_, _| Ok(())).expect("trims");
    let kept = fixture.space.allocate_for(Pba(9000), 100, Class::User).expect("space");
    let all = trim(1);
    assert_eq!((all, trim(1), trim(8)), (fixture.free_on_disk() - 100, 0, 0));
    // What is given up makes its group worth another look: there is only one.
    fixture.space.cancel(kept);
    assert_eq!((trim(1), trim(1)), (all + 100, 0));
}
