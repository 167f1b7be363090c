//! One block of the volume's own areas has lost its last write: it is sound, and older than the
//! rest. No repair without losses changes a file, and one with losses only those that it lists.

use std::sync::Arc;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_testkit::deep;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::inject::Injection;
use crate::repair::damaged;
use crate::types::Judge;
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
    let device = Arc::new(states.pop().unwrap());
    let judge = Judge::of(&device);
    let layout = judge.target.layout().clone();
    let mut tried = 0;
    for at in (1_u64..u64::from(layout.main)).map(|block| block * 4096) {
        let now = judge.target.read(at);
        let mut seen = vec![now];
        for older in states.iter().rev() {
            let bytes = older.read_at(at, 4096).unwrap().to_vec();
            if seen.contains(&bytes) {
                continue;
            }
            seen.push(bytes.clone());
            let what = format!("block {} as it was", at / 4096);
            let injection = Injection { what: what.clone(), blocks: vec![(at, bytes)] };
            let found = check(Arc::new(damaged(&judge.target, &injection)));
            let Ok(found) = found else { continue };
            let found = lines(&found);
            let (tree, lost) = judge.repair(&injection, Scope::Accounting);
            let is_kept = tree.is_none_or(|tree| tree == judge.sound);
            assert!(is_kept && lost.is_empty(), "{what}: {lost:?}\n{found}");
            let (tree, lost) = judge.repair(&injection, Scope::All);
            tried += 1;
            let Some(mut tree) = tree else { continue };
            let mut sound = judge.sound.clone();
            for path in &lost {
                (tree.remove(path), sound.remove(path));
            }
            assert!(tree == sound, "{what}: {lost:?}\n{found}");
            if !deep() {
                break;
            }
        }
    }
    assert!(tried > 10, "{tried}");
}
