//! Power cuts at every barrier and between: `qemu-img check` finds no errors, at most leaks, and
//! everything that was flushed is there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::sabotage::{Safeguard, without};
use cairn_block::memory::MemoryDevice;
use cairn_block::{
    Batch, BlockDevice, BlockDeviceExt, Bytes, Completion, Durability, Error, ErrorKind, Geometry,
    Growable, Request,
};
use cairn_images::qcow2::{self, Options, Qcow2};
use cairn_testkit::crash::{CrashLog, Cut, Recording, write_image};
use cairn_testkit::deep;

use crate::model::Model;
use crate::qemu::{Checked, Place, alone, check, io, open, qemu};

const SECTOR: u64 = 512;
/// The file grows up to this size.
const FILE: u64 = 16 << 20;

/// A device that grows as a file does.
struct Growing {
    inner: Arc<dyn BlockDevice>,
    size: AtomicU64,
}

impl BlockDevice for Growing {
    fn geometry(&self) -> Geometry {
        let mut geometry = self.inner.geometry();
        geometry.size = self.size.load(Ordering::Relaxed);
        geometry
    }

    fn submit(&self, batch: Batch) -> Completion {
        self.inner.submit(batch)
    }

    fn flush(&self) -> cairn_block::Result<()> {
        self.inner.flush()
    }

    fn as_growable(&self) -> Option<&dyn Growable> {
        Some(self)
    }
}

impl Growable for Growing {
    fn grow(&self, size: u64) -> cairn_block::Result<()> {
        if size > self.inner.geometry().size {
            return Err(Error::new(ErrorKind::NoSpace, "grow", "the test's file is full"));
        }
        self.size.fetch_max(size, Ordering::Relaxed);
        Ok(())
    }
}

/// A change of the disk.
struct Change {
    sectors: std::ops::Range<usize>,
    /// `None` if it is zero or what it was.
    byte: Option<u8>,
    submitted: u64,
    durable: u64,
}

fn image(device: Arc<dyn BlockDevice>, write: bool) -> qcow2::Result<Qcow2> {
    qcow2::open(device, &Options { write, backing: &alone, depth: 0 })
}

struct Run {
    first: Vec<u8>,
    changes: Vec<Change>,
    log: CrashLog,
}

/// Random changes of the image at `path`, recorded.
fn record(path: &Path, first: Vec<u8>, most: u64, seed: u64) -> Run {
    let bytes = std::fs::read(path).unwrap();
    let before = MemoryDevice::new(FILE);
    before.load(0, &bytes);
    let recording = Recording::start(before);
    let size = AtomicU64::new(bytes.len() as u64);
    let file = Arc::new(Growing { inner: recording.device(), size });
    let disk = image(file, true).unwrap();
    let (mut changes, mut model) = (Vec::<Change>::new(), Model::new(first.clone(), SECTOR, seed));
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..60 {
        let (offset, len) = model.range(most);
        let sectors = (offset / SECTOR) as usize..((offset + len) / SECTOR) as usize;
        let data = model.data(len);
        let kind = rng.u32(0..10);
        let (byte, fua) = match kind {
            0 => (None, false),
            1 => (Some(0), false),
            _ => (Some(data[0]), kind == 2),
        };
        let submitted = recording.moment();
        let durability = Durability { preflush: false, fua };
        let request = match kind {
            0 => Request::Discard { offset, len },
            1 => Request::WriteZeroes { offset, len },
            _ => Request::Write { offset, bufs: vec![Bytes::from(data)] },
        };
        disk.submit(Batch { requests: vec![request], durability }).wait().unwrap();
        let durable = if fua { recording.moment() } else { u64::MAX };
        changes.push(Change { sectors, byte, submitted, durable });
        if rng.u32(0..5) == 0 {
            disk.flush().unwrap();
            let now = recording.moment();
            changes.iter_mut().for_each(|change| change.durable = change.durable.min(now));
        }
    }
    drop(disk);
    Run { first, changes, log: recording.finish() }
}

impl Run {
    /// The disk in what a cut leaves has what was durable, and else what was submitted.
    fn judge(&self, device: &MemoryDevice, cut: Cut) {
        let disk =
            image(Arc::new(device.fork()), false).unwrap_or_else(|error| panic!("{cut}: {error}"));
        let read = disk.read_at(0, self.first.len()).unwrap();
        let sectors = self.first.len() / SECTOR as usize;
        let mut allowed: Vec<Vec<u8>> =
            (0..sectors).map(|at| vec![self.first[at * SECTOR as usize]]).collect();
        for change in self.changes.iter().filter(|change| change.submitted < cut.moment) {
            for sector in change.sectors.clone() {
                match change.byte {
                    Some(byte) if change.durable <= cut.moment => allowed[sector] = vec![byte],
                    byte => allowed[sector].push(byte.unwrap_or(0)),
                }
            }
        }
        for (number, sector) in read.chunks(SECTOR as usize).enumerate() {
            let fits =
                allowed[number].contains(&sector[0]) && sector.iter().all(|one| *one == sector[0]);
            assert!(fits, "{cut}: sector {number} has {}, not {:?}", sector[0], allowed[number]);
        }
    }

