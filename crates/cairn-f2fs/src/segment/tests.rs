//! Random work against a model that knows every block.

use std::collections::{BTreeMap, BTreeSet};

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_cache::budget::Budget;

use super::*;
use crate::checkpoint::summaries::CurrentSummaries;
use crate::format::checkpoint::tests::{checkpoint, layout};
use crate::format::summary::{ENTRIES, SitJournal};
use crate::format::units::BLOCK_SIZE;
use crate::format::{Nid, bits, sit};

/// An empty volume whose six logs stand at the start of the first six segments.
fn empty_volume(mode: Mode, main_segments: u32, segs_per_sec: u32) -> Segments {
    volume_with_capacity(mode, main_segments, segs_per_sec, segs_per_sec * 512)
}

/// As [`empty_volume`]; only the first `capacity` blocks of each section can be written.
fn volume_with_capacity(
    mode: Mode,
    main_segments: u32,
    segs_per_sec: u32,
    capacity: u32,
) -> Segments {
    let mut layout = layout();
    layout.unusable_per_section = segs_per_sec * 512 - capacity;
    layout.segs_per_sec = segs_per_sec;
    layout.main_segments = main_segments;
    layout.sections = main_segments / segs_per_sec;
    let device: Arc<MemoryDevice> = Arc::new(MemoryDevice::new(1 << 30));
    let mut cp = checkpoint(&layout);
    (cp.valid_node_count, cp.valid_block_count) = (0, 0);
    for log in Log::ALL {
        cp.logs[log.index()].segno = SegNo(log.index() as u32 * segs_per_sec);
        cp.logs[log.index()].blkoff = 0;
        cp.logs[log.index()].alloc = crate::format::log::AllocType::Lfs;
    }
    let summaries = CurrentSummaries {
        entries: std::array::from_fn(|_| vec![Summary::default(); ENTRIES]),
        kbytes_written: 0,
    };
    Segments::load(SegmentSources {
        layout,
        checkpoint: &cp,
        summaries,
        journal: SitJournal::default(),
        cache: BufferCache::new(device, BLOCK_SIZE as u32, Budget::new(1 << 18)),
        runtime: Threads::new(),
        mode,
    })
    .expect("an empty SIT is right")
}

/// Writes a plan and commits it.
fn commit(segments: &Segments) {
    let queued = segments.queued_summaries();
    for summary in &queued {
        let bytes = summary.block.to_vec();
        segments.cache.device().write_at(summary.at.get() * BLOCK_SIZE as u64, bytes).unwrap();
    }
    segments.summaries_written(queued);
    let plan = segments.plan();
    for (at, block) in &plan.blocks {
        segments.cache.device().write_at(at.get() * BLOCK_SIZE as u64, block.clone()).unwrap();
    }
    segments.committed(plan);
}

#[derive(Default)]
struct Model {
    valid: BTreeMap<u32, Owner>,
    /// Valid at the last checkpoint or placed since: never to be placed before the next.
    untouchable: BTreeSet<u32>,
}

impl Model {
    fn place(&mut self, segments: &Segments, log: Log, owners: &[Owner]) -> Option<Placed> {
        let expected = segments.next_address(log);
        let placed = segments.place(log, owners).ok()?;
        assert_eq!(placed.address, expected, "the log's next block is where it said");
        assert_eq!(placed.next, segments.next_address(log));
        assert!((1..=owners.len()).contains(&placed.count));
        for (index, owner) in owners[..placed.count].iter().enumerate() {
            let addr = placed.address.get() + index as u32;
            let (segno, block) = segments.layout.segment_of(BlockAddr(addr)).unwrap();
            assert!(
                block < segments.layout.usable_blocks(segno),
                "block {block} of segment {segno} cannot be written"
            );
            assert!(self.untouchable.insert(addr), "block {addr} is written over");
            assert_eq!(self.valid.insert(addr, *owner), None);
        }
        assert!(!self.untouchable.contains(&placed.next.get()), "the next block is free");
        Some(placed)
    }

    /// Takes back the first valid block at or behind that of this number, going round.
    fn invalidate(&mut self, segments: &Segments, block: u32) {
        let from = segments.layout.main + block % (segments.layout.main_segments * 512);
        let mut round = self.valid.range(from..).chain(self.valid.range(..from));
        let Some(addr) = round.next().map(|(addr, _)| *addr) else { return };
        segments.invalidate(BlockAddr(addr)).unwrap();
        self.valid.remove(&addr);
        assert!(segments.invalidate(BlockAddr(addr)).is_err(), "twice");
    }

