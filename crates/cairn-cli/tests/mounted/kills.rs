//! Daemons that are killed under load: everything that fsync acknowledged is there after recovery,
//! byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn_testkit::modes::MODES;
use cairn_testkit::{deep, judge};

use crate::fixture::{Volume, transports};

const KILLS: u64 = 20;
const WRITERS: u64 = 4;

/// One writer's directory and the acknowledged changes in it.
struct Writer {
    dir: PathBuf,
    random: fastrand::Rng,
    serial: u64,
    /// The least contents (a file that is being extended may have more).
    promised: BTreeMap<String, Vec<u8>>,
    /// Names that may exist or not, because their operation did not end.
    in_doubt: BTreeSet<String>,
    /// The file that was being extended.
    growing: Option<String>,
}

impl Writer {
    fn new(root: &Path, seed: u64) -> Self {
        let dir = root.join(format!("writer{seed}"));
        fs::create_dir(&dir).unwrap();
        File::open(root).unwrap().sync_all().unwrap();
        let random = fastrand::Rng::with_seed(seed);
        Self {
            dir,
            random,
            serial: 0,
            promised: BTreeMap::new(),
            in_doubt: BTreeSet::new(),
            growing: None,
        }
    }

    /// Works until the mount dies.
    fn run(&mut self, done: &AtomicU64) -> io::Error {
        loop {
            if let Err(error) = self.step() {
                return error;
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn step(&mut self) -> io::Result<()> {
        let known = self.random.choice(self.promised.keys().cloned().collect::<Vec<_>>());
        match (self.random.u32(0..10), known) {
            (0..2, Some(name)) => self.append(name)?,
            (2..4, Some(name)) => self.rename(&name)?,
            (4..6, Some(name)) => self.remove(&name)?,
            _ => self.create()?,
        }
        self.in_doubt.clear();
        self.growing = None;
        Ok(())
    }

    fn fresh_name(&mut self) -> String {
        self.serial += 1;
        format!("f{}", self.serial)
    }

    fn bytes(&mut self, max: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.random.usize(..max)];
        self.random.fill(&mut bytes);
        bytes
    }

    fn create(&mut self) -> io::Result<()> {
        let (name, bytes) = (self.fresh_name(), self.bytes(100_000));
        self.in_doubt.insert(name.clone());
        let mut file = File::create_new(self.dir.join(&name))?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        self.promised.insert(name, bytes);
        Ok(())
    }

    fn append(&mut self, name: String) -> io::Result<()> {
        let bytes = self.bytes(30_000);
        self.growing = Some(name.clone());
        let mut file = File::options().append(true).open(self.dir.join(&name))?;
        file.write_all(&bytes)?;
        file.sync_data()?;
        self.promised.get_mut(&name).expect("it was chosen from these").extend(bytes);
        Ok(())
    }

    fn rename(&mut self, name: &str) -> io::Result<()> {
        let new = self.fresh_name();
        self.in_doubt.extend([name.to_owned(), new.clone()]);
        fs::rename(self.dir.join(name), self.dir.join(&new))?;
        File::open(&self.dir)?.sync_all()?;
        let bytes = self.promised.remove(name).expect("it was chosen from these");
        self.promised.insert(new, bytes);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.in_doubt.insert(name.to_owned());
        fs::remove_file(self.dir.join(name))?;
        File::open(&self.dir)?.sync_all()?;
        self.promised.remove(name);
        Ok(())
    }

    /// Compares the directory with the acknowledged changes and continues from its contents.
    fn check(&mut self) {
        let found: BTreeMap<String, Vec<u8>> = fs::read_dir(&self.dir)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
            })
            .collect();
        for (name, bytes) in &self.promised {
            let place = self.dir.join(name);
            match found.get(name) {
                Some(read) if self.growing.as_ref() == Some(name) => {
                    assert!(
                        read.starts_with(bytes),
                        "{}: lost what was there before an append",
                        place.display()
                    );
                }
                Some(read) => assert!(
                    read == bytes,
                    "{}: {} bytes, not those synced",
                    place.display(),
                    read.len()
                ),
                None => assert!(
                    self.in_doubt.contains(name),
                    "{} was synced and is gone",
                    place.display()
                ),
            }
        }
        let unknown =
            |name: &&String| !self.promised.contains_key(*name) && !self.in_doubt.contains(*name);
        let unknown: Vec<_> = found.keys().filter(unknown).collect();
        assert!(unknown.is_empty(), "{}: removed or never made: {unknown:?}", self.dir.display());
        self.check_moved(&found);
        self.promised = found;
        self.in_doubt.clear();
        self.growing = None;
    }

