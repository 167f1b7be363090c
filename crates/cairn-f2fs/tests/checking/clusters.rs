//! Compressed files: what contradicts the pointers of a cluster is found by readers and by a
//! repair, which gives the contents back.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_check::repair::Scope;
use cairn_f2fs::format::checksum::{MAGIC, crc32};
use cairn_f2fs::format::inode;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::inject::{Injection, Target};
use crate::readers::View;
use crate::repair::{apply, damaged, plan};
use crate::rescue::rescued;
use crate::stale::place_of;
use crate::volume::{MIB, open, volume};
use crate::{check, lines};

const CLUSTER: usize = 4 * 4096;
const INLINE_AT: usize = 3;
const RELEASED: u8 = 0x80;
const SIZE_AT: usize = 16;
const BLOCKS_AT: usize = 24;
const FLAGS_AT: usize = 80;
const COMPR: u8 = 4;
const SAVED_AT: usize = 384;
const ALGORITHM_AT: usize = 392;
/// Behind the extra attributes.
const POINTERS_AT: usize = 396;
const LZ4: u8 = 1;
const MARK: u32 = u32::MAX - 1;
const NEW: u32 = u32::MAX;
const PATH: &[u8] = b"/packed";

fn packed(contents: &[u8]) -> Vec<u8> {
    let packed = lz4_flex::block::compress(contents);
    let sum = crc32(MAGIC, &packed).to_le_bytes();
    let len = u32::try_from(packed.len()).unwrap().to_le_bytes();
    [&len[..], &sum, &[0; 16], &packed].concat()
}

