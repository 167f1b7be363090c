use std::collections::HashSet;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_cache::budget::Budget;

use super::*;
use crate::format::checkpoint::tests::{checkpoint, layout};
use crate::format::units::BLOCK_SIZE;

/// A NAT in which nids 4 to 103 are in use.
fn nat() -> (Arc<MemoryDevice>, Nat) {
    let layout = layout();
    let device = Arc::new(MemoryDevice::new(1 << 30));
    let mut block = vec![0; BLOCK_SIZE];
    (4..104).for_each(|nid| nat::set_entry(&mut block, nid, entry(nid as u32)));
    device.write_at(layout.nat_address(0, Side::First).get() * BLOCK_SIZE as u64, block).unwrap();
    let cache = BufferCache::new(device.clone(), BLOCK_SIZE as u32, Budget::new(1 << 17));
    let mut cp = checkpoint(&layout);
    cp.nat_bitmap.fill(0);
    cp.next_free_nid = Nid(50);
    let journal = NatJournal(vec![
        (Nid(104), entry(104)),
        (Nid(5), NatEntry { version: 9, ..NatEntry::default() }),
    ]);
    (device, Nat::new(Arc::new(layout), cache, &cp, &journal))
}

fn entry(nid: u32) -> NatEntry {
    NatEntry { version: 1, ino: Nid(nid), block_addr: BlockAddr(5000 + nid) }
}

fn commit(device: &MemoryDevice, nat: &Nat) {
    let plan = nat.plan().unwrap();
    for (at, image) in &plan.blocks {
        device.write_at(at.get() * BLOCK_SIZE as u64, image.to_vec()).unwrap();
    }
    nat.committed(plan);
    assert!(!nat.is_dirty());
}

#[test]
fn changes_come_before_the_journal_and_that_before_the_area() {
    let (_, nat) = nat();
    assert_eq!(nat.lookup(Nid(4)).unwrap(), entry(4));
    assert_eq!(nat.lookup(Nid(104)).unwrap(), entry(104));
    assert!(nat.lookup(Nid(5)).unwrap().is_free());
    assert_eq!(nat.set_address(Nid(104), Nid(104), BlockAddr(6000)).unwrap(), BlockAddr(5104));
    assert_eq!(nat.lookup(Nid(104)).unwrap().block_addr, BlockAddr(6000));
    assert!(nat.lookup(Nid(2)).unwrap().is_free() && nat.lookup(Nid(u32::MAX)).unwrap().is_free());
    assert!(nat.free(Nid(u32::MAX)).is_err());
}

#[test]
fn a_freed_nid_waits_for_the_checkpoint_and_gets_a_new_version() {
    let (device, nat) = nat();
    // The lowest free one, which only the journal knows to be free.
    assert_eq!(nat.allocate().unwrap(), Nid(5));
    assert_eq!(nat.version(Nid(5)).unwrap(), 9);
    assert_eq!(nat.free(Nid(4)).unwrap(), Some(BlockAddr(5004)));
    let next = nat.allocate().unwrap();
    assert_eq!(next, Nid(105), "4 is not free yet");
    nat.give_back(next);
    assert_eq!(nat.allocate().unwrap(), next);
    assert_eq!(nat.free(next).unwrap(), None, "it never had an address");
    let other = nat.allocate().unwrap();
    assert_ne!(other, next, "its last user has not let go of it");
    [next, other].into_iter().for_each(|nid| nat.give_back(nid));
    assert_eq!(nat.allocate().unwrap(), next);
    nat.give_back(next);
    commit(&device, &nat);
    assert_eq!(nat.allocate().unwrap(), Nid(4));
    assert_eq!(nat.version(Nid(4)).unwrap(), 2);
    assert_eq!(nat.set_address(Nid(4), Nid(4), BlockAddr(7000)).unwrap(), BlockAddr::NULL);
    assert_eq!(
        nat.lookup(Nid(4)).unwrap(),
        NatEntry { version: 2, ino: Nid(4), block_addr: BlockAddr(7000) }
    );
    nat.free(Nid(4)).unwrap();
    assert_ne!(nat.allocate().unwrap(), Nid(4));
}

