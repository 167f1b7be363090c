//! Whole blocks of metadata are lost: after a repair neither Cairn nor fsck.f2fs finds anything, a
//! second repair does nothing, and each inode is there as it was, or is listed as lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::Severity;
use cairn_check::repair::{Plan, Scope};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::{FileKind, FileSystem, IoFlags};

use crate::inject::{Injection, Target, seeds};
use crate::repair::{apply, damaged, fsck, plan};
use crate::{check, lines};

/// An inode: its names, its type, and a file's contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    paths: BTreeSet<Vec<u8>>,
    /// The directory and the name of each path.
    names: BTreeSet<(u64, Vec<u8>)>,
    is_directory: bool,
    bytes: Vec<u8>,
}

/// All inodes that have a name, by number.
fn inodes(device: &Arc<dyn BlockDevice>) -> BTreeMap<u64, Known> {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let fs = F2fs::open(device.clone(), Threads::new(), &options).unwrap();
    let mut found = BTreeMap::new();
    let mut waiting = vec![(fs.root(), Vec::new())];
    while let Some((dir, path)) = waiting.pop() {
        let mut names = Vec::new();
        fs.readdir(dir, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .unwrap();
        for name in names.into_iter().filter(|name| name != b"." && name != b"..") {
            let attr = fs.lookup(dir, &name).unwrap();
            let number = attr.ino.get();
            let path = [&path[..], b"/", &name].concat();
            let known: &mut Known = found.entry(number).or_default();
            known.paths.insert(path.clone());
            known.names.insert((dir.get(), name));
            known.is_directory = attr.kind == FileKind::Directory;
            if known.is_directory {
                waiting.push((attr.ino, path));
            } else if attr.kind == FileKind::Regular && attr.size < 64 << 20 {
                known.bytes = vec![0; usize::try_from(attr.size).unwrap()];
                let read = fs.read(attr.ino, 0, &mut known.bytes, IoFlags::empty()).unwrap();
                assert_eq!(read, known.bytes.len());
            }
        }
    }
    found
}

/// Is the inode, or a part of it, listed as lost?
fn is_listed(plan: &Plan, ino: u64, known: &Known) -> bool {
    plan.steps.losing().any(|step| {
        let place = &step.place;
        let is_it = place.inode == Some(ino) || (place.inode.is_none() && place.node == Some(ino));
        let path = step.loss.as_ref().is_some_and(|loss| known.paths.contains(&*loss.path));
        let name = known.names.iter().any(|(dir, name)| {
            place.inode == Some(*dir) && place.name.as_deref() == Some(&name[..])
        });
        // A checkpoint before the last one knows nothing of what came later.
        let older = ["f2fs.checkpoint.pack", "f2fs.recovery.failed"].contains(&step.kind.code);
        is_it || path || name || older
    })
}

pub struct Judge {
    pub target: Target,
    sound: BTreeMap<u64, Known>,
}

impl Judge {
    pub fn new(arguments: &[&str]) -> Self {
        let target = Target::new(arguments);
        let device: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
        let sound = inodes(&device);
        assert!(sound.len() > 400);
        Self { target, sound }
    }

    /// What is wrong after a repair. None if the volume is sound, or nothing is left to repair.
    ///
    /// # Errors
    /// Something is.
    pub fn judge(&self, injection: &Injection) -> Result<Option<Plan>, String> {
        let base: Arc<dyn BlockDevice> = Arc::new(self.target.device.fork());
        let overlay = Arc::new(Overlay::new(base).unwrap());
        let device: Arc<dyn BlockDevice> = overlay.clone();
        for (at, bytes) in &injection.blocks {
            device.write_at(*at, bytes.clone()).unwrap();
        }
        let before = check(device.clone()).map_err(|error| error.to_string())?;
        let safe = plan(&device, Scope::Accounting).map_err(|error| error.to_string())?;
        let done = plan(&device, Scope::All).map_err(|error| error.to_string())?;
        if before.count() == 0 {
            // What is not found changes no file.
            return self.compare(None, &inodes(&device)).map(|()| None);
        }
        if done.is_refused || done.after.count() > 0 {
            let is_fatal = done.after.worst() == Some(Severity::Fatal);
            return if is_fatal { Ok(None) } else { Err(lines(&done.after)) };
        }
        let steps: String = done.steps.kept().iter().map(|step| format!("  {step}\n")).collect();
        let told = |why: String| format!("{why}{steps}");
        apply(&done, &device);
        let report = check(device.clone()).map_err(|error| told(error.to_string()))?;
        if report.count() > 0 {
            return Err(told(format!("still found:\n{}", lines(&report))));
        }
        let again = plan(&device, Scope::All).map_err(|error| told(error.to_string()))?;
        if !again.changes.is_empty() {
            return Err(told("a second repair changes something\n".into()));
        }
        fsck(&self.target, &overlay).map_err(told)?;
        self.compare(Some(&done), &inodes(&device)).map_err(told)?;
        // What repairs without losses changes keeps all.
        if safe.after.count() == 0 && !safe.is_refused {
            let base: Arc<dyn BlockDevice> = Arc::new(self.target.device.fork());
            let device: Arc<dyn BlockDevice> = Arc::new(Overlay::new(base).unwrap());
            for (at, bytes) in &injection.blocks {
                device.write_at(*at, bytes.clone()).unwrap();
            }
            apply(&safe, &device);
            let compared = self.compare(Some(&safe), &inodes(&device));
            compared.map_err(|why| format!("by --repair alone: {}", told(why)))?;
        }
        Ok(Some(done))
    }

    /// How many are repaired. None may be wrong.
    pub fn judge_all(&self, injections: impl Iterator<Item = Injection>) -> usize {
        let (mut repaired, mut others, mut wrong) = (0, 0, String::new());
        for injection in injections {
            match self.judge(&injection) {
                Ok(Some(_)) => repaired += 1,
                Ok(None) => others += 1,
                Err(why) => wrong += &format!("{}:\n{why}\n", injection.what),
            }
        }
        println!("{repaired} repaired, {others} sound or without a root");
        assert!(wrong.is_empty(), "{wrong}");
        repaired
    }

    fn compare(&self, plan: Option<&Plan>, now: &BTreeMap<u64, Known>) -> Result<(), String> {
        for (ino, known) in &self.sound {
            let path = String::from_utf8_lossy(known.paths.first().unwrap());
            let wrong = match now.get(ino) {
                None => "lost",
                Some(found) if found.is_directory != known.is_directory => "another type",
                Some(found) if found.bytes != known.bytes => "changed",
                Some(_) => continue,
            };
            if !plan.is_some_and(|plan| is_listed(plan, *ino, known)) {
                return Err(format!("{wrong}, and not listed: inode {ino}, {path}\n"));
            }
        }
        Ok(())
    }
}

/// One to three blocks of metadata become zeros or noise.
fn damage(target: &Target, seed: u64) -> Injection {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut injection = Injection { what: format!("seed {seed}: "), blocks: Vec::new() };
    for _ in 0..random.usize(1..=3) {
        let (what, at) = target.any_block(&mut random);
        let is_zero = random.bool();
        let bytes: Vec<u8> = (0..4096).map(|_| if is_zero { 0 } else { random.u8(..) }).collect();
        let with = if is_zero { "zeros" } else { "noise" };
        injection.what += &format!("{what} {at:#x}: {with}; ");
        injection.blocks.retain(|(known, _)| *known != at);
        injection.blocks.push((at, bytes));
    }
    injection
}

fn search(arguments: &[&str], seeds: std::ops::Range<u64>) {
    let judge = Judge::new(arguments);
    let repaired = judge.judge_all(seeds.map(|seed| damage(&judge.target, seed)));
    assert!(repaired > 3);
}

#[test]
fn what_lost_blocks_take_is_listed() {
    search(&[], seeds(5_000_000, 25, 1500));
}

#[test]
fn what_lost_blocks_take_is_listed_with_extra_attributes() {
    let arguments = ["-O", "extra_attr,inode_checksum,inode_crtime,compression"];
    search(&arguments, seeds(6_000_000, 25, 1500));
}

/// A block of the NAT is lost, one of which has the root: each node is found in the log.
#[test]
fn a_lost_block_of_the_nat_costs_nothing() {
    let judge = Judge::new(&[]);
    let mut roots = 0;
    for (nat, bytes) in judge.target.nat_blocks().into_iter().flat_map(|nat| {
        let mut random = fastrand::Rng::with_seed(nat);
        [(nat, vec![0; 4096]), (nat, (0..4096).map(|_| random.u8(..)).collect())]
    }) {
        let bytes_are_noise = bytes.iter().any(|byte| *byte != 0);
        let what = format!("NAT {nat:#x}, noise {bytes_are_noise}");
        let injection = Injection { what: what.clone(), blocks: vec![(nat, bytes)] };
        let device: Arc<dyn BlockDevice> = Arc::new(damaged(&judge.target, &injection));
        let before = check(device.clone()).unwrap();
        if before.count() == 0 {
            continue;
        }
        roots += u32::from(lines(&before).contains("f2fs.root.missing"));
        let done = judge.judge(&injection).unwrap_or_else(|why| panic!("{what}: {why}"));
        let done = done.unwrap_or_else(|| panic!("{what}: {}", lines(&before)));
        // Entries that noise has made are no nodes.
        let is_made = |code| code == "f2fs.nat.entry" && bytes_are_noise;
        let losses = done.steps.losing().filter(|step| step.loss.is_some());
        let losses: Vec<_> = losses.filter(|step| !is_made(step.kind.code)).collect();
        assert!(losses.is_empty(), "{what}: {losses:?}");
    }
    assert!(roots > 0);
}

/// A block of the NAT is lost, and with it the names of files that it has. Nothing else names them.
#[test]
fn files_that_neither_the_nat_nor_a_name_has_are_found() {
    let judge = Judge::new(&[]);
    let target = &judge.target;
    let zeros = |at| (at, vec![0; 4096]);
    let nats = target.nat_blocks();
    assert!(nats.len() > 1);
    // The other copy of a block may have the same entries.
    let mut found = 0;
    for nat in nats {
        for directory in target.directory_blocks().iter().copied() {
            let what = format!("NAT {nat:#x} and directory {directory:#x}");
            let blocks = vec![zeros(nat), zeros(directory)];
            let injection = Injection { what: what.clone(), blocks };
            let done = judge.judge(&injection).unwrap_or_else(|why| panic!("{what}: {why}"));
            let Some(done) = done else { continue };
            let kind = |code| done.steps.counts().any(|(kind, _)| kind.code == code);
            found += u32::from(kind("f2fs.nat.lost"));
            // The name of a link, which only the directory had.
            let losses = done.steps.losing().filter(|step| step.loss.is_some());
            let losses: Vec<_> =
                losses.filter(|step| step.kind.code != "f2fs.inode.names").collect();
            assert!(losses.is_empty(), "{what}: {losses:?}");
        }
    }
    assert!(found > 3, "{found}");
}

/// The root's inode is noise, with and without older versions of it in the log.
#[test]
fn a_lost_root_costs_names_only() {
    let judge = Judge::new(&[]);
    let target = &judge.target;
    let root = target.inode_of(3);
    let noise = |at: u64| {
        let mut random = fastrand::Rng::with_seed(at);
        (at, (0..4096).map(|_| random.u8(..)).collect::<Vec<u8>>())
    };
    let older = (0..96 * 256_u64).map(|block| block << 12);
    let older = older.filter(|at| target.read(*at)[4072..4080] == [3, 0, 0, 0, 3, 0, 0, 0]);
    let all: Vec<_> = older.map(noise).collect();
    for (what, blocks) in [("the root", vec![noise(root)]), ("all versions of it", all)] {
        let injection = Injection { what: what.into(), blocks };
        let done = judge.judge(&injection).unwrap_or_else(|why| panic!("{what}: {why}"));
        assert!(done.is_some(), "{what}");
    }
}
