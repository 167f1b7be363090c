//! Checks that durable changes survive: the bounded search, and two callers of fsync at once.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::wrap::{Flushing, Hold};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

pub use cairn_crash::durability::{
    Broken, DAMAGED, Damage, History, Judge, Meanwhile, Open, Opened, Persist, Resize, Seen, Step,
    Subject, search,
};

/// How often the first caller checks whether the second one has returned.
const LOOKS: u32 = 20_000;

/// A file is overwritten, and two callers fsync it. While the flush is held, neither returns. When
/// it fails, both get the error.
///
/// # Panics
/// Something else happens.
pub fn both_hear_of_a_failed_flush(subject: &Subject<'_>) {
    for (data_only, outcome) in [
        (true, Flushing::Failing),
        (false, Flushing::Failing),
        (true, Flushing::Free),
        (false, Flushing::Free),
    ] {
        let hold = Arc::new(Hold::new(Arc::new(subject.fresh.fork())));
        let device: Arc<dyn BlockDevice> = hold.clone();
        let opened = (subject.open)(device).expect("the volume opens");
        let fs: &dyn FileSystem = &*opened.fs;
        let ino =
            fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
        fs.write(ino, 0, &[1; 8192], IoFlags::empty()).unwrap();
        fs.sync().unwrap();
        fs.write(ino, 0, &[2; 4096], IoFlags::empty()).unwrap();
        hold.set(Flushing::Held);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| fs.fsync(ino, 0, data_only));
            hold.wait_for(1);
            let second = scope.spawn(|| fs.fsync(ino, 0, data_only));
            let returned = (0..LOOKS).any(|_| {
                std::thread::yield_now();
                first.is_finished() || second.is_finished()
            });
            hold.set(outcome);
            assert!(!returned, "data_only {data_only}: durable, and nothing was flushed");
            for (caller, outcome_of) in [("first", first), ("second", second)] {
                let told = outcome_of.join().expect("it does not panic");
                assert_eq!(
                    told.is_err(),
                    outcome == Flushing::Failing,
                    "the {caller}, data_only {data_only}: {told:?}"
                );
            }
        });
        hold.set(Flushing::Free);
        let _ = fs.shutdown(false);
    }
}
