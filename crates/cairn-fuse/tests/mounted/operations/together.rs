//! Many calls at a time, full, busy and stopped volumes.

use std::fs::{self, DirEntry, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use cairn_fuse::MountOptions;
use cairn_testkit::model::Model;
use cairn_testkit::uring;
use cairn_vfs::{Caller, FileSystem, NewInode};
use rustix::fs::seek;
use rustix::io::Errno;

use super::each;
use crate::fixture::{Mounted, both, require_mounting};

#[test]
fn threads_contend_on_one_tree() {
    each(|mounted| {
        let made = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for seed in 0..6 {
                let made = &made;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for step in 0..300 {
                        let (a, b) =
                            (format!("n{}", random.u8(..12)), format!("n{}", random.u8(..12)));
                        // All of these may fail because of the other threads, with an error that
                        // says so.
                        let done = match random.u8(..7) {
                            0 => fs::create_dir(mounted.path(&a)),
                            1 => fs::write(
                                mounted.path(&a),
                                vec![seed as u8; random.usize(..20_000)],
                            ),
                            2 => fs::rename(mounted.path(&a), mounted.path(&b)),
                            3 => fs::hard_link(mounted.path(&a), mounted.path(&b)),
                            4 => fs::remove_file(mounted.path(&a)),
                            5 => fs::remove_dir(mounted.path(&a)),
                            // A name that is removed and made again meanwhile may come again.
                            _ => fs::read_dir(mounted.path("")).map(|mut entries| {
                                let known = |entry: DirEntry| {
                                    let name = entry.file_name().into_string().unwrap();
                                    name[1..].parse::<u8>().is_ok_and(|number| number < 12)
                                };
                                assert!(entries.all(|entry| entry.is_ok_and(known)));
                            }),
                        };
                        match done {
                            Ok(()) => {
                                made.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => assert!(
                                !matches!(error.raw_os_error(), Some(5 | 38 | 107 | 116 | 117)),
                                "seed {seed} step {step}: {error}"
                            ),
                        }
                    }
                });
            }
        });
        assert!(made.load(Ordering::Relaxed) > 200);
    });
}

#[test]
fn a_full_volume_is_reported() {
    require_mounting();
    let mounted = Mounted::of(Model::with_blocks(64), &MountOptions::new("model"));
    let file = File::create(mounted.path("f")).unwrap();
    file.write_all_at(&[1; 64 * 4096], 0).unwrap();
    file.sync_all().unwrap();
    let told = file.write_all_at(&[1; 4096], 64 * 4096).and_then(|()| file.sync_all()).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::StorageFull);
    // Only the beginning of a write fits. The kernel must not count the rest as written.
    file.set_len(60 * 4096).unwrap();
    let told =
        file.write_all_at(&[2; 8 * 4096], 60 * 4096).and_then(|()| file.sync_all()).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::StorageFull);
    file.set_len(0).unwrap();
    file.write_all_at(b"fits", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    mounted.finish();
}

#[test]
fn a_busy_mount_point_is_refused() {
    require_mounting();
    let mounted = Mounted::new();
    let error =
        cairn_fuse::mount(Arc::new(Model::new()), &mounted.path(""), &MountOptions::new("second"))
            .err()
            .expect("mounted twice");
    assert!(matches!(error, cairn_fuse::Error::Busy { .. }), "{error}");
    mounted.finish();
}

#[test]
fn an_unmounted_session_leaves_the_next_mount_alone() {
    require_mounting();
    for options in both() {
        let dir = tempfile::tempdir().unwrap();
        let run = |program: &str, args: &[&str]| {
            assert!(
                Command::new(program).args(args).arg(dir.path()).status().unwrap().success(),
                "{program}"
            );
        };
        let _allowed = uring::allow();
        let session = cairn_fuse::mount(Arc::new(Model::new()), dir.path(), &options).unwrap();
        // It is unmounted, and another filesystem mounted, before the session has noticed.
        run("umount", &["--lazy", "--no-canonicalize"]);
        run("mount", &["-t", "tmpfs", "next"]);
        std::fs::write(dir.path().join("file"), "next").unwrap();
        session.run().unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("file")).unwrap(), "next");
        run("umount", &[]);
    }
}

