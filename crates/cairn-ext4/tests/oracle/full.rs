//! A full volume, and a small budget: accepted data is kept, and memory stays within the budget.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::stats::Value;
use cairn_block::memory::MemoryDevice;
use cairn_ext4::Ext4;
use cairn_vfs::{Caller, Error, FileSystem, InodeFlags, IoFlags, NewInode, XattrMode};

use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{KernelMount, mke2fs};
use cairn_testkit::{deep, full, transfer};

use crate::support::{GRAINS, judge, open, volume};

/// Bytes that contain their offset.
fn fill(seed: usize, offset: usize, len: usize) -> Vec<u8> {
    let byte =
        |at: usize| u8::try_from((at / 509 + at + seed * 31) % 251).expect("less than 251") + 1;
    (offset..offset + len).map(byte).collect()
}

fn create(fs: &Ext4, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino
}

/// Leaves free space in pieces of one and two blocks, so that a file needs many extents, and blocks
/// to map them.
fn fragment(fs: &Ext4) {
    let count = 900;
    for number in 0..count {
        let ino = create(fs, &format!("x{number}"));
        fs.write(ino, 0, &fill(number, 0, 1024 * (1 + number % 2)), IoFlags::empty()).unwrap();
        fs.forget(ino, 1);
    }
    fs.sync().unwrap();
    for number in (0..count).filter(|number| number % 3 != 0) {
        fs.unlink(fs.root(), format!("x{number}").as_bytes()).unwrap();
    }
    fs.sync().unwrap();
}

