//! Linux mounts what was repaired, reads all of it, and goes on writing.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_check::repair::Scope;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::crash::write_image;
use cairn_testkit::judge::assert_f2fs_clean;
use cairn_testkit::tree::{SnapshotOptions, digest_volume};
use cairn_testkit::vm::{Job, Vm};

use crate::inject::Target;
use crate::repair::{apply, damaged, plan};

/// Volumes that one machine mounts.
const VOLUMES: usize = 4;

fn machines() -> usize {
    if cairn_testkit::deep() { 6 } else { 1 }
}

#[test]
#[ignore = "a minute of the machine's time: make deep runs it"]
fn linux_mounts_what_was_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let target = Target::new(&[]);
    let mut seeds = 3_000_000..;
    for _ in 0..machines() {
        let (mut machine, mut script, mut expected) =
            (Vm::new().agent(), String::new(), Vec::new());
        while expected.len() < VOLUMES {
            let injection = target.inject(seeds.next().unwrap());
            let image = Arc::new(damaged(&target, &injection));
            let device: Arc<dyn BlockDevice> = image.clone();
            let Ok(plan) = plan(&device, Scope::All) else { continue };
            if plan.is_refused || plan.changes.is_empty() {
                continue;
            }
            println!("{}", injection.what);
            apply(&plan, &device);
            let path = directory.path().join(expected.len().to_string());
            write_image(&image, &path).unwrap();
            machine = machine.disk(&path);
            let disk = format!("/dev/vd{}", ['a', 'b', 'c', 'd'][expected.len()]);
            script += &format!("mount -t f2fs {disk} /mnt\n");
            script += &Job::DigestAll("/mnt".into()).line("in_the_machine");
            script += "head -c 3000000 /dev/urandom >/mnt/more && sync && rm /mnt/more\n";
            script += "umount /mnt\n";
            let read_only = MountOptions { read_only: true, ..MountOptions::default() };
            let volume = F2fs::open(device, Threads::new(), &read_only).unwrap();
            let options = SnapshotOptions { sectors: true, ..SnapshotOptions::default() };
            expected.push((path, digest_volume(&*volume, options).unwrap()));
        }
        let seen = Job::snapshots(&machine.check(&script));
        assert_eq!(seen.len(), VOLUMES);
        for (seen, (image, expected)) in seen.iter().zip(&expected) {
            seen.assert_same(expected);
            assert_f2fs_clean(image);
        }
    }
}
