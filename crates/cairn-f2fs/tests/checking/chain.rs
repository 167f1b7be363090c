//! A node of the chain of fsynced nodes is damaged: readers deliver what was fsynced, or an error,
//! the check finds it, and a repair that loses nothing recovers what the other nodes prove.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_f2fs::format::units::{BLOCK_SIZE, BlockAddr, Nid};
use cairn_f2fs::format::{Log, NodeFooter};
use cairn_f2fs::{Choice, F2fs, MountOptions, rescue};
use cairn_testkit::judge::assert_f2fs_device_clean;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::inject::Target;
use crate::readers::View;
use crate::repair::{apply, plan};
use crate::rescue::rescued;
use crate::volume::{MIB, open, volume};
use crate::{check, lines};

const FILES: u8 = 6;

/// A volume after a power cut: an old file and new ones were fsynced.
struct Cut {
    device: MemoryDevice,
    chain: Vec<BlockAddr>,
    sound: View,
}

impl Cut {
    fn new(arguments: &[&str]) -> Self {
        Self::beside(0, arguments)
    }

    /// With this many more files that were there before.
    fn beside(others: u32, arguments: &[&str]) -> Self {
        let device = volume(64 * MIB, arguments);
        let fs = open(device.clone(), "");
        let create = |fs: &F2fs, name: &str| {
            let new = NewInode::Regular;
            fs.create(fs.root(), name.as_bytes(), new, 0o600, &Caller::ROOT).unwrap().ino
        };
        let old = create(&fs, "old");
        fs.write(old, 0, &[1; 9000], IoFlags::empty()).unwrap();
        for other in 0..others {
            create(&fs, &format!("other {other}"));
        }
        fs.unmount().unwrap();
        let fs = open(device.clone(), "");
        let old = fs.lookup(fs.root(), b"old").unwrap().ino;
        fs.write(old, 4096, &[2; 30_000], IoFlags::empty()).unwrap();
        fs.fsync(old, 0, false).unwrap();
        for index in 0..FILES {
            let new = create(&fs, &format!("new {index}"));
            let bytes = vec![index; 4000 * usize::from(index + 1)];
            fs.write(new, 0, &bytes, IoFlags::empty()).unwrap();
            fs.fsync(new, 0, false).unwrap();
        }
        fs.shutdown(false).unwrap();
        let device = device.fork();
        let chain = chain(&device);
        assert!(chain.len() > usize::from(FILES));
        let sound: Arc<dyn BlockDevice> = Arc::new(device.fork());
        let report = check(sound.clone()).unwrap();
        assert_eq!(report.recovered, ["chain of fsynced nodes"], "{}", lines(&report));
        assert_eq!(report.count(), 0, "{}", lines(&report));
        let sound = View::of(&sound);
        assert!(sound.failed.is_empty() && sound.found.len() > usize::from(FILES));
        Self { device, chain, sound }
    }

    fn footer(&self, index: usize) -> NodeFooter {
        NodeFooter::read(&self.device.read_at(self.chain[index].bytes(), BLOCK_SIZE).unwrap())
    }

    fn with(&self, index: usize, footer: NodeFooter) -> Arc<dyn BlockDevice> {
        let at = self.chain[index].bytes();
        let mut bytes = self.device.read_at(at, BLOCK_SIZE).unwrap().to_vec();
        footer.write(&mut bytes);
        let device = self.device.fork();
        device.load(at, &bytes);
        Arc::new(device)
    }

    /// What is wrong with readers and repairs of a volume whose chain can be mended.
    fn mend(&self, what: &str, device: Arc<dyn BlockDevice>) {
        let misread = View::of(&device).wrong(&self.sound);
        assert!(misread.is_empty(), "{what}: {misread:?}");
        let found = lines(&check(device.clone()).unwrap());
        assert!(found.contains("f2fs.recovery.chain: "), "{what}: {found}");
        let done = plan(&device, Scope::Accounting).unwrap();
        assert!(!done.is_refused && done.after.count() == 0, "{what}: {}", lines(&done.after));
        apply(&done, &device);
        let view = View::of(&device);
        assert!(view.failed.is_empty() && view.wrong(&self.sound).is_empty(), "{what}");
        assert_eq!(check(device.clone()).unwrap().count(), 0, "{what}");
    }
}

