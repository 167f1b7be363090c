//! Damaged images: no panic, no endless walk, bounded memory, typed errors.

use std::sync::Arc;

use cairn_testkit::deep;
use cairn_testkit::mutate::Target;
use cairn_vfs::FileSystem;

use crate::support::try_open;
use crate::visitor::Visitor;

/// Images of different layouts, all small.
const LAYOUTS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^metadata_csum_seed"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^metadata_csum_seed,inline_data"],
    &["-t", "ext4", "-b", "4096", "-O", "^has_journal,^metadata_csum,^metadata_csum_seed,^64bit"],
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext3", "-b", "1024"],
];

#[test]
fn damaged_images_are_survived() {
    let per_layout = if deep() { 50_000 } else { 900 };
    for (layout, args) in LAYOUTS.iter().enumerate() {
        let target = Target::ext4(args, layout as u64);
        let (mut opened, mut refused, mut errors) = (0, 0, 0);
        for seed in 0..per_layout {
            let (device, damage) = target.mutate(seed);
            let writes = seed % 10 == 0;
            let survived = std::panic::catch_unwind(|| {
                let options = if writes { "cache=1M" } else { "ro,cache=1M" };
                let Ok(fs) = try_open(Arc::new(device), options) else { return None };
                let mut visitor = Visitor::new(&fs);
                visitor.walk();
                if writes {
                    visitor.change();
                }
                let closed = fs.unmount();
                visitor.call(closed);
                Some(visitor.errors)
            });
            match survived {
                Ok(Some(found)) => (opened, errors) = (opened + 1, errors + found),
                Ok(None) => refused += 1,
                Err(_) => {
                    panic!(
                        "{args:?}, seed {seed}: {}",
                        damage.iter().map(|d| format!("{d}; ")).collect::<String>()
                    )
                }
            }
        }
        println!("{args:?}: {opened} opened, {refused} refused, {errors} errors");
        assert!(
            opened > per_layout / 4 && errors > 0,
            "{args:?}: {opened} opened, {errors} errors"
        );
    }
}