#[test]
fn random_changes_survive_many_checkpoints() {
    let (device, nat) = nat();
    let mut random = fastrand::Rng::with_seed(7);
    let mut model: BTreeMap<Nid, NatEntry> =
        (6..105).chain([4]).map(|nid| (Nid(nid), entry(nid))).collect();
    for round in 0..30 {
        let mut fresh = HashSet::new();
        for _ in 0..random.usize(1..300) {
            let known = model.keys().nth(random.usize(..model.len())).copied().unwrap();
            match random.u32(..4) {
                0 => {
                    let version = model.remove(&known).unwrap().version;
                    nat.free(known).unwrap();
                    assert_eq!(nat.lookup(known).unwrap().version, version.wrapping_add(1));
                }
                1 => {
                    let addr = BlockAddr(random.u32(4096..100_000));
                    nat.set_address(known, model[&known].ino, addr).unwrap();
                    model.get_mut(&known).unwrap().block_addr = addr;
                }
                _ => {
                    let nid = nat.allocate().unwrap();
                    assert!(!model.contains_key(&nid), "{nid} is in use");
                    assert!(fresh.insert(nid), "{nid} is given out twice");
                    let version = nat.version(nid).unwrap();
                    let entry = NatEntry {
                        version,
                        ino: nid,
                        block_addr: BlockAddr(random.u32(4096..100_000)),
                    };
                    nat.set(nid, entry);
                    model.insert(nid, entry);
                }
            }
        }
        commit(&device, &nat);
        assert_eq!(nat.state.lock().generation, round + 1);
        for nid in (4..2000).map(Nid) {
            let found = nat.lookup(nid).unwrap();
            assert_eq!(model.get(&nid).copied(), (!found.is_free()).then_some(found), "{nid}");
        }
    }
    assert!(nat.stats.blocks_written.get() > 30, "the journal overflowed");
}

#[test]
fn all_nids_can_be_had_once() {
    let (device, nat) = nat();
    let mut seen = HashSet::new();
    while let Ok(nid) = nat.allocate() {
        assert!(nid >= Nid(4) && nid.get() < nat.layout.max_nid() && seen.insert(nid));
    }
    // Less 0 to 3, and those in use: 4, 6 to 104.
    assert_eq!(seen.len() as u32, nat.layout.max_nid() - 4 - 100);
    let scanned = nat.stats.blocks_scanned.get();
    assert!(nat.allocate().is_err());
    assert_eq!(nat.stats.blocks_scanned.get(), scanned, "it is known that nothing is free");
    nat.give_back(Nid(777));
    assert_eq!(nat.allocate().unwrap(), Nid(777));
    nat.free(Nid(8)).unwrap();
    assert!(nat.allocate().is_err());
    commit(&device, &nat);
    assert_eq!(nat.allocate().unwrap(), Nid(8));
}

#[test]
fn threads_never_share_an_nid() {
    let (device, nat) = nat();
    let all = cairn_base::ranked_lock::Mutex::new(Rank::Leaf, HashSet::new());
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (nat, all) = (&nat, &all);
            scope.spawn(move || {
                for step in 0..3000 {
                    let nid = nat.allocate().unwrap();
                    assert!(all.lock().insert(nid), "{nid} is given out twice");
                    if step % 3 == thread % 3 {
                        all.lock().remove(&nid);
                        nat.give_back(nid);
                    } else {
                        nat.set_address(nid, nid, BlockAddr(5000 + step)).unwrap();
                        assert_eq!(nat.lookup(nid).unwrap().block_addr, BlockAddr(5000 + step));
                    }
                    assert_eq!(nat.lookup(Nid(4)).unwrap(), entry(4));
                }
            });
        }
    });
    commit(&device, &nat);
    assert!(all.into_inner().iter().all(|nid| !nat.lookup(*nid).unwrap().is_free()));
}
