//! Merged checkpoints: the requests that each one serves, their results, and that no request is
//! lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Latency, LatencyProfile, Operation};
use cairn_f2fs::checkpoint::MergeStats;
use cairn_f2fs::store::Store;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::{Caller, FileSystem, NewInode};

use crate::crash::clean;
use crate::held::Held;
use crate::support::{judge, look, open, volume};

fn store(fs: &F2fs) -> &Store {
    fs.store().unwrap()
}

fn stats(fs: &F2fs) -> &MergeStats {
    store(fs).checkpoints.merge_stats()
}

fn touch(fs: &F2fs, directory: Ino, name: &str) {
    let made =
        fs.create(directory, name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
    // Without a reference, an unlinked file is deleted.
    fs.forget(made.ino, 1);
}

fn is_there(fs: &F2fs, name: &str) -> bool {
    fs.lookup(fs.root(), name.as_bytes()).is_ok()
}

/// Blocks until this many requests wait or are served. A request is counted before its thread
/// sleeps.
fn wait_for_requests(fs: &F2fs, count: i64) {
    while stats(fs).queued.get() < count {
        std::thread::yield_now();
    }
}

#[test]
fn a_request_that_comes_during_a_checkpoint_gets_the_next() {
    let below = volume(64 << 20, &[]);
    let held = Held::new(below.clone());
    let fs = open(held.clone(), "");
    fs.sync().unwrap();
    let (version, late_done) = (store(&fs).checkpoints.version(), AtomicBool::new(false));
    held.hold();
    std::thread::scope(|scope| {
        touch(&fs, fs.root(), "early");
        let early = scope.spawn(|| fs.fsync(fs.root(), 0, false).unwrap());
        held.wait_for(1);
        // The first checkpoint waits before its last block, and operations continue.
        touch(&fs, fs.root(), "late");
        let late = scope.spawn(|| {
            fs.sync().unwrap();
            late_done.store(true, SeqCst);
        });
        wait_for_requests(&fs, 2);
        held.release();
        early.join().unwrap();
        held.wait_for(2);
        assert!(!late_done.load(SeqCst), "served by a checkpoint that had begun before");
        let between = look(Arc::new(below.fork()));
        assert!(is_there(&between, "early") && !is_there(&between, "late"));
        held.release();
        late.join().unwrap();
    });
    assert_eq!(store(&fs).checkpoints.version(), version.wrapping_add(2));
    assert_eq!((stats(&fs).queued.get(), stats(&fs).total.get()), (0, 3));
    assert!(is_there(&look(Arc::new(below.fork())), "late"));
    held.open();
    fs.unmount().unwrap();
    judge(&below);
}

#[test]
fn an_fsync_by_nodes_waits_for_the_checkpoint_under_way() {
    let below = volume(64 << 20, &[]);
    let held = Held::new(below.clone());
    let fs = open(held.clone(), "");
    touch(&fs, fs.root(), "file");
    let file = fs.lookup(fs.root(), b"file").unwrap().ino;
    fs.sync().unwrap();
    let done = AtomicBool::new(false);
    held.hold();
    std::thread::scope(|scope| {
        touch(&fs, fs.root(), "other");
        let first = scope.spawn(|| fs.fsync(fs.root(), 0, false).unwrap());
        held.wait_for(1);
        fs.write(file, 0, b"contents", cairn_vfs::IoFlags::empty()).unwrap();
        let nodes = fs.fsync_stats().nodes.get();
        let second = scope.spawn(|| {
            fs.fsync(file, 0, false).unwrap();
            done.store(true, SeqCst);
        });
        // Its nodes have the version of the held checkpoint, so recovery does not use them yet.
        while fs.fsync_stats().flushes.get() == 0 || fs.fsync_stats().nodes.get() == nodes {
            std::thread::yield_now();
        }
        assert!(!done.load(SeqCst));
        held.open();
        first.join().unwrap();
        second.join().unwrap();
    });
    let crashed = Arc::new(below.fork());
    let again = open(crashed.clone(), "");
    let found = again.lookup(again.root(), b"file").unwrap();
    assert_eq!(found.size, 8, "rolled forward from the checkpoint that was under way");
    again.unmount().unwrap();
    judge(&crashed);
    fs.unmount().unwrap();
    judge(&below);
}

#[test]
fn all_requests_of_a_batch_get_the_same_error() {
    let below = volume(64 << 20, &[]);
    let fault = Arc::new(Fault::new(below.clone()));
    let held = Held::new(fault.clone());
    let fs = open(held.clone(), "");
    fs.sync().unwrap();
    held.hold();
    let errors: Vec<String> = std::thread::scope(|scope| {
        touch(&fs, fs.root(), "first");
        let first = scope.spawn(|| fs.fsync(fs.root(), 0, false));
        held.wait_for(1);
        touch(&fs, fs.root(), "second");
        let waiting: Vec<_> =
            (0..5).map(|_| scope.spawn(|| fs.fsync(fs.root(), 0, false))).collect();
        wait_for_requests(&fs, 6);
        fault.fail(Operation::Flush, fault.count(Operation::Flush) + 2, Lasting::Forever);
        held.open();
        first.join().unwrap().unwrap();
        waiting.into_iter().map(|thread| thread.join().unwrap().unwrap_err().to_string()).collect()
    });
    assert!(errors.iter().all(|error| error == &errors[0]), "{errors:?}");
    assert!(fs.create(fs.root(), b"third", NewInode::Regular, 0o644, &Caller::ROOT).is_err());
    assert!(fs.sync().is_err());
    drop(fs);
    let again = look(Arc::new(below.fork()));
    assert!(is_there(&again, "first") && !is_there(&again, "second"));
    clean(&below, "after a checkpoint that was cut short").unwrap();
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Threads create files and fsync their directories until `disturb` returns. `disturb` gets the
/// number of created files.
fn load(fs: &F2fs, disturb: impl FnOnce(&AtomicU64)) {
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let stop_ref = &stop;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (stop, made) = (&stop, &made);
            let name = format!("dir-{thread}");
            let directory = fs
                .create(fs.root(), name.as_bytes(), NewInode::Directory, 0o755, &Caller::ROOT)
                .unwrap()
                .ino;
            scope.spawn(move || {
                for number in 0.. {
                    if stop.load(SeqCst) {
                        break;
                    }
                    touch(fs, directory, &format!("file-{number}"));
                    fs.fsync(directory, 0, false).unwrap();
                    if number > 0 {
                        fs.unlink(directory, format!("file-{}", number - 1).as_bytes()).unwrap();
                    }
                    made.fetch_add(1, SeqCst);
                }
            });
        }
        // The threads also end if `disturb` fails.
        let _stop = Stop(stop_ref);
        disturb(&made);
    });
}