/// Appends to all files in turn until there is no space for any. Returns how much each took.
fn fill_up(fs: &Arc<Ext4>, files: &[Ino]) -> Vec<usize> {
    let mut sizes = vec![0; files.len()];
    let mut full = 0;
    while full < files.len() {
        full = 0;
        for (number, (ino, size)) in files.iter().zip(&mut sizes).enumerate() {
            let flags = if number % 2 == 0 { IoFlags::DONTCACHE } else { IoFlags::empty() };
            match transfer::write(&**fs, *ino, *size as u64, &fill(number, *size, 10_000), flags) {
                Ok(taken) => *size += taken,
                Err(Error::NoSpace) => full += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    sizes
}

fn check(fs: &Ext4, files: &[Ino], sizes: &[usize]) {
    for (number, (ino, size)) in files.iter().zip(sizes).enumerate() {
        let mut buf = vec![0; size + 1];
        assert_eq!(fs.read(*ino, 0, &mut buf, IoFlags::empty()).unwrap(), *size, "file {number}");
        assert!(buf[..*size] == fill(number, 0, *size), "file {number}");
    }
}

#[test]
fn a_volume_that_fills_up_keeps_what_it_accepted() {
    for grain in GRAINS {
        for cache in ["cache=1M", "cache=64M"] {
            let device = volume(12 << 20, &["-t", "ext4", "-b", "1024", "-N", "2000"]);
            let options = format!("{cache},{grain}");
            let fs = open(&device, &options);
            fragment(&fs);
            let names: Vec<String> = (0..5).map(|number| format!("f{number}")).collect();
            let files: Vec<Ino> = names.iter().map(|name| create(&fs, name)).collect();
            let sizes = fill_up(&fs, &files);
            // With the large cache no block is allocated yet.
            assert!(sizes.iter().sum::<usize>() > 1 << 20, "{options}: {sizes:?}");
            for ino in &files {
                fs.fsync(*ino, 0, false).unwrap_or_else(|error| panic!("{options}: {error}"));
            }
            check(&fs, &files, &sizes);
            fs.unmount().unwrap();
            judge(&device);
            let fs = open(&device, &options);
            let again: Vec<Ino> = names
                .iter()
                .map(|name| fs.lookup(fs.root(), name.as_bytes()).unwrap().ino)
                .collect();
            check(&fs, &again, &sizes);
            fs.unmount().unwrap();
        }
    }
}

fn figure(fs: &Ext4, name: &str) -> u64 {
    match fs.report().get(name) {
        Some(Value::U64(figure)) => *figure,
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn writing_ten_times_the_budget_stays_inside_it() {
    const BUDGET: usize = 4 << 20;
    let pieces: &[usize] =
        if deep() { &[4096, 65_536, 1 << 20, 7 << 20] } else { &[65_536, 1 << 20] };
    for grain in GRAINS {
        for piece in pieces {
            let device = volume(64 << 20, &["-t", "ext4", "-b", "4096"]);
            let fs = open(&device, &format!("cache=4M,{grain}"));
            let ino = create(&fs, "f");
            let data = fill(1, 0, 10 * BUDGET);
            for (number, part) in data.chunks(*piece).enumerate() {
                assert_eq!(
                    fs.write(ino, (number * piece) as u64, part, IoFlags::empty()).unwrap(),
                    part.len()
                );
            }
            let mut buf = vec![0; *piece];
            for (number, part) in data.chunks(*piece).enumerate() {
                let got = fs
                    .read(ino, (number * piece) as u64, &mut buf[..part.len()], IoFlags::empty())
                    .unwrap();
                assert!(buf[..got] == *part, "{grain}: {piece} bytes, piece {number}");
            }
            let (peak, limit) =
                (figure(&fs, "cache.budget.peak_bytes"), figure(&fs, "cache.budget.limit_bytes"));
            assert!(peak <= limit, "{grain}, pieces of {piece}: {peak} bytes were used of {limit}");
            fs.unmount().unwrap();
            judge(&device);
        }
    }
}

/// The counters that tell the modes apart, and the options that change them while mounted.
#[test]
fn a_remount_changes_the_grain() {
    let device = volume(64 << 20, &["-t", "ext4", "-b", "4096"]);
    let fs = open(&device, "");
    let ino = create(&fs, "f");
    let data = vec![7; 1 << 20];
    let calls = |offset: u64| {
        let before = figure(&fs, "cache.map_calls");
        assert_eq!(fs.write(ino, offset, &data, IoFlags::empty()).unwrap(), data.len());
        figure(&fs, "cache.map_calls") - before
    };
    assert_eq!(calls(0), 1);
    fs.remount("nobuffered_iomap").unwrap();
    assert_eq!(calls(1 << 20), 256);
    assert!(figure(&fs, "cache.folios_by_order.4K") >= 256);
    fs.remount("buffered_iomap,max_folio=64K").unwrap();
    assert_eq!(calls(2 << 20), 1);
    assert!(figure(&fs, "cache.folios_by_order.64K") >= 16);
    assert!(fs.remount("max_folio=3K").is_err());
    assert_eq!(fs.report().get("options.max_folio"), Some(&Value::U64(64 << 10)));
    fs.unmount().unwrap();
    judge(&device);
}

/// In every feature set that allocates space differently: an operation that finds no space changes
/// nothing, and removals need no space.
#[test]
fn each_operation_on_a_full_volume_succeeds_whole_or_changes_nothing() {
    let sets: [&[&str]; 7] = [
        &["-t", "ext4"],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-O", "^has_journal", "-b", "1024"],
        &["-t", "ext4", "-O", "^extents,^64bit", "-b", "1024"],
        &["-t", "ext4", "-I", "128"],
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext4", "-O", "^metadata_csum,^dir_index", "-b", "4096"],
    ];
    for set in sets {
        let device = volume(16 << 20, set);
        let fs = open(&device, "");
        full::prepare(&*fs);
        full::decorate(&*fs);
        let directory = fs.lookup(fs.root(), b"one").unwrap().ino;
        fs.forget(directory, 1);
        // The volume has room, but the inode's attribute block has none: the call must not wait for
        // space.
        let refused = fs.setxattr(directory, b"user.large", &[7; 5000], XattrMode::Set);
        assert!(matches!(refused, Err(Error::NoAttributeSpace)), "{set:?}: {refused:?}");
        operate_on_full(&device, &fs, &format!("{set:?}"));
    }
}

#[test]
fn each_operation_on_a_full_volume_with_inline_data_succeeds_whole_or_changes_nothing() {
    for set in [
        &["-I", "256", "-b", "4096"][..],
        &["-I", "512", "-b", "1024"],
        &["-I", "1024", "-b", "1024"],
    ] {
        let file = tempfile::NamedTempFile::new().unwrap();
        mke2fs(file.path(), 16 << 20, &[&["-t", "ext4", "-O", "inline_data"], set].concat());
        // Cairn makes no inline directories, and mke2fs uses only half of the room in the inode.
        // The kernel makes them.
        let mount = KernelMount::new(file.path(), "");
        full::prepare_on_host(mount.path());
        mount.unmount();
        let device = Arc::new(read_image(file.path()).unwrap());
        let fs = open(&device, "");
        let directory = fs.lookup(fs.root(), b"one").unwrap();
        fs.forget(directory.ino, 1);
        assert!(
            directory.flags.contains(InodeFlags::INLINE_DATA),
            "{set:?}: a directory of blocks"
        );
        full::decorate(&*fs);
        operate_on_full(&device, &fs, &format!("inline data, {set:?}"));
    }
}

fn operate_on_full(device: &Arc<MemoryDevice>, fs: &Arc<Ext4>, label: &str) {
    full::fill(&**fs);
    full::operate(&**fs, label);
    fs.unmount().unwrap();
    judge(device);
}

/// The system refuses memory from the n-th allocation of each operation on. The operation fails and
/// has changed nothing. The volume continues and is clean at the end.
#[test]
fn each_operation_without_memory_succeeds_whole_or_changes_nothing() {
    let sets: [&[&str]; 4] = [
        &["-t", "ext4"],
        &["-t", "ext4", "-O", "inline_data", "-b", "1024"],
        &["-t", "ext4", "-O", "^has_journal,^extents,^64bit", "-b", "1024"],
        &["-t", "ext2", "-b", "1024"],
    ];
    for set in sets {
        let device = volume(96 << 20, set);
        let label = format!("{set:?}");
        let fs = open(&device, "cache=1M");
        full::prepare(&*fs);
        full::decorate(&*fs);
        let (refused, failed) = full::operate_without_memory(&*fs, &label);
        assert!(refused > failed && failed > 10, "{label}: {refused} refused, {failed} failed");
        fs.unmount().unwrap();
        judge(&device);
    }
}
