//! Requests that are answered out of order, late, or after the end, on `/dev/fuse` and on FUSE over
//! io_uring. Every request is answered once, or belongs to a connection that has ended.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::time::Duration;

use cairn_base::stats::Report;
use cairn_fuse::{MountOptions, TransportChoice};
use cairn_testkit::model::Model;
use parking_lot::{Condvar, Mutex};
use rustix::thread::CpuSet;

use crate::fixture::{Mounted, both, require_mounting, ring};

/// Each request was answered, some of them after the end: at an unmount, nobody waits for the last
/// RELEASE.
fn assert_answered(report: &Report) -> (u64, u64) {
    let mut sum = (0, 0);
    for way in ["device", "ring"] {
        let count = |name: &str| report.u64(&format!("{way}.{name}"));
        // Without rings, there are no figures of them.
        let Some(taken) = count("taken") else { continue };
        let (answered, late) = (count("answered").unwrap(), count("late").unwrap());
        assert_eq!(taken, answered + late, "{report:?}");
        sum = (sum.0 + answered, sum.1 + late);
    }
    let left = report.u64("ring.entries").unwrap_or(0);
    assert_eq!(left, 0, "entries that did not come back: {report:?}");
    sum
}

/// Delays that follow from a seed, without a lock between the threads that ask.
struct Delays(AtomicU64);

impl Delays {
    fn next(&self) -> Duration {
        let n = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (n ^ (n >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40;
        match mixed % 16 {
            // Longer than a tick of the watch: another thread takes the ring.
            0 => Duration::from_millis(5),
            1..4 => Duration::from_micros(mixed % 700),
            _ => Duration::ZERO,
        }
    }
}

#[test]
fn answers_out_of_order_and_late_are_given_once() {
    require_mounting();
    for (seed, options) in (7..).zip(both()) {
        println!("seed {seed}");
        answered_once(&options, seed);
    }
}

fn answered_once(options: &MountOptions, seed: u64) {
    let delays = Delays(AtomicU64::new(seed));
    let mounted =
        Mounted::hooked(Model::new(), options, move |_| std::thread::sleep(delays.next()));
    std::thread::scope(|scope| {
        for client in 0..12 {
            let mounted = &mounted;
            scope.spawn(move || {
                let dir = mounted.path(&format!("d{client}"));
                fs::create_dir(&dir).unwrap();
                for n in 0..20_u32 {
                    let path = dir.join(format!("f{n}"));
                    let data = vec![n as u8; 1 + (n as usize % 5) * 70_000];
                    fs::write(&path, &data).unwrap();
                    let file = File::options().read(true).write(true).open(&path).unwrap();
                    file.sync_all().unwrap();
                    let _ = xattr::get(&path, "user.none").unwrap();
                    assert_eq!(fs::read(&path).unwrap(), data);
                    if n % 3 == 0 {
                        fs::remove_file(&path).unwrap();
                    }
                }
                assert_eq!(fs::read_dir(&dir).unwrap().count(), 13);
            });
        }
    });
    let report = mounted.count();
    let (answered, late) = assert_answered(&report);
    assert!(answered > 12 * 20 * 4, "{report:?}");
    // Until the unmount, the kernel knows each request that is answered.
    assert!(late <= 12, "{report:?}");
    if options.transport == TransportChoice::Ring {
        assert!(report.u64("ring.to_workers") > Some(0), "{report:?}");
        assert!(report.u64("ring.taken_over") > Some(0), "{report:?}");
    }
}

/// Opens once.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn pass(&self) {
        let mut open = self.0.lock();
        while !*open {
            self.1.wait(&mut open);
        }
    }

    fn open(&self) {
        *self.0.lock() = true;
        self.1.notify_all();
    }
}

/// The connection is aborted while requests are being carried out, on rings by workers and by
/// threads of the rings. Their answers come after the end.
#[test]
fn answers_after_the_end_are_dropped() {
    require_mounting();
    both().iter().for_each(answered_after_the_end);
}

fn answered_after_the_end(options: &MountOptions) {
    let gate = std::sync::Arc::new(Gate::default());
    let (held, of_hook) = (gate.clone(), Mutex::new(None));
    let (arrived, arrivals) = mpsc::channel();
    of_hook.lock().replace(arrived);
    let mounted = Mounted::hooked(Model::new(), options, move |call| {
        if matches!(call, "fsync" | "listxattr") {
            of_hook.lock().as_ref().map(|told| told.send(()));
            held.pass();
        }
    });
    std::thread::scope(|scope| {
        for n in 0..6 {
            let mounted = &mounted;
            scope.spawn(move || {
                let path = mounted.path(&format!("f{n}"));
                let file = File::create(&path).unwrap();
                file.write_all_at(b"x", 0).unwrap();
                let failed =
                    if n % 2 == 0 { file.sync_all().is_err() } else { xattr::list(&path).is_err() };
                assert!(failed, "an answer came although the connection was aborted");
            });
        }
        (0..6).for_each(|_| arrivals.recv().unwrap());
        mounted.end();
    });
    // Only the entries of the six are not back.
    while mounted.stats().u64("ring.entries").is_some_and(|entries| entries != 6) {
        std::thread::yield_now();
    }
    gate.open();
    let report = mounted.wait();
    let (_, late) = assert_answered(&report);
    // A write-back of a file that is being closed may be under way as well.
    assert!((6..=12).contains(&late), "{report:?}");
}

