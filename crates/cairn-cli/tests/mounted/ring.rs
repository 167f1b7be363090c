//! `transport=ring`: FUSE over io_uring. Where the machine has none, a line says so.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use cairn_testkit::uring;
use serde_json::Value;

use crate::fixture::{CAIRN, Volume};

const SIZE: u64 = 64 << 20;

fn count(stats: &Value, name: &str) -> u64 {
    stats.pointer(name).and_then(Value::as_u64).unwrap_or_else(|| panic!("{name} in {stats}"))
}

/// Eight clients that call fsync; all checkers agree with what they left.
#[test]
fn fsyncs_through_rings_run_together() {
    let Some(allowed) = uring::allow() else { return };
    for mut volume in
        [Volume::mounted(SIZE, "transport=ring"), Volume::f2fs(SIZE, "transport=ring")]
    {
        std::thread::scope(|scope| {
            for client in 0..8 {
                let dir = volume.path(&format!("d{client}"));
                scope.spawn(move || {
                    fs::create_dir(&dir).unwrap();
                    for n in 0..25 {
                        let file = File::create(dir.join(format!("f{n}"))).unwrap();
                        file.write_all_at(&[client; 5000], 0).unwrap();
                        file.sync_all().unwrap();
                    }
                });
            }
        });
        let stats = volume.stats();
        assert_eq!(stats.pointer("/fuse/transport").and_then(Value::as_str), Some("ring"));
        assert!(count(&stats, "/fuse/ring/taken") > 8 * 25 * 3, "{stats}");
        assert!(count(&stats, "/fuse/ring/to_workers") > 0, "{stats}");
        volume.unmount();
        volume.mount("transport=dev");
        assert_eq!(volume.stats().pointer("/fuse/transport").unwrap(), "dev");
        for client in 0..8 {
            let dir = volume.path(&format!("d{client}"));
            assert!(
                (0..25).all(|n| fs::read(dir.join(format!("f{n}"))).unwrap() == [client; 5000])
            );
        }
        volume.unmount();
    }
    drop(allowed);
}

/// The kernel does not offer it: an error that says what root can do, and no mount.
#[test]
fn rings_that_are_switched_off_are_refused_with_advice() {
    let parameter = "/sys/module/fuse/parameters/enable_uring";
    let volume = Volume::make(SIZE, &[]);
    let output = Command::new(CAIRN)
        .args(["mount", "-o", "transport=ring"])
        .args([volume.image(), volume.root()])
        .output()
        .unwrap();
    if output.status.success() {
        println!("FUSE over io_uring is switched on here: its absence is not tested");
        let done = Command::new(CAIRN).arg("umount").arg(volume.root()).status().unwrap();
        assert!(done.success());
        return;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let helps = if fs::exists(parameter).unwrap() { parameter } else { "Linux 6.14" };
    assert!(said.contains(helps) && said.contains("transport=ring"), "{said}");
}
