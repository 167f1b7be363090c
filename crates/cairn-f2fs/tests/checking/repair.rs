//! Repairs of single changed fields: afterwards neither Cairn nor fsck.f2fs finds anything, a
//! second repair writes nothing, and files that nothing was lost of are as they were.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Overlay, Record};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::{Plan, Scope, undo};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::crash::{CrashLog, Cut, Volatile};
use cairn_testkit::judge::{f2fs_alarms, fsck_f2fs};
use cairn_vfs::{FileSystem, IoFlags};

use crate::inject::{Injection, Target, seeds};
use crate::{check, lines};

/// Contents by path.
type Files = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn plan(device: &Arc<dyn BlockDevice>, scope: Scope) -> cairn_f2fs::Result<Plan> {
    cairn_f2fs::repair::plan(device.clone(), Threads::new(), Arc::new(()), scope)
}

/// Applies a plan, with its undo file in memory.
pub fn apply(plan: &Plan, device: &Arc<dyn BlockDevice>) {
    let undo = MemoryDevice::new(undo::file_size(&plan.changes));
    plan.apply(&**device, &undo).unwrap();
}

/// The volume of a target with an injection.
pub fn damaged(target: &Target, injection: &Injection) -> MemoryDevice {
    let device = target.device.fork();
    injection.blocks.iter().for_each(|(at, bytes)| device.load(*at, bytes));
    device
}

/// What can be read of a volume.
fn files(device: &Arc<dyn BlockDevice>) -> Files {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let mut files = Files::new();
    if let Ok(fs) = F2fs::open(device.clone(), Threads::new(), &options) {
        read_directory(&fs, &mut vec![fs.root()], &mut Vec::new(), &mut files);
    }
    files
}

/// Reads the files below the last directory of a way. A damaged directory may lead back to one of
/// the way.
fn read_directory(fs: &F2fs, way: &mut Vec<Ino>, path: &mut Vec<u8>, files: &mut Files) {
    let Some(dir) = way.last().copied() else { return };
    let mut names = Vec::new();
    let listed = fs.readdir(dir, 0, &mut |entry| {
        names.push((entry.name.to_vec(), entry.ino));
        true
    });
    if listed.is_err() || path.len() > 2000 {
        return;
    }
    for (name, ino) in names.into_iter().filter(|(name, _)| name != b"." && name != b"..") {
        // Names that are there twice lead to one of the inodes only.
        let Ok(attr) = fs.lookup(dir, &name) else { continue };
        if attr.ino != ino {
            fs.forget(attr.ino, 1);
            continue;
        }
        let len = path.len();
        path.push(b'/');
        path.extend(&name);
        match attr.kind {
            cairn_vfs::FileKind::Directory if !way.contains(&ino) => {
                way.push(ino);
                read_directory(fs, way, path, files);
                way.pop();
            }
            cairn_vfs::FileKind::Regular if attr.size < 64 << 20 => {
                let mut bytes = vec![0; usize::try_from(attr.size).unwrap()];
                if let Ok(read) = fs.read(ino, 0, &mut bytes, IoFlags::empty()) {
                    bytes.truncate(read);
                    files.insert(path.clone(), bytes);
                }
            }
            _ => {}
        }
        path.truncate(len);
        fs.forget(ino, 1);
    }
}

struct Judge {
    target: Target,
    sound: Files,
    /// There are several injections, of which some change contents.
    several: bool,
}

/// What became of a damaged volume.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Sound,
    Repaired,
    /// There is nothing to repair it from.
    Fatal,
    Refused(String),
    Wrong(String),
}

impl Judge {
    fn new(arguments: &[&str], several: bool) -> Self {
        let target = Target::new(arguments);
        let sound = files(&(Arc::new(target.device.fork()) as Arc<dyn BlockDevice>));
        assert!(sound.len() > 400);
        Self { target, sound, several }
    }

