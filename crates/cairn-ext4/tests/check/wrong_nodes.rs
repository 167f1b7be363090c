//! A pointer to an indirect block that leads to a block which is something else. Its bytes are no
//! map, and a repair with losses changes no other file.

use std::path::Path;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_testkit::crash::read_image;
use cairn_testkit::deep;
use cairn_testkit::judge::{KernelMount, mke2fs};

use crate::repaired::{complaint, place_of, repaired, snapshot};
use crate::sizes::POINTERS;

const BLOCKS: u64 = 8192;
/// `i_block` in a record.
const I_BLOCK: u64 = 40;

/// Small files and larger ones between the two that get a wrong pointer. The contents of most are
/// numbers of blocks.
fn fill(image: &Path, args: &[&str]) {
    mke2fs(image, BLOCKS << 10, args);
    let mount = KernelMount::new(image, "");
    let mut random = fastrand::Rng::with_seed(17);
    let mut write = |name: &str, len: usize| {
        let contents: Vec<u8> =
            (0..len / 4).flat_map(|_| random.u32(0..BLOCKS as u32 + 500).to_le_bytes()).collect();
        std::fs::write(mount.path().join(name), contents).unwrap();
    };
    write("first", 40_000);
    for number in 0..40 {
        write(&format!("small{number}"), 900);
        write(&format!("large{number}"), 30_000);
    }
    write("last", 40_000);
    write("long", 400_000);
    let directory = mount.path().join("tree");
    std::fs::create_dir(&directory).unwrap();
    for number in 0..100 {
        std::fs::write(directory.join(format!("a name {number}")), b"x").unwrap();
    }
    mount.unmount();
}

/// Repairs a volume whose `victim` has a wrong pointer. What changes of other files, or what e2fsck
/// says.
fn judge(
    (sound, at): (&MemoryDevice, &Path),
    (victim, place): (&str, u64),
    (slot, block): (u64, u32),
) -> Option<String> {
    let device = sound.fork();
    device.write_at(place + I_BLOCK + slot * 4, block.to_le_bytes().to_vec()).unwrap();
    let what = format!("/{victim}: block {block} in slot {slot} of i_block");
    let Some((_, after)) = repaired(&device, Scope::All) else {
        return Some(format!("{what}: refused"));
    };
    if let Some(said) = complaint(&after, at) {
        return Some(format!("{what}: {said}"));
    }
    let others = |device: MemoryDevice| {
        let found = snapshot(device).without(victim.as_bytes()).without(b"lost+found");
        found.without_times_of_directories_and(b"\0")
    };
    let changed = others(sound.fork()).diff(&others(after));
    (!changed.is_empty()).then(|| format!("{what}: {changed}"))
}

#[test]
fn a_wrong_indirect_block_changes_no_other_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    fill(&path, POINTERS);
    let sound = read_image(&path).unwrap();
    let mut wrong = Vec::new();
    for victim in ["first", "last", "long"] {
        let place = place_of(&path, &format!("/{victim}"));
        for slot in [12, 13, 14] {
            for block in (1 + slot..2500).step_by(if deep() { 3 } else { 111 }) {
                let pointer = (slot, u32::try_from(block).unwrap());
                wrong.extend(judge((&sound, &hurt), (victim, place), pointer));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n\n"));
}
