//! A ring that fails. In `tests/mounted` nothing can make one fail.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_testkit::model::Model;
use cairn_testkit::uring;

use crate::{Error, MountOptions, TransportChoice, mount};

/// Under load, the session ends with an error, whether the connection can be aborted or not; each
/// request is answered or counted as late, and no caller waits for ever.
#[test]
fn a_ring_that_fails_ends_the_session_and_leaves_no_caller_waiting() {
    assert!(rustix::process::geteuid().is_root(), "this test mounts: run it with sudo");
    for may_abort in [true, false] {
        let Some(allowed) = uring::allow() else { return };
        let options =
            MountOptions { transport: TransportChoice::Ring, ..MountOptions::new("model") };
        let dir = tempfile::tempdir().unwrap();
        let session = mount(Arc::new(Model::new()), dir.path(), &options).unwrap();
        drop(allowed);
        let (ender, stats) = (session.ender(), session.stats());
        let server = std::thread::spawn(move || session.run());
        let failed = AtomicBool::new(false);
        let ended = std::thread::scope(|scope| {
            for client in 0..6 {
                let (dir, failed) = (dir.path().join(format!("d{client}")), &failed);
                scope.spawn(move || {
                    fs::create_dir(&dir).unwrap();
                    let work = |n: u32| {
                        fs::write(dir.join(format!("f{n}")), [7; 5000])?;
                        fs::File::open(dir.join(format!("f{n}")))?.sync_all()
                    };
                    let stopped = (0..).find(|n| work(*n).is_err());
                    assert!(failed.load(Ordering::SeqCst), "the mount failed at {stopped:?}");
                });
            }
            while stats.report().u64("ring.answered") < Some(500) {
                std::thread::yield_now();
            }
            failed.store(true, Ordering::SeqCst);
            ender.fail_ring(may_abort);
            let ended = server.join().unwrap();
            let report = stats.report();
            let count = |name: &str| report.u64(name).unwrap();
            let (taken, answered) = (count("ring.taken"), count("ring.answered"));
            assert_eq!(taken, answered + count("ring.late"), "{report:?}");
            // They hold `/dev/fuse` open: with the last of them, the kernel ends the connection.
            drop((ender, stats));
            ended
        });
        assert!(matches!(ended, Err(Error::Connection(_))), "{ended:?}");
        // It was in use when the session tried to.
        let _ = Command::new("umount").arg("-ql").arg(dir.path()).status();
    }
}
