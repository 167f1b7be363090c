//! Several threads that place, invalidate, look up and fsync, while another writes checkpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::checkpoint::Reason;
use crate::format::units::BLOCK_SIZE;
use crate::format::{Nid, node::Marks};
use crate::node::Node;
use crate::recovery::chain;
use crate::store::Store;
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;

use super::memory::{judge, open, small};
use super::state::{State, contents};
use super::volume::{files, move_data, nids};

const THREADS: usize = 4;

/// The files of one thread. No other thread uses them.
fn share(store: &Store, thread: usize) -> Vec<Arc<Node>> {
    files(store).into_iter().skip(thread).step_by(THREADS).collect()
}

/// The logs may run out between two checkpoints: the next one frees what was moved.
fn unless_full(outcome: crate::Result<()>) {
    match outcome {
        Ok(()) | Err(crate::Error::Vfs(cairn_vfs::Error::NoSpace)) => {}
        Err(error) => panic!("{error}"),
    }
}

fn work(store: &Store, mine: &[Arc<Node>], random: &mut fastrand::Rng) {
    let node = &mine[random.usize(..mine.len())];
    match random.u32(..10) {
        0..6 => {
            let odd = random.u16(..2);
            unless_full(move_data(store, node, |slot| slot % 2 == odd).map(drop));
        }
        6 => {
            let nid = store.nat.allocate().unwrap();
            assert!(store.nat.lookup(nid).unwrap().is_free());
            store.nat.give_back(nid);
        }
        7 => {
            let _inside = store.operation_lock.lock_op().unwrap();
            drop(node.modify());
            unless_full(store.nodes.write(&store.nodes.marked(node.ino(), false)));
        }
        _ => {
            let nid = Nid(random.u32(3..100));
            if !store.nat.lookup(nid).unwrap().is_free() {
                assert_eq!(store.nodes.get(nid).unwrap().nid(), nid);
            }
        }
    }
}

#[test]
fn checkpoints_among_working_threads() {
    let device = Arc::new(small());
    let store = open(device.clone());
    let before = contents(&store);
    let stop = AtomicBool::new(false);
    let mut written = 0;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let mine = share(store, thread);
                let mut random = fastrand::Rng::with_seed(thread as u64);
                while !stop.load(SeqCst) {
                    work(store, &mine, &mut random);
                }
            });
        }
        // Those that find nothing to do do not count: on a busy machine the threads may not have
        // begun.
        while written < 40 {
            written += usize::from(store.checkpoints.write(Reason::Sync).unwrap());
            std::thread::yield_now();
        }
        stop.store(true, SeqCst);
    });
    store.checkpoints.write(Reason::Umount).unwrap();
    assert_eq!(contents(&store), before);
    assert_eq!((store.nodes.dirty_count(), store.nodes.writes_under_way()), (0, 0));
    let again = open(device.clone());
    assert_eq!(State::of(&again), State::of(&store));
    judge(&*device, "after all threads");
}

#[test]
fn an_fsync_is_reached_by_the_chain() {
    let device = Arc::new(small());
    let store = open(device.clone());
    store.checkpoints.write(Reason::Sync).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                for node in share(store, thread) {
                    let _inside = store.operation_lock.lock_op().unwrap();
                    drop(node.modify());
                    store.nodes.write(&store.nodes.marked(node.ino(), false)).unwrap();
                    assert!(!node.is_dirty() && node.footer().marks == Marks::FSYNC | Marks::COLD);
                    // Whatever was written before by anybody is on the device by now.
                    assert!(in_chain(store, &node), "node {} at {}", node.nid(), node.address());
                }
            });
        }
    });
    assert_eq!(store.nodes.stats.marked.get() as usize, files(&store).len());
    judge(&*device, "an unclean volume");
    assert!(nids(&store).len() > 100);
}

fn in_chain(store: &Store, node: &Node) -> bool {
    let cache = BufferCache::new(store.device.clone(), BLOCK_SIZE as u32, Budget::new(1 << 20));
    let chain = chain::scan(&cache, &store.layout, &store.checkpoints.last()).unwrap();
    chain.iter().any(|found| found.addr == node.address() && found.footer.nid == node.nid())
}
