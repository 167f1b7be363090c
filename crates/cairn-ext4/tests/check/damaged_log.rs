//! Logs of which one block is damaged, after a power cut: by one bit, or wholly.
//!
//! The kernel's ext4 says what a reader must refuse, e2fsck what a repair must keep.
//! `CAIRN_DEEP=1` damages every block of the log.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_check::repair::undo::file_size;
use cairn_check::salvage::{Contents, Found, Loss, Receiver};
use cairn_ext4::{Error, Ext4, MountOptions};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::deep;
use cairn_testkit::judge::{KernelMount, command, debugfs, mke2fs};
use cairn_testkit::tree::{Snapshot, SnapshotOptions, digest_volume};

use crate::repaired::{complaint, plan, snapshot};
use crate::support::check;

pub const BLOCK: u64 = 1024;
pub const FILES: usize = 30;
/// Files that a transaction adds.
const EACH: usize = 5;

/// A volume after a power cut: some files are in place, and 30 in the log.
pub struct Crashed {
    pub device: MemoryDevice,
    tree: Snapshot,
    /// Blocks of the journal on the volume.
    pub journal: Vec<u64>,
    /// The first block of the log in use, and the one behind the last.
    start: usize,
    used: usize,
}

fn name(number: usize) -> String {
    format!("file {number}")
}

impl Crashed {
    pub fn new(at: &Path) -> Self {
        Self::with(at, "metadata_csum")
    }

    pub fn with(at: &Path, features: &str) -> Self {
        let args = ["-t", "ext4", "-b", "1024", "-N", "256", "-J", "size=1", "-O", features];
        mke2fs(at, 8 << 20, &args);
        let mount = KernelMount::new(at, "");
        std::fs::write(mount.path().join("old"), "in place").unwrap();
        mount.unmount();
        let mount = KernelMount::new(at, "commit=600");
        let directory = mount.path().join("dir");
        std::fs::create_dir(&directory).unwrap();
        for number in 0..FILES {
            let path = directory.join(name(number));
            std::fs::write(&path, format!("contents {number}\n").repeat(40 + number)).unwrap();
            if number % EACH == EACH - 1 {
                // Its directory, too.
                File::open(&path).unwrap().sync_all().unwrap();
                File::open(&directory).unwrap().sync_all().unwrap();
            }
        }
        for number in 0..FILES {
            File::open(directory.join(name(number))).unwrap().sync_all().unwrap();
        }
        let device = read_image(at).unwrap();
        mount.unmount();
        write_image(&device, at).unwrap();
        let blocks = debugfs(at, "blocks <8>");
        let journal: Vec<u64> =
            blocks.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let is_used = |block: &&u64| {
            device.read_at(**block * BLOCK, 1024).unwrap().iter().any(|byte| *byte != 0)
        };
        let used = journal.iter().rposition(|block| is_used(&block)).unwrap() + 1;
        let start = device.read_at(journal[0] * BLOCK + 28, 4).unwrap();
        let start = u32::from_be_bytes(start[..4].try_into().unwrap()) as usize;
        let tree = snapshot(device.fork());
        assert!(tree.get(b"dir/file 29").is_some() && used > start + 40, "{used}");
        Self { device, tree, journal, start, used }
    }

    fn kind(&self, number: usize) -> Option<u8> {
        let block = self.device.read_at(self.journal[number] * BLOCK, 12).unwrap();
        (block[..4] == [0xc0, 0x3b, 0x39, 0x98]).then_some(block[7])
    }

    fn damaged(&self, number: usize, damage: Damage) -> MemoryDevice {
        let device = self.device.fork();
        let at = self.journal[number] * BLOCK;
        let mut block = device.read_at(at, 1024).unwrap().to_vec();
        match damage {
            Damage::Bit => block[if number == 0 { 0x1b } else { 40 }] ^= 0x10,
            Damage::Noise => {
                let mut random = fastrand::Rng::with_seed(number as u64);
                block.iter_mut().for_each(|byte| *byte = random.u8(..));
            }
        }
        device.write_at(at, block).unwrap();
        device
    }

    /// The files that are not as they were.
    pub fn lost(&self, now: Option<&Snapshot>) -> Vec<String> {
        let of = |tree: &Snapshot, path: &str| tree.get(path.as_bytes()).map(str::to_owned);
        let is_lost = |path: &String| of(&self.tree, path) != now.and_then(|tree| of(tree, path));
        let all = (0..FILES).map(|number| format!("dir/{}", name(number)));
        all.chain(["old".to_owned()]).filter(is_lost).collect()
    }
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Bit,
    Noise,
}