/// Where the nodes of the chain are.
fn chain(device: &MemoryDevice) -> Vec<BlockAddr> {
    let options = MountOptions { read_only: true, no_recovery: true, ..MountOptions::default() };
    let runtime = cairn_base::runtime::threads::Threads::new();
    let volume = F2fs::open(Arc::new(device.fork()), runtime, &options).unwrap();
    let disk = volume.disk();
    let (layout, checkpoint) = (*disk.layout, disk.checkpoint.checkpoint.clone());
    let warm = checkpoint.log(Log::WarmNode);
    let (mut chain, mut at) = (Vec::new(), layout.address(warm.segno, warm.blkoff));
    loop {
        let footer = NodeFooter::read(&device.read_at(at.bytes(), BLOCK_SIZE).unwrap());
        if footer.cp_ver != checkpoint.node_version() {
            return chain;
        }
        chain.push(at);
        at = footer.next_blkaddr;
    }
}

const KINDS: [&[&str]; 2] = [&[], &["-O", "extra_attr,inode_checksum"]];

#[test]
fn a_wrong_link_of_the_chain_loses_nothing() {
    for (number, arguments) in KINDS.into_iter().enumerate() {
        let cut = Cut::new(arguments);
        let last = cut.chain.len() - 1;
        for (index, at) in cut.chain.iter().enumerate().take(last) {
            let right = cut.footer(index);
            let at = at.get();
            let links = [0, 7, at, at + 2, at + 300, at + 5000, cut.chain[0].get(), u32::MAX];
            // A link past the end of the chain, or to nowhere.
            for (turn, next) in links.into_iter().enumerate() {
                if (turn + index + number) % 4 == 0 && next != at + 1 {
                    let footer = NodeFooter { next_blkaddr: BlockAddr(next), ..right };
                    let what =
                        format!("{arguments:?}, node {index} leads to {next}, not {}", at + 1);
                    cut.mend(&what, cut.with(index, footer));
                }
            }
        }
        for index in [0, last / 2, last] {
            let right = cut.footer(index);
            let shifts: &[u32] = if index == last && number == 0 { &[3] } else { &[3, 40] };
            for shift in shifts {
                let footer = NodeFooter { cp_ver: right.cp_ver ^ 1 << shift, ..right };
                let what = format!("{arguments:?}, bit {shift} of the version of node {index}");
                cut.mend(&what, cut.with(index, footer));
            }
        }
    }
}

/// A node that names another inode than the one it is: nothing is dropped unseen, and what goes in
/// a repair is listed.
#[test]
fn a_node_of_the_chain_that_contradicts_itself_is_found() {
    let cut = Cut::new(&[]);
    for (index, nid, ino) in [(0, 0, 1), (1, 1, 0), (3, 4000, 0)] {
        let right = cut.footer(index);
        assert_eq!(right.nid, right.ino, "the nodes of small files are inodes");
        let (nid, ino) = (Nid(right.nid.get() ^ nid), Nid(right.ino.get() ^ ino));
        let what = format!("node {index} is {nid} of {ino}, not {}", right.nid);
        let device = cut.with(index, NodeFooter { nid, ino, ..right });
        let misread = View::of(&device).wrong(&cut.sound);
        assert!(misread.is_empty(), "{what}: {misread:?}");
        let found = lines(&check(device.clone()).unwrap());
        assert!(found.contains("f2fs.recovery.failed: "), "{what}: {found}");
        assert!(plan(&device, Scope::Accounting).unwrap().changes.is_empty(), "{what}");
        let done = plan(&device, Scope::All).unwrap();
        assert!(!done.is_refused && done.after.count() == 0, "{what}: {}", lines(&done.after));
        let lost: Vec<_> = done.steps.losing().filter_map(|step| step.loss.clone()).collect();
        let name = if index == 0 { "old".into() } else { format!("new {}", index - 1) };
        assert!(lost.iter().any(|loss| loss.what.ends_with(&name)), "{what}: {lost:?}");
        apply(&done, &device);
        let view = View::of(&device);
        let is_listed = |one: &String| {
            let path = one.split(':').next().unwrap_or_default().trim_start_matches('/');
            lost.iter().any(|loss| loss.what.ends_with(path))
        };
        let wrong: Vec<_> = view.wrong(&cut.sound);
        assert!(wrong.iter().all(is_listed), "{what}: {wrong:?}, {lost:?}");
        let copy = MemoryDevice::new(64 * MIB);
        for at in (0..64 * MIB).step_by(1 << 20) {
            copy.load(at, &device.read_at(at, 1 << 20).unwrap());
        }
        assert_f2fs_device_clean(&copy);
    }
}

