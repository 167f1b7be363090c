//! One block of the volume's own areas has lost its last write: it is sound, and older than the
//! rest. No repair without losses changes a file, and one with losses only those that it lists. So
//! have two, of one checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_f2fs::format::units::Nid;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::deep;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::called_free::entry_place;
use crate::given_away::led;
use crate::inject::Target;
use crate::listed::word;
use crate::readers::View;
use crate::repair::{apply, plan};
use crate::volume::{MIB, open, volume};
use crate::{check, lines};

/// A volume after each of several times that it was mounted and changed.
fn states() -> Vec<MemoryDevice> {
    let device = volume(64 * MIB, &[]);
    let mut states = Vec::new();
    let mut random = fastrand::Rng::with_seed(21);
    for round in 0..5_u8 {
        let fs = open(device.clone(), "nodiscard");
        for number in 0..80 {
            let name = format!("file {number}").into_bytes();
            let ino = match fs.lookup(fs.root(), &name) {
                Ok(attr) => attr.ino,
                Err(_) => {
                    let new = NewInode::Regular;
                    fs.create(fs.root(), &name, new, 0o600, &Caller::ROOT).unwrap().ino
                }
            };
            match random.u8(0..4) {
                0 if round > 0 => fs.unlink(fs.root(), &name).unwrap(),
                1 if round > 0 => {}
                _ => {
                    let len = random.usize(4000..20_000);
                    let at = 4096 * random.u64(0..3);
                    let bytes = vec![number as u8 ^ round << 6 | 1; len];
                    fs.write(ino, at, &bytes, IoFlags::empty()).unwrap();
                }
            }
        }
        fs.unmount().unwrap();
        states.push(device.fork());
    }
    states
}

#[test]
fn an_old_block_of_the_volumes_areas_changes_no_file() {
    let mut states = states();
    let target = Target::of(&Arc::new(states.pop().unwrap()));
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    let layout = *target.layout();
    let mut tried = 0;
    for at in (1_u64..u64::from(layout.main)).map(|block| block * 4096) {
        let now = target.read(at);
        let mut seen = vec![now];
        for older in states.iter().rev() {
            let bytes = older.read_at(at, 4096).unwrap().to_vec();
            if seen.contains(&bytes) {
                continue;
            }
            seen.push(bytes.clone());
            let what = format!("block {} as it was", at / 4096);
            tried += 1;
            for scope in [Scope::Accounting, Scope::All] {
                let device = Arc::new(target.device.fork());
                device.write_at(at, bytes.clone()).unwrap();
                let device: Arc<dyn BlockDevice> = device;
                let Ok(found) = check(device.clone()) else { continue };
                // Without an end of the newest checkpoint, the older one counts, as after a crash.
                if found.count() == 0 {
                    continue;
                }
                let found = lines(&found);
                let done = plan(&device, scope).unwrap();
                let lost: Vec<_> = done.steps.losing().map(ToString::to_string).collect();
                apply(&done, &device);
                if done.after.count() > 0 {
                    assert!(scope == Scope::Accounting && lost.is_empty(), "{what}:\n{found}");
                    continue;
                }
                // Each path, and what is wrong with it.
                let mut wrong = View::of(&device).wrong(&sound);
                wrong.retain(|wrong| {
                    let path = wrong.split(':').next().unwrap().trim_start_matches('/');
                    // Deleted files may come back.
                    let is_back = wrong.ends_with("it was not there")
                        && (scope == Scope::All || path.starts_with("lost+found"));
                    !is_back && !lost.iter().any(|lost| lost.contains(path))
                });
                assert!(wrong.is_empty(), "{what}, {scope:?}: {wrong:?}\n{lost:?}\n{found}");
            }
            if !deep() {
                break;
            }
        }
    }
    assert!(tried > 10, "{tried}");
}