    fn commit(&mut self, segments: &Segments) {
        commit(segments);
        self.untouchable = self.valid.keys().copied().collect();
        assert!(!segments.is_dirty());
    }

    fn check(&self, segments: &Segments) {
        let state = segments.state.lock();
        state.table.check();
        let used: BTreeSet<SegNo> = self
            .valid
            .keys()
            .map(|addr| segments.layout.segment_of(BlockAddr(*addr)).unwrap().0)
            .collect();
        let current: Vec<SegNo> = state.logs.iter().map(LogState::segno).collect();
        let free = (0..segments.layout.main_segments).map(SegNo);
        let usable = free.filter(|segno| segments.layout.usable_blocks(*segno) > 0);
        let free = usable.filter(|segno| !used.contains(segno) && !current.contains(segno)).count();
        assert_eq!(state.table.free_segment_count() as usize, free);
        assert_eq!(state.table.valid_total(), self.valid.len() as u64);
        drop(state);
        for (addr, owner) in self.valid.iter().step_by(17) {
            assert!(segments.is_valid(BlockAddr(*addr)));
            assert_eq!(segments.owner_of(BlockAddr(*addr)).unwrap().1, *owner);
        }
    }
}

fn random_work(mode: Mode, segs_per_sec: u32, seed: u64) {
    random_work_on(&empty_volume(mode, 48, segs_per_sec), seed);
}

fn random_work_on(segments: &Segments, seed: u64) {
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mode = segments.mode();
    let mut model = Model::default();
    let blocks = (segments.layout.sections * segments.layout.section_capacity()) as usize;
    let limit = if mode == Mode::Lfs { blocks / 4 } else { blocks * 3 / 5 };
    let (mut nid, mut fulls) = (10, 0);
    for step in 0..6000 {
        match random.u32(..100) {
            0..45 if model.valid.len() < limit => {
                let log = Log::ALL[random.usize(..6)];
                let owners: Vec<Owner> = (0..random.usize(1..300))
                    .map(|ofs| Owner { nid: Nid(nid), version: 1, ofs_in_node: ofs as u16 })
                    .collect();
                nid += 1;
                fulls += usize::from(model.place(segments, log, &owners).is_none());
            }
            0..97 => {
                (0..random.usize(1..120)).for_each(|_| model.invalidate(segments, random.u32(..)))
            }
            97 => segments.set_reuse_below(random.u32(..30)),
            _ => model.commit(segments),
        }
        if step % 200 == 0 {
            model.check(segments);
        }
    }
    model.commit(segments);
    model.check(segments);
    println!("{fulls} refusals, {} blocks", model.valid.len());
    let reused = segments.stats.segments_ssr.get();
    assert_eq!(reused > 0, mode == Mode::Adaptive, "{reused} segments were taken for their holes");
}

#[test]
fn adaptive_placement_never_touches_what_a_checkpoint_needs() {
    (0..6).for_each(|seed| random_work(Mode::Adaptive, 1, seed));
}

#[test]
fn placement_without_reuse() {
    (10..14).for_each(|seed| random_work(Mode::Lfs, 1, seed));
}

#[test]
fn sections_of_several_segments() {
    (20..23).for_each(|seed| random_work(Mode::Adaptive, 4, seed));
    (23..25).for_each(|seed| random_work(Mode::Lfs, 4, seed));
}

#[test]
fn sections_of_zones_with_less_capacity_than_size() {
    for (capacity, seed) in [(1536, 30), (1200, 31), (512, 32)] {
        random_work_on(&volume_with_capacity(Mode::Lfs, 48, 4, capacity), seed);
    }
}

#[test]
fn a_section_ends_where_its_zone_does() {
    let segments = volume_with_capacity(Mode::Lfs, 48, 4, 1200);
    assert_eq!((segments.free_sections(), segments.free_segments()), (6, 18 + 6 * 2));
    let owners = vec![Owner { nid: Nid(9), ..Owner::default() }; 2048];
    let placed: Vec<_> = (0..4).map(|_| segments.place(Log::ColdData, &owners).unwrap()).collect();
    assert_eq!(placed.iter().map(|placed| placed.count).collect::<Vec<_>>(), [512, 512, 176, 512]);
    assert_eq!(
        segments.layout.section_of(segments.layout.segment_of(placed[3].address).unwrap().0),
        6
    );
    let end = BlockAddr(placed[2].address.get() + 176);
    assert!(
        segments.adopt(end, Log::ColdData, owners[0]).is_err(),
        "no log can have written there"
    );
    segments.protect(end);
    (0..1200)
        .for_each(|block| segments.invalidate(BlockAddr(placed[0].address.get() + block)).unwrap());
    assert_eq!((segments.free_sections(), segments.prefree_segments()), (5, 3));
    commit(&segments);
    assert_eq!((segments.free_sections(), segments.prefree_segments()), (6, 0));
    // A log whose position is not the zone's write pointer continues at the end of its section, as
    // long as that has one.
    segments.resume(8 * 1200).unwrap();
    segments.state.lock().table.check();
}