/// Two numbers of an inode's footer, or its checksum, show the third.
#[test]
fn a_wrong_number_of_an_inode_in_the_chain_loses_nothing() {
    for (number, arguments) in KINDS.into_iter().enumerate() {
        let cut = Cut::new(arguments);
        let changes: [(u32, u32, u32); 5] =
            [(1 << 30, 0, 0), (0, 1 << 30, 0), (0, 0, 9), (1, 0, 0), (0, 0x400, 0)];
        // Without a checksum either of two possible numbers may be right.
        let provable = if number == 0 { 3 } else { 5 };
        let whole = rescued(Arc::new(cut.device.fork()));
        for (index, (nid, ino, offset)) in changes.into_iter().take(provable).enumerate() {
            let right = cut.footer(index);
            let footer = NodeFooter {
                nid: Nid(right.nid.get() ^ nid),
                ino: Nid(right.ino.get() ^ ino),
                offset: right.offset ^ offset,
                ..right
            };
            let what = format!("{arguments:?}, node {index}: {footer:?}");
            let taken = rescued(cut.with(index, footer));
            assert!(taken.files == whole.files, "{what}");
            assert_eq!(taken.losses, [], "{what}");
            cut.mend(&what, cut.with(index, footer));
        }
    }
}

/// The first node is gone. A power cut leaves the same, so the check accepts it; a rescue tells
/// what lies behind it.
#[test]
fn what_lies_behind_a_gap_of_the_chain_is_told() {
    let cut = Cut::new(&[]);
    let device = cut.device.fork();
    device.write_at(cut.chain[0].bytes(), vec![0; BLOCK_SIZE]).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    assert_eq!(check(device.clone()).unwrap().count(), 0);
    let rescue = rescue::open(device, Choice::default()).unwrap();
    for index in 0..FILES {
        let name = format!("new {index}");
        let is_told = rescue.notes().iter().any(|note| note.contains(&name));
        assert!(is_told, "{name}: {:?}", rescue.notes());
    }
}

/// An inode that no reader would read costs what was fsynced of it, and nothing of others.
#[test]
fn an_impossible_inode_of_the_chain_costs_only_its_file() {
    let cut = Cut::new(&[]);
    let is_new = |index: &usize| {
        let bytes = cut.device.read_at(cut.chain[*index].bytes(), BLOCK_SIZE).unwrap();
        bytes[92..].starts_with(b"new 2") && cut.footer(*index).offset == 0
    };
    let index = (0..cut.chain.len()).find(is_new).unwrap();
    // All advice; no type.
    for (at, value) in [(2, 0xff), (1, 0)] {
        let place = cut.chain[index].bytes();
        let mut bytes = cut.device.read_at(place, BLOCK_SIZE).unwrap().to_vec();
        bytes[at] = value;
        let device = cut.device.fork();
        device.load(place, &bytes);
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        let told = rescued(device.clone()).losses;
        assert!(told.iter().any(|loss| loss.what.contains("fsynced")), "byte {at}: {told:?}");
        let all = plan(&device, Scope::All).unwrap();
        assert!(!all.is_refused && all.after.count() == 0, "{}", lines(&all.after));
        apply(&all, &device);
        let wrong = View::of(&device).wrong(&cut.sound);
        assert_eq!(wrong, ["/new 2: missing"], "byte {at}");
    }
}