/// The nodes of a volume by their numbers: whose they are, and their blocks.
fn nodes(device: &MemoryDevice) -> BTreeMap<u32, (u32, u32)> {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let volume = F2fs::open(Arc::new(device.fork()), Threads::new(), &options).unwrap();
    let main = volume.disk().layout.main;
    let addr = |nid| volume.disk().nat.lookup(Nid(nid)).unwrap().block_addr.get();
    let used = (4_u32..400).map(|nid| (nid, addr(nid))).filter(|(_, addr)| *addr >= main);
    let ino = |addr: u32| word(&device.read_at(u64::from(addr) << 12, 4096).unwrap(), 4076);
    used.map(|(nid, addr)| (nid, (ino(addr), addr))).collect()
}

/// Checks what a repair without losses, and another one after it, leave of a volume with an old SIT
/// entry of a segment. True if it doubts an entry of the NAT.
fn keeps_files(
    device: Arc<dyn BlockDevice>,
    (target, older, segment): (&Target, &Target, u32),
    sound: &View,
    what: &str,
) -> bool {
    let (at, entry) = entry_place(target, segment);
    let mut bytes = device.read_at(at, 4096).unwrap().to_vec();
    let (old_at, old_entry) = entry_place(older, segment);
    let old_bytes = older.read(old_at);
    bytes[entry..entry + 74].copy_from_slice(&old_bytes[old_entry..old_entry + 74]);
    device.write_at(at, bytes).unwrap();
    let mut found = String::new();
    for _ in 0..2 {
        found += &lines(&check(device.clone()).unwrap());
        let done = plan(&device, Scope::Accounting).unwrap();
        apply(&done, &device);
        if done.after.count() == 0 {
            let mut wrong = View::of(&device).wrong(sound);
            // Deleted files may come back there.
            wrong.retain(|wrong| !wrong.starts_with("/lost+found"));
            assert!(wrong.is_empty(), "{what}: {wrong:?}\n{found}");
        }
    }
    found.contains("f2fs.nat.doubt")
}

/// The entry of the NAT of a node, and that of the SIT of the segment in which the node was, or is.
/// Both agree then that the older version of the node is the present one.
#[test]
fn an_old_entry_of_the_nat_beside_one_of_the_sit_brings_no_file_back() {
    let mut states = states();
    let target = Target::of(&Arc::new(states.pop().unwrap()));
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    let present = nodes(&target.device);
    let (mut tried, mut doubted) = (0, 0);
    for older in states {
        let older = Target::of(&Arc::new(older));
        for (nid, (ino, old)) in nodes(&older.device) {
            let Some((_, new)) = present.get(&nid).filter(|now| now.0 == ino && now.1 != old)
            else {
                continue;
            };
            let segments = [old, *new].map(|addr| (addr - target.layout().main) / 512);
            for segment in segments {
                let what = format!("node {nid} from block {new} to {old}, and segment {segment}");
                let device: Arc<dyn BlockDevice> = led(&target, &[(nid, ino, old)]);
                let beside = (&target, &older, segment);
                doubted += usize::from(keeps_files(device, beside, &sound, &what));
                tried += 1;
            }
        }
        if tried > 100 && !deep() {
            break;
        }
    }
    assert!(tried > 10 && doubted > 0, "{tried}, {doubted}");
}

/// The first block of the NAT, and the entry of the SIT of a segment.
#[test]
fn an_old_block_of_the_nat_beside_an_old_entry_of_the_sit_brings_no_file_back() {
    let mut states = states();
    let target = Target::of(&Arc::new(states.pop().unwrap()));
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    let mut doubted = 0;
    for older in states {
        let older = Target::of(&Arc::new(older));
        let all = nodes(&older.device).into_iter();
        let entries: Vec<_> = all.map(|(nid, (ino, addr))| (nid, ino, addr)).collect();
        for segment in 0..target.layout().main_segments {
            let device: Arc<dyn BlockDevice> = led(&target, &entries);
            let what = format!("segment {segment}");
            let beside = (&target, &older, segment);
            doubted += usize::from(keeps_files(device, beside, &sound, &what));
        }
        if !deep() {
            break;
        }
    }
    assert!(doubted > 0);
}
