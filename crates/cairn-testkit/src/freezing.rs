//! Checks for filesystems that can be frozen.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use cairn_base::Ino;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode, OpenMode, Result};

/// Judges the device of a frozen volume.
pub type Judge<'a> = &'a dyn Fn(&MemoryDevice);

const THREADS: u64 = 4;

fn make(fs: &dyn FileSystem, name: &str) -> Result<Ino> {
    fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)
        .map(|made| made.ino)
}

fn contents(device: &MemoryDevice) -> Vec<u8> {
    device.read_at(0, usize::try_from(device.geometry().size).unwrap()).unwrap().to_vec()
}

/// Checks what is on the disk, and which calls continue, wait, or are refused. Unmounts at the end.
///
/// # Panics
/// Something else happens.
pub fn in_order(fs: &dyn FileSystem, device: &MemoryDevice, judge: Judge<'_>) {
    assert!(matches!(fs.thaw(), Err(Error::NotFrozen)), "it is not frozen");
    let (kept, unnamed) =
        (make(fs, "kept").unwrap(), fs.tmpfile(fs.root(), 0o600, &Caller::ROOT).unwrap().ino);
    for ino in [kept, unnamed] {
        fs.write(ino, 0, &[7; 100_000], IoFlags::empty()).unwrap();
    }
    fs.freeze().unwrap();
    judge(device);
    let frozen = contents(device);
    assert!(fs.is_frozen() && matches!(fs.freeze(), Err(Error::Frozen)));
    assert_eq!(fs.report().get("state.frozen"), Some(&true.into()));
    for refused in [fs.remount("ro"), fs.remount("rw"), fs.check_remount("noatime")] {
        assert!(matches!(refused, Err(Error::Frozen)), "{refused:?}");
    }
    let mut read = [0; 10];
    let wrote = AtomicBool::new(false);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            fs.write(kept, 0, b"after", IoFlags::empty()).unwrap();
            wrote.store(true, SeqCst);
            fs.unlink(fs.root(), b"kept")
        });
        // Calls that read, sync, open or release do not wait.
        let handle = fs.open(kept, OpenMode { write: true, direct: false }).unwrap();
        fs.fsync(kept, handle, false).unwrap();
        fs.fsync(fs.root(), 0, false).unwrap();
        fs.sync().unwrap();
        fs.release(kept, handle);
        fs.readdir(fs.root(), 0, &mut |_| true).unwrap();
        assert_eq!(fs.read(kept, 0, &mut read, IoFlags::empty()).unwrap(), 10);
        fs.forget(unnamed, 1);
        assert!(read == [7; 10] && contents(device) == frozen && !wrote.load(SeqCst));
        fs.thaw().unwrap();
        waits.join().unwrap().unwrap();
    });
    assert!(
        !fs.is_frozen() && fs.getattr(unnamed).is_err(),
        "its last user left while the volume was frozen"
    );
    assert!(matches!(fs.thaw(), Err(Error::NotFrozen)));

    fs.remount("ro").unwrap();
    fs.freeze().unwrap();
    assert!(fs.is_frozen() && fs.report().get("state.frozen") == Some(&true.into()));
    assert!(matches!(make(fs, "late"), Err(Error::ReadOnly(_))), "nothing to wait for");
    fs.thaw().unwrap();
    assert!(!fs.is_frozen());
    assert!(matches!(make(fs, "late"), Err(Error::ReadOnly(_))), "thawed, it is what it was");
    fs.remount("rw").unwrap();

    let doomed = make(fs, "doomed").unwrap();
    fs.unlink(fs.root(), b"doomed").unwrap();
    fs.freeze().unwrap();
    fs.getattr(doomed).unwrap();
    fs.unmount().unwrap();
    judge(device);
}

/// A volume that is shut down while it is frozen: waiting calls fail.
///
/// # Panics
/// Something else happens.
pub fn shut_down(fs: &dyn FileSystem) {
    fs.freeze().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| make(fs, "late"));
        fs.shutdown(false).unwrap();
        assert!(fs.thaw().is_err(), "it cannot be written any more");
        assert!(waits.join().unwrap().is_err());
    });
    assert!(!fs.is_frozen() && fs.freeze().is_err(), "what is on the disk is not what was written");
}

/// Threads create, write, sync and delete files while the volume is frozen and thawed. While it is
/// frozen, its device does not change and is consistent. All threads continue afterwards.
///
/// # Panics
/// Something else happens.
pub fn under_load(fs: &dyn FileSystem, device: &MemoryDevice, judge: Judge<'_>) {
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _ends = StopAtEnd(&over);
        for thread in 0..THREADS {
            let (over, done) = (&over, &done);
            scope.spawn(move || {
                for round in 0_u64.. {
                    if over.load(SeqCst) {
                        break;
                    }
                    work(fs, thread, round).unwrap();
                    done.fetch_add(1, SeqCst);
                }
            });
        }
        for _ in 0..if crate::deep() { 40 } else { 5 } {
            fs.freeze().unwrap();
            let frozen = contents(device);
            judge(&device.fork());
            assert!(contents(device) == frozen, "written while frozen");
            let before = done.load(SeqCst);
            fs.thaw().unwrap();
            // Each thread may still count one operation that it had finished before.
            while done.load(SeqCst) < before + 2 * THREADS {
                thread::yield_now();
            }
        }
    });
}

fn work(fs: &dyn FileSystem, thread: u64, round: u64) -> Result<()> {
    let name = format!("{thread}-{}", round % 7);
    let ino = match make(fs, &name) {
        Err(Error::Exists) => fs.lookup(fs.root(), name.as_bytes())?.ino,
        made => made?,
    };
    fs.write(ino, round % 3 * 5000, &[round as u8; 9000], IoFlags::empty())?;
    match round % 5 {
        0 => fs.fsync(ino, 0, false)?,
        1 => fs.fsync(fs.root(), 0, false)?,
        _ => {}
    }
    if round.is_multiple_of(3) {
        fs.unlink(fs.root(), name.as_bytes())?;
    }
    fs.forget(ino, 1);
    Ok(())
}

/// Ends the threads, also if an assertion fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
