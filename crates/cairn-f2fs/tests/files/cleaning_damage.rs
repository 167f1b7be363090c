//! Cleaning meets nodes and data that cannot be read: it leaves them where they are, cleans the
//! other sections, and the volume goes on.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Operation};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::{Scope, undo};
use cairn_f2fs::format::{CheckpointFlags, Nid, NodeFooter};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::support::{judge, look, volume};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 8192;
/// Blocks below a direct node.
const DIRECT: u64 = 1018;
const OPTIONS: &str = "mode=lfs,checkpoint_interval=86400";

fn open(device: Arc<dyn BlockDevice>, options: &str) -> (Arc<Simulated>, Arc<F2fs>) {
    let runtime = Simulated::new(1);
    let options = MountOptions::parse(options).unwrap();
    let fs = F2fs::open(device, runtime.clone(), &options).unwrap();
    (runtime, fs)
}

fn create(fs: &F2fs, name: &str) -> Ino {
    let made = fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT);
    let ino = made.unwrap().ino;
    fs.write(ino, 0, &contents(name), IoFlags::empty()).unwrap();
    ino
}

/// More than an inode holds.
fn contents(name: &str) -> Vec<u8> {
    format!("{name:5000}").into_bytes()
}

/// A volume whose sections are half valid, a large file, and a small one.
fn worn() -> (Arc<MemoryDevice>, Arc<F2fs>, [Ino; 2]) {
    let device = volume(256 << 20, &[]);
    let (_, fs) = open(device.clone(), OPTIONS);
    for number in 0..300 {
        create(&fs, &format!("small {number}"));
    }
    let ino = create(&fs, "file");
    let write = |index: u64, byte: u8| {
        assert_eq!(fs.write(ino, index * BLOCK, &[byte; 4096], IoFlags::empty()).unwrap(), 4096);
    };
    (0..BLOCKS).for_each(|index| write(index, 1));
    fs.sync().unwrap();
    (0..BLOCKS).step_by(2).for_each(|index| write(index, 2));
    for number in (0..300).step_by(2) {
        fs.unlink(fs.root(), format!("small {number}").as_bytes()).unwrap();
    }
    let small = fs.lookup(fs.root(), b"small 151").unwrap().ino;
    fs.unmount().unwrap();
    (device, fs, [ino, small])
}

fn address(fs: &F2fs, nid: Nid) -> u64 {
    fs.disk().nat.lookup(nid).unwrap().block_addr.bytes()
}

/// Where the direct nodes of the large file are.
fn direct_nodes(device: &MemoryDevice, fs: &F2fs, ino: Ino) -> Vec<u64> {
    let ino = Nid::of(ino).unwrap();
    let places = (4..1000).map(Nid).filter(|nid| *nid != ino).map(|nid| address(fs, nid));
    let is_of =
        |at: &u64| *at > 0 && NodeFooter::read(&device.read_at(*at, 4096).unwrap()).ino == ino;
    places.filter(is_of).collect()
}

/// Repairs the volume with losses, and asserts that neither check nor fsck.f2fs finds anything
/// then. Returns what was lost.
fn repair(device: &Arc<MemoryDevice>, what: &str) -> Vec<String> {
    let plan = cairn_f2fs::repair::plan(device.clone(), Threads::new(), Arc::new(()), Scope::All);
    let plan = plan.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!plan.is_refused, "{what}: the repair is refused");
    plan.apply(&**device, &MemoryDevice::new(undo::file_size(&plan.changes))).unwrap();
    judge(device);
    plan.steps.losing().filter(|step| step.loss.is_some()).map(ToString::to_string).collect()
}

fn read(fs: &F2fs, name: &str) -> Result<Vec<u8>, String> {
    let found = fs.lookup(fs.root(), name.as_bytes()).map_err(|error| error.to_string())?;
    let mut bytes = vec![0; usize::try_from(found.size).unwrap()];
    match fs.read(found.ino, 0, &mut bytes, IoFlags::empty()) {
        Ok(len) if len == bytes.len() => Ok(bytes),
        Ok(len) => Err(format!("{len} of {} bytes", bytes.len())),
        Err(error) => Err(error.to_string()),
    }
}

