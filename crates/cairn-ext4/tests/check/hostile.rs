//! Damaged images: the check ends, without a panic.

use std::sync::Arc;

use cairn_testkit::deep;
use cairn_testkit::mutate::Target;

use crate::support::{check, flags};

const LAYOUTS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^metadata_csum_seed"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^metadata_csum_seed,inline_data"],
    &["-t", "ext2", "-b", "1024"],
];

#[test]
fn a_check_of_a_damaged_image_ends() {
    let per_layout = if deep() { 50_000 } else { 400 };
    for (layout, args) in LAYOUTS.iter().enumerate() {
        let target = Target::ext4(args, layout as u64);
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
