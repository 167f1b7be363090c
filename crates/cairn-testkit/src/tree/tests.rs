use super::*;
use crate::judge;
use crate::model::Model;

fn spec(seed: u64) -> TreeSpec {
    TreeSpec { privileged: judge::is_root(), ..TreeSpec::small(seed) }
}

fn built(spec: &TreeSpec) -> (tempfile::TempDir, Snapshot) {
    let directory = tempfile::tempdir().unwrap();
    build(&PathTarget::new(directory.path()), &plan(spec));
    // The root's time is that of the last created entry.
    let options = SnapshotOptions { times: false, ..Default::default() };
    let snapshot = digest_path(directory.path(), options).unwrap();
    (directory, snapshot)
}

#[test]
fn one_seed_is_one_tree() {
    // A host's filesystem such as tmpfs may refuse user attributes.
    let spec = TreeSpec { xattrs: false, ..spec(7) };
    let ((_a, first), (_b, second)) = (built(&spec), built(&spec));
    first.assert_same(&second);
    assert_eq!(first.sha256(), second.sha256());
    assert!(first.len() > 48, "{}", first.len());
}

#[test]
fn other_seeds_are_other_trees() {
    assert_ne!(plan(&spec(1)), plan(&spec(2)));
}

#[test]
fn every_kind_of_step_occurs() {
    let steps: Vec<_> = (0..4).flat_map(|seed| plan(&TreeSpec::small(seed))).collect();
    let count = |test: fn(&Step) -> bool| steps.iter().filter(|step| test(step)).count();
    assert!(count(|step| matches!(step, Step::HardLink(..))) > 0);
    assert!(count(|step| matches!(step, Step::Symlink(_, target) if target.len() > 60)) > 0);
    assert!(count(|step| matches!(step, Step::Symlink(_, target) if target.len() < 60)) > 0);
    assert!(count(|step| matches!(step, Step::Device(_, true, ..))) > 0);
    assert!(count(|step| matches!(step, Step::Device(_, false, ..))) > 0);
    assert!(count(|step| matches!(step, Step::Fifo(_))) > 0);
    assert!(count(|step| matches!(step, Step::File(_, content) if content.data.len() > 1)) > 0);
    assert!(count(|step| matches!(step, Step::Xattr(..))) > 0);
}

#[test]
fn a_changed_byte_mode_or_name_is_a_difference() {
    let spec = TreeSpec { xattrs: false, ..spec(3) };
    let (directory, before) = built(&spec);
    let file = plan(&spec)
        .into_iter()
        .find_map(|step| match step {
            Step::File(path, content) if content.size > 0 => Some(path),
            _ => None,
        })
        .unwrap();
    let path = directory.path().join(String::from_utf8(file.clone()).unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let options = SnapshotOptions { times: false, ..Default::default() };
    let after = digest_path(directory.path(), options).unwrap();
    assert_ne!(before, after);
    assert!(before.diff(&after).contains(&file.escape_ascii().to_string()));
}

#[test]
fn the_kernel_holds_a_whole_tree() {
    assert!(judge::is_root(), "this test needs root, for loop devices: run it with sudo");
    let image = tempfile::NamedTempFile::new().unwrap();
    judge::mke2fs(image.path(), 64 << 20, &["-t", "ext4"]);
    let mount = judge::KernelMount::new(image.path(), "");
    build(&PathTarget::new(mount.path()), &plan(&TreeSpec::small(11)));
    let written = digest_path(mount.path(), SnapshotOptions::default()).unwrap();
    mount.unmount();
    judge::assert_clean(image.path());
    let mount = judge::KernelMount::new(image.path(), "ro");
    written.assert_same(&digest_path(mount.path(), SnapshotOptions::default()).unwrap());
}

/// The two builders and the two walkers agree, and the oracle with the kernel.
#[test]
fn a_volume_holds_what_the_kernel_holds() {
    assert!(judge::is_root(), "this test needs root, for loop devices: run it with sudo");
    let image = tempfile::NamedTempFile::new().unwrap();
    judge::mke2fs(image.path(), 64 << 20, &["-t", "ext4"]);
    let mount = judge::KernelMount::new(image.path(), "");
    // Everything but the times of the roots, which are those of the last created entry.
    let below = |snapshot: Snapshot| snapshot.without(b"");
    for seed in 0..3 {
        let steps = plan(&TreeSpec::small(seed));
        let directory = mount.path().join(format!("tree{seed}"));
        std::fs::create_dir(&directory).unwrap();
        build(&PathTarget::new(&directory), &steps);
        let kernel = digest_path(&directory, SnapshotOptions::default()).unwrap();
        let model = Model::new();
        build(&VolumeTarget::new(&model), &steps);
        let volume = digest_volume(&model, SnapshotOptions::default()).unwrap();
        below(kernel).assert_same(&below(volume));
    }
}

#[test]
fn synced_changes_are_the_same_on_a_host_and_on_a_volume() {
    let options = SnapshotOptions { times: false, ..Default::default() };
    for seed in 0..3 {
        let Synced { before, changes, loose } = Synced::new(seed);
        let host = tempfile::tempdir().unwrap();
        let model = Model::new();
        for steps in [&before, &changes, &loose] {
            build(&PathTarget::new(host.path()), steps);
            build(&VolumeTarget::new(&model), steps);
        }
        let left = digest_path(host.path(), options).unwrap().without(b"");
        left.assert_same(&digest_volume(&model, options).unwrap().without(b""));
        assert!(left.get(b"dir/second").unwrap().contains("links=2"), "seed {seed}");
    }
}

#[test]
fn times_of_directories_can_be_left_out() {
    let line = |time: u32, path: &str| {
        Snapshot::parse(&format!("{}\tDirectory 0755 mtime={time}.0\n", hex(path))).unwrap()
    };
    assert_ne!(line(1, "d"), line(2, "d"));
    let without = |time, path| line(time, path).without_times_of_directories_and(b"x");
    assert_eq!(without(1, "d"), without(2, "d"));
    let file = |time: u32, path: &str| {
        Snapshot::parse(&format!("{}\tRegular 0644 mtime={time}.0\n", hex(path))).unwrap()
    };
    let without = |time, path| file(time, path).without_times_of_directories_and(b"x");
    assert_eq!(without(1, "x/f"), without(2, "x/f"));
    assert_ne!(without(1, "xf"), without(2, "xf"));
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}