#[test]
fn a_full_volume_says_so_and_recovers() {
    let segments = empty_volume(Mode::Adaptive, 12, 1);
    let mut model = Model::default();
    let owners = vec![Owner { nid: Nid(9), ..Owner::default() }; 512];
    while model.place(&segments, Log::WarmData, &owners).is_some() {}
    model.check(&segments);
    assert_eq!((segments.free_segments(), model.valid.len()), (0, 7 * 512 - 1));
    (0..600).for_each(|nth| model.invalidate(&segments, nth * 7));
    assert!(model.place(&segments, Log::WarmData, &owners).is_none(), "not before a checkpoint");
    model.commit(&segments);
    assert!(model.place(&segments, Log::WarmData, &owners).is_some());
    model.check(&segments);
}

#[test]
fn a_segment_is_free_only_after_the_checkpoint() {
    let segments = empty_volume(Mode::Lfs, 48, 1);
    let owners = vec![Owner { nid: Nid(9), ..Owner::default() }; 512];
    let first = segments.place(Log::ColdData, &owners).unwrap();
    assert_eq!((first.count, segments.free_segments()), (512, 41));
    (0..512).for_each(|block| segments.invalidate(BlockAddr(first.address.get() + block)).unwrap());
    assert_eq!(
        (segments.free_segments(), segments.prefree_segments(), segments.free_segment_count()),
        (41, 1, 42)
    );
    let plan = segments.plan();
    assert_eq!(segments.freed_runs(), [(first.address, 512)]);
    assert_eq!((segments.free_segments(), segments.prefree_segments()), (41, 1));
    segments.committed(plan);
    assert_eq!((segments.free_segments(), segments.prefree_segments()), (42, 0));
    assert!(segments.freed_runs().is_empty());
}

#[test]
fn the_sit_overflows_into_blocks_and_is_read_again() {
    let segments = empty_volume(Mode::Lfs, 240, 1);
    let owner = Owner { nid: Nid(9), ..Owner::default() };
    let mut bitmap = segments.state.lock().bitmap.clone();
    for round in 0..5 {
        // Full segments: 20 entries change in all, and two more groups of one or two.
        (0..6 + 7 * round).for_each(|_| {
            assert_eq!(segments.place(Log::WarmData, &[owner; 512]).unwrap().count, 512)
        });
        let _ = segments.place(Log::ColdData, &[owner; 3]).unwrap();
        let plan = segments.plan();
        assert!(plan.journal.0.len() <= 6);
        for (at, block) in &plan.blocks {
            let index =
                (at.get() - u64::from(segments.layout.sit)) as u32 % segments.layout.sit_blocks();
            assert_ne!(
                bits::test(&plan.bitmap, index as usize),
                bits::test(&bitmap, index as usize),
                "the other copy"
            );
            let first = index * sit::ENTRIES_PER_BLOCK as u32;
            for entry in 0..sit::ENTRIES_PER_BLOCK as u32 {
                let segno = SegNo(first + entry);
                if segno.get() < 240 {
                    assert_eq!(
                        sit::entry(block, entry as usize, segno).unwrap(),
                        segments.entry(segno)
                    );
                }
            }
        }
        bitmap.clone_from(&plan.bitmap);
        segments.committed(plan);
    }
}

