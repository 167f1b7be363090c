//! Compares extent trees with one entry for each block, and checks the rules of the tree after
//! every change.

use std::collections::BTreeSet;

use cairn_base::{FileBlock, Pba};
use cairn_cache::mapper::Run;
use proptest::prelude::*;

use super::*;
use crate::Error;
use crate::format::extent::{Entries, MAX_FILE_BLOCKS, Node, NodeView, block_capacity};
use crate::map::BlockMap;
use crate::map::testing::Fixture;

/// The blocks of the tree. Asserts that every node is valid, has a checksum, is not empty, and
/// begins where its parent says.
fn tree_blocks(fixture: &Fixture) -> BTreeSet<u64> {
    let context = fixture.context();
    let mut blocks = BTreeSet::new();
    let root = NodeView::parse(&fixture.i_block, None, context.site(Pba(0))).unwrap();
    root.validate(&context.bounds(), context.site(Pba(0))).unwrap();
    let mut pending = vec![(root.decode(), MAX_FILE_BLOCKS)];
    while let Some((node, end)) = pending.pop() {
        let Entries::Inner(indexes) = &node.entries else { continue };
        for (n, index) in indexes.iter().enumerate() {
            let site = context.site(index.child);
            let image = fixture.buffers.get(index.child).unwrap().image();
            let view = NodeView::parse(&image, Some(node.depth - 1), site).unwrap();
            view.verify_checksum(&image, fixture.seed, site).unwrap();
            let end = indexes.get(n + 1).map_or(end, |next| next.start);
            view.validate(
                &crate::format::extent::Bounds { start: index.start, end, ..context.bounds() },
                site,
            )
            .unwrap();
            let child = view.decode();
            assert_eq!(
                child.entries.first_key(),
                Some(index.start),
                "a key is its child's first entry"
            );
            assert!(blocks.insert(index.child.get()), "a node has one parent");
            pending.push((child, end));
        }
    }
    blocks
}

fn check(fixture: &Fixture, end: u64) {
    fixture.check(end, &tree_blocks(fixture));
}

fn root(fixture: &Fixture) -> Node {
    NodeView::parse(&fixture.i_block, None, fixture.context().site(Pba(0))).unwrap().decode()
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Fill { unwritten: bool, adjacent: bool },
    Convert { unwritten: bool, budget: u32 },
    Remove { budget: u32 },
    Collapse { budget: u32 },
    Insert { budget: u32 },
}

const REACH: u64 = 3000;

fn ops() -> impl Strategy<Value = Vec<(Op, u64, u64)>> {
    let op = prop_oneof![
        5 => (any::<bool>(), any::<bool>()).prop_map(|(unwritten, adjacent)| Op::Fill { unwritten,
            adjacent }),
        4 => (any::<bool>(), 0..60_u32).prop_map(|(unwritten, budget)| Op::Convert { unwritten,
            budget }),
        4 => (0..60_u32).prop_map(|budget| Op::Remove { budget }),
        1 => (0..60_u32).prop_map(|budget| Op::Collapse { budget }),
        1 => (0..60_u32).prop_map(|budget| Op::Insert { budget }),
    ];
    let len = prop_oneof![4 => 1..4_u64, 2 => 1..100_u64, 1 => 1..2000_u64];
    prop::collection::vec((op, 0..REACH, len), 1..40)
}

