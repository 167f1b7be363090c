use super::*;
use crate::judge::{assert_clean, assert_f2fs_clean, mke2fs, mkfs_f2fs};
use crate::tree::{PathTarget, SnapshotOptions, TreeSpec, build, digest_path, plan};

#[test]
#[ignore = "runs in the machine"]
fn in_the_machine() {
    serve();
}

fn line(job: &Job) -> String {
    job.line("vm::tests::in_the_machine")
}

/// One boot: disks, programs of the host, the agent, both filesystems, the script's status.
#[test]
fn a_machine_mounts_builds_digests_and_reports() {
    let directory = tempfile::tempdir().unwrap();
    let (ext4, f2fs) = (directory.path().join("ext4"), directory.path().join("f2fs"));
    mke2fs(&ext4, 32 << 20, &["-t", "ext4"]);
    mkfs_f2fs(&f2fs, 128 << 20, &[]);
    let spec = TreeSpec::small(7);
    let work = |disk: &str, kind: &str| {
        let tree = Job::Build(spec.clone(), "/mnt/tree".into());
        let digest = Job::Digest("/mnt/tree".into());
        format!(
            "mount -t {kind} {disk} /mnt\nmkdir /mnt/tree\n{}{}umount /mnt\n",
            line(&tree),
            line(&digest)
        )
    };
    let script =
        format!("{}{}getfattr --version\n", work("/dev/vda", "ext4"), work("/dev/vdb", "f2fs"));
    let vm = Vm::new().disk(&ext4).disk(&f2fs).tool("getfattr").agent();
    let text = vm.check(&script);
    assert_clean(&ext4);
    assert_f2fs_clean(&f2fs);
    let here = directory.path().join("here");
    std::fs::create_dir(&here).unwrap();
    build(&PathTarget::new(&here), &plan(&spec));
    let expected = digest_path(&here, SnapshotOptions::default()).unwrap().without(b"");
    let found = Job::snapshots(&text);
    assert_eq!(found.len(), 2, "{text}");
    for snapshot in found {
        snapshot.without(b"").assert_same(&expected);
    }
}

#[test]
fn failures_are_told_and_a_crash_keeps_what_was_synced() {
    let image = tempfile::NamedTempFile::new().unwrap();
    mkfs_f2fs(image.path(), 64 << 20, &[]);
    let script = "mount -t f2fs /dev/vda /mnt\necho kept > /mnt/kept\nsync\necho gone > \
        /mnt/gone\necho now\nsleep 100\n";
    let output = Vm::new().disk(image.path()).crash_after(script, "now");
    assert_eq!(output.status, None);
    let output = Vm::new()
        .disk(image.path())
        .run("mount -t f2fs /dev/vda /mnt\ncat /mnt/kept\ncat /mnt/gone; exit 7");
    assert_eq!(
        (output.status, output.text.starts_with("kept\n")),
        (Some(1), true),
        "{}",
        output.describe()
    );
    assert!(output.console.contains("F2FS-fs (vda): Mounted"), "{}", output.describe());
}

/// A kernel that stops in its boot is started again, and the message has what each boot printed.
#[test]
fn a_machine_that_does_not_boot_is_started_again_and_then_given_up() {
    let mut vm = Vm::new();
    vm.boot_limit = Duration::from_millis(1);
    let refused = std::panic::catch_unwind(|| vm.run("true")).unwrap_err();
    let message = refused.downcast_ref::<String>().unwrap();
    assert!(message.starts_with("the machine did not boot in 3 attempts of 1ms"), "{message}");
    assert!(message.contains("--- boot 2: "), "{message}");
}