#[test]
fn recovery_adopts_blocks_wherever_they_are() {
    let segments = empty_volume(Mode::Adaptive, 48, 1);
    let owner = |ofs| Owner { nid: Nid(9), version: 3, ofs_in_node: ofs };
    let _ = segments.place(Log::WarmData, &[owner(0); 512]).unwrap();
    let closed = segments.layout.address(SegNo(Log::WarmData.index() as u32), 7);
    segments.invalidate(closed).unwrap();
    commit(&segments);
    let current = segments.next_address(Log::HotData);
    let free = segments.layout.address(SegNo(40), 100);
    for (ofs, addr) in [closed, current, free].into_iter().enumerate() {
        segments.adopt(addr, Log::WarmData, owner(ofs as u16)).unwrap();
        assert!(segments.is_valid(addr));
        assert_eq!(segments.owner_of(addr).unwrap().1, owner(ofs as u16));
        assert!(segments.adopt(addr, Log::WarmData, owner(0)).is_err(), "it is in use");
    }
    assert!(
        segments.adopt(segments.next_address(Log::WarmNode), Log::WarmData, owner(0)).is_err(),
        "among nodes"
    );
    assert!(segments.adopt(BlockAddr(5), Log::WarmData, owner(0)).is_err(), "outside");
    let protected = segments.layout.address(SegNo(41), 0);
    segments.protect(protected);
    segments.protect(BlockAddr::NEW);
    segments.resume(0).unwrap();
    for log in Log::ALL {
        let (segno, block) = segments.layout.segment_of(segments.next_address(log)).unwrap();
        assert!(block == 0 && ![SegNo(40), SegNo(41)].contains(&segno), "{log:?} in {segno}");
    }
    segments.state.lock().table.check();
    let free = segments.free_segments();
    commit(&segments);
    // Five empty segments that logs left, and the protected one.
    assert_eq!(segments.free_segments(), free + 6);
    segments.state.lock().table.check();
    assert_eq!(segments.owner_of(free_addr(&segments)).unwrap().1, owner(2));
}

/// What a full volume has for recovery: the ends of sections that its logs, and those of the life
/// before, are in.
#[test]
fn logs_go_on_behind_what_counts_where_free_sections_are_few() {
    let segments = empty_volume(Mode::Lfs, 48, 2);
    let owner = |ofs| Owner { nid: Nid(9), version: 3, ofs_in_node: ofs };
    while segments.free_sections() > 4 {
        let _ = segments.place(Log::ColdData, &[owner(0); 512]).unwrap();
    }
    commit(&segments);
    let at = |log| segments.layout.segment_of(segments.next_address(log)).unwrap();
    // The chain, and a block of data in the second segment of the log's section.
    let (chain, data) = (at(Log::WarmNode), at(Log::WarmData));
    (0..7).for_each(|block| segments.protect(segments.layout.address(chain.0, block)));
    let adopted = segments.layout.address(SegNo(data.0.get() + 1), 20);
    segments.adopt(adopted, Log::WarmData, owner(1)).unwrap();
    let hot = at(Log::HotNode);
    segments.resume(2 * 1024).unwrap();
    assert_eq!(segments.free_sections(), 4);
    assert_eq!(at(Log::WarmNode), (chain.0, 7));
    assert_eq!(at(Log::WarmData), (SegNo(data.0.get() + 1), 21));
    assert_eq!(at(Log::HotNode), hot, "nothing is in its way");
    segments.state.lock().table.check();
    let _ = segments.place(Log::WarmData, &[owner(2); 9]).unwrap();
    assert_eq!(
        [
            segments.owner_of(adopted).unwrap().1,
            segments.owner_of(BlockAddr(adopted.get() + 1)).unwrap().1
        ],
        [owner(1), owner(2)]
    );
    // Of four free sections one may be taken: three are for the checkpoint.
    segments.resume(0).unwrap();
    assert_eq!(segments.free_sections(), 3);
}

fn free_addr(segments: &Segments) -> BlockAddr {
    segments.layout.address(SegNo(40), 100)
}

/// A checkpoint does not free such a segment, and is not written to do so.
#[test]
fn a_segment_that_is_left_alone_is_taken_by_no_log() {
    let segments = empty_volume(Mode::Adaptive, 12, 1);
    let owners = vec![Owner { nid: Nid(9), ..Owner::default() }; 512];
    let first = segments.place(Log::ColdData, &owners).unwrap();
    let (used, _) = segments.layout.segment_of(first.address).unwrap();
    let free = SegNo(11);
    [used, free].into_iter().for_each(|segno| segments.state.lock().table.free.avoid(segno));
    (0..500).for_each(|block| segments.invalidate(BlockAddr(first.address.get() + block)).unwrap());
    commit(&segments);
    assert_eq!(segments.prefree_segments(), 0);
    while let Ok(placed) = segments.place(Log::ColdData, &owners) {
        let (segno, _) = segments.layout.segment_of(placed.address).unwrap();
        assert!(segno != used && segno != free, "{segno}");
    }
    (500..512)
        .for_each(|block| segments.invalidate(BlockAddr(first.address.get() + block)).unwrap());
    commit(&segments);
    assert_eq!((segments.free_segments(), segments.prefree_segments()), (0, 0));
    let both = || [used, free].into_iter();
    assert!(segments.undiscarded_runs(both(), 0).is_empty());
    assert!(segments.bar(free.get()..free.get() + 1).is_err());
}
