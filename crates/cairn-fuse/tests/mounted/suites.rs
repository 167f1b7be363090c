//! Test suites of other projects, on the model.

use cairn_fuse::MountOptions;
use cairn_testkit::judge::{self, KernelMount};
use cairn_testkit::suites::{fsx, pjdfstest, worse};

use crate::fixture::{Mounted, both, require_mounting, ring};

#[test]
fn fsx_finds_no_difference() {
    require_mounting();
    let through =
        MountOptions { writeback_cache: false, no_open: true, ..MountOptions::new("model") };
    let rings = ring().map(|options| (3, options));
    for (seed, options) in [(1, MountOptions::new("model")), (2, through)].into_iter().chain(rings)
    {
        let mounted = Mounted::with(&options);
        fsx(&mounted.path("fsx"), 20_000, seed);
        mounted.finish();
    }
}

/// Cases that pass on the kernel's ext4 also pass here.
#[test]
fn pjdfstest_agrees_with_the_kernels_ext4() {
    require_mounting();
    let outside = tempfile::tempdir().unwrap();
    let image = outside.path().join("image");
    judge::mke2fs(&image, 64 << 20, &["-t", "ext4"]);
    let kernel = KernelMount::new(&image, "");
    let expected = pjdfstest(kernel.path());
    kernel.unmount();
    for options in both() {
        let mounted = Mounted::with(&options);
        let found = pjdfstest(&mounted.path(""));
        let worse = worse(&expected, &found);
        let way = options.transport;
        assert!(worse.is_empty(), "pass on the kernel's ext4, not here ({way:?}): {worse:#?}");
        mounted.finish();
    }
}
