//! An old entry of the NAT comes back, of which the number, or a number that its directory names,
//! was given away since: to a file that was fsynced, or to a file of another user.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::{Plan, Scope};
use cairn_f2fs::format::units::{Nid, SegNo};
use cairn_f2fs::format::{bits, inode, sit};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::inject::Target;
use crate::listed::{set, word};
use crate::pointers::NIDS_AT;
use crate::readers::{View, repaired_view};
use crate::repair::{apply, fsck, plan};
use crate::reused::cut;
use crate::stale::place_of;
use crate::volume::{MIB, open, volume};
use crate::{check, lines};

const ENTRY: usize = 9;
const DELETED: &str = "f2fs.nat.deleted";
/// A number that no inode has.
const GONE: u32 = 1000;

pub fn make(fs: &F2fs, dir: Ino, name: &str, kind: NewInode) -> Ino {
    fs.create(dir, name.as_bytes(), kind, 0o600, &Caller::ROOT).unwrap().ino
}

pub fn file(fs: &F2fs, dir: Ino, name: &str, len: usize) -> Ino {
    let ino = make(fs, dir, name, NewInode::Regular);
    let bytes = vec![name.as_bytes()[0]; len];
    fs.write(ino, 0, &bytes, IoFlags::empty()).unwrap();
    ino
}

fn steps_of(plan: &Plan, code: &str) -> u64 {
    plan.steps.counts().filter(|(kind, _)| kind.code == code).map(|(_, count)| count).sum()
}

/// The volume of a target with entries of the first block of the NAT, in both copies.
pub fn led(target: &Target, entries: &[(u32, u32, u32)]) -> Arc<Overlay> {
    let overlay = Arc::new(Overlay::new(Arc::new(target.device.fork())).unwrap());
    let both = target.inject_nat(0, ("version", 0, 1), 0);
    for (at, mut bytes) in both.blocks {
        for (nid, ino, addr) in entries {
            bytes[*nid as usize * ENTRY] = 0;
            set(&mut bytes, *nid as usize * ENTRY + 1, *ino);
            set(&mut bytes, *nid as usize * ENTRY + 5, *addr);
        }
        overlay.write_at(at, bytes).unwrap();
    }
    overlay
}

