//! Test suites of other projects.

use cairn_testkit::deep;
use cairn_testkit::judge::KernelMount;
use cairn_testkit::modes::MODES;
use cairn_testkit::suites::{fsx, pjdfstest, worse};

use crate::fixture::{Volume, transports};

#[test]
fn pjdfstest_agrees_with_the_kernel() {
    let judged = Volume::make(64 << 20, &[]);
    let kernel = KernelMount::new(&judged.image(), "");
    let expected = pjdfstest(kernel.path());
    kernel.unmount();
    for transport in transports() {
        let mut volume = Volume::mounted(64 << 20, transport);
        let found = pjdfstest(&volume.root());
        volume.unmount();
        let worse = worse(&expected, &found);
        assert!(worse.is_empty(), "pass on the kernel's ext4, not here ({transport}): {worse:#?}");
    }
}

#[test]
fn pjdfstest_finds_nothing_on_f2fs_that_the_kernels_ext4_does_not_fail() {
    let judged = Volume::make(64 << 20, &[]);
    let kernel = KernelMount::new(&judged.image(), "");
    let expected = pjdfstest(kernel.path());
    kernel.unmount();
    for mode in &MODES {
        let mut volume = Volume::worn(16, mode);
        let found = pjdfstest(&volume.root());
        volume.unmount();
        let worse = worse(&expected, &found);
        assert!(worse.is_empty(), "pass on the kernel's ext4, not here ({mode:?}): {worse:#?}");
    }
}

/// On a volume whose sections are cleaned during the run.
#[test]
fn fsx_finds_no_difference_on_f2fs_in_any_mode() {
    let operations = if deep() { 500_000 } else { 8_000 };
    for (seed, mode) in (11..).zip(&MODES) {
        let mut volume = Volume::worn(8, mode);
        fsx(&volume.path("fsx"), operations, seed);
        volume.unmount();
        volume.assert_reused();
    }
}

#[test]
fn fsx_finds_no_difference_on_f2fs() {
    let operations = if deep() { 500_000 } else { 15_000 };
    // Changes without checkpoints exist until the unmount, and do not overwrite the contents of the
    // last checkpoint.
    for (options, operations) in [("", operations), ("checkpoint=disable:100%", operations / 10)] {
        let mut volume = Volume::f2fs(256 << 20, options);
        fsx(&volume.path("fsx"), operations, 5);
        volume.remount();
        assert_eq!(volume.path("fsx").exists(), options.is_empty(), "{options}");
        volume.unmount();
    }
}

/// Two files at once on each mount, with and without the kernel's write-back cache, and on each
/// transport.
#[test]
fn fsx_finds_no_difference() {
    let operations = if deep() { 500_000 } else { 15_000 };
    let ways = [("", [1, 2]), ("nowriteback_cache", [3, 4])].into_iter();
    for (options, seeds) in ways.chain(transports().into_iter().skip(1).zip([[5, 6]])) {
        let mut volume = Volume::mounted(256 << 20, options);
        std::thread::scope(|scope| {
            for seed in seeds {
                let file = volume.path(&format!("fsx{seed}"));
                scope.spawn(move || fsx(&file, operations, seed));
            }
        });
        volume.unmount();
    }
}
