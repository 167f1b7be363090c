//! Files whose size contradicts their blocks, where no checksum tells which is wrong: a repair
//! without losses changes no file.

use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_testkit::crash::read_image;

use crate::injected::image;
use crate::repaired::{complaint, injected, plan, repaired, snapshot};
use crate::support::{check, flags};

const POINTERS: &[&str] = &["-t", "ext2", "-b", "1024", "-N", "512"];
const EXTENTS: &[&str] =
    &["-t", "ext4", "-b", "1024", "-N", "512", "-O", "^metadata_csum,^metadata_csum_seed"];

/// Is nothing that is read changed by a repair without losses, although something is found?
fn asks(device: &MemoryDevice) -> bool {
    let before = snapshot(device.fork());
    let planned = plan(device.fork(), Scope::Accounting).unwrap();
    let after = device.fork();
    let undo = MemoryDevice::new(cairn_check::repair::undo::file_size(&planned.changes));
    planned.apply(&after, &undo).unwrap();
    before.assert_same(&snapshot(after));
    planned.after.count() > 0 && flags(&check(std::sync::Arc::new(device.fork())))
}

#[test]
fn blocks_behind_the_end_of_a_file_are_no_accounting() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    // `/file` has 50,000 bytes in 49 blocks.
    for args in [POINTERS, EXTENTS] {
        image(&path, args);
        for size in ["0", "20", "1024", "40000"] {
            let device = injected(&path, &hurt, &format!("sif /file size {size}"));
            assert!(asks(&device), "{args:?}: {size}");
            let (plan, after) = repaired(&device, Scope::All).unwrap();
            let lost: Vec<_> = plan.steps.losing().map(ToString::to_string).collect();
            let is_listed = lost.len() == 1 && lost[0].contains("Lost of /file: the size");
            assert!(is_listed, "{args:?}: {size}: {lost:?}");
            assert_eq!(complaint(&after, &hurt), None, "{args:?}: {size}");
            let size = cairn_testkit::judge::debugfs(&hurt, "stat /file");
            assert!(size.contains("Size: 50176"), "{size}");
        }
    }
}

/// What a file loses is lost under each of its names.
#[test]
fn a_loss_is_listed_with_the_names_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, EXTENTS);
    for (more, listed) in [
        (1, "; the file has 1 more name: /again1."),
        (5, "; the file has 5 more names: /again1, /again2, /again3, and 2 besides."),
    ] {
        for number in 1..=more {
            // A name that is there is refused.
            injected(&path, &hurt, &format!("ln /file /again{number}"));
            std::fs::copy(&hurt, &path).unwrap();
        }
        injected(&path, &hurt, &format!("sif /file links_count {}", more + 1));
        let again = dir.path().join("again");
        let device = injected(&hurt, &again, "sif /file size 20");
        let (plan, _) = repaired(&device, Scope::All).unwrap();
        let lost: Vec<_> = plan.steps.losing().map(ToString::to_string).collect();
        let is_listed = lost.len() == 1 && lost[0].contains("Lost of /file: the size");
        assert!(is_listed && lost[0].ends_with(listed), "{lost:?}");
    }
}

/// The inode does not count a block behind the end: it is none of the file.
#[test]
fn a_block_that_a_file_does_not_count_is_not_added_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, POINTERS);
    let small = dir.path().join("small");
    std::fs::write(&small, "12345678901234567890").unwrap();
    let request = format!("write {} small", small.display());
    injected(&path, &hurt, &request);
    std::fs::copy(&hurt, &path).unwrap();
    let sound = read_image(&path).unwrap();
    for pointer in ["block[1] 7000", "block[11] 7000"] {
        let device = injected(&path, &hurt, &format!("sif /small {pointer}"));
        assert!(asks(&device), "{pointer}");
        let (plan, after) = repaired(&device, Scope::All).unwrap();
        let lost: Vec<_> = plan.steps.losing().map(ToString::to_string).collect();
        let loss = "Lost of /small: blocks behind the end of the file";
        assert!(lost.len() == 1 && lost[0].contains(loss), "{pointer}: {lost:?}");
        assert_eq!(complaint(&after, &hurt), None, "{pointer}");
        snapshot(sound.fork()).assert_same(&snapshot(after));
    }
}