#[test]
fn many_fsyncs_wait_together() {
    require_mounting();
    for options in both() {
        // Each fsync waits for 31 others. The two threads that read requests must not delay them.
        let together = Barrier::new(32);
        let mounted = Mounted::hooked(Model::new(), &options, move |call| {
            if call == "fsync" {
                together.wait();
            }
        });
        std::thread::scope(|scope| {
            for n in 0..32 {
                let mounted = &mounted;
                scope.spawn(move || {
                    let file = File::create(mounted.path(&format!("f{n}"))).unwrap();
                    file.write_all_at(b"x", 0).unwrap();
                    file.sync_all().unwrap();
                });
            }
        });
        mounted.finish();
    }
}

#[test]
fn a_request_that_takes_long_holds_up_no_other() {
    require_mounting();
    for options in both() {
        // No request is queued when the first one is taken, and the first one is not known to take
        // long: it waits for a later request.
        let (begun, ended) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let hooks = (begun.clone(), ended.clone());
        let mounted = Mounted::hooked(Model::new(), &options, move |call| match call {
            "getxattr" => {
                hooks.0.wait();
                hooks.1.wait();
            }
            "statfs" => {
                hooks.1.wait();
            }
            _ => {}
        });
        std::thread::scope(|scope| {
            scope.spawn(|| xattr::get(mounted.path(""), "user.none").unwrap());
            begun.wait();
            rustix::fs::statfs(mounted.path("")).unwrap();
        });
        mounted.finish();
    }
}

#[test]
fn requests_that_need_others_are_served_however_many_there_are() {
    require_mounting();
    for options in both() {
        let mounted = Mounted::with(&MountOptions { threads: 1, ..options });
        let together = Barrier::new(64);
        std::thread::scope(|scope| {
            for n in 0..64 {
                let (mounted, together) = (&mounted, &together);
                scope.spawn(move || {
                    let file = File::create(mounted.path(&format!("f{n}"))).unwrap();
                    file.set_len(1 << 20).unwrap();
                    file.write_all_at(b"x", 500_000).unwrap();
                    together.wait();
                    // The kernel's dirty page is requested during this call.
                    assert_eq!(
                        seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap() & !4095,
                        500_000 & !4095
                    );
                });
            }
        });
        mounted.finish();
    }
}

#[test]
fn a_panic_is_an_error_and_stops_the_volume() {
    require_mounting();
    for options in both() {
        let mounted = Mounted::hooked(Model::new(), &options, |call| {
            assert_ne!(call, "listxattr", "this panic belongs to the test");
        });
        fs::write(mounted.path("f"), "x").unwrap();
        let told =
            xattr::list(mounted.path("f")).map(drop).expect_err("listed in spite of the panic");
        assert_eq!(told.raw_os_error(), Some(Errno::IO.raw_os_error()));
        assert_eq!(
            fs::create_dir(mounted.path("d")).unwrap_err().raw_os_error(),
            Some(Errno::IO.raw_os_error())
        );
        mounted.finish();
    }
}

#[test]
fn a_read_only_mount_refuses_changes() {
    require_mounting();
    let model = Model::new();
    let made = model.create(model.root(), b"d", NewInode::Directory, 0o755, &Caller::ROOT).unwrap();
    model.forget(made.ino, 1);
    let mounted =
        Mounted::of(model, &MountOptions { read_only: true, ..MountOptions::new("model") });
    assert!(fs::metadata(mounted.path("d")).unwrap().is_dir());
    assert_eq!(
        fs::remove_dir(mounted.path("d")).unwrap_err().kind(),
        ErrorKind::ReadOnlyFilesystem
    );
    mounted.finish();
}