fn pointer(bytes: &[u8], slot: usize) -> u32 {
    let at = POINTERS_AT + 4 * slot;
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn set_pointer(bytes: &mut [u8], slot: usize, to: u32) {
    let at = POINTERS_AT + 4 * slot;
    bytes[at..at + 4].copy_from_slice(&to.to_le_bytes());
}

/// A volume with a file of two packed clusters around one that is not, the file's number, and its
/// contents.
struct Packed {
    target: Target,
    ino: u32,
    contents: Vec<u8>,
}

impl Packed {
    fn new() -> Self {
        let device = volume(64 * MIB, &["-O", "extra_attr,inode_checksum,compression"]);
        let fs = open(device.clone(), "");
        let new = fs.create(fs.root(), &PATH[1..], NewInode::Regular, 0o644, &Caller::ROOT);
        let ino = new.unwrap().ino;
        let mut random = fastrand::Rng::with_seed(5);
        let mut contents = Vec::new();
        for cluster in 0..3_u8 {
            let mut piece = vec![b'a' + cluster; CLUSTER];
            let at = u64::from(cluster) * CLUSTER as u64;
            if cluster == 1 {
                random.fill(&mut piece);
                fs.write(ino, at, &piece, IoFlags::empty()).unwrap();
            } else {
                fs.write(ino, at + 4096, &packed(&piece), IoFlags::empty()).unwrap();
            }
            contents.extend(piece);
        }
        fs.unmount().unwrap();
        let ino = u32::try_from(ino.get()).unwrap();
        let target = Target::of(&device);
        let packed = Self { target, ino, contents };
        let injection = packed.change("packed", &|bytes| {
            bytes[FLAGS_AT] |= COMPR;
            bytes[SIZE_AT..SIZE_AT + 8].copy_from_slice(&(3 * CLUSTER as u64).to_le_bytes());
            bytes[BLOCKS_AT] += 2;
            bytes[SAVED_AT] = 6;
            bytes[ALGORITHM_AT..ALGORITHM_AT + 3].copy_from_slice(&[LZ4, 2, 1]);
            set_pointer(bytes, 0, MARK);
            set_pointer(bytes, 8, MARK);
        });
        let device = Arc::new(damaged(&packed.target, &injection));
        let dynamic: Arc<dyn BlockDevice> = device.clone();
        // The marks count as blocks.
        apply(&plan(&dynamic, Scope::Accounting).unwrap(), &dynamic);
        assert_eq!(lines(&check(dynamic).unwrap()), "");
        Self { target: Target::of(&Arc::new(device.fork())), ..packed }
    }

    /// The same file after its saved blocks were given back (`F2FS_IOC_RELEASE_COMPRESS_BLOCKS`).
    fn released() -> Self {
        let packed = Self::new();
        let injection = packed.change("released", &|bytes| {
            bytes[INLINE_AT] |= RELEASED;
            bytes[SAVED_AT] = 0;
            // Marks no longer count.
            bytes[BLOCKS_AT] -= 2;
        });
        let device = Arc::new(damaged(&packed.target, &injection));
        let dynamic: Arc<dyn BlockDevice> = device.clone();
        apply(&plan(&dynamic, Scope::Accounting).unwrap(), &dynamic);
        assert_eq!(lines(&check(dynamic).unwrap()), "");
        Self { target: Target::of(&Arc::new(device.fork())), ..packed }
    }

    /// Changes the inode, and older versions of it.
    fn change(&self, what: &str, change: &dyn Fn(&mut [u8])) -> Injection {
        let ino = self.ino.to_le_bytes();
        let own = [ino, ino].concat();
        let all = (0..64 * MIB).step_by(4096).map(|at| (at, self.target.read(at)));
        let mut blocks: Vec<_> = all.filter(|(_, bytes)| bytes[4072..4080] == own[..]).collect();
        for (_, bytes) in &mut blocks {
            change(bytes);
            inode::seal(bytes, self.target.layout());
        }
        Injection { what: what.into(), blocks }
    }

    /// Readers refuse the file, a rescue does not hand out packed bytes as contents, and a repair
    /// gives the file back.
    fn judge(&self, injection: &Injection) {
        let what = &injection.what;
        let device: Arc<dyn BlockDevice> = Arc::new(damaged(&self.target, injection));
        let view = View::of(&device);
        assert!(view.has_failed(PATH), "{what}: {:?}", view.found.get(PATH).map(|read| read.size));
        let all = plan(&device, Scope::All).unwrap();
        assert!(!all.is_refused && all.after.count() == 0, "{what}:\n{}", lines(&all.after));
        apply(&all, &device);
        let now = View::of(&device);
        assert!(now.found[PATH].bytes == self.contents, "{what}: {:?}", all.steps.kept());
    }
}

#[test]
fn a_sound_compressed_file_is_read() {
    let packed = Packed::new();
    let device: Arc<dyn BlockDevice> = Arc::new(packed.target.device.fork());
    assert!(View::of(&device).found[PATH].bytes == packed.contents);
}

#[test]
fn a_cluster_whose_mark_is_lost_is_not_read_as_it_is_packed() {
    let packed = Packed::new();
    for slot in [0, 8] {
        for value in [0, NEW] {
            let what = format!("pointer {slot}: {value:#x}");
            let injection = packed.change(&what, &|bytes| set_pointer(bytes, slot, value));
            packed.judge(&injection);
            let taken = rescued(Arc::new(damaged(&packed.target, &injection)));
            assert!(taken.files[&PATH[1..]] == packed.contents, "{what}");
            assert!(taken.losses.is_empty());
        }
    }
}

#[test]
fn a_lost_mark_is_found_although_saved_blocks_were_given_back() {
    let packed = Packed::released();
    let sound: Arc<dyn BlockDevice> = Arc::new(packed.target.device.fork());
    assert!(View::of(&sound).found[PATH].bytes == packed.contents);
    assert!(rescued(sound).files[&PATH[1..]] == packed.contents);
    for slot in [0, 8] {
        for value in [0, NEW] {
            let what = format!("pointer {slot}: {value:#x}");
            let injection = packed.change(&what, &|bytes| set_pointer(bytes, slot, value));
            let device = Arc::new(damaged(&packed.target, &injection));
            let found = lines(&check(device.clone()).unwrap());
            assert!(found.contains("f2fs.inode.compression"), "{what}:\n{found}");
            let taken = rescued(device.clone());
            assert!(taken.files[&PATH[1..]] == packed.contents, "{what}");
            packed.judge(&injection);
            let dynamic: Arc<dyn BlockDevice> = device;
            let all = plan(&dynamic, Scope::All).unwrap();
            let lost = all.steps.losing().filter(|step| step.loss.is_some()).count();
            assert_eq!(lost, 0, "{what}: {:?}", all.steps.kept());
        }
    }
}

#[test]
fn a_pointer_of_a_cluster_to_the_block_of_another_is_found() {
    let packed = Packed::new();
    for (slot, other) in [(9, 1), (1, 9), (5, 9), (1, 4)] {
        let what = format!("pointer {slot} is pointer {other}");
        packed.judge(&packed.change(&what, &|bytes| {
            let to = pointer(bytes, other);
            set_pointer(bytes, slot, to);
        }));
    }
}

#[test]
fn a_flag_for_checksums_that_clusters_do_not_have_is_cleared() {
    let packed = Packed::new();
    let inode = packed.target.read(packed.target.inode_of(packed.ino));
    let mut injection = packed.change("no checksums", &|_| ());
    for slot in [1, 9] {
        let at = u64::from(pointer(&inode, slot)) * 4096;
        let mut bytes = packed.target.read(at);
        bytes[4..8].fill(0);
        injection.blocks.push((at, bytes));
    }
    packed.judge(&injection);
}

#[test]
fn the_first_pointer_of_a_cluster_that_is_not_packed_is_set_again() {
    let packed = Packed::new();
    let inode = packed.target.read(packed.target.inode_of(packed.ino));
    let free = packed.target.free_blocks()[0].0;
    for (slot, value) in
        [(4, 0), (4, NEW), (5, 0), (4, free), (4, pointer(&inode, 9)), (6, pointer(&inode, 4))]
    {
        let what = format!("pointer {slot}: {value:#x}");
        let injection = packed.change(&what, &|bytes| set_pointer(bytes, slot, value));
        for scope in [Scope::Accounting, Scope::All] {
            let device: Arc<dyn BlockDevice> = Arc::new(damaged(&packed.target, &injection));
            let mended = plan(&device, scope).unwrap();
            if scope == Scope::Accounting && mended.after.count() > 0 {
                // What leads to another's block, or to a free one, is no accounting, nor is a place
                // that may have been reserved.
                assert!(value != 0 && mended.changes.is_empty(), "{what}");
                continue;
            }
            assert!(!mended.is_refused && mended.after.count() == 0, "{what}");
            let losses = mended.steps.losing().count();
            assert_eq!(losses, usize::from(value == NEW), "{what}: {:?}", mended.steps.kept());
            apply(&mended, &device);
            assert!(View::of(&device).found[PATH].bytes == packed.contents, "{what}");
        }
    }
}

/// What is packed ends behind the blocks of its cluster.
#[test]
fn an_impossible_size_of_a_compressed_file_costs_no_cluster() {
    let packed = Packed::new();
    for size in [0xd6a3_5711_cefc_0a34_u64, 1 << 50] {
        let what = format!("size {size:#x}");
        let injection = packed.change(&what, &|bytes| {
            bytes[SIZE_AT..SIZE_AT + 8].copy_from_slice(&size.to_le_bytes());
        });
        let device: Arc<dyn BlockDevice> = Arc::new(damaged(&packed.target, &injection));
        let found = lines(&check(device.clone()).unwrap());
        assert!(found.contains("f2fs.inode.field"), "{what}:\n{found}");
        let all = plan(&device, Scope::All).unwrap();
        let listed = all.steps.losing().filter_map(|step| step.loss.as_ref());
        assert_eq!(listed.filter(|loss| *loss.path == *PATH).count(), 1, "{what}");
        apply(&all, &device);
        assert!(View::of(&device).found[PATH].bytes == packed.contents, "{what}");
    }
}

/// A file whose saved blocks were given back counts none. Its data shows how large its clusters
/// are.
#[test]
fn a_wrong_size_of_clusters_is_set_by_what_is_packed() {
    const CLUSTER_AT: usize = 393;
    let device = volume(64 * MIB, &["-O", "extra_attr,inode_checksum,compression"]);
    let fs = open(device.clone(), "");
    let new = fs.create(fs.root(), &PATH[1..], NewInode::Regular, 0o644, &Caller::ROOT);
    let ino = new.unwrap().ino;
    let contents = vec![b'x'; 2 * CLUSTER];
    fs.write(ino, 4096, &packed(&contents), IoFlags::empty()).unwrap();
    fs.write(ino, contents.len() as u64 - 1, b"x", IoFlags::empty()).unwrap();
    fs.unmount().unwrap();
    let target = Target::of(&device);
    let at = place_of(&device, u32::try_from(ino.get()).unwrap());
    let mut bytes = target.read(at);
    set_pointer(&mut bytes, 0, MARK);
    set_pointer(&mut bytes, 7, 0);
    bytes[INLINE_AT] |= RELEASED;
    bytes[FLAGS_AT] |= COMPR;
    (bytes[ALGORITHM_AT], bytes[CLUSTER_AT]) = (LZ4, 3);
    inode::seal(&mut bytes, target.layout());
    device.load(at, &bytes);
    let device_of = |log: u8| -> Arc<dyn BlockDevice> {
        let mut bytes = bytes.clone();
        bytes[CLUSTER_AT] = log;
        inode::seal(&mut bytes, target.layout());
        let changed = device.fork();
        changed.load(at, &bytes);
        Arc::new(changed)
    };
    // Counts of what was changed by hand.
    let sound = device_of(3);
    apply(&plan(&sound, Scope::All).unwrap(), &sound);
    assert_eq!(check(sound.clone()).unwrap().count(), 0);
    assert!(View::of(&sound).found[PATH].bytes == contents);
    let damaged = device_of(2);
    let found = lines(&check(damaged.clone()).unwrap());
    let line = found.lines().find(|line| line.contains("i_log_cluster_size"));
    assert!(line.is_some_and(|line| line.ends_with("(2 stored, 3 computed)")), "{found}");
    let all = plan(&damaged, Scope::All).unwrap();
    assert!(all.steps.losing().all(|step| step.loss.is_none()), "{:?}", all.steps.kept());
    apply(&all, &damaged);
    assert!(View::of(&damaged).found[PATH].bytes == contents);
}