#[test]
fn killed_clients_leave_nothing_behind() {
    require_mounting();
    both().iter().for_each(kill_clients);
}

fn kill_clients(options: &MountOptions) {
    let mounted = Mounted::hooked(Model::new(), options, |call| {
        if matches!(call, "fsync" | "create" | "readdir") {
            std::thread::sleep(Duration::from_millis(3));
        }
    });
    fs::create_dir(mounted.path("d")).unwrap();
    for round in 0..8 {
        let script = "i=0; while :; do i=$((i+1)); echo $i > f$1.$i; sync f$1.$i; cat f$1.* > \
            /dev/null; rm f$1.$i; done";
        let mut clients: Vec<_> = (0..4)
            .map(|n| {
                Command::new("sh")
                    .args(["-c", script, "client", &format!("{round}.{n}")])
                    .current_dir(mounted.path("d"))
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .collect();
        std::thread::sleep(Duration::from_millis(30 + round * 7));
        for client in &mut clients {
            client.kill().unwrap();
            client.wait().unwrap();
        }
        fs::write(mounted.path("alive"), round.to_string()).unwrap();
    }
    let (answered, _) = assert_answered(&mounted.count());
    assert!(answered > 0);
}

/// Detached while files are open: it serves until the last one is closed.
#[test]
fn a_detached_mount_serves_its_open_files() {
    require_mounting();
    both().iter().for_each(serve_open_files);
}

fn serve_open_files(options: &MountOptions) {
    let mounted = Mounted::with(options);
    let path = mounted.path("f");
    let file = File::options().create_new(true).read(true).write(true).open(path).unwrap();
    mounted.detach();
    file.write_all_at(&[7; 300_000], 0).unwrap();
    file.sync_all().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 299_999).unwrap();
    assert_eq!(byte, [7]);
    drop(file);
    assert_answered(&mounted.wait());
}

/// A mount that ends before anybody has served it.
#[test]
fn a_session_that_never_runs_unmounts() {
    require_mounting();
    let dir = tempfile::tempdir().unwrap();
    for options in both().iter().cycle().take(4) {
        let _allowed = cairn_testkit::uring::allow();
        let session =
            cairn_fuse::mount(std::sync::Arc::new(Model::new()), dir.path(), options).unwrap();
        drop(session);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

/// More calls of one processor are held than a ring has entries, and the kernel knows no regular
/// file. All of them arrive, without a further request of anybody.
#[test]
fn held_calls_do_not_keep_others_from_arriving_where_only_directories_are_known() {
    const CALLS: usize = 60;
    require_mounting();
    let Some(options) = ring() else { return };
    let gate = std::sync::Arc::new(Gate::default());
    let (arrived, arrivals) = mpsc::channel();
    let (held, arrived) = (gate.clone(), Mutex::new(arrived));
    let made = std::sync::Arc::new(AtomicU64::new(0));
    let of_hook = made.clone();
    let mounted = Mounted::hooked(Model::new(), &options, move |call| {
        // The directories that are made first are not held.
        if call == "create" && of_hook.fetch_add(1, Ordering::SeqCst) >= CALLS as u64 {
            arrived.lock().send(()).unwrap();
            held.pass();
        }
    });
    let first = rustix::thread::sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|at| first.is_set(*at)).unwrap();
    let looked_up = Barrier::new(CALLS);
    let all = std::thread::scope(|scope| {
        for n in 0..CALLS {
            let (path, looked_up) = (mounted.path(&format!("d{n}/new")), &looked_up);
            // The kernel lets one call at a time change a directory.
            fs::create_dir(mounted.path(&format!("d{n}"))).unwrap();
            scope.spawn(move || {
                let mut only = CpuSet::new();
                only.set(first);
                rustix::thread::sched_setaffinity(None, &only).unwrap();
                assert!(!path.exists());
                looked_up.wait();
                fs::create_dir(&path).unwrap();
            });
        }
        let all = (0..CALLS).all(|_| arrivals.recv_timeout(Duration::from_secs(30)).is_ok());
        gate.open();
        all
    });
    assert!(all, "calls waited for the answers of others: {:?}", mounted.stats());
    assert_answered(&mounted.count());
}

/// Unmounts that meet the last requests.
#[test]
fn mounts_come_and_go_under_load() {
    require_mounting();
    for options in both().iter().cycle().take(16) {
        let mounted = Mounted::with(options);
        std::thread::scope(|scope| {
            for n in 0..4 {
                let path = mounted.path(&format!("f{n}"));
                scope.spawn(move || {
                    for _ in 0..20 {
                        fs::write(&path, "x").unwrap();
                        fs::remove_file(&path).unwrap();
                    }
                });
            }
        });
        assert_answered(&mounted.count());
    }
}