fn open(device: &MemoryDevice, options: &str) -> cairn_ext4::Result<Arc<Ext4>> {
    let options = MountOptions::parse(options).unwrap();
    Ext4::open(Arc::new(device.fork()), Threads::new(), &options)
}

pub fn mounted(device: &MemoryDevice) -> Option<Snapshot> {
    digest_volume(&*open(device, "ro").ok()?, SnapshotOptions::default()).ok()
}

pub fn is_refused(device: &MemoryDevice, options: &str) -> bool {
    match open(device, options) {
        Ok(_) => false,
        Err(Error::Unreplayable(_)) => true,
        Err(error) => panic!("{error}"),
    }
}

/// What is wrong with what Cairn does with the volume, if anything is.
fn judge(crashed: &Crashed, device: &MemoryDevice, at: &Path) -> Result<bool, String> {
    write_image(device, at).unwrap();
    let by_linux = KernelMount::try_new(at, "").map(KernelMount::unmount);
    let whole = crashed.lost(mounted(device).as_ref()).is_empty();
    for options in ["ro", ""] {
        let refused = is_refused(device, options);
        if by_linux.is_err() && !refused {
            return Err(format!("'{options}' opens what Linux refuses"));
        }
        if !refused && !whole {
            return Err(format!("'{options}' shows an old state"));
        }
    }
    let found = check(Arc::new(device.fork())).unwrap();
    if !whole && !found.counts.iter().any(|(kind, _)| kind.code.starts_with("ext4.journal.")) {
        return Err("the check finds nothing in the journal".into());
    }
    for scope in [Scope::Accounting, Scope::All] {
        let planned = plan(device.fork(), scope).map_err(|error| error.to_string())?;
        if scope == Scope::Accounting && planned.changes.is_empty() {
            continue;
        }
        let after = device.fork();
        planned.apply(&after, &MemoryDevice::new(file_size(&planned.changes))).unwrap();
        let lost = crashed.lost(mounted(&after).as_ref());
        if let Some(said) = complaint(&after, at) {
            return Err(format!("{scope:?}: e2fsck -fn: {said}"));
        }
        if scope == Scope::Accounting && !lost.is_empty() {
            return Err(format!("a repair without losses loses {lost:?}"));
        }
        if !lost.is_empty() {
            write_image(device, at).unwrap();
            for _ in 0..2 {
                command("e2fsck").arg("-fy").arg(at).output().expect("e2fsck starts");
            }
            let theirs = crashed.lost(mounted(&read_image(at).unwrap()).as_ref());
            let worse: Vec<_> = lost.iter().filter(|path| !theirs.contains(path)).collect();
            if !worse.is_empty() {
                return Err(format!("{worse:?} are lost, which e2fsck keeps"));
            }
        }
    }
    Ok(whole)
}

#[test]
fn readers_refuse_what_linux_refuses_and_repairs_lose_less_than_e2fsck() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let crashed = Crashed::new(&at);
    let (mut wrong, mut refused, mut tried) = (Vec::new(), 0, 0);
    let mut structures = 0;
    for number in [0].into_iter().chain(crashed.start..crashed.used) {
        let is_structure = crashed.kind(number).is_some();
        structures += usize::from(is_structure);
        // Without CAIRN_DEEP: the superblock, the structure of two transactions, some copies.
        let is_chosen = if is_structure { structures <= 5 } else { number % 29 == 3 };
        if !(deep() || is_chosen) {
            continue;
        }
        for damage in [Damage::Bit, Damage::Noise] {
            // Without its commit block, the last transaction is one that a power cut tore.
            if number + 1 == crashed.used && matches!(damage, Damage::Noise) {
                continue;
            }
            tried += 1;
            match judge(&crashed, &crashed.damaged(number, damage), &hurt) {
                Ok(whole) => refused += usize::from(!whole),
                Err(why) => wrong.push(format!("{damage:?} in block {number}: {why}")),
            }
        }
    }
    println!("{tried} tried, {refused} refused, {} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(refused * 2 > tried, "{refused} of {tried} refused");
}

/// One wrong bit costs nothing, and no losses need to be allowed.
#[test]
fn one_wrong_bit_is_corrected_without_losses() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("image");
    let crashed = Crashed::new(&at);
    let (first, last) = (crashed.start, crashed.used - 1);
    for number in [0, first, first + 1, (first + last) / 2, last] {
        let device = crashed.damaged(number, Damage::Bit);
        let planned = plan(device.fork(), Scope::Accounting).unwrap();
        assert_eq!((planned.steps.losing().count(), planned.after.count()), (0, 0), "{number}");
        planned.apply(&device, &MemoryDevice::new(file_size(&planned.changes))).unwrap();
        assert_eq!(crashed.lost(mounted(&device).as_ref()), [""; 0], "block {number}");
        assert_eq!(complaint(&device, &at), None, "block {number}");
    }
}