/// The journals of the checkpoint are gone, but all nodes that it counts are known.
#[test]
fn a_lost_journal_costs_nothing_of_the_chain() {
    // So many changes of the NAT are not in its journal.
    let cut = Cut::beside(100, &[]);
    let target = Target::of(&Arc::new(cut.device.fork()));
    let (_, contents) = target.pack();
    let mut random = fastrand::Rng::with_seed(19);
    let mut garbage = vec![0; BLOCK_SIZE];
    random.fill(&mut garbage);
    let memory = Arc::new(cut.device.fork());
    memory.load(contents[0], &garbage);
    let device: Arc<dyn BlockDevice> = memory.clone();
    let found = lines(&check(device.clone()).unwrap());
    assert!(found.contains("f2fs.checkpoint.journal_lost: "), "{found}");
    let all = plan(&device, Scope::All).unwrap();
    assert!(!all.is_refused && all.after.count() == 0, "{}", lines(&all.after));
    apply(&all, &device);
    let wrong = View::of(&device).wrong(&cut.sound);
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_f2fs_device_clean(&memory);
}

/// A recovery does not take the number of the node of attributes from the chain.
#[test]
fn a_wrong_node_of_attributes_in_the_chain_costs_no_rescue() {
    const XATTR_NID_AT: u64 = 76;
    let cut = Cut::new(&[]);
    let sound = rescued(Arc::new(cut.device.fork()));
    assert_eq!(sound.losses, []);
    for index in 0..cut.chain.len() {
        let device = cut.device.fork();
        device.load(cut.chain[index].bytes() + XATTR_NID_AT, &[0xff; 4]);
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        assert_eq!(check(device.clone()).unwrap().count(), 0, "{index}");
        assert!(View::of(&device).wrong(&cut.sound).is_empty(), "{index}");
        let taken = rescued(device);
        assert!(taken.files == sound.files && taken.losses.is_empty(), "{:?}", taken.losses);
    }
}

/// The type of an inode, and the room for its extra attributes, stay as they are as long as it
/// exists. A node of the chain that says otherwise costs what was fsynced of its file, and nothing
/// of others.
#[test]
fn an_inode_of_the_chain_with_another_type_costs_only_what_was_fsynced_of_it() {
    const TYPES: [u8; 6] = [0x10, 0x20, 0x40, 0x60, 0xa0, 0xc0];
    const EXTRA_SIZE_AT: usize = 360;
    let types = TYPES.map(|kind| (&[][..], 1, kind));
    let sizes = [(&["-O", "extra_attr"][..], EXTRA_SIZE_AT, 24)];
    for (arguments, byte, value) in types.into_iter().chain(sizes) {
        let cut = Cut::new(arguments);
        let what = format!("{arguments:?}, byte {byte}: {value:#x}");
        let is_old = |index: &usize| {
            let bytes = cut.device.read_at(cut.chain[*index].bytes(), BLOCK_SIZE).unwrap();
            bytes[92..].starts_with(b"old") && cut.footer(*index).offset == 0
        };
        let index = (0..cut.chain.len()).find(is_old).unwrap();
        let place = cut.chain[index].bytes();
        let mut bytes = cut.device.read_at(place, BLOCK_SIZE).unwrap().to_vec();
        bytes[byte] = if byte == 1 { bytes[byte] & 0xf | value } else { value };
        let device = cut.device.fork();
        device.load(place, &bytes);
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        let misread = View::of(&device).wrong(&cut.sound);
        assert!(misread.is_empty(), "{what}: {misread:?}");
        let found = lines(&check(device.clone()).unwrap());
        assert!(found.contains("f2fs.recovery.failed: "), "{what}: {found}");
        assert!(plan(&device, Scope::Accounting).unwrap().changes.is_empty(), "{what}");
        let all = plan(&device, Scope::All).unwrap();
        assert!(!all.is_refused && all.after.count() == 0, "{what}: {}", lines(&all.after));
        let lost: Vec<_> = all.steps.losing().filter_map(|step| step.loss.clone()).collect();
        assert!(lost.len() == 1 && &*lost[0].what == "what was fsynced of old", "{what}: {lost:?}");
        apply(&all, &device);
        let wrong = View::of(&device).wrong(&cut.sound);
        assert_eq!(wrong, ["/old: another size"], "{what}");
    }
}