    fn judge(&self, injection: &Injection, scope: Scope) -> Verdict {
        let base: Arc<dyn BlockDevice> = Arc::new(self.target.device.fork());
        let overlay = Arc::new(Overlay::new(base).unwrap());
        let device: Arc<dyn BlockDevice> = overlay.clone();
        for (at, bytes) in &injection.blocks {
            device.write_at(*at, bytes.clone()).unwrap();
        }
        let damaged = files(&device);
        let plan = match plan(&device, scope) {
            Ok(plan) => plan,
            // Both copies of the magic number are gone.
            Err(cairn_f2fs::Error::NotF2fs { .. }) => return Verdict::Fatal,
            Err(error) => return Verdict::Refused(error.to_string()),
        };
        if plan.before.count() == 0 {
            assert!(plan.changes.is_empty() && plan.steps.count() == 0);
            return Verdict::Sound;
        }
        let fatal = plan.before.worst() == Some(cairn_check::Severity::Fatal);
        if plan.is_refused && fatal {
            return Verdict::Fatal;
        }
        if plan.is_refused || plan.after.count() > 0 {
            return Verdict::Refused(lines(&plan.after));
        }
        apply(&plan, &device);
        match self.after(&plan, &overlay, &damaged) {
            Ok(()) => Verdict::Repaired,
            Err(why) => {
                let steps: String =
                    plan.steps.kept().iter().map(|step| format!("  {step}\n")).collect();
                Verdict::Wrong(format!("{why}{steps}"))
            }
        }
    }

    fn after(&self, done: &Plan, overlay: &Arc<Overlay>, damaged: &Files) -> Result<(), String> {
        let device: Arc<dyn BlockDevice> = overlay.clone();
        let report = check(device.clone()).map_err(|error| error.to_string())?;
        if report.count() > 0 {
            return Err(format!("still found:\n{}", lines(&report)));
        }
        let again = plan(&device, Scope::All).map_err(|error| error.to_string())?;
        if !again.changes.is_empty() {
            return Err("a second repair changes something\n".into());
        }
        fsck(&self.target, overlay)?;
        let lost: Vec<&[u8]> =
            done.steps.losing().filter_map(|step| Some(&*step.loss.as_ref()?.path)).collect();
        let now = files(&device);
        for (path, bytes) in &self.sound {
            let is_lost = lost.iter().any(|lost| lost.is_empty() || path.starts_with(lost));
            let is_same = match now.get(path) {
                Some(found) => found == bytes || damaged.get(path) == Some(found),
                None => !damaged.contains_key(path),
            } || self.several;
            if !is_same && !is_lost {
                return Err(format!("changed: {}\n", String::from_utf8_lossy(path)));
            }
        }
        Ok(())
    }
}

/// What fsck.f2fs finds on a target with these changes.
pub fn fsck(target: &Target, overlay: &Overlay) -> Result<(), String> {
    let file = File::options().write(true).open(target.file.path()).unwrap();
    let ranges = overlay.touched();
    let copy = |from: &dyn BlockDevice| {
        for range in &ranges {
            let len = usize::try_from(range.end - range.start).unwrap();
            let bytes = from.read_at(range.start, len).unwrap();
            file.write_all_at(&bytes, range.start).unwrap();
        }
    };
    copy(overlay);
    let verdict = fsck_f2fs(target.file.path());
    copy(&target.device);
    if verdict.is_clean() {
        return Ok(());
    }
    let alarms: Vec<_> = f2fs_alarms(&verdict.output).collect();
    Err(format!("fsck.f2fs finds:\n{}\n", alarms.join("\n")))
}