fn apply(fixture: &mut Fixture, op: Op, start: u64, len: u64) {
    match op {
        Op::Fill { unwritten, adjacent } => fixture.fill(start, len, unwritten, adjacent),
        Op::Convert { unwritten, budget } => drop(fixture.convert(start, len, unwritten, budget)),
        Op::Remove { budget } => drop(fixture.remove(start, len, budget)),
        Op::Collapse { budget } => {
            fixture.remove(start, len, 1000);
            fixture.shift(start + len, -len.cast_signed(), budget);
        }
        Op::Insert { budget } => drop(fixture.shift(start, len.cast_signed(), budget)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn agrees_with_one_entry_per_block(fragments in 0..900_u64, ops in ops()) {
        let mut fixture = Fixture::new(true);
        for n in 0..fragments {
            fixture.fill(n * 3, 1 + n % 2, n % 5 == 0, false);
        }
        for (op, start, len) in ops {
            apply(&mut fixture, op, start, len);
            check(&fixture, 200_000);
        }
        fixture.remove(0, u64::MAX, 8);
        check(&fixture, 200_000);
        prop_assert_eq!(root(&fixture), Node::empty());
    }

    #[test]
    fn mutated_nodes_give_errors_or_answers_but_never_panic(
        mutations in prop::collection::vec((any::<prop::sample::Index>(), any::<u16>(),
            any::<u8>()), 1..6),
        op in prop_oneof![Just(0), Just(1), Just(2), Just(3)],
        at in 0..REACH,
        csum in any::<bool>(),
    ) {
        let mut fixture = Fixture::new(true);
        (0..500).for_each(|n| fixture.fill(n * 3, 1, n % 2 == 0, false));
        let blocks: Vec<u64> = tree_blocks(&fixture).into_iter().collect();
        if !csum {
            // Without checksums, the checks of entries alone must stop the walk.
            fixture.seed = crate::checksum::InodeSeed(None);
        }
        fixture.buffers.write_back().unwrap();
        for (block, offset, value) in mutations {
            // Half of the damage is in the root, the header and the first entries, which have the
            // most effect.
            let offset = if offset & 1 == 0 { offset / 2 % 48 } else { offset / 2 % 1024 };
            let block = Pba(blocks[block.index(blocks.len())]);
            if offset < 60 && value & 3 == 0 {
                fixture.i_block[usize::from(offset)] = value;
            } else {
                fixture.buffers.get(block).unwrap().modify_direct()[usize::from(offset)] = value;
            }
        }
        fixture.buffers.write_back().unwrap();
        let fresh = cairn_cache::block::BufferCache::new(
            fixture.device.clone(), 1024, cairn_cache::budget::Budget::new(1 << 30));
        fixture.buffers = fresh;
        let context = fixture.context();
        let map = BlockMap::new(context, true);
        let mut block = 0;
        let mut steps = 0;
        while block < MAX_FILE_BLOCKS {
            steps += 1;
            assert!(steps < 200_000, "a walk of a damaged tree ends");
            match map.lookup(&fixture.i_block, FileBlock(block)) {
                Ok(known) => {
                    assert!(known.start.get() <= block && block < known.end());
                    block = known.end();
                }
                Err(error) => {
                    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
                    block += 100_000;
                }
            }
        }
        drop(damaged_change(&context, fixture.i_block, op, at));
    }
}

/// Accepts any block, because the blocks of a damaged tree are not in the list of used ones.
struct Careless;

impl crate::space::BlockSource for Careless {
    fn allocate_block(&self, _: &crate::txn::Handle, _: Pba) -> crate::Result<Pba> {
        Ok(Pba(900_000))
    }

    fn free(
        &self,
        _: &crate::txn::Handle,
        _: Pba,
        _: u64,
        _: crate::space::Freed,
    ) -> crate::Result<()> {
        Ok(())
    }
}

fn damaged_change(
    context: &MapContext<'_>,
    mut i_block: [u8; 60],
    op: u8,
    at: u64,
) -> crate::Result<()> {
    let context = MapContext { source: &Careless, ..*context };
    let map = BlockMap::new(context, true);
    let handle = crate::txn::Txn::Direct(context.buffers.clone()).begin(1000)?;
    let run = Run { start: FileBlock(at), len: 500 };
    match op {
        0 => map.insert(&handle, &mut i_block, Run { len: 1, ..run }, Pba(5000), true).map(drop),
        1 => map.convert_written(&handle, &mut i_block, run, 1000).map(drop),
        2 => map.remove(&handle, &mut i_block, run, 1000).map(drop),
        _ => {
            let mut shift = map.begin_shift(&i_block, FileBlock(at), 7)?;
            map.shift(&handle, &mut i_block, &mut shift, 1000).map(drop)
        }
    }
}

#[test]
fn sequential_files_pack_their_nodes() {
    let mut fixture = Fixture::new(true);
    let capacity = block_capacity(1024) as u64;
    for n in 0..capacity * 10 {
        fixture.fill(n, 1, false, false);
    }
    let leaves = tree_blocks(&fixture).len() as u64;
    assert_eq!((leaves, root(&fixture).depth), (10 + 1, 2), "ten full leaves and their index");
    check(&fixture, 1000);
}

#[test]
fn trees_grow_deep_in_any_order_and_shrink_to_nothing() {
    let mut fixture = Fixture::new(true);
    // A permutation of 0..40009 (a prime), so that inserts reach all parts of the tree.
    for n in 0..40_009_u64 {
        let block = n * 20_021 % 40_009 * 2;
        let pba = fixture.source.take(1, false);
        let run = Run { start: FileBlock(block), len: 1 };
        fixture
            .change(|map, handle, i_block| Ok(((), map.insert(handle, i_block, run, pba, false)?)))
            .unwrap();
        fixture.model.insert(block, (pba.get(), false));
    }
    assert_eq!(root(&fixture).depth, 3);
    check(&fixture, 100_000);
    let steps = fixture.remove(1000, u64::MAX, 40);
    assert!(steps > 10, "a large removal takes several steps, not {steps}");
    check(&fixture, 100_000);
    fixture.remove(0, u64::MAX, 1000);
    assert_eq!(root(&fixture), Node::empty());
    check(&fixture, 100_000);
}

#[test]
fn long_runs_become_extents_of_the_longest_length() {
    let mut fixture = Fixture::new(true);
    fixture.fill(10, 100_000, false, false);
    let Entries::Leaf(extents) = root(&fixture).entries else {
        panic!("four extents fit into the root")
    };
    assert_eq!(
        extents.iter().map(|extent| extent.len).collect::<Vec<_>>(),
        [32768, 32768, 32768, 1696]
    );
    fixture.convert(10, 100_000, true, 1000);
    let known = fixture.context();
    assert_eq!(lookup(&known, &fixture.i_block, FileBlock(10)).unwrap().len, 32767);
    check(&fixture, 200_000);
    fixture.convert(10, 100_000, false, 1000);
    check(&fixture, 200_000);
}

#[test]
fn neighbours_merge_and_cuts_split() {
    let mut fixture = Fixture::new(true);
    fixture.fill(0, 10, true, false);
    fixture.fill(10, 10, true, true);
    assert_eq!(root(&fixture).entries.len(), 1);
    fixture.convert(5, 10, false, 1000);
    assert_eq!(root(&fixture).entries.len(), 3);
    fixture.convert(0, 20, false, 1000);
    assert_eq!(root(&fixture).entries.len(), 1);
    fixture.remove(7, 3, 100);
    assert_eq!(root(&fixture).entries.len(), 2);
    fixture.shift(10, -3, 1000);
    assert_eq!(root(&fixture).entries.len(), 2, "not adjacent on the volume");
    check(&fixture, 100);
}

#[test]
fn a_full_volume_leaves_the_tree_as_it_was() {
    let mut fixture = Fixture::new(true);
    (0..84 * 4).for_each(|n| fixture.fill(n * 2, 1, false, false));
    let before = (fixture.i_block, fixture.model.clone());
    // Every leaf and the root are full: a block in the middle needs two more nodes.
    for limit in 0..2 {
        fixture.source.limit(Some(limit));
        let pba = fixture.source.take(1, false);
        let run = Run { start: FileBlock(1), len: 1 };
        let refused = fixture
            .change(|map, handle, i_block| Ok(((), map.insert(handle, i_block, run, pba, false)?)))
            .unwrap_err();
        assert!(matches!(refused, Error::Vfs(cairn_vfs::Error::NoSpace)));
        fixture.model.insert(1, (pba.get(), false));
        fixture.model.remove(&1);
        fixture.give_back(pba);
        assert_eq!((fixture.i_block, &fixture.model), (before.0, &before.1));
        check(&fixture, 1000);
    }
    fixture.source.limit(Some(2));
    fixture.fill(1, 1, false, false);
    assert_eq!(root(&fixture).depth, 2);
    check(&fixture, 1000);
}

#[test]
fn the_file_ends_where_the_format_does() {
    let mut fixture = Fixture::new(true);
    fixture.fill(MAX_FILE_BLOCKS - 2, 2, false, false);
    let context = fixture.context();
    let beyond = lookup(&context, &fixture.i_block, FileBlock(MAX_FILE_BLOCKS)).unwrap();
    assert_eq!((beyond.state, beyond.end()), (State::Hole, u64::MAX));
    let pba = fixture.source.take(1, false);
    for (start, len) in [(MAX_FILE_BLOCKS, 1), (u64::MAX, 1)] {
        let run = Run { start: FileBlock(start), len };
        let refused = fixture
            .change(|map, handle, i_block| Ok(((), map.insert(handle, i_block, run, pba, false)?)));
        assert!(matches!(refused.unwrap_err(), Error::Vfs(cairn_vfs::Error::TooLarge)));
    }
    let refused =
        BlockMap::new(fixture.context(), true).begin_shift(&fixture.i_block, FileBlock(0), 1);
    assert!(matches!(refused.unwrap_err(), Error::Vfs(cairn_vfs::Error::TooLarge)));
}

#[test]
fn moving_down_needs_a_hole() {
    let mut fixture = Fixture::new(true);
    fixture.fill(0, 10, false, false);
    for (from, by) in [(5, -1), (5, -6)] {
        let refused = BlockMap::new(fixture.context(), true).begin_shift(
            &fixture.i_block,
            FileBlock(from),
            by,
        );
        assert!(matches!(refused.unwrap_err(), Error::Vfs(cairn_vfs::Error::Invalid(_))));
    }
    check(&fixture, 100);
}

/// More leaves than one transaction can change: each step must do a part, and none everything.
#[test]
fn many_leaves_are_moved_and_converted_in_many_steps() {
    let leaves = 20;
    let count = block_capacity(1024) as u64 * leaves;
    for by in [-1_i64, 1, 5000] {
        let mut fixture = Fixture::new(true);
        for n in 0..count {
            fixture.fill(10 + n * 2, 1, true, false);
        }
        let budget = 2 * insert_credits(depth(&fixture));
        assert!(fixture.shift(10, by, budget) >= leaves as u32 / 2);
        check(&fixture, count * 2 + 6000);
        let start = 10_u64.checked_add_signed(by).unwrap();
        assert!(fixture.convert(start, count * 2, false, budget) >= leaves as u32 / 2);
        check(&fixture, count * 2 + 6000);
        assert!(fixture.convert(start, count * 2, true, 0) >= leaves as u32);
        check(&fixture, count * 2 + 6000);
        fixture.remove(0, u64::MAX, 1000);
    }
}

/// Levels below the root.
fn depth(fixture: &Fixture) -> u16 {
    NodeView::parse(&fixture.i_block, None, fixture.context().site(Pba(0))).unwrap().depth()
}