    /// A rename that did not end left the file under one of its names.
    fn check_moved(&self, found: &BTreeMap<String, Vec<u8>>) {
        if self.in_doubt.len() == 2 {
            let kept: Vec<_> = self.in_doubt.iter().filter_map(|name| found.get(name)).collect();
            let bytes = self.in_doubt.iter().find_map(|name| self.promised.get(name));
            assert!(
                kept.len() == 1 && kept.first().copied() == bytes,
                "{}: lost in a rename",
                self.dir.display()
            );
        }
    }
}

#[test]
fn synced_files_survive_killed_daemons() {
    for transport in transports() {
        let kills = if deep() { 4 * KILLS } else { KILLS };
        survive(&mut Volume::mounted(256 << 20, transport), kills);
    }
}

#[test]
fn synced_files_of_f2fs_survive_killed_daemons() {
    let (room, kills) = if deep() { (320, 4 * KILLS) } else { (48, KILLS / 2) };
    for mode in &MODES {
        let mut volume = Volume::worn(room, mode);
        survive(&mut volume, kills);
        volume.assert_reused();
    }
}

fn survive(volume: &mut Volume, kills: u64) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut writers: Vec<_> = (0..WRITERS).map(|seed| Writer::new(&volume.root(), seed)).collect();
    let has_ring = volume.stats()["fuse"]["transport"] == "ring";
    let mut total = 0;
    for kill in 0..kills {
        let done = AtomicU64::new(0);
        let enough = random.u64(1..200);
        std::thread::scope(|scope| {
            let running: Vec<_> =
                writers.iter_mut().map(|writer| scope.spawn(|| writer.run(&done))).collect();
            let started = Instant::now();
            while done.load(Ordering::Relaxed) < enough {
                assert!(
                    started.elapsed() < Duration::from_secs(60),
                    "{} operations in a minute",
                    done.load(Ordering::Relaxed)
                );
                std::thread::sleep(Duration::from_micros(200));
            }
            volume.kill();
            for writer in running {
                let error = writer.join().unwrap();
                // Connection aborted, not connected, or an interrupted write-back. Canceled or
                // interrupted: a request that was in a ring of the daemon.
                let expected = match error.raw_os_error() {
                    Some(103 | 107 | 5) => true,
                    Some(125 | 4) => has_ring,
                    _ => false,
                };
                assert!(expected, "kill {kill}: {error}");
            }
        });
        total += done.load(Ordering::Relaxed);
        volume.clear();
        volume.mount_again();
        writers.iter_mut().for_each(Writer::check);
        volume.remount();
    }
    assert!(total > kills * 20, "{total} operations");
    volume.unmount();
}

/// The kernel's recovery after a kill finds the same contents as Cairn's.
#[test]
fn the_kernel_and_e2fsck_recover_what_a_killed_daemon_left() {
    let mut volume = Volume::mounted(256 << 20, "");
    let mut writer = Writer::new(&volume.root(), 77);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| writer.run(&done));
        while done.load(Ordering::Relaxed) < 100 && !running.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        volume.kill();
        running.join().unwrap();
    });
    volume.clear();
    let copy = volume.outside("copy");
    fs::copy(volume.image(), &copy).unwrap();
    let verdict = judge::e2fsck_preen(&copy);
    assert!(verdict.status <= 1, "{}", verdict.output);
    judge::assert_clean(&copy);
    let kernel = judge::KernelMount::new(&volume.image(), "");
    writer.dir = kernel.path().join("writer77");
    writer.check();
    kernel.unmount();
    judge::assert_clean(&volume.image());
}
