//! Damaged images: the check ends, without a panic.

use std::sync::Arc;

use cairn_testkit::crash::read_image;
use cairn_testkit::deep;
use cairn_testkit::judge::{KernelMount, mke2fs};
use cairn_testkit::mutate::Target;
use cairn_testkit::tree::{PathTarget, TreeSpec, build, plan};

use crate::support::{check, flags};

const LAYOUTS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^metadata_csum_seed"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^metadata_csum_seed,inline_data"],
    &["-t", "ext2", "-b", "1024"],
];

/// An image with files, directories and attributes.
pub fn target(args: &[&str], seed: u64) -> Target {
    let file = tempfile::NamedTempFile::new().unwrap();
    mke2fs(file.path(), 4 << 20, args);
    let mount = KernelMount::new(file.path(), "");
    let spec = TreeSpec { directories: 6, files: 30, size_max: 20_000, ..TreeSpec::small(seed) };
    build(&PathTarget::new(mount.path()), &plan(&spec));
    for number in 0..60 {
        std::fs::write(mount.path().join(format!("a name that fills the block {number}")), b"x")
            .unwrap();
    }
    mount.unmount();
    Target::of(read_image(file.path()).unwrap())
}

#[test]
fn a_check_of_a_damaged_image_ends() {
    let per_layout = if deep() { 50_000 } else { 400 };
    for (layout, args) in LAYOUTS.iter().enumerate() {
        let target = target(args, layout as u64);
        let mut found = 0_u64;
        for seed in 0..per_layout {
            let (device, damage) = target.mutate(seed);
            let checked = std::panic::catch_unwind(|| flags(&check(Arc::new(device))));
            let Ok(flagged) = checked else {
                let damage: String = damage.iter().map(|damage| format!("{damage}; ")).collect();
                panic!("{args:?}, seed {seed}: {damage}");
            };
            found += u64::from(flagged);
        }
        println!("{args:?}: {found} of {per_layout} have findings");
        assert!(found > per_layout / 3, "{args:?}: only {found}");
    }
}
