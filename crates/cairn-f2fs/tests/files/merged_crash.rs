//! Power cuts while many threads create names, fsync directories and files, and share checkpoints.
//! The next changes are made while a checkpoint is in flight.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::wrap::{Latency, LatencyProfile};
use cairn_f2fs::F2fs;
use cairn_testkit::crash::{Promises, Recording};
use cairn_testkit::deep;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, RenameMode};

use crate::crash::{barrier_cuts, clean};
use crate::support::{ZONED, open, volume};

const THREADS: u32 = 6;
const NAMES: u32 = 5;

/// The state of a name: none, or a file with this word.
type Contents = Option<u64>;

struct Shared {
    recording: Recording,
    fs: Arc<F2fs>,
    promises: Mutex<Promises<String, Contents>>,
}

impl Shared {
    /// The moment is taken with the lock held, so the promises of all threads are in order.
    fn changing(&self, path: &str) {
        let mut promises = self.promises.lock();
        promises.changing(path.to_owned(), self.recording.moment());
    }

    fn kept(&self, path: &str, contents: Contents) {
        let mut promises = self.promises.lock();
        promises.kept(path.to_owned(), contents, self.recording.moment());
    }
}

/// One thread's directory. No other thread changes it.
fn work(shared: &Shared, thread: u32, steps: u32) {
    let fs = &shared.fs;
    let name = format!("dir-{thread}");
    let directory = fs
        .create(fs.root(), name.as_bytes(), NewInode::Directory, 0o755, &Caller::ROOT)
        .unwrap()
        .ino;
    let mut rng = fastrand::Rng::with_seed(thread.into());
    let mut now: BTreeMap<String, u64> = BTreeMap::new();
    for step in 0..steps {
        let file = format!("file-{}", rng.u32(0..NAMES));
        let path = format!("{name}/{file}");
        let word = u64::from(step) + 1;
        match (now.contains_key(&file), rng.u32(0..10)) {
            (false, _) => {
                shared.changing(&path);
                let made = fs
                    .create(directory, file.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)
                    .unwrap();
                fs.write(made.ino, 0, &word.to_le_bytes(), IoFlags::empty()).unwrap();
                now.insert(file.clone(), word);
            }
            (true, 0..3) => {
                shared.changing(&path);
                fs.unlink(directory, file.as_bytes()).unwrap();
                now.remove(&file);
            }
            (true, 3..5) => {
                let to = format!("file-{}", rng.u32(0..NAMES));
                if to != file {
                    shared.changing(&path);
                    shared.changing(&format!("{name}/{to}"));
                    fs.rename(
                        directory,
                        file.as_bytes(),
                        directory,
                        to.as_bytes(),
                        RenameMode::Replace,
                    )
                    .unwrap();
                    let moved = now.remove(&file).unwrap();
                    now.insert(to, moved);
                }
            }
            (true, _) => {
                shared.changing(&path);
                let ino = fs.lookup(directory, file.as_bytes()).unwrap().ino;
                fs.write(ino, 0, &word.to_le_bytes(), IoFlags::empty()).unwrap();
                now.insert(file.clone(), word);
                if rng.bool() {
                    // The fsync writes only nodes if the last checkpoint has the directory.
                    fs.fsync(ino, 0, rng.bool()).unwrap();
                    shared.kept(&path, now.get(&file).copied());
                }
            }
        }
        if rng.u8(0..2) == 0 {
            // An fsync of a directory writes no data of the files in it.
            for file in now.keys() {
                let ino = fs.lookup(directory, file.as_bytes()).unwrap().ino;
                fs.fsync(ino, 0, true).unwrap();
            }
            fs.fsync(directory, 0, false).unwrap();
            for file in (0..NAMES).map(|number| format!("file-{number}")) {
                shared.kept(&format!("{name}/{file}"), now.get(&file).copied());
            }
        }
    }
}

fn check(fs: &F2fs, promises: &Promises<String, Contents>, moment: u64) -> Result<usize, String> {
    let promised = promises.at(moment);
    for (path, contents) in &promised {
        let (directory, file) = path.split_once('/').unwrap();
        let directory = fs
            .lookup(fs.root(), directory.as_bytes())
            .map_err(|error| format!("{path}: {error}"))?
            .ino;
        let found = fs.lookup(directory, file.as_bytes()).ok().map(|found| {
            let mut word = [0; 8];
            fs.read(found.ino, 0, &mut word, IoFlags::empty()).map(|_| u64::from_le_bytes(word))
        });
        let found = found.transpose().map_err(|error| format!("{path}: {error}"))?;
        if found != **contents {
            return Err(format!("{path} is {found:?}, not {contents:?}"));
        }
    }
    Ok(promised.len())
}

fn search(args: &[&str], options: &str, seed: u64, steps: u32) {
    let recording = Recording::start(volume(64 << 20, args).fork());
    // Slow enough that other threads continue while a checkpoint is in flight.
    let profile = LatencyProfile {
        write: Duration::from_micros(300),
        flush: Duration::from_micros(700),
        ..Default::default()
    };
    let fs = open(Arc::new(Latency::new(recording.device(), profile)), options);
    let shared = Shared { recording, fs, promises: Mutex::new(Rank::Volume, Promises::new()) };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let shared = &shared;
            scope.spawn(move || work(shared, thread, steps));
        }
    });
    let Shared { recording, fs, promises, .. } = shared;
    let promises = promises.into_inner();
    let by_nodes = fs.fsync_stats().nodes.get();
    let merged = fs.store().unwrap().checkpoints.merge_stats();
    let (requests, issued) = (merged.total.get(), merged.issued.get());
    assert!(by_nodes > 0, "no fsync was served by nodes");
    assert!(
        options.contains("nocheckpoint_merge") || requests > issued,
        "{requests} requests, {issued} checkpoints"
    );
    fs.shutdown(false).unwrap();
    drop(fs);
    let log = recording.finish();
    let most = if deep() { 2000 } else { 30 };
    let barriers = barrier_cuts(&log);
    let every = barriers.len().div_ceil(most);
    let (mut seen, mut states) = (0, 0);
    for cut in barriers.into_iter().step_by(every).chain(log.random_cuts(most / 2, seed)) {
        let device = Arc::new(log.device(cut));
        let kept = clean(&device, "before recovery").and_then(|()| {
            let fs = open(device.clone(), "");
            let kept = check(&fs, &promises, cut.moment)?;
            fs.unmount().map_err(|error| format!("closing: {error}"))?;
            clean(&device, "after recovery").map(|()| kept)
        });
        seen += kept.unwrap_or_else(|error| panic!("seed {seed}, {options:?}, {cut}: {error}"));
        states += 1;
    }
    assert!(seen > 10 * states, "{seen} promises were looked at in {states} states");
}

#[test]
fn names_that_were_fsynced_survive_power_cuts() {
    let (rounds, steps) = if deep() { (10, 120) } else { (1, 25) };
    for seed in 0..rounds {
        search(&[], "", seed, steps);
        search(&[], "mode=lfs,cache=1M,gc_victim=data_first,gc_merge", seed, steps);
        search(&[], "nocheckpoint_merge,gc_victim=greedy", seed, steps);
        search(ZONED, "", seed, steps);
    }
}