    fn judge_cuts(&self, place: &Place, seed: u64) {
        let (many, few) = if deep() { (3000, 500) } else { (120, 14) };
        for cut in self.log.cuts(0, many, seed) {
            self.judge(&self.log.device(cut), cut);
        }
        for cut in self.log.cuts(0, few, seed) {
            let path = place.path("cut");
            write_image(&self.log.device(cut), &path).unwrap();
            println!("{cut}");
            check(&path);
            // Work goes on.
            let disk = open(&path, true);
            let mut model = Model::new(disk.read_at(0, self.first.len()).unwrap().to_vec(), 512, 1);
            (0..5).for_each(|_| model.step(&disk, 100 << 10));
            model.compare(&disk);
            drop(disk);
            check(&path);
        }
    }
}

#[test]
fn the_refcount_table_moves() {
    let place = Place::new();
    // A block counts 64 clusters, a cluster of the table leads to 64 blocks: 2 MiB.
    let path = place.create("disk", "refcount_bits=64,cluster_size=512", "3M");
    let run = record(&path, vec![0; 3 << 20], 400 << 10, 31);
    run.judge_cuts(&place, 1);
    let whole = place.path("whole");
    write_image(&run.log.device(run.log.cuts(0, 1, 1)[0]), &whole).unwrap();
    let last = Cut { moment: run.log.log().end, volatile: cairn_testkit::crash::Volatile::Kept };
    write_image(&run.log.device(last), &whole).unwrap();
    assert_eq!(check(&whole), Checked::Clean, "a closed image has no leaks");
    let header = std::fs::read(&whole).unwrap();
    assert!(header[56..60] != [0, 0, 0, 1], "the table has grown");
}

#[test]
fn clusters_are_shared_with_a_snapshot() {
    let place = Place::new();
    let path = place.create("disk", "cluster_size=4k", "2M");
    io(&path, &["write -P 200 0 2M"]);
    qemu("qemu-img", &["snapshot", "-c", "one", path.to_str().unwrap()]);
    record(&path, vec![200; 2 << 20], 100 << 10, 32).judge_cuts(&place, 2);
}

/// A disk of compressed clusters.
fn compressed(place: &Place) -> std::path::PathBuf {
    let source = place.path("source.raw");
    std::fs::write(&source, vec![201; 2 << 20]).unwrap();
    let path = place.path("disk");
    let (from, to) = (source.to_str().unwrap(), path.to_str().unwrap());
    qemu("qemu-img", &["convert", "-c", "-f", "raw", "-O", "qcow2", from, to]);
    path
}

#[test]
fn clusters_are_compressed() {
    let place = Place::new();
    let path = compressed(&place);
    record(&path, vec![201; 2 << 20], 300 << 10, 33).judge_cuts(&place, 3);
}

const WITHOUT: &str = "CAIRN_TEST_WITHOUT";

/// Each barrier is missed by these cuts. A safeguard is switched off for a whole process, so each
/// has one of its own.
#[test]
fn every_barrier_that_is_off_is_missed() {
    if let Ok(name) = std::env::var(WITHOUT) {
        return judge_without(&name);
    }
    let barriers = [Safeguard::Qcow2Counts, Safeguard::Qcow2Table, Safeguard::Qcow2Map];
    let names = barriers.map(|barrier| format!("{barrier:?}"));
    for name in names.iter().map(String::as_str).chain(["nothing"]) {
        let test = "crash::every_barrier_that_is_off_is_missed";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(WITHOUT, name);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("{name}: {}", said.lines().nth(1).unwrap_or_default());
        assert_eq!(output.status.success(), name == "nothing", "{name}: {said}");
    }
}

fn judge_without(name: &str) {
    let wanted = Safeguard::ALL.into_iter().find(|one| format!("{one:?}") == name);
    let _off = wanted.map(without);
    let place = Place::new();
    match wanted {
        Some(Safeguard::Qcow2Table) => {
            let path = place.create("disk", "refcount_bits=64,cluster_size=512", "3M");
            let run = record(&path, vec![0; 3 << 20], 400 << 10, 31);
            // Counts are missing in the table alone: the disk reads well.
            for cut in run.log.cuts(0, 400, 1) {
                let path = place.path("cut");
                write_image(&run.log.device(cut), &path).unwrap();
                check(&path);
            }
        }
        _ => {
            let run = record(&compressed(&place), vec![201; 2 << 20], 300 << 10, 33);
            run.log
                .cuts(0, 120, 3)
                .into_iter()
                .for_each(|cut| run.judge(&run.log.device(cut), cut));
        }
    }
}
