//! Options, sources and digests.

use std::path::Path;

use cairn::{Format, ImageSpec, OpenOptions};
use cairn_build::{Built, Error, Free, Options, Rules, Shape, Size, Source, build};
use cairn_testkit::judge;
use cairn_testkit::tree::{
    PathTarget, Snapshot, SnapshotOptions, TreeSpec, digest_volume, plan, with_extremes,
};
use cairn_vfs::Timestamp;

/// 2023-11-14: the time of every volume, so that e2fsck finds no time in the future.
pub const TIME: i64 = 1_700_000_000;

pub const FORMATS: [Format; 2] = [Format::Ext4, Format::F2fs];

pub fn options(format: Format, output: &Path, sources: &[&str]) -> Options {
    Options {
        output: output.to_owned(),
        sources: sources.iter().map(|name| Source { name: name.into(), platform: None }).collect(),
        format,
        size: Size::Auto,
        free: Free::Bytes(0),
        label: None,
        uuid: None,
        features: Vec::new(),
        casefold: None,
        inodes: None,
        reserved_percent: 0.0,
        rules: Rules::default(),
        time: Some(TIME),
        now: Timestamp { seconds: TIME, nanoseconds: 0 },
        overwrite: true,
        shape: Shape::Raw,
        dig_holes: false,
        tuning: cairn::Tuning::default(),
        root_owner: None,
        read_only: false,
        disk: None,
    }
}

/// Builds with the defaults.
#[track_caller]
pub fn built(format: Format, output: &Path, sources: &[&str]) -> Built {
    build(options(format, output, sources)).unwrap_or_else(|error| panic!("{sources:?}: {error}"))
}

/// The error of a build, which leaves nothing behind.
#[track_caller]
pub fn refused(format: Format, output: &Path, sources: &[&str]) -> String {
    let error: Error = build(options(format, output, sources)).expect_err("it must be refused");
    let left: Vec<_> = std::fs::read_dir(output.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(output.file_name().unwrap().to_str().unwrap()))
        .collect();
    assert!(left.is_empty(), "{left:?} is left after {error}");
    error.to_string()
}

pub fn check(format: Format, image: &Path) {
    match format {
        Format::Ext4 => judge::assert_clean(image),
        _ => judge::assert_f2fs_clean(image),
    }
}

/// What a volume holds, as compared with trees of the host.
pub fn digest(image: &Path) -> Snapshot {
    let volume = cairn::open(&ImageSpec::whole(image), &OpenOptions::read_only()).unwrap();
    let snapshot = digest_volume(&**volume.filesystem(), SnapshotOptions::default()).unwrap();
    volume.filesystem().unmount().unwrap();
    snapshot.without(b"lost+found")
}

/// Without what depends on `lost+found`.
pub fn comparable(snapshot: Snapshot) -> Snapshot {
    snapshot.without(b"lost+found").without_fact("links", |path, _| path.is_empty())
}

/// A seeded tree in a directory.
pub fn seeded(at: &Path, spec: &TreeSpec) {
    std::fs::create_dir(at).unwrap();
    cairn_testkit::tree::build(&PathTarget::new(at), &plan(spec));
}

/// As [`seeded`], with attributes at the limits.
pub fn extreme(at: &Path, spec: &TreeSpec) {
    std::fs::create_dir(at).unwrap();
    let steps = with_extremes(plan(spec), spec.seed);
    cairn_testkit::tree::build(&PathTarget::new(at), &steps);
}

/// Seeds of a test: many with `CAIRN_DEEP`.
pub fn seeds(few: u64) -> std::ops::Range<u64> {
    0..if std::env::var_os("CAIRN_DEEP").is_some() { few * 20 } else { few }
}
