//! `FITRIM` has the same counts as in the kernel: trimmed groups are skipped until a block in them
//! is freed.

use std::path::Path;
use std::sync::Arc;

use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{KernelMount, mke2fs, run};
use cairn_vfs::FileSystem;

use crate::support::open;

const MIB: u64 = 1 << 20;

/// The steps. Trim: first byte, bytes, shortest run. `None`: a file is removed.
const STEPS: [Option<[u64; 3]>; 16] = [
    Some([0, 4 * MIB, 0]),
    Some([0, 4 * MIB, 0]),
    Some([0, u64::MAX, MIB]),
    Some([0, u64::MAX, MIB]),
    Some([0, u64::MAX, 4 * MIB]),
    Some([0, u64::MAX, 64 << 10]),
    Some([0, u64::MAX, MIB]),
    Some([0, u64::MAX, 8192]),
    Some([0, u64::MAX, 8192]),
    Some([9 * MIB, MIB, 8192]),
    None,
    Some([9 * MIB, MIB, 8192]),
    Some([0, 20 * MIB, 8192]),
    Some([0, u64::MAX, 8192]),
    Some([0, u64::MAX, 8192]),
    Some([0, u64::MAX, 4096]),
];

/// The kernel's count, as printed by `fstrim`.
fn kernels(mount: &Path, [start, len, least]: [u64; 3]) -> u64 {
    let numbers = [("-o", start), ("-l", len), ("-m", least)];
    let mut args: Vec<String> =
        numbers.iter().flat_map(|(name, value)| [(*name).into(), value.to_string()]).collect();
    args.extend(["-v".into(), mount.display().to_string()]);
    let said = run("fstrim", &args);
    let bytes = said.split('(').nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    bytes.unwrap_or_else(|| panic!("fstrim says {said}"))
}

#[test]
fn what_is_trimmed_again_is_counted_as_the_kernel_counts_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    mke2fs(file.path(), 40 * MIB, &["-t", "ext4", "-b", "1024"]);
    let filling = KernelMount::new(file.path(), "");
    for name in ["a", "b", "c"] {
        std::fs::write(filling.path().join(name), vec![7; 3 << 20]).unwrap();
        run("sync", [Path::new("-f"), filling.path()]);
    }
    filling.unmount();
    let device = Arc::new(read_image(file.path()).unwrap());
    let kernel = KernelMount::new(file.path(), "");
    let fs = open(&device, "");
    for (number, step) in STEPS.into_iter().enumerate() {
        let Some(range) = step else {
            fs.unlink(fs.root(), b"b").unwrap();
            fs.sync().unwrap();
            std::fs::remove_file(kernel.path().join("b")).unwrap();
            run("sync", [Path::new("-f"), kernel.path()]);
            continue;
        };
        let (ours, theirs) =
            (fs.trim(range[0], range[1], range[2]).unwrap(), kernels(kernel.path(), range));
        assert_eq!(ours, theirs, "step {number}: {range:?}");
    }
    kernel.unmount();
    fs.unmount().unwrap();
}