/// Repairs injections. Panics with those whose repair is wrong, and with those that are refused
/// although something can be done.
fn search(arguments: &[&str], seeds: std::ops::Range<u64>, fields: u64) {
    let judge = Judge::new(arguments, fields > 1);
    let (mut sound, mut repaired, mut refused, mut fatal) = (0, 0, 0, 0);
    let mut wrong = String::new();
    for seed in seeds {
        let mut injection = judge.target.inject(seed);
        for more in 1..fields {
            let other = judge.target.inject(seed + more * 1_000_003);
            // Most of these leave nothing to repair the volume from.
            if other.what.starts_with("superblock") {
                continue;
            }
            // Two changes of a block would undo each other.
            let is_other =
                |(at, _): &(u64, Vec<u8>)| injection.blocks.iter().all(|(known, _)| known != at);
            if other.blocks.iter().all(is_other) {
                injection.what = format!("{}, {}", injection.what, other.what);
                injection.blocks.extend(other.blocks);
            }
        }
        if injection.what.is_empty() {
            continue;
        }
        match judge.judge(&injection, Scope::All) {
            Verdict::Sound => sound += 1,
            Verdict::Repaired => repaired += 1,
            Verdict::Fatal => {
                fatal += 1;
                println!("seed {seed}: {}: nothing to repair it from", injection.what);
            }
            Verdict::Refused(why) => {
                refused += 1;
                wrong += &format!("seed {seed}: {}: refused:\n{why}\n", injection.what);
            }
            Verdict::Wrong(why) => wrong += &format!("seed {seed}: {}:\n{why}\n", injection.what),
        }
    }
    println!("{arguments:?}: {repaired} repaired, {sound} sound, {fatal} fatal, {refused} refused");
    assert!(wrong.is_empty(), "{wrong}");
    assert!(repaired > 3);
}

#[test]
fn single_fields_are_repaired() {
    search(&[], seeds(0, 10, 2500), 1);
}

#[test]
fn single_fields_are_repaired_with_extra_attributes() {
    search(&["-O", "extra_attr,inode_checksum,inode_crtime"], seeds(1_000_000, 10, 2500), 1);
}

#[test]
fn many_fields_at_once_are_repaired() {
    search(&[], seeds(2_000_000, 10, 2500), 8);
}

/// Numbers that are none of a node have entries in the NAT, too, which fsck.f2fs checks.
#[test]
fn reserved_entries_of_the_nat_are_repaired() {
    let judge = Judge::new(&[], false);
    for (nid, values) in [(0, [1, 9, u32::MAX]), (1, [0, 5000, u32::MAX]), (2, [0, 2, 5000])] {
        for value in values {
            let injection = judge.target.inject_nat(nid, crate::fields::NAT[2], value);
            let (found, is_clean, _) = judge.target.judge(&injection);
            let found = found.unwrap();
            assert!(
                !is_clean && found.contains("f2fs.nat.reserved"),
                "{}: {found}",
                injection.what
            );
            let verdict = judge.judge(&injection, Scope::Accounting);
            assert_eq!(verdict, Verdict::Repaired, "{}", injection.what);
        }
    }
}

/// Both copies of the superblock are damaged, each in another field.
#[test]
fn a_superblock_is_made_of_two_damaged_ones() {
    let judge = Judge::new(&[], false);
    let pairs = [(0, 72), (76, 0), (48, 92), (20, 12)];
    for (first, second) in pairs {
        let mut blocks = Vec::new();
        for (at, field) in [(0, first), (4096, second)] {
            let mut bytes = judge.target.read(at);
            bytes[1024 + field] ^= 0x55;
            blocks.push((at, bytes));
        }
        let what = format!("superblock, bytes {first} and {second}");
        let injection = Injection { what: what.clone(), blocks };
        let (found, _, _) = judge.target.judge(&injection);
        assert!(found.unwrap().starts_with("f2fs.superblock.both: "), "{what}");
        assert_eq!(judge.judge(&injection, Scope::All), Verdict::Repaired, "{what}");
        let device: Arc<dyn BlockDevice> = Arc::new(damaged(&judge.target, &injection));
        let safe = plan(&device, Scope::Accounting).unwrap();
        assert!(safe.changes.is_empty() && safe.after.count() == 1, "{what}");
    }
}

/// Beside what loses something, a repair without losses changes no inode: it would get a new
/// checksum, and what is damaged in it would count as right.
#[test]
fn a_damaged_inode_gets_no_checksum_without_losses() {
    const EXTENT_LEN_AT: usize = 356;
    let target = Target::new(&["-O", "extra_attr,inode_checksum,project_quota,quota"]);
    for ino in [3, 4] {
        let place = target.inode_of(ino);
        let mut bytes = target.read(place);
        // The hint of an extent, which is accounting, and with it a wrong checksum.
        bytes[EXTENT_LEN_AT] ^= 1;
        let injection = Injection { what: format!("inode {ino}"), blocks: vec![(place, bytes)] };
        let device: Arc<dyn BlockDevice> = Arc::new(damaged(&target, &injection));
        let found = lines(&check(device.clone()).unwrap());
        assert!(found.contains("f2fs.inode.checksum: inode "), "{found}");
        let safe = plan(&device, Scope::Accounting).unwrap();
        assert!(safe.changes.is_empty() && !safe.is_refused, "{:?}", safe.steps.kept());
        let all = plan(&device, Scope::All).unwrap();
        assert!(all.after.count() == 0 && all.steps.losing().count() > 0, "{ino}");
    }
}

