//! Sizes with other numbers of descriptor blocks, to which resize2fs comes, too. The blocks of
//! descriptors that go are reserved or free. Where none is reserved for more, the descriptors of
//! new groups lie in these (meta_bg), as in volumes that Linux grows.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_ext4::tune::{TuneOptions, tune};
use cairn_testkit::crash::{Recording, read_image, write_image};
use cairn_testkit::judge::{self, KernelMount};
use cairn_testkit::tree::{SnapshotOptions, digest_path};

use crate::checked::assert_clean;
use crate::resize::{
    MIB, assert_repaired, digest, filled, least_of, on_larger, resized, shortened, size_of,
};
use crate::support;

/// Shapes with several descriptor blocks, and their sizes in MiB.
const SEVERAL: [(&[&str], u64); 5] = [
    (&["-t", "ext4", "-b", "1024"], 300),
    (&["-t", "ext4", "-b", "1024", "-O", "^resize_inode"], 300),
    (&["-t", "ext4", "-b", "1024", "-E", "resize=400000", "-g", "1024"], 60),
    (&["-t", "ext3", "-b", "1024", "-g", "2048"], 100),
    (&["-t", "ext4", "-b", "1024", "-O", "^flex_bg,^metadata_csum,^64bit,uninit_bg"], 600),
];

fn dump(image: &std::path::Path, name: &str) -> u64 {
    let text = judge::run("dumpe2fs", ["-h".as_ref(), image.as_os_str()]);
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |value| value.trim().parse().unwrap())
}

#[test]
fn a_volume_becomes_smaller_by_blocks_of_descriptors() {
    for (shape, size) in SEVERAL {
        let image = tempfile::NamedTempFile::new().unwrap();
        let mut device = filled(size * MIB, shape, 7);
        let expected = digest(&device);
        write_image(&device, image.path()).unwrap();
        let reserved = dump(image.path(), "Reserved GDT blocks:");
        let least = least_of(&device);
        let done = resized(&device, least).unwrap();
        assert!(done.after <= least && done.after < done.before / 2, "{shape:?}: {done:?}");
        device = Arc::new(shortened(&device, done.after));
        support::judge(&device);
        digest(&device).assert_same(&expected);
        write_image(&device, image.path()).unwrap();
        let now = dump(image.path(), "Reserved GDT blocks:");
        assert!(now >= reserved && now <= 256, "{shape:?}: {reserved} to {now} reserved blocks");
        // resize2fs makes it no smaller than a quarter of what is left, or as small.
        judge::run("e2fsck", ["-fy", image.path().to_str().unwrap()]);
        judge::run("resize2fs", ["-M", image.path().to_str().unwrap()]);
        let theirs = std::fs::metadata(image.path()).unwrap().len();
        println!("{shape:?}: {} of {size} MiB, {} by resize2fs", done.after / MIB, theirs / MIB);
        // And back.
        device = Arc::new(on_larger(&device, size * MIB));
        resized(&device, size * MIB).unwrap();
        support::judge(&device);
        digest(&device).assert_same(&expected);
    }
}