/// The entry says that the number of a new file, which was fsynced, is a node of a deleted one:
/// its block is another's, was never written, or is that node still and is free.
#[test]
fn a_new_file_is_recovered_whose_number_was_another_nodes() {
    let (target, _, [Some(old), Some(new)]) = cut(3) else { panic!("two files") };
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    assert!(sound.found.contains_key(&b"/new 0"[..]));
    let (free, _) = target.free_blocks()[0];
    let other = (place_of(&target.device, old) >> 12) as u32;
    for (what, addr, is_node) in
        [("another's", other, false), ("empty", free, false), ("a node", free, true)]
    {
        let overlay = led(&target, &[(new, GONE, addr)]);
        if is_node {
            let mut bytes = vec![0; 4096];
            set(&mut bytes, 4072, new);
            set(&mut bytes, 4076, GONE);
            set(&mut bytes, 4080, 1 << 3);
            overlay.write_at(u64::from(addr) << 12, bytes).unwrap();
        }
        let device: Arc<dyn BlockDevice> = overlay.clone();
        let opened = F2fs::open(device.clone(), Threads::new(), &MountOptions::default());
        let error = opened.err().expect("a mount would drop the file").to_string();
        assert!(error.contains("that was fsynced is another node's"), "{what}: {error}");
        let found = lines(&check(device.clone()).unwrap());
        assert!(found.contains(DELETED) && found.contains("f2fs.recovery.waits"), "{found}");
        let view = repaired_view(&device, what);
        assert!(view.wrong(&sound).is_empty(), "{what}: {:?}", view.wrong(&sound));
        fsck(&target, &overlay).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

/// If the node is there, and its block is in use, a repair without losses does nothing. One with
/// losses recovers the rest.
#[test]
fn a_new_file_is_not_dropped_for_a_node_in_use() {
    let (target, _, [Some(old), Some(new)]) = cut(3) else { panic!("two files") };
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    // A data block that was overwritten.
    let node = target.read(place_of(&target.device, old));
    let addr = word(&node, 360);
    let overlay = led(&target, &[(new, GONE, addr)]);
    let mut bytes = vec![0; 4096];
    set(&mut bytes, 4072, new);
    set(&mut bytes, 4076, GONE);
    set(&mut bytes, 4080, 1 << 3);
    overlay.write_at(u64::from(addr) << 12, bytes).unwrap();
    let device: Arc<dyn BlockDevice> = overlay.clone();
    let safe = plan(&device, Scope::Accounting).unwrap();
    assert!(safe.after.count() > 0 && safe.changes.is_empty(), "{}", lines(&safe.after));
    let all = plan(&device, Scope::All).unwrap();
    let lost: Vec<_> = all.steps.losing().map(ToString::to_string).collect();
    apply(&all, &device);
    assert_eq!(check(device.clone()).unwrap().count(), 0);
    let view = View::of(&device);
    let mut wrong = view.wrong(&sound);
    wrong.retain(|wrong| !wrong.starts_with("/old 40:"));
    let is_listed = |wrong: &String| {
        let name = wrong.split(':').next().unwrap().trim_start_matches('/');
        lost.iter().any(|loss| loss.contains(name))
    };
    assert!(wrong.iter().all(is_listed), "{wrong:?}\n{lost:?}");
    assert!(!view.has_failed(b"/new 0") && view.found.contains_key(&b"/old 0"[..]));
    fsck(&target, &overlay).unwrap();
}

/// A deleted file comes back whole, so that the SIT and the counts of the checkpoint are wrong,
/// and what was fsynced waits for them.
#[test]
fn what_was_fsynced_is_recovered_beside_a_file_that_comes_back() {
    let device = volume(64 * MIB, &[]);
    let fs = open(device.clone(), "nodiscard");
    for number in 0..120 {
        file(&fs, fs.root(), &format!("old {number}"), 6000);
    }
    // Its number is not given away at once.
    let gone = file(&fs, fs.root(), "gone", 6000).get() as u32;
    fs.unmount().unwrap();
    let place = place_of(&device, gone);
    for names in [vec!["gone".to_owned()], (0..100).map(|one| format!("old {one}")).collect()] {
        let fs = open(device.clone(), "nodiscard");
        names.iter().for_each(|name| fs.unlink(fs.root(), name.as_bytes()).unwrap());
        fs.unmount().unwrap();
    }
    let fs = open(device.clone(), "nodiscard");
    let changed = fs.lookup(fs.root(), b"old 110").unwrap().ino;
    fs.write(changed, 4096, &[7; 9000], IoFlags::empty()).unwrap();
    let new = file(&fs, fs.root(), "new", 9000);
    for ino in [changed, new] {
        fs.fsync(ino, 0, false).unwrap();
    }
    fs.shutdown(false).unwrap();
    drop(fs);
    let target = Target::of(&Arc::new(device.fork()));
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    assert!(sound.found.contains_key(&b"/new"[..]) && !sound.found.contains_key(&b"/gone"[..]));
    let overlay = led(&target, &[(gone, gone, (place >> 12) as u32)]);
    let device: Arc<dyn BlockDevice> = overlay.clone();
    let found = lines(&check(device.clone()).unwrap());
    assert!(
        found.contains("f2fs.recovery.waits") && found.contains("inode.unreachable"),
        "{found}"
    );
    let view = repaired_view(&device, "repaired");
    let back = [
        "/lost+found: it was not there".to_owned(),
        format!("/lost+found/#{gone}: it was not there"),
    ];
    assert_eq!(view.wrong(&sound), back);
    fsck(&target, &overlay).unwrap();
}

/// A volume on which /bob/pub was deleted, after its file `note`, whose number /alice has now. It
/// is told where the directory was, and the numbers of both.
fn given_away() -> (Target, u32, [u32; 2]) {
    let device = volume(96 * MIB, &[]);
    let fs = open(device.clone(), "nodiscard");
    let [bob, alice] = ["bob", "alice"].map(|name| make(&fs, fs.root(), name, NewInode::Directory));
    for number in 0..60 {
        file(&fs, bob, &format!("f{number}"), 600);
    }
    let public = make(&fs, bob, "pub", NewInode::Directory);
    let note = file(&fs, public, "note", 600);
    fs.unmount().unwrap();
    let place = place_of(&device, public.get() as u32);
    let fs = open(device.clone(), "nodiscard");
    let [bob, alice, public] = [bob, alice, public].map(|ino| {
        assert_eq!(fs.getattr(ino).unwrap().ino, ino);
        ino
    });
    fs.unlink(public, b"note").unwrap();
    for number in 0..60 {
        fs.unlink(bob, format!("f{number}").as_bytes()).unwrap();
    }
    fs.unmount().unwrap();
    let fs = open(device.clone(), "nodiscard");
    for number in 0..300 {
        file(&fs, alice, &format!("s{number}"), 600);
    }
    fs.unmount().unwrap();
    let fs = open(device.clone(), "nodiscard");
    fs.rmdir(bob, b"pub").unwrap();
    fs.unmount().unwrap();
    let fs = open(device.clone(), "nodiscard");
    for number in 200..300 {
        fs.unlink(alice, format!("s{number}").as_bytes()).unwrap();
    }
    fs.unmount().unwrap();
    let target = Target::of(&device);
    (target, (place >> 12) as u32, [public, note].map(|ino| ino.get() as u32))
}

#[test]
fn a_directory_that_comes_back_gets_no_file_of_another_user() {
    let (target, place, [public, note]) = given_away();
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    for scope in [Scope::Accounting, Scope::All] {
        let overlay = led(&target, &[(public, public, place)]);
        let device: Arc<dyn BlockDevice> = overlay.clone();
        let found = lines(&check(device.clone()).unwrap());
        assert!(found.contains("f2fs.inode.links"), "{note} was not given away:\n{found}");
        let done = plan(&device, scope).unwrap();
        assert_eq!(done.after.count(), 0, "{}", lines(&done.after));
        assert!(done.steps.losing().next().is_none());
        apply(&done, &device);
        assert_eq!(check(device.clone()).unwrap().count(), 0);
        let wrong = View::of(&device).wrong(&sound);
        let back = [
            "/lost+found: it was not there".to_owned(),
            format!("/lost+found/#{public}: it was not there"),
        ];
        assert_eq!(wrong, back);
        let fs = open(device.clone(), "");
        assert_eq!(fs.getattr(Ino(note.into())).unwrap().links, 1);
        fs.unmount().unwrap();
        fsck(&target, &overlay).unwrap();
    }
}

/// A file has lost the pointer to a node, and pointers of a file that was deleted, and comes back,
/// lead to its blocks: all that is counted is there, and the node is that node still.
#[test]
fn a_node_in_use_is_not_dropped() {
    let device = volume(96 * MIB, &[]);
    let fs = open(device.clone(), "nodiscard");
    let kept = file(&fs, fs.root(), "kept", 1000 * 4096).get() as u32;
    let gone = file(&fs, fs.root(), "gone", 6000).get() as u32;
    for number in 0..120 {
        file(&fs, fs.root(), &format!("more {number}"), 600);
    }
    fs.unmount().unwrap();
    let place = place_of(&device, gone);
    let fs = open(device.clone(), "nodiscard");
    fs.unlink(fs.root(), b"gone").unwrap();
    fs.unmount().unwrap();
    let fs = open(device.clone(), "nodiscard");
    for number in 0..100 {
        fs.unlink(fs.root(), format!("more {number}").as_bytes()).unwrap();
    }
    fs.unmount().unwrap();
    let target = Target::of(&device);
    let at = target.inode_of(kept);
    let mut inode = target.read(at);
    let nid = word(&inode, NIDS_AT);
    let node = place_of(&target.device, nid);
    let bytes = target.read(node);
    let mut covered = vec![(node >> 12) as u32];
    covered.extend((0..1018).map(|slot| word(&bytes, 4 * slot)).filter(|addr| *addr > 1));
    set(&mut inode, NIDS_AT, 0);
    let mut old = target.read(place);
    assert_eq!(word(&old, 4072), gone);
    for (slot, addr) in covered.iter().enumerate() {
        set(&mut old, 360 + 4 * slot, *addr);
    }
    let overlay = led(&target, &[(gone, gone, (place >> 12) as u32)]);
    for (at, mut bytes) in [(at, inode), (place, old)] {
        inode::seal(&mut bytes, target.layout());
        overlay.write_at(at, bytes).unwrap();
    }
    let device: Arc<dyn BlockDevice> = overlay.clone();
    let found = lines(&check(device.clone()).unwrap());
    assert!(!found.contains(DELETED), "{found}");
    let safe = plan(&device, Scope::Accounting).unwrap();
    assert_eq!(steps_of(&safe, DELETED), 0);
    apply(&safe, &device);
    assert_eq!(word(&device.read_at(node, 4096).unwrap(), 4072), nid);
    let volume = open(device, "");
    assert_eq!(volume.disk().nat.lookup(Nid(nid)).unwrap().block_addr.bytes(), node);
}

/// What the checkpoint counts as nodes, and what the SIT does, if it has no journal.
fn counted(device: &Arc<dyn BlockDevice>) -> Option<(u64, [u32; 2])> {
    const SEGMENTS: u32 = 55;
    let options = MountOptions { read_only: true, no_recovery: true, ..MountOptions::default() };
    let volume = F2fs::open(device.clone(), Threads::new(), &options).ok()?;
    let layout = volume.disk().layout.clone();
    let checkpoint = &volume.disk().checkpoint.checkpoint;
    let mut nodes = 0;
    for segno in 0..layout.main_segments {
        let block = segno / SEGMENTS;
        let at = layout.sit_address(block, checkpoint.sit_side(block)).get() << 12;
        let bytes = device.read_at(at, 4096).unwrap();
        let entry = sit::entry(&bytes, (segno % SEGMENTS) as usize, SegNo(segno)).ok()?;
        if entry.log.is_node() {
            nodes += (0..512).filter(|block| bits::test(&entry.valid_map, *block)).count() as u32;
        }
    }
    Some((checkpoint.version, [checkpoint.valid_node_count, nodes]))
}

/// Old entries of files that were changed since: a repair that leaves something writes no
/// checkpoint that Linux refuses, because it counts other nodes than the SIT.
#[test]
fn a_repair_in_part_leaves_a_volume_that_can_be_mounted() {
    let device = volume(96 * MIB, &[]);
    let fs = open(device.clone(), "nodiscard");
    for number in 0..150 {
        file(&fs, fs.root(), &format!("file {number}"), 6000);
    }
    fs.unmount().unwrap();
    let first = Arc::new(device.fork());
    for round in 0..2 {
        let fs = open(device.clone(), "nodiscard");
        for number in 0..150 {
            let name = format!("file {number}").into_bytes();
            let Ok(attr) = fs.lookup(fs.root(), &name) else { continue };
            match number % 5 {
                0 if round == 1 => fs.unlink(fs.root(), &name).unwrap(),
                1 | 2 => {
                    fs.write(attr.ino, 3000, &[round; 9000], IoFlags::empty()).unwrap();
                }
                _ => {}
            }
        }
        for number in 0..70 {
            file(&fs, fs.root(), &format!("{round} {number}"), 5000);
        }
        fs.unmount().unwrap();
    }
    let target = Target::of(&device);
    let entries = |device: &MemoryDevice| -> Vec<_> {
        let options = MountOptions { read_only: true, ..MountOptions::default() };
        let volume = F2fs::open(Arc::new(device.fork()), Threads::new(), &options).unwrap();
        let entry = |nid| {
            let addr = volume.disk().nat.lookup(Nid(nid)).unwrap().block_addr;
            let footer = device.read_at(addr.bytes(), 4096).unwrap();
            (word(&footer, 4076), addr.get())
        };
        (0..400).map(entry).collect()
    };
    let [old, now] = [&*first, &target.device].map(entries);
    let other: Vec<u32> = (4..400_u32)
        .filter(|nid| old[*nid as usize] != now[*nid as usize] && old[*nid as usize].1 > 0)
        .collect();
    assert!(other.len() > 50, "{}", other.len());
    let mut partial = 0;
    for seed in 0..30 {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.usize(1..12);
        let back: Vec<_> = random
            .choose_multiple(&other, count)
            .into_iter()
            .map(|nid| (*nid, old[*nid as usize].0, old[*nid as usize].1))
            .collect();
        let overlay = led(&target, &back);
        let device: Arc<dyn BlockDevice> = overlay.clone();
        let Some((version, _)) = counted(&device) else { continue };
        let done = plan(&device, Scope::Accounting).unwrap();
        partial += u32::from(done.after.count() > 0);
        apply(&done, &device);
        let Some((after, [nodes, of_sit])) = counted(&device) else {
            panic!("seed {seed}: the volume cannot be opened");
        };
        assert!(after == version || nodes == of_sit, "seed {seed}: {nodes}, {of_sit} in the SIT");
    }
    println!("{partial} repairs do not end sound");
}
