//! Compares block pointers with one entry for each block.

use std::collections::BTreeSet;

use cairn_base::{FileBlock, Pba};
use cairn_cache::mapper::Run;
use proptest::prelude::*;

use super::*;
use crate::Error;
use crate::map::testing::Fixture;

/// The blocks of the map. Asserts that none is empty.
fn tree_blocks(fixture: &Fixture) -> BTreeSet<u64> {
    let mut blocks = BTreeSet::new();
    let slots = decode_inode(&fixture.i_block);
    let mut pending: Vec<(u32, u32)> =
        (12..SLOTS).map(|slot| (slots[slot], slot_range(slot, 1024).0)).collect();
    while let Some((pointer, level)) = pending.pop() {
        if pointer == 0 || level == 0 {
            continue;
        }
        assert!(blocks.insert(u64::from(pointer)), "a block of pointers has one parent");
        let pointers = decode(&fixture.buffers.get(Pba(u64::from(pointer))).unwrap().image());
        assert!(pointers.iter().any(|pointer| *pointer != 0), "empty blocks of pointers are freed");
        pending.extend(pointers.into_iter().map(|pointer| (pointer, level - 1)));
    }
    blocks
}

fn check(fixture: &Fixture) {
    fixture.check(400_000, &tree_blocks(fixture));
}

fn ops() -> impl Strategy<Value = Vec<(bool, u64, u64, u32)>> {
    // Around each border between levels: 12, 268 and 65804.
    let start = prop_oneof![
        0..20_u64,
        200..300_u64,
        500..600_u64,
        65_700..66_900_u64,
        131_000..132_000_u64
    ];
    let len = prop_oneof![1..5_u64, 1..700_u64];
    prop::collection::vec((any::<bool>(), start, len, 0..60_u32), 1..16)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn agrees_with_one_entry_per_block(ops in ops()) {
        let mut fixture = Fixture::new(false);
        for (fill, start, len, budget) in ops {
            if fill {
                fixture.fill(start, len, false, budget % 2 == 0);
            } else {
                fixture.remove(start, len, budget);
            }
            check(&fixture);
        }
        fixture.remove(0, u64::MAX, 20);
        check(&fixture);
        prop_assert_eq!(fixture.i_block, [0; 60]);
    }

    #[test]
    fn damaged_pointers_give_errors_or_answers(
        damage in prop::collection::vec((0..1024_usize, any::<u8>(), 0..4_usize), 1..5),
    ) {
        let mut fixture = Fixture::new(false);
        for start in [5, 300, 66_000] {
            fixture.fill(start, 40, false, false);
        }
        let blocks: Vec<u64> = tree_blocks(&fixture).into_iter().collect();
        for (offset, value, block) in damage {
            let at = Pba(blocks[block % blocks.len()]);
            fixture.buffers.get(at).unwrap().modify_direct()[offset] = value;
        }
        let mut at = 0;
        while at < 200_000 {
            match lookup(&fixture.context(), &fixture.i_block, FileBlock(at)) {
                Ok(known) => {
                    assert!(known.start.get() <= at && at < known.end());
                    at = known.end();
                }
                Err(error) => {
                    assert!(matches!(error, Error::Corrupt(_) | Error::Device(_)), "{error:?}");
                    at += 1;
                }
            }
        }
    }
}

#[test]
fn large_removals_take_several_steps() {
    let mut fixture = Fixture::new(false);
    fixture.fill(0, 100_000, false, true);
    check(&fixture);
    let steps = fixture.remove(100, u64::MAX, 30);
    assert!(steps > 5, "{steps}");
    check(&fixture);
}

#[test]
fn a_full_volume_leaves_the_map_as_it_was() {
    let mut fixture = Fixture::new(false);
    fixture.fill(0, 12, false, false);
    fixture.source.limit(Some(2));
    let pba = fixture.source.take(2, false);
    // The first block of the third level needs three pointer blocks, and the last one of the second
    // level two.
    let run = Run { start: FileBlock(65_803), len: 2 };
    let refused = fixture
        .change(|map, handle, i_block| Ok(((), map.insert(handle, i_block, run, pba, false)?)));
    assert!(matches!(refused.unwrap_err(), Error::Vfs(cairn_vfs::Error::NoSpace)));
    fixture.give_back(pba);
    fixture.give_back(Pba(pba.get() + 1));
    check(&fixture);
}

#[test]
fn the_map_ends_where_the_format_does_and_has_no_unwritten_blocks() {
    let mut fixture = Fixture::new(false);
    let last = max_blocks(1024) - 1;
    fixture.fill(last, 1, false, false);
    assert_eq!(lookup(&fixture.context(), &fixture.i_block, FileBlock(last)).unwrap().len, 1);
    let beyond = lookup(&fixture.context(), &fixture.i_block, FileBlock(last + 1)).unwrap();
    assert_eq!((beyond.state, beyond.end()), (State::Hole, u64::MAX));
    let pba = fixture.source.take(1, false);
    let mut insert = |start, unwritten| {
        let run = Run { start: FileBlock(start), len: 1 };
        fixture
            .change(|map, handle, i_block| {
                Ok(((), map.insert(handle, i_block, run, pba, unwritten)?))
            })
            .unwrap_err()
    };
    assert!(matches!(insert(last + 1, false), Error::Vfs(cairn_vfs::Error::TooLarge)));
    assert!(matches!(insert(5, true), Error::Vfs(cairn_vfs::Error::Unsupported(_))));
}