/// Growth beyond the reserved blocks.
#[test]
fn a_volume_grows_where_no_descriptors_are_reserved() {
    let rows: [(&[&str], u64, &[u64]); 4] = [
        (&["-t", "ext4", "-b", "1024", "-O", "^resize_inode"], 20, &[100, 300]),
        (&["-t", "ext4", "-b", "1024", "-E", "resize=300000"], 10, &[400]),
        // The inode of the reserved blocks lies in the group that grows.
        (&["-t", "ext4", "-b", "1024", "-E", "resize=300000", "-J", "size=1"], 7, &[700]),
        (&["-t", "ext2", "-b", "1024", "-O", "^resize_inode"], 20, &[600]),
    ];
    for (number, (shape, start, steps)) in (0..).zip(rows) {
        let image = tempfile::NamedTempFile::new().unwrap();
        let mut device = filled(start * MIB, shape, number);
        let expected = digest(&device);
        for size in steps {
            device = Arc::new(on_larger(&device, size * MIB));
            let done = resized(&device, size * MIB).unwrap();
            assert!(done.after + 8 * MIB > size * MIB, "{shape:?}: {done:?}");
            support::judge(&device);
            digest(&device).assert_same(&expected);
        }
        write_image(&device, image.path()).unwrap();
        let features = judge::dumpe2fs(image.path());
        assert!(features.contains("meta_bg") && !features.contains("resize_inode"), "{shape:?}");
        let kernel = KernelMount::new(image.path(), "");
        std::fs::write(kernel.path().join("large"), vec![7; 40 << 20]).unwrap();
        std::fs::remove_file(kernel.path().join("large")).unwrap();
        let seen = digest_path(kernel.path(), SnapshotOptions::default()).unwrap();
        kernel.unmount();
        seen.without_fact("mtime", |path, _| path.is_empty())
            .assert_same(&expected.without_fact("mtime", |path, _| path.is_empty()));
        assert_clean(image.path());
    }
}

/// A volume whose journal is small against its reserved blocks.
#[test]
fn small_volumes_with_many_reserved_blocks_grow_and_shrink() {
    let mut device = filled(31 * MIB, &["-t", "ext4", "-b", "1024"], 3);
    let expected = digest(&device);
    for size in [200, 90, 31, 5] {
        device = Arc::new(on_larger(&device, (size * MIB).max(size_of(&device))));
        let size = (size * MIB).max(if size < 31 { least_of(&device) } else { 0 });
        let done = resized(&device, size).unwrap();
        device = Arc::new(shortened(&device, done.after));
        support::judge(&device);
        digest(&device).assert_same(&expected);
    }
}

#[test]
fn a_power_cut_leaves_one_of_the_numbers_of_descriptors() {
    let deep = std::env::var_os("CAIRN_DEEP").is_some();
    let grows = filled(20 * MIB, &["-t", "ext4", "-b", "1024", "-E", "resize=300000"], 5);
    let shrinks = filled(SEVERAL[0].1 * MIB, SEVERAL[0].0, 5);
    let least = least_of(&shrinks);
    for (before, size) in [(Arc::new(on_larger(&grows, 400 * MIB)), 400 * MIB), (shrinks, least)] {
        let expected = digest(&before);
        let recording = Recording::start(before.fork());
        let runtime = Arc::new(Threads::new());
        let done = cairn_ext4::resize::resize(recording.device(), runtime, size).unwrap();
        let log = recording.finish();
        let mut cuts = log.barrier_cuts();
        let every = if deep { 1 } else { cuts.len().div_ceil(8) };
        cuts = cuts.into_iter().step_by(every).collect();
        cuts.extend(log.random_cuts(if deep { 100 } else { 3 }, 19));
        let image = tempfile::NamedTempFile::new().unwrap();
        for cut in cuts {
            let state: Arc<MemoryDevice> = Arc::new(log.device(cut));
            assert_repaired(&state, &expected);
            write_image(&state, image.path()).unwrap();
            let verdict = judge::e2fsck_preen(image.path());
            assert!(verdict.status <= 1, "{size}, {cut}: {}", verdict.output);
            assert_clean(image.path());
            let found = size_of(&Arc::new(read_image(image.path()).unwrap()));
            let between = done.before.min(done.after)..=done.before.max(done.after);
            assert!(between.contains(&found), "{size}, {cut}: {found}");
            // A cut while the journal moves costs the journal.
            let repaired = Arc::new(read_image(image.path()).unwrap());
            let journal =
                TuneOptions { features: vec!["has_journal".into()], ..TuneOptions::default() };
            tune(repaired.clone(), Arc::new(Threads::new()), &journal).unwrap();
            let grows = done.after > done.before;
            let wanted = if grows { size } else { size.max(least_of(&repaired)) };
            resized(&repaired, wanted).unwrap();
            support::judge(&repaired);
            digest(&repaired).assert_same(&expected);
        }
    }
}
