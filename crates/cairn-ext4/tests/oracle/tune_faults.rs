//! A journal comes, goes or changes its size on a device that fails: at each write, zeroing and
//! flush, once and for ever. The volume has the old state or the new one, clean, and the error says
//! which; only where nothing can be written any more, e2fsck is needed, and costs no file.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_ext4::tune::{TuneOptions, tune};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{self, KernelMount};
use cairn_testkit::tree::{
    Snapshot, SnapshotOptions, TreeSpec, VolumeTarget, build, digest_volume, plan,
};
use cairn_vfs::FileSystem;

use crate::support::{open, volume};

const MIB: u64 = 1 << 20;
const ORPHANS: &[&str] = &["-t", "ext4", "-b", "4096", "-O", "orphan_file"];
const BARE: &[&str] = &["-t", "ext4", "-b", "4096", "-O", "^has_journal"];

fn filled(mke2fs: &[&str]) -> (Arc<MemoryDevice>, Snapshot) {
    let device = volume(16 * MIB, mke2fs);
    let volume = open(&device, "");
    build(&VolumeTarget::new(&*volume), &plan(&TreeSpec::small(3)));
    volume.unmount().unwrap();
    let digest = digest(&device);
    (device, digest)
}

fn digest(device: &Arc<MemoryDevice>) -> Snapshot {
    let volume = open(device, "");
    let digest = digest_volume(&*volume, SnapshotOptions::default()).unwrap();
    volume.unmount().unwrap();
    digest
}

fn features(image: &Path) -> String {
    let text = judge::run("dumpe2fs", ["-h".as_ref(), image.as_os_str()]);
    text.lines().find(|line| line.starts_with("Filesystem features")).unwrap().to_owned()
}

fn with_features(list: &[&str]) -> TuneOptions {
    let features = list.iter().map(|word| (*word).to_owned()).collect();
    TuneOptions { features, ..TuneOptions::default() }
}

/// What has become of a volume whose change has failed.
fn judged(state: &Arc<MemoryDevice>, before: &str, said: &str, lasting: Lasting, image: &Path) {
    write_image(state, image).unwrap();
    if said.contains("not clean") {
        assert_eq!(lasting, Lasting::Forever, "{said}");
        let verdict = judge::e2fsck_preen(image);
        assert!(verdict.status <= 1, "{said}: {}", verdict.output);
        // e2fsck 1.47.0 frees the orphan file of a volume without a journal, and its number only
        // when it runs once more.
        let again = judge::command("e2fsck").arg("-fy").arg(image).output().unwrap();
        assert!(again.status.code().is_some_and(|code| code <= 1), "{said}: {again:?}");
    } else if !said.contains("is changed") {
        // The orphan file goes first.
        let kept = features(image).replace(" orphan_file", "");
        assert_eq!(kept, before.replace(" orphan_file", ""), "{said}");
    }
    judge::assert_clean(image);
}

#[test]
fn a_change_of_the_journal_happens_or_not_and_the_error_says_so() {
    let image = tempfile::NamedTempFile::new().unwrap();
    let image = image.path();
    let size = TuneOptions { journal_size: Some(6 * MIB), ..TuneOptions::default() };
    let changes = [
        (ORPHANS, size),
        (ORPHANS, with_features(&["^has_journal"])),
        (BARE, with_features(&["has_journal"])),
    ];
    for (shape, options) in changes {
        let (before, expected) = filled(shape);
        write_image(&before, image).unwrap();
        let features = features(image);
        for operation in [Operation::Write, Operation::Discard, Operation::Flush] {
            for lasting in [Lasting::Once, Lasting::Forever] {
                for n in 1.. {
                    let state = Arc::new(before.fork());
                    let fault = Arc::new(Fault::new(state.clone()));
                    fault.fail(operation, n, lasting);
                    let done = tune(fault.clone(), Arc::new(Threads::new()), &options);
                    let hit = fault.count(operation) >= n;
                    match done {
                        Ok(()) if hit => panic!("{operation:?} {n} {lasting:?}: no error"),
                        Ok(()) => break,
                        Err(error) => {
                            let said = error.to_string();
                            println!("{operation:?} {n} {lasting:?}: {said}");
                            judged(&state, &features, &said, lasting, image);
                            let state = Arc::new(read_image(image).unwrap());
                            digest(&state).assert_same(&expected);
                        }
                    }
                }
            }
        }
    }
}

/// tune2fs 1.47.0 leaves the orphan file, which e2fsck then complains of; a later one removes it.
#[test]
fn the_orphan_file_goes_with_the_journal_or_alone() {
    let image = tempfile::NamedTempFile::new().unwrap();
    let image = image.path();
    let inodes = |image: &Path| judge::dumpe2fs(image);
    let (before, expected) = filled(ORPHANS);
    for wish in [&["^has_journal"][..], &["^orphan_file"], &["^has_journal", "^orphan_file"]] {
        let state = Arc::new(before.fork());
        tune(state.clone(), Arc::new(Threads::new()), &with_features(wish)).unwrap();
        write_image(&state, image).unwrap();
        let said = features(image);
        assert!(!said.contains("orphan_file"), "{said}");
        assert_eq!(said.contains("has_journal"), wish == ["^orphan_file"], "{said}");
        judge::assert_clean(image);
        digest(&state).assert_same(&expected);
        let kernel = KernelMount::new(image, "");
        std::fs::write(kernel.path().join("more"), "x").unwrap();
        kernel.unmount();
        judge::assert_clean(image);
        assert!(!inodes(image).contains("Orphan file inode"));
    }
    // A volume that tune2fs has left so.
    write_image(&before, image).unwrap();
    judge::run("tune2fs", ["-O", "^has_journal", image.to_str().unwrap()]);
    let state = Arc::new(read_image(image).unwrap());
    tune(state.clone(), Arc::new(Threads::new()), &with_features(&["^orphan_file"])).unwrap();
    write_image(&state, image).unwrap();
    judge::assert_clean(image);
    digest(&state).assert_same(&expected);
    let error =
        tune(state, Arc::new(Threads::new()), &with_features(&["orphan_file"])).unwrap_err();
    assert!(error.to_string().contains("can only be removed"), "{error}");
}