/// Noise in a field of the journal's superblock, where the checksum or the journal's file says what
/// the field was, or another number of its inode.
#[test]
fn a_wrong_field_that_leads_to_the_log_costs_no_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for features in ["metadata_csum", "^metadata_csum,^metadata_csum_seed"] {
        let has_sums = !features.starts_with('^');
        let crashed = Crashed::with(&at, features);
        let mut damaged = Vec::new();
        for (field, word) in [(20, 0), (20, 300), (20, 0x0909_0909), (8, 77), (600, 0x1234_5678)] {
            // Without a checksum, some say nothing.
            if has_sums || field == 20 {
                let device = crashed.device.fork();
                let place = crashed.journal[0] * BLOCK + field;
                device.write_at(place, u32::to_be_bytes(word).to_vec()).unwrap();
                damaged.push((format!("{features}: {word:#x} at {field}"), device));
            }
        }
        for request in ["ssv journal_inum 12", "ssv journal_inum 0", "ssv journal_inum 99999"] {
            let device = crate::repaired::injected(&at, &hurt, request);
            damaged.push((format!("{features}: {request}"), device));
        }
        for (what, device) in damaged {
            assert!(open(&device, "ro").is_err(), "{what}: it is opened");
            let planned = plan(device.fork(), Scope::Accounting).unwrap();
            let left = (planned.steps.losing().count(), planned.after.count());
            assert_eq!(left, (0, 0), "{what}: {:?}", planned.after.findings);
            planned.apply(&device, &MemoryDevice::new(file_size(&planned.changes))).unwrap();
            assert_eq!(crashed.lost(mounted(&device).as_ref()), [""; 0], "{what}");
            assert_eq!(complaint(&device, &hurt), None, "{what}");
        }
    }
}

/// Counts what a rescue finds and loses.
#[derive(Default)]
pub struct Counts {
    pub files: usize,
    pub losses: Vec<String>,
}

impl Receiver for Counts {
    fn found(&mut self, _: &Found, _: &mut dyn Contents) -> bool {
        self.files += 1;
        true
    }

    fn linked(&mut self, _: &[u8], _: u64, _: &[u8]) -> bool {
        true
    }

    fn lost(&mut self, loss: Loss) -> bool {
        self.losses.push(loss.what);
        true
    }

    fn progress(&mut self, _: &'static str, _: u64, _: u64) -> bool {
        true
    }
}

/// A rescue corrects what a repair corrects, and says that it lacks what the log holds.
#[test]
fn a_rescue_says_when_the_log_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let crashed = Crashed::new(&dir.path().join("image"));
    let middle = (crashed.start..crashed.used).rfind(|number| crashed.kind(*number) == Some(1));
    for (damage, is_lost) in [(Damage::Bit, false), (Damage::Noise, true)] {
        let device = Arc::new(crashed.damaged(middle.unwrap(), damage));
        let choice = cairn_ext4::SuperblockChoice::Best;
        let runtime: Arc<dyn cairn_base::runtime::Runtime> = Threads::new();
        let opened = cairn_ext4::rescue::open(device, choice, &runtime);
        let mut counts = Counts::default();
        opened.unwrap().tree(&mut counts);
        let is_told = counts.losses.iter().any(|what| what.contains("journal"));
        assert_eq!(is_told, is_lost, "{damage:?}: {:?}", counts.losses);
        assert!(is_lost || counts.files > FILES, "{} files", counts.files);
    }
}

/// The superblock has a copy of the map of the journal.
#[test]
fn a_journal_without_its_inode_is_found_by_the_copy_of_its_map() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("image");
    let crashed = Crashed::new(&at);
    for request in ["clri <8>", "sif <8> block[2] 77", "sif <8> size 1024", "sif <8> mode 0"] {
        // The kernel may still write to what it had mounted before.
        let hurt = dir.path().join(request);
        let device = crate::repaired::injected(&at, &hurt, request);
        write_image(&device, &hurt).unwrap();
        let by_linux = KernelMount::try_new(&hurt, "").map(KernelMount::unmount);
        assert!(by_linux.is_ok() || is_refused(&device, "ro"), "{request} is opened");
        let planned = plan(device.fork(), Scope::Accounting).unwrap();
        assert_eq!((planned.steps.losing().count(), planned.after.count()), (0, 0), "{request}");
        planned.apply(&device, &MemoryDevice::new(file_size(&planned.changes))).unwrap();
        assert_eq!(crashed.lost(mounted(&device).as_ref()), [""; 0], "{request}");
        assert_eq!(complaint(&device, &hurt), None, "{request}");
    }
}