#[test]
fn merging_is_switched_under_load() {
    let device = volume(64 << 20, &[]);
    let profile = LatencyProfile { flush: Duration::from_micros(300), ..LatencyProfile::default() };
    let fs = open(Arc::new(Latency::new(device.clone(), profile)), "");
    let option = |fs: &F2fs| fs.report().text("options.checkpoint").unwrap().to_owned();
    load(&fs, |made| {
        let mut rounds = 0;
        while rounds < 15 || made.load(SeqCst) < 100 {
            rounds += 1;
            fs.remount("nocheckpoint_merge").unwrap();
            assert!(!store(&fs).checkpoints.is_merging());
            let total = stats(&fs).total.get();
            fs.remount("checkpoint=merge").unwrap();
            assert!(store(&fs).checkpoints.is_merging());
            for _ in 0..3 {
                fs.sync().unwrap();
            }
            assert!(stats(&fs).total.get() >= total + 3);
            fs.remount("checkpoint=disable:100%").unwrap();
            assert!(!store(&fs).checkpoints.is_merging() && option(&fs) == "disable:100%");
            fs.remount("checkpoint=enable").unwrap();
            assert!(store(&fs).checkpoints.is_merging());
        }
    });
    assert_eq!(stats(&fs).queued.get(), 0);
    fs.unmount().unwrap();
    assert!(!store(&fs).checkpoints.is_merging());
    drop(fs);
    judge(&device);
}