/// The names of files that are not as they were made.
fn wrong(device: &Arc<MemoryDevice>) -> Vec<String> {
    let fs = look(device.clone());
    let mut wrong = Vec::new();
    let small = (1..300).step_by(2).map(|number| format!("small {number}"));
    for name in small.chain(["before", "after"].map(Into::into)) {
        match read(&fs, &name) {
            Ok(bytes) if bytes == contents(&name) => {}
            Ok(_) => wrong.push(format!("{name}: other contents")),
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    match read(&fs, "file") {
        Ok(bytes) => {
            let block = |index: usize| [2 - (index % 2) as u8; 4096];
            let is_wrong = |(index, bytes): &(usize, &[u8])| *bytes != block(*index);
            let blocks = bytes.chunks(4096).enumerate().filter(is_wrong).count();
            if blocks > 0 || bytes.len() as u64 != BLOCKS * BLOCK {
                wrong.push(format!("file: {blocks} blocks of {} bytes", bytes.len()));
            }
        }
        Err(error) => wrong.push(format!("file: {error}")),
    }
    wrong
}

type Damage = fn(&mut [u8]);

/// What is damaged, where, and how; without a change the block cannot be read. The least number of
/// sections of data that are cleaned beside it, and what a repair loses.
type Case = (&'static str, u64, Option<Damage>, u64, Option<String>);

fn cases(sound: &MemoryDevice, fs: &F2fs, [ino, small]: [Ino; 2]) -> [Case; 8] {
    let nodes = direct_nodes(sound, fs, ino);
    assert!(nodes.len() > 5, "{}", nodes.len());
    let node = sound.read_at(nodes[4], 4096).unwrap();
    // A block that was not overwritten: the first pointer is that of an odd one.
    let data = u64::from(u32::from_le_bytes(node[40..44].try_into().unwrap())) * BLOCK;
    let [own, small] = [ino, small].map(|ino| address(fs, Nid::of(ino).unwrap()));
    // Of the numbers the summary has a copy.
    let numbers: Option<Damage> = Some(|bytes| bytes[4072..4080].fill(0x77));
    let footer: Option<Damage> = Some(|bytes| bytes[4072..].fill(0x77));
    let below = format!("file: {DIRECT} blocks of {} bytes", BLOCKS * BLOCK);
    let missing = |name: &str| Some(format!("{name}: no such file or directory"));
    [
        ("a direct node", nodes[1], numbers, 6, None),
        ("an inode", small, numbers, 6, None),
        // Its data stays, too.
        ("the inode of the large file", own, numbers, 0, None),
        ("the footer of a direct node", nodes[1], footer, 6, Some(below)),
        ("the footer of an inode", small, footer, 6, missing("small 151")),
        ("a sector with a direct node", nodes[1], None, 6, None),
        ("a sector with an inode", small, None, 6, None),
        ("a sector with data", data, None, 6, None),
    ]
}

#[test]
fn what_cannot_be_read_stays_and_stops_nothing() {
    let (sound, fs, inos) = worn();
    for (what, at, damage, least, loss) in cases(&sound, &fs, inos) {
        let device = Arc::new(sound.fork());
        let fault = Arc::new(Fault::new(device.clone()));
        match damage {
            Some(damage) => {
                let mut bytes = device.read_at(at, 4096).unwrap().to_vec();
                damage(&mut bytes);
                device.load(at, &bytes);
            }
            None => fault.fail_range(Operation::Read, at..at + BLOCK),
        }
        let (runtime, fs) = open(fault.clone(), OPTIONS);
        create(&fs, "before");
        for _ in 0..120 {
            runtime.advance(Duration::from_secs(60));
        }
        let stats = fs.gc_stats();
        let cleaned = stats.data_sections.get();
        assert!(cleaned >= least, "{what}: {cleaned} sections of data were cleaned");
        create(&fs, "after");
        fs.sync().unwrap_or_else(|error| panic!("{what}: {error}"));
        let _ = fs.unmount();
        let (_, fs) = open(Arc::new(device.fork()), "ro");
        for name in ["before", "after", "small 1", "small 299"] {
            let mut read = vec![0; 6000];
            let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
            let len = fs.read(ino, 0, &mut read, IoFlags::empty()).unwrap();
            assert!(read[..len] == contents(name), "{what}: {name}");
        }
        let flags = fs.disk().checkpoint.checkpoint.flags;
        assert!(flags.contains(CheckpointFlags::FSCK), "{what}: {cleaned} sections");
        drop(fs);
        // All of the device can be read again.
        let lost = repair(&device, what);
        assert_eq!(lost.is_empty(), loss.is_none(), "{what}: {lost:?}");
        assert_eq!(wrong(&device), Vec::from_iter(loss), "{what}");
    }
}
