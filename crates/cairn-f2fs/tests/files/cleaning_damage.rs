//! Cleaning meets nodes and data that cannot be read: it leaves them where they are, cleans the
//! other sections, and the volume goes on.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Operation};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_f2fs::format::{CheckpointFlags, Nid, NodeFooter};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::support::volume;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 8192;
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

#[test]
fn what_cannot_be_read_stays_and_stops_nothing() {
    let (sound, fs, [ino, small]) = worn();
    let nodes = direct_nodes(&sound, &fs, ino);
    assert!(nodes.len() > 5, "{}", nodes.len());
    let node = sound.read_at(nodes[4], 4096).unwrap();
    // A block that was not overwritten: the first pointer is that of an odd one.
    let data = u64::from(u32::from_le_bytes(node[40..44].try_into().unwrap())) * BLOCK;
    let small = address(&fs, Nid::of(small).unwrap());
    let own = address(&fs, Nid::of(ino).unwrap());
    type Damage = fn(&mut [u8]);
    let changed: Damage = |bytes| bytes[4072..4080].fill(0x77);
    let cases: [(&str, u64, Option<Damage>, u64); 6] = [
        ("a direct node", nodes[1], Some(changed), 6),
        ("an inode", small, Some(changed), 6),
        // Its data stays, too.
        ("the inode of the large file", own, Some(changed), 0),
        ("a sector with a direct node", nodes[1], None, 6),
        ("a sector with an inode", small, None, 6),
        ("a sector with data", data, None, 6),
    ];
    for (what, at, damage, least) in cases {
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
    }
}