/// The root's entry of a new volume is in the journal; that in the table must be possible.
#[test]
fn an_entry_that_the_journal_replaces_is_repaired() {
    let device = crate::volume::volume(64 << 20, &[]);
    let mut block = vec![0; 4096];
    let nat = u64::from(u32::from_le_bytes(
        device.read_at(1024 + 84, 4).unwrap()[..].try_into().unwrap(),
    ));
    block.copy_from_slice(&device.read_at(nat << 12, 4096).unwrap());
    assert_eq!(block[28], 3);
    block[28] = 0;
    device.load(nat << 12, &block);
    let file = tempfile::NamedTempFile::new().unwrap();
    cairn_testkit::crash::write_image(&device, file.path()).unwrap();
    assert!(!fsck_f2fs(file.path()).is_clean());
    let device: Arc<dyn BlockDevice> = device;
    let found = check(device.clone()).unwrap();
    assert!(lines(&found).starts_with("f2fs.nat.replaced: node 3: "), "{}", lines(&found));
    let plan = plan(&device, Scope::Accounting).unwrap();
    apply(&plan, &device);
    assert_eq!((plan.steps.count(), check(device).unwrap().count()), (1, 0));
}

/// A directory that claims to have no levels keeps its names, and gets its levels back.
#[test]
fn the_levels_of_a_directory_are_found_again() {
    const DEPTH_AT: usize = 72;
    let target = Target::new(&[]);
    let root = target.inode_of(3);
    let mut bytes = target.read(root);
    bytes[DEPTH_AT..DEPTH_AT + 4].fill(0);
    let injection = Injection { what: "the depth of the root".into(), blocks: vec![(root, bytes)] };
    let sound = files(&(Arc::new(target.device.fork()) as Arc<dyn BlockDevice>));
    let device: Arc<dyn BlockDevice> = Arc::new(damaged(&target, &injection));
    let plan = plan(&device, Scope::Accounting).unwrap();
    assert!(!plan.is_refused && plan.after.count() == 0, "{}", lines(&plan.after));
    assert_eq!(plan.steps.losing().count(), 0);
    apply(&plan, &device);
    assert_eq!(check(device.clone()).unwrap().count(), 0);
    assert!(files(&device) == sound);
}

/// A repair that was cut anywhere, and whose undo file is gone, is finished by the next one.
#[test]
fn a_repair_without_its_undo_file_is_made_again() {
    let target = Target::new(&[]);
    let mut cuts = 0;
    for seed in 0..if cairn_testkit::deep() { 60 } else { 6 } {
        let injection = target.inject(4_000_000 + seed);
        let before = damaged(&target, &injection);
        let device: Arc<dyn BlockDevice> = Arc::new(before.fork());
        let Ok(planned) = plan(&device, Scope::All) else { continue };
        let recorder = Arc::new(Record::new(Arc::new(before.fork())));
        let recorded: Arc<dyn BlockDevice> = recorder.clone();
        apply(&planned, &recorded);
        let log = CrashLog::new(before, recorder.log());
        for moment in 0..=recorder.moment() {
            let cut = Cut { moment, volatile: Volatile::Random(seed) };
            let left: Arc<dyn BlockDevice> = Arc::new(log.device(cut));
            let again = plan(&left, Scope::All).unwrap();
            let is_fatal = planned.is_refused && again.is_refused;
            assert!(again.after.count() == 0 || is_fatal, "{}, {cut}", injection.what);
            apply(&again, &left);
            assert!(is_fatal || check(left).unwrap().count() == 0, "{}, {cut}", injection.what);
            cuts += 1;
        }
    }
    assert!(cuts > 10, "{cuts}");
}
