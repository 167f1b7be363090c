//! Threads that share logs and therefore zones, on a volume that is nearly full.

use cairn_base::Ino;
use cairn_block::tagged::{BLOCK, Tag};
use cairn_block::zoned::ZoneLayout;
use cairn_f2fs::F2fs;
use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode, SetAttributes};

use cairn_testkit::{deep, transfer};

use crate::support::{judge, layout, layout_with_capacity, open, volume};

const THREADS: u64 = 4;
const BLOCKS: u64 = 4000;

fn block(file: u32, index: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    Tag { file, index: index as u32, version: 0 }.fill(&mut block);
    block
}

fn check(fs: &F2fs, ino: Ino, file: u32, index: u64) {
    let mut buf = vec![0; BLOCK];
    let read = fs.read(ino, index * BLOCK as u64, &mut buf, IoFlags::empty()).unwrap();
    let hole = buf[..read].iter().all(|byte| *byte == 0);
    assert!(
        hole || buf == block(file, index),
        "block {index} of file {file} holds {:?}",
        Tag::of(&buf)
    );
}

fn work(fs: &F2fs, files: &[Ino], seed: u64, steps: u32) {
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..steps {
        let file = rng.u32(0..files.len() as u32);
        let (ino, index) = (files[file as usize], rng.u64(0..BLOCKS));
        let outcome = match rng.u32(0..100) {
            0..70 => {
                let flags = transfer::flags(&mut rng, 4);
                transfer::write(fs, ino, index * BLOCK as u64, &block(file, index), flags).map(drop)
            }
            70..85 => {
                check(fs, ino, file, index);
                Ok(())
            }
            85..93 => fs.fsync(ino, 0, rng.bool()),
            93..96 => {
                let name = format!("small-{seed}");
                let made =
                    fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o600, &Caller::ROOT);
                made.and_then(|_| fs.unlink(fs.root(), name.as_bytes()))
            }
            96..98 => {
                let size = Some(index * BLOCK as u64);
                fs.setattr(ino, &SetAttributes { size, ..SetAttributes::default() }).map(drop)
            }
            _ => fs.sync(),
        };
        assert!(matches!(outcome, Ok(()) | Err(Error::NoSpace)), "{outcome:?}");
    }
}

fn contend(layout: ZoneLayout, seed: u64) {
    let image = volume(layout);
    let steps = if deep() { 40_000 } else { 4000 };
    for round in 0..2 {
        let fs = open(image.clone(), "cache=4M");
        let files: Vec<Ino> = (0..3)
            .map(|number| {
                let name = format!("file-{number}");
                match fs.lookup(fs.root(), name.as_bytes()) {
                    Ok(found) => found.ino,
                    Err(_) => {
                        fs.create(
                            fs.root(),
                            name.as_bytes(),
                            NewInode::Regular,
                            0o644,
                            &Caller::ROOT,
                        )
                        .unwrap()
                        .ino
                    }
                }
            })
            .collect();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (fs, files) = (&fs, &files);
                scope.spawn(move || work(fs, files, seed * 100 + 10 * round + thread, steps));
            }
        });
        for (file, ino) in (0..).zip(&files) {
            (0..BLOCKS).for_each(|index| check(&fs, *ino, file, index));
        }
        let resets = fs.store().unwrap().segments.stats.zones_reset.get();
        assert!(round == 0 || resets > 0, "sections were cleaned, and their zones reset");
        fs.unmount().unwrap();
        drop(fs);
        judge(&image);
    }
}

#[test]
fn threads_share_zones_of_one_segment() {
    contend(layout(2, 40), 1);
}

#[test]
fn threads_share_zones_of_four_segments() {
    contend(layout(8, 24), 2);
}

/// The last writable segment of a zone ends early.
#[test]
fn threads_share_zones_with_less_capacity_than_size() {
    contend(layout_with_capacity(8, 34, 5100), 3);
}

#[test]
fn what_does_not_fit_together_is_not_written() {
    use cairn_block::memory::MemoryDevice;
    use cairn_f2fs::mkfs::{self, MkfsOptions};
    let runtime = cairn_base::runtime::threads::Threads::new();
    let reason = |device: std::sync::Arc<dyn cairn_block::BlockDevice>| {
        let fs = F2fs::open(device, runtime.clone(), &cairn_f2fs::MountOptions::default()).unwrap();
        fs.read_only_reason().expect("it is only read").to_string()
    };
    let image = volume(layout(2, 40));
    // The memory below the zones. The volume begins at the same byte.
    assert!(reason(image).contains("blkzoned"));
    let plain = std::sync::Arc::new(MemoryDevice::new(128 << 20));
    mkfs::make(plain.clone(), &MkfsOptions::default(), &*runtime).unwrap();
    let conventional = cairn_block::zoned::ZoneLayout::new(2 << 20, 60, 64);
    let zones = cairn_block::zoned::Emulated::new(plain, conventional).unwrap();
    assert!(reason(std::sync::Arc::new(zones)).contains("with zones"));
    // At this point a log would wait for ever.
    let few = ZoneLayout { max_active: 5, max_open: 5, ..layout(2, 40) };
    let memory = std::sync::Arc::new(MemoryDevice::new(few.size()));
    let zones = std::sync::Arc::new(cairn_block::zoned::Emulated::new(memory, few).unwrap());
    let options = MkfsOptions { zoned: true, reserved_sections: Some(8), ..MkfsOptions::default() };
    assert!(mkfs::make(zones, &options, &*runtime).unwrap_err().to_string().contains("six logs"));
}
