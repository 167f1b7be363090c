use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use cairn_base::{Pba, Tid};
use cairn_block::memory::MemoryDevice;
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;

use super::list::{CheckpointClean, CheckpointList, CheckpointTransaction, JournalHead};

/// A simple model of the list.
#[derive(Default)]
struct Plain {
    /// Oldest first: number, and blocks that are not clean.
    transactions: Vec<(Tid, HashSet<Pba>)>,
    written: Vec<(Pba, Tid)>,
}

impl Plain {
    fn remove(&mut self, pba: Pba) {
        for (_, blocks) in &mut self.transactions {
            blocks.remove(&pba);
        }
    }

    fn front(&self) -> Option<Tid> {
        self.transactions.iter().find(|(_, blocks)| !blocks.is_empty()).map(|(tid, _)| *tid)
    }

    fn listed(&self) -> usize {
        self.transactions.iter().filter(|(_, blocks)| !blocks.is_empty()).count()
    }
}

struct Both {
    random: fastrand::Rng,
    buffers: Arc<BufferCache>,
    list: CheckpointList,
    plain: Plain,
    next: Tid,
    mode: CheckpointClean,
    /// Log blocks of the transactions on the list.
    logged: HashMap<Tid, u32>,
    reclaimed: u32,
    superseded: u64,
}

impl Both {
    fn new(seed: u64, mode: CheckpointClean) -> Self {
        let buffers =
            BufferCache::new(Arc::new(MemoryDevice::new(1 << 20)), 1024, Budget::new(1 << 20));
        Self {
            random: fastrand::Rng::with_seed(seed),
            buffers,
            list: CheckpointList::default(),
            plain: Plain::default(),
            next: Tid(0_u32.wrapping_sub(40)),
            mode,
            logged: HashMap::new(),
            reclaimed: 0,
            superseded: 0,
        }
    }

    fn commit(&mut self) {
        let blocks: HashSet<Pba> =
            (0..self.random.u64(0..6)).map(|_| Pba(self.random.u64(0..60))).collect();
        let entry = |pba: &Pba| {
            let buffer = self.buffers.get(*pba).expect("memory");
            (*pba, JournalHead::new(buffer.image(), buffer))
        };
        let entries: BTreeMap<Pba, JournalHead> = blocks.iter().map(entry).collect();
        let tid = self.next;
        self.next = tid.next();
        let log_blocks = u32::try_from(blocks.len()).expect("few") + 2;
        self.list.push(CheckpointTransaction::new(tid, tid.0, log_blocks, entries));
        blocks.iter().for_each(|pba| self.plain.remove(*pba));
        self.plain.transactions.push((tid, blocks));
        self.logged.insert(tid, log_blocks);
    }

    fn write(&mut self) {
        let left_out = Pba(self.random.u64(0..60));
        let chosen = self.list.choose(self.random.u32(1..200), |pba| pba == left_out);
        let mut some = chosen.blocks;
        some.retain(|_| self.random.bool());
        for (pba, tid) in &some {
            assert_ne!(*pba, left_out);
            assert!(
                self.list.frozen_data(*pba, *tid).is_some(),
                "it is chosen and still to be written"
            );
        }
        self.list.queue_completions(some.iter().copied());
        self.plain.written.extend(some);
    }

    fn flush(&mut self) {
        self.list.drain_completions(self.list.queued(), self.mode);
        for (pba, tid) in std::mem::take(&mut self.plain.written) {
            if let Some((_, blocks)) = self.plain.transactions.iter_mut().find(|(of, _)| *of == tid)
            {
                blocks.remove(&pba);
            }
        }
    }

    fn clean(&mut self) {
        let listed = self.list.listed() as u64;
        let cleaned = self.list.clean(self.mode);
        self.superseded += cleaned.superseded;
        match self.mode {
            CheckpointClean::Scan => {
                assert!(cleaned.steps >= listed && cleaned.freed <= cleaned.steps)
            }
            _ => assert!(cleaned.steps <= cleaned.freed + 1, "{cleaned:?}"),
        }
        let reclaimed = self.list.take_reclaimable();
        self.reclaimed += reclaimed;
        while self.plain.transactions.first().is_some_and(|(_, blocks)| blocks.is_empty()) {
            let (tid, _) = self.plain.transactions.remove(0);
            self.reclaimed -= self.logged.remove(&tid).expect("it was listed");
        }
        assert_eq!(
            self.reclaimed, 0,
            "other log blocks were given up than those of the finished transactions"
        );
        assert_eq!(self.list.oldest().map(|(tid, _)| tid), self.plain.front(), "{:?}", self.mode);
        assert_eq!(self.list.len(), self.plain.transactions.len());
        if self.mode == CheckpointClean::Scan {
            assert_eq!(self.list.listed(), self.plain.listed());
        }
    }
}

#[test]
fn all_ways_of_cleaning_drop_the_same_transactions() {
    let mut superseded = 0;
    for seed in 0..300 {
        let mode = CheckpointClean::ALL[seed as usize % 3];
        let mut both = Both::new(seed, mode);
        for _ in 0..400 {
            match both.random.u8(..20) {
                0..=7 => both.commit(),
                8..=10 => both.write(),
                11..=13 => both.flush(),
                14 => {
                    let pba = Pba(both.random.u64(0..60));
                    both.list.forget(pba);
                    both.plain.remove(pba);
                }
                15 if seed % 2 == 1 => both.mode = CheckpointClean::ALL[both.random.usize(..3)],
                _ => both.clean(),
            }
        }
        both.flush();
        both.clean();
        superseded += both.superseded;
    }
    assert!(superseded > 300, "{superseded} transactions were superseded entirely");
}

#[test]
fn written_blocks_are_not_clean_before_a_flush() {
    for mode in CheckpointClean::ALL {
        let mut both = Both::new(1, mode);
        both.commit();
        while both.list.listed() == 0 {
            both.commit();
        }
        let chosen = both.list.choose(u32::MAX, |_| false).blocks;
        both.list.queue_completions(chosen.iter().copied());
        let before = both.list.oldest();
        both.list.clean(mode);
        assert!(
            both.list.listed() > 0 && both.list.needs_flush(),
            "{mode:?}: dropped without a flush"
        );
        assert!(
            both.list.choose(u32::MAX, |_| false).blocks.is_empty(),
            "{mode:?}: it would be written twice"
        );
        both.list.drain_completions(both.list.queued(), mode);
        both.list.clean(mode);
        assert!(before.is_some() && both.list.is_empty() && !both.list.needs_flush());
    }
}

#[test]
fn a_walk_costs_what_its_mode_says() {
    for (mode, most) in
        [(CheckpointClean::Counted, 1), (CheckpointClean::BailOut, 1), (CheckpointClean::Scan, 100)]
    {
        let mut both = Both::new(1, mode);
        for number in 0..100_u32 {
            let buffer = both.buffers.get(Pba(u64::from(number))).expect("memory");
            let entries =
                BTreeMap::from([(buffer.pba(), JournalHead::new(buffer.image(), buffer.clone()))]);
            both.list.push(CheckpointTransaction::new(Tid(number), number * 3, 3, entries));
        }
        let cleaned = both.list.clean(mode);
        assert_eq!((cleaned.steps, cleaned.freed, both.list.listed()), (most, 0, 100), "{mode:?}");
    }
}