/// A block of revoke records is lost. What it revoked may be a file's data by now.
#[test]
fn a_lost_revoke_block_costs_no_data_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (at, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    mke2fs(&at, 8 << 20, &["-t", "ext4", "-b", "1024", "-N", "512", "-J", "size=1"]);
    let mount = KernelMount::new(&at, "commit=600");
    let directory = mount.path().join("many");
    std::fs::create_dir(&directory).unwrap();
    for number in 0..100 {
        std::fs::write(directory.join(format!("a name of some length {number}")), "").unwrap();
    }
    File::open(&directory).unwrap().sync_all().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let other = mount.path().join("other");
    std::fs::write(&other, "").unwrap();
    File::open(&other).unwrap().sync_all().unwrap();
    // As much as there is room for, so that it has the blocks of the directory.
    let data: Vec<u8> = (0..5_200_000_u32).map(|at| (at % 249) as u8 | 1).collect();
    std::fs::write(&other, &data).unwrap();
    File::open(&other).unwrap().sync_all().unwrap();
    let device = read_image(&at).unwrap();
    mount.unmount();
    let expected = snapshot(device.fork()).get(b"other").map(str::to_owned);
    let blocks = debugfs(&at, "blocks <8>");
    let journal = blocks.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    let is_revoke = |block: &u64| {
        device.read_at(*block * BLOCK, 8).unwrap()[..8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 5]
    };
    let revokes: Vec<u64> = journal.filter(is_revoke).collect();
    assert!(!revokes.is_empty(), "no block was revoked");
    for block in revokes {
        let mut random = fastrand::Rng::with_seed(block);
        let noise: Vec<u8> = (0..1024).map(|_| random.u8(..)).collect();
        device.write_at(block * BLOCK, noise).unwrap();
    }
    assert!(is_refused(&device, "ro"));
    let planned = plan(device.fork(), Scope::All).unwrap();
    planned.apply(&device, &MemoryDevice::new(file_size(&planned.changes))).unwrap();
    assert_eq!(snapshot(device.fork()).get(b"other").map(str::to_owned), expected);
    assert_eq!(complaint(&device, &hurt), None);
}

/// A refused volume is not written to.
#[test]
fn a_refused_volume_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let crashed = Crashed::new(&dir.path().join("image"));
    let device = Arc::new(crashed.damaged(crashed.start, Damage::Noise));
    let len = usize::try_from(device.geometry().size).unwrap();
    let before = device.read_at(0, len).unwrap();
    let options = MountOptions::default();
    let opened = Ext4::open(device.clone(), Threads::new(), &options);
    let opened = opened.map(|_| "opened").map_err(|error| format!("{error:?}"));
    assert!(opened.as_ref().is_err_and(|why| why.starts_with("Unreplayable")), "{opened:?}");
    let planned = plan(device.fork(), Scope::Accounting).unwrap();
    assert!(planned.changes.is_empty() && planned.after.count() > 0);
    assert!(device.read_at(0, len).unwrap()[..] == before[..]);
    // What does not ask for the log is shown.
    assert!(open(&device, "ro,noload").is_ok());
}

/// The block of the group descriptors is noise, and the log has a good copy of it.
#[test]
fn descriptors_that_the_log_has_are_read_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("image");
    let crashed = Crashed::new(&at);
    let device = crashed.device.fork();
    device.write_at(2 * BLOCK, vec![0xa5; 1024]).unwrap();
    for options in ["ro", ""] {
        let volume = open(&device, options).expect("the journal is found by the copy of its map");
        let tree = digest_volume(&*volume, SnapshotOptions::default()).unwrap();
        assert_eq!(crashed.lost(Some(&tree)), [""; 0], "'{options}'");
    }
    let planned = plan(device.fork(), Scope::Accounting).unwrap();
    assert_eq!((planned.steps.losing().count(), planned.after.count()), (0, 0));
    planned.apply(&device, &MemoryDevice::new(file_size(&planned.changes))).unwrap();
    assert_eq!(crashed.lost(mounted(&device).as_ref()), [""; 0]);
    assert_eq!(complaint(&device, &at), None);
}
