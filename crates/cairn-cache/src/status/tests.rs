//! Compares the status cache with one state for each block.

use proptest::prelude::*;

use super::*;

const BLOCKS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Remember,
    Delay,
    Undelay,
    Map,
    Preallocate,
    Forget,
    Shrink,
}

/// The state of each block, by the simplest algorithm; `None` is unknown.
type Model = Vec<Option<State>>;

fn apply_model(model: &mut Model, op: Op, run: Run) {
    for (index, slot) in model.iter_mut().enumerate() {
        let block = index as u64;
        let inside = block >= run.start.get() && block < run.start.get() + run.len;
        let delayed = *slot == Some(State::Delayed);
        let pba = Pba(1000 + block);
        match op {
            Op::Remember if inside && !delayed => *slot = Some(State::Mapped(pba)),
            Op::Delay if inside => *slot = Some(State::Delayed),
            Op::Undelay if inside && delayed => *slot = None,
            Op::Map if inside => *slot = Some(State::Mapped(pba)),
            Op::Preallocate if inside => *slot = Some(State::Unwritten(pba)),
            Op::Forget if inside && !delayed => *slot = None,
            Op::Shrink if !delayed => *slot = None,
            _ => {}
        }
    }
}

fn apply(status: &mut ExtentStatus, op: Op, run: Run) {
    let pba = Pba(1000 + run.start.get());
    match op {
        Op::Remember => {
            status.remember(Extent { start: run.start, len: run.len, state: State::Mapped(pba) })
        }
        Op::Delay => status.delay(run),
        Op::Undelay => {
            let delayed = status.delayed_count(run);
            assert_eq!(status.undelay(run), delayed);
        }
        Op::Map => status.set_mapped(run, pba),
        Op::Preallocate => status.set_unwritten(run, pba),
        Op::Forget => status.forget(run),
        Op::Shrink => status.shrink(),
    }
}

/// The largest run of blocks around `block` that continue each other.
fn expected(model: &Model, block: usize) -> Option<Extent> {
    let state = model[block]?;
    let offset = |from: usize, to: usize| state_at(model[from], to as i64 - from as i64);
    let mut start = block;
    while start > 0 && model[start - 1].is_some() && offset(block, start - 1) == model[start - 1] {
        start -= 1;
    }
    let mut end = block + 1;
    while end < BLOCKS && offset(block, end) == model[end] {
        end += 1;
    }
    let first = state_at(Some(state), start as i64 - block as i64)?;
    Some(Extent { start: FileBlock(start as u64), len: (end - start) as u64, state: first })
}

fn state_at(state: Option<State>, by: i64) -> Option<State> {
    let moved = |pba: Pba| Pba(pba.get().saturating_add_signed(by));
    state.map(|state| match state {
        State::Mapped(pba) => State::Mapped(moved(pba)),
        State::Unwritten(pba) => State::Unwritten(moved(pba)),
        other => other,
    })
}

fn ops() -> impl Strategy<Value = Vec<(Op, Run)>> {
    let op = prop_oneof![
        3 => Just(Op::Remember), 4 => Just(Op::Delay), 3 => Just(Op::Undelay), 3 => Just(Op::Map),
        2 => Just(Op::Preallocate), 2 => Just(Op::Forget), 1 => Just(Op::Shrink),
    ];
    let run = (0..BLOCKS as u64, 1..24_u64).prop_map(|(start, len)| Run {
        start: FileBlock(start),
        len: len.min(BLOCKS as u64 - start),
    });
    prop::collection::vec((op, run), 1..60)
}

proptest! {
    #[test]
    fn agrees_with_one_state_per_block(ops in ops()) {
        let mut status = ExtentStatus::new();
        let mut model: Model = vec![None; BLOCKS];
        for (op, run) in ops {
            apply(&mut status, op, run);
            apply_model(&mut model, op, run);
            for block in 0..BLOCKS {
                prop_assert_eq!(status.find(FileBlock(block as u64)), expected(&model, block));
            }
            let is_delayed = |state: &&Option<State>| **state == Some(State::Delayed);
            let delayed = model.iter().filter(is_delayed).count() as u64;
            prop_assert_eq!(status.delayed(), delayed);
            prop_assert_eq!(status.delayed_count(Run { start: FileBlock(0), len: u64::MAX }),
                delayed);
        }
    }
}

#[test]
fn remembering_a_hole_keeps_what_is_delayed_inside_it() {
    let mut status = ExtentStatus::new();
    status.delay(Run { start: FileBlock(10), len: 2 });
    status.remember(Extent { start: FileBlock(0), len: u64::MAX, state: State::Hole });
    assert_eq!(status.find(FileBlock(3)).unwrap().len, 10);
    assert_eq!(status.find(FileBlock(11)).unwrap().state, State::Delayed);
    let tail = status.find(FileBlock(12)).unwrap();
    assert_eq!((tail.start, tail.len, tail.state), (FileBlock(12), u64::MAX - 12, State::Hole));
    assert_eq!(status.next(FileBlock(4)).unwrap().start, FileBlock(0));
}

#[test]
fn ranges_that_can_be_read_again_are_bounded() {
    let mut status = ExtentStatus::new();
    for n in 0..3 * MOST_RANGES as u64 {
        status.remember(Extent {
            start: FileBlock(n * 2),
            len: 1,
            state: State::Mapped(Pba(n * 7 + 1)),
        });
        assert!(status.len() <= MOST_RANGES);
    }
}

#[test]
fn the_mapping_starts_at_the_block_asked_for() {
    let known = Extent { start: FileBlock(5), len: 10, state: State::Unwritten(Pba(100)) };
    let mapping = known.mapping_from(FileBlock(8));
    assert_eq!(
        mapping,
        Mapping { run: Run { start: FileBlock(8), len: 7 }, place: Place::Unwritten(Pba(103)) }
    );
}