/// Ends or pauses a mount while a checkpoint is in flight and other threads wait for the next one.
/// All are served.
fn serves_waiters(end: fn(&F2fs) -> cairn_vfs::Result<()>) -> (Arc<MemoryDevice>, Arc<F2fs>) {
    let below = volume(64 << 20, &[]);
    let held = Held::new(below.clone());
    let fs = open(held.clone(), "");
    fs.sync().unwrap();
    held.hold();
    std::thread::scope(|scope| {
        touch(&fs, fs.root(), "first");
        let mut waiting = vec![scope.spawn(|| fs.fsync(fs.root(), 0, false))];
        held.wait_for(1);
        touch(&fs, fs.root(), "second");
        waiting.extend((0..3).map(|_| scope.spawn(|| fs.fsync(fs.root(), 0, false))));
        wait_for_requests(&fs, 4);
        waiting.push(scope.spawn(|| end(&fs)));
        held.open();
        waiting.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    });
    assert_eq!(stats(&fs).queued.get(), 0);
    assert!(stats(&fs).total.get() >= 5 && !store(&fs).checkpoints.is_merging());
    assert!(is_there(&look(Arc::new(below.fork())), "second"));
    judge(&below);
    (below, fs)
}

#[test]
fn an_unmount_serves_waiting_fsyncs() {
    serves_waiters(|fs| fs.unmount());
}

/// A frozen volume has no daemon until the thaw.
#[test]
fn freezing_serves_waiting_fsyncs() {
    let (below, fs) = serves_waiters(|fs| fs.freeze());
    fs.thaw().unwrap();
    touch(&fs, fs.root(), "thawed");
    let before = stats(&fs).total.get();
    fs.fsync(fs.root(), 0, false).unwrap();
    assert_eq!(stats(&fs).total.get(), before + 1, "merged again");
    fs.unmount().unwrap();
    judge(&below);
}

#[test]
fn the_daemon_is_there_exactly_when_it_should() {
    let device = volume(64 << 20, &[]);
    let merging = |fs: &F2fs| fs.store().is_some_and(|store| store.checkpoints.is_merging());
    for (options, expected) in [
        ("", true),
        ("nocheckpoint_merge", false),
        ("ro", false),
        ("checkpoint=disable:100%", false),
    ] {
        let fs =
            F2fs::open(device.clone(), Simulated::new(1), &MountOptions::parse(options).unwrap())
                .unwrap();
        assert_eq!(merging(&fs), expected, "{options}");
        fs.unmount().unwrap();
    }
    let fs = F2fs::open(device.clone(), Simulated::new(2), &MountOptions::default()).unwrap();
    for (options, expected) in [
        ("ro", false),
        ("rw", true),
        ("nocheckpoint_merge", false),
        ("ro", false),
        ("rw", false),
        ("checkpoint_merge", true),
        ("checkpoint=disable:100%", false),
        ("checkpoint=enable", true),
    ] {
        fs.remount(options).unwrap();
        assert_eq!(merging(&fs), expected, "{options}");
    }
    fs.unmount().unwrap();
    judge(&device);
}

#[test]
fn one_seeded_thread_runs_the_daemon_too() {
    for seed in 0..20 {
        let device: Arc<MemoryDevice> = volume(64 << 20, &[]);
        let runtime = Simulated::new(seed);
        let fs = F2fs::open(
            device.clone() as Arc<dyn BlockDevice>,
            runtime.clone(),
            &MountOptions::default(),
        )
        .unwrap();
        for number in 0..30 {
            touch(&fs, fs.root(), &format!("file-{number}"));
            runtime.some_steps(3);
            match number % 3 {
                0 => fs.fsync(fs.root(), 0, false).unwrap(),
                1 => fs.sync().unwrap(),
                _ => runtime.advance(Duration::from_secs(61)),
            }
        }
        assert!(stats(&fs).total.get() >= 30, "the periodic checkpoints were merged, too");
        assert_eq!(stats(&fs).issued.get(), stats(&fs).total.get());
        fs.unmount().unwrap();
        judge(&device);
    }
}
