//! Superblock and journal of a volume change as tune2fs would change them: dumpe2fs shows it,
//! e2fsck finds nothing, the kernel mounts it, and a power cut costs no file.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_ext4::tune::{OnErrors, Reserved, TuneOptions, tune};
use cairn_testkit::crash::{Recording, read_image, write_image};
use cairn_testkit::judge::{self, KernelMount};
use cairn_testkit::tree::{
    Snapshot, SnapshotOptions, TreeSpec, VolumeTarget, build, digest_volume, plan,
};
use cairn_vfs::FileSystem;

use crate::checked::assert_clean;
use crate::support::{self, open, volume};

const MIB: u64 = 1 << 20;
const EXT4: &[&str] = &["-t", "ext4", "-b", "4096"];

/// A volume with files, at rest.
fn filled(size: u64, mke2fs: &[&str]) -> (Arc<MemoryDevice>, Snapshot) {
    let device = volume(size, mke2fs);
    let volume = open(&device, "");
    let spec = TreeSpec { size_max: 50_000, ..TreeSpec::small(9) };
    build(&VolumeTarget::new(&*volume), &plan(&spec));
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

fn tuned(device: Arc<dyn BlockDevice>, options: &TuneOptions) -> cairn_ext4::Result<()> {
    tune(device, Arc::new(Threads::new()), options)
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

/// What dumpe2fs says behind a key.
fn said(image: &Path, key: &str) -> String {
    let text = judge::run("dumpe2fs", ["-h".as_ref(), image.as_os_str()]);
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {key} in {text}")).trim().to_owned()
}

#[test]
fn dumpe2fs_shows_each_change() {
    let (device, expected) = filled(64 * MIB, EXT4);
    let uuid = "12345678-1234-4234-8234-123456789abc";
    tuned(
        device.clone(),
        &TuneOptions {
            label: Some("sixteen letters.".into()),
            uuid: Some(uuid.parse().unwrap()),
            reserved: Some(Reserved::Blocks(77)),
            reserved_uid: Some(1234),
            reserved_gid: Some(7),
            errors: Some(OnErrors::RemountReadOnly),
            max_mounts: Some(30),
            mounts: Some(4),
            check_interval: Some(86_400 * 7),
            last_check: Some(1_700_000_000),
            mount_options: words(&["^acl", "discard", "journal_data_writeback"]),
            stride: Some(16),
            stripe_width: Some(48),
            features: words(&["metadata_csum_seed", "large_dir", "read-only"]),
            journal_size: None,
        },
    )
    .unwrap();
    let image = tempfile::NamedTempFile::new().unwrap();
    let image = image.path();
    write_image(&device, image).unwrap();
    assert_clean(image);
    for (key, value) in [
        ("Filesystem volume name", "sixteen letters."),
        ("Filesystem UUID", uuid),
        ("Reserved block count", "77"),
        ("Reserved blocks uid", "1234 (user unknown)"),
        ("Reserved blocks gid", "7 (group lp)"),
        ("Maximum mount count", "30"),
        ("Mount count", "4"),
        ("Check interval", "604800 (1 week)"),
        ("Default mount options", "journal_data_writeback user_xattr discard"),
        ("RAID stride", "16"),
        ("RAID stripe width", "48"),
    ] {
        assert_eq!(said(image, key), value, "{key}");
    }
    assert!(judge::dumpe2fs(image).contains("Remount read-only"));
    let features = said(image, "Filesystem features");
    for name in ["metadata_csum_seed", "large_dir", "read-only"] {
        assert!(features.contains(name), "{features}");
    }
    // The backup in group 1 is the same. (A volume of 64 MiB has none: see the next test.)
    digest_read_only(&device).assert_same(&expected);
    KernelMount::new(image, "ro").unmount();
    let back = TuneOptions { features: words(&["^read-only"]), ..TuneOptions::default() };
    tuned(device.clone(), &back).unwrap();
    digest(&device).assert_same(&expected);
    write_image(&device, image).unwrap();
    KernelMount::new(image, "").unmount();
    assert_clean(image);
}

fn digest_read_only(device: &Arc<MemoryDevice>) -> Snapshot {
    let volume = open(device, "ro");
    let digest = digest_volume(&*volume, SnapshotOptions::default()).unwrap();
    volume.unmount().unwrap();
    digest
}

#[test]
fn backups_follow() {
    let (device, _) = filled(30 * MIB, &["-t", "ext4", "-b", "1024"]);
    let options = TuneOptions { label: Some("new".into()), ..TuneOptions::default() };
    tuned(device.clone(), &options).unwrap();
    let image = tempfile::NamedTempFile::new().unwrap();
    write_image(&device, image.path()).unwrap();
    let args = ["-h", "-o", "superblock=8193", "-o", "blocksize=1024"].map(Into::into);
    let args = args.into_iter().chain([image.path().as_os_str().to_owned()]);
    let text = judge::run("dumpe2fs", args);
    assert!(text.contains("volume name:   new"), "{text}");
}

/// Journals that come, go and change, on each kind of volume. Free blocks are as before in the end.
#[test]
fn a_journal_comes_goes_and_changes_its_size() {
    let shapes: [&[&str]; 4] = [
        EXT4,
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^64bit,uninit_bg"],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext4", "-b", "4096", "-O", "fast_commit,^orphan_file"],
    ];
    let image = tempfile::NamedTempFile::new().unwrap();
    let image = image.path();
    for shape in shapes {
        let (device, expected) = filled(64 * MIB, shape);
        let mut free = None;
        let steps =
            [(None, Some(9 * MIB)), (Some(false), None), (Some(true), None), (None, Some(5 * MIB))];
        for (feature, size) in steps {
            let features = feature.map(|on| if on { "has_journal" } else { "^has_journal" });
            let options = TuneOptions {
                features: features.iter().map(|name| (*name).to_owned()).collect(),
                journal_size: size,
                ..TuneOptions::default()
            };
            tuned(device.clone(), &options).unwrap();
            println!("{shape:?}, {feature:?}, {size:?}");
            write_image(&device, image).unwrap();
            assert_clean(image);
            let has = said(image, "Filesystem features").contains("has_journal");
            assert_eq!(has, feature != Some(false));
            if let Some(size) = size {
                let bytes = said(image, "Block size").parse::<u64>().unwrap()
                    * said(image, "Total journal blocks").parse::<u64>().unwrap();
                assert_eq!(bytes, size, "{shape:?}");
            }
            if feature == Some(false) {
                free = Some(said(image, "Free blocks"));
            }
            digest(&device).assert_same(&expected);
            write_image(&device, image).unwrap();
            let kernel = KernelMount::new(image, "");
            std::fs::write(kernel.path().join("more"), "x").unwrap();
            std::fs::remove_file(kernel.path().join("more")).unwrap();
            kernel.unmount();
            assert_clean(image);
        }
        let gone = TuneOptions { features: words(&["^has_journal"]), ..TuneOptions::default() };
        tuned(device.clone(), &gone).unwrap();
        write_image(&device, image).unwrap();
        assert_eq!(Some(said(image, "Free blocks")), free, "{shape:?}: blocks are lost");
    }
}

/// Changes that are interrupted.
fn changes() -> [TuneOptions; 3] {
    [
        TuneOptions {
            label: Some("new".into()),
            uuid: Some(uuid_of(7)),
            features: words(&["metadata_csum_seed"]),
            ..TuneOptions::default()
        },
        TuneOptions { features: words(&["^has_journal"]), ..TuneOptions::default() },
        TuneOptions { journal_size: Some(6 * MIB), ..TuneOptions::default() },
    ]
}

/// What an interrupted change has left: e2fsck makes it clean, and it can be changed again.
fn check_left(state: &MemoryDevice, options: &TuneOptions, expected: &Snapshot, named: &str) {
    let image = tempfile::NamedTempFile::new().unwrap();
    write_image(state, image.path()).unwrap();
    let verdict = judge::e2fsck_preen(image.path());
    assert!(verdict.status <= 1, "{named}: {}", verdict.output);
    assert_clean(image.path());
    let repaired = Arc::new(read_image(image.path()).unwrap());
    digest(&repaired).assert_same(expected);
    tuned(repaired.clone(), options).unwrap();
    support::judge(&repaired);
}

#[test]
fn a_power_cut_costs_no_file() {
    let random = if std::env::var_os("CAIRN_DEEP").is_some() { 200 } else { 4 };
    for options in changes() {
        let (before, expected) = filled(24 * MIB, EXT4);
        let recording = Recording::start(before.fork());
        tuned(recording.device(), &options).unwrap();
        let log = recording.finish();
        let mut cuts = log.barrier_cuts();
        cuts.extend(log.random_cuts(random, 5));
        let moves_journal = options.journal_size.is_some() || options.label.is_none();
        for cut in cuts {
            let state = Arc::new(log.device(cut));
            let named = cut.to_string();
            let finished = Arc::new(state.fork());
            check_left(&state, &options, &expected, &named);
            if !moves_journal {
                support::judge(&state);
            }
            // What Cairn begins it finishes, without e2fsck.
            let volume = open(&finished, "");
            let seen = digest_volume(&*volume, SnapshotOptions::default()).unwrap();
            volume.unmount().unwrap();
            support::judge(&finished);
            seen.assert_same(&expected);
        }
    }
}

/// Every write and every flush fails in turn, and all later ones.
#[test]
fn a_write_that_fails_costs_no_file() {
    let deep = std::env::var_os("CAIRN_DEEP").is_some();
    for options in changes() {
        let (before, expected) = filled(24 * MIB, EXT4);
        for operation in [Operation::Write, Operation::Flush] {
            let counted = Arc::new(Fault::new(Arc::new(before.fork())));
            tuned(counted.clone(), &options).unwrap();
            let count = counted.count(operation);
            let step = if deep { 1 } else { count.div_ceil(6) };
            for nth in (1..=count).step_by(usize::try_from(step).unwrap()) {
                let named = format!("{operation:?} {nth} of {count} fails");
                let state = Arc::new(before.fork());
                let fault = Arc::new(Fault::new(state.clone()));
                fault.fail(operation, nth, Lasting::Forever);
                assert!(tuned(fault, &options).is_err(), "{named}");
                check_left(&state, &options, &expected, &named);
            }
        }
    }
}

fn uuid_of(number: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(number)
}

#[test]
fn what_a_volume_cannot_have_is_refused_and_nothing_is_written() {
    let no_seed: &[&str] = &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum_seed"];
    let uninit: &[&str] = &["-t", "ext4", "-O", "^metadata_csum,^metadata_csum_seed,uninit_bg"];
    let features = |list: &[&str]| TuneOptions { features: words(list), ..TuneOptions::default() };
    let uuid = TuneOptions { uuid: Some(uuid_of(1)), ..TuneOptions::default() };
    let journal = |size| TuneOptions { journal_size: Some(size), ..TuneOptions::default() };
    let label = TuneOptions { label: Some("seventeen letters".into()), ..TuneOptions::default() };
    let reserved =
        TuneOptions { reserved: Some(Reserved::Percent(60.0)), ..TuneOptions::default() };
    let mount = TuneOptions { mount_options: words(&["acls"]), ..TuneOptions::default() };
    let rows = [
        (no_seed, uuid.clone(), "feature metadata_csum_seed"),
        (uninit, uuid, "uninit_bg"),
        (EXT4, features(&["^metadata_csum"]), "without a rewrite"),
        (EXT4, features(&["^large_file"]), "files may use it"),
        (EXT4, features(&["large_dirs"]), "`large_dir`"),
        (EXT4, journal(MIB), "1024 to"),
        (EXT4, journal(300 * MIB), "1024 to"),
        (EXT4, TuneOptions { journal_size: Some(5 * MIB), ..features(&["^has_journal"]) }, "size"),
        (EXT4, label, "at most 16"),
        (EXT4, reserved, "0 to 50"),
        (EXT4, mount, "`acl`"),
        (&["-t", "ext4", "-O", "mmp"], features(&["read-only"]), "mmp"),
    ];
    for (shape, options, wanted) in rows {
        let recording = Recording::start(volume(64 * MIB, shape).fork());
        let error = tuned(recording.device(), &options).expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{error}");
        assert_eq!(recording.finish().flushes(), 0, "{wanted}: something was written");
    }
}
