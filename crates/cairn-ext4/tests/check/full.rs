//! Repairs of a volume without a free block: they succeed, or are refused and change nothing.

use std::path::Path;

use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_check::repair::undo::file_size;
use cairn_testkit::judge;

use crate::checked::assert_clean;
use crate::injected::image;
use crate::repaired::{complaint, injected, plan};

/// Removes `lost+found`, and fills what is free. debugfs knows no reserve.
fn fill(path: &Path) {
    let debugfs = |request: &str| judge::run("debugfs", ["-w", "-R", request, text(path)]);
    debugfs("rmdir lost+found");
    let contents = tempfile::NamedTempFile::new().unwrap();
    // Of ext2, one block is for the map.
    std::fs::write(contents.path(), vec![7; (free(path) - 1) * 1024]).unwrap();
    debugfs(&format!("write {} full", text(contents.path())));
    assert!(free(path) < 3, "{} are free", free(path));
    assert_clean(path);
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Free blocks.
fn free(path: &Path) -> usize {
    let said = judge::dumpe2fs(path);
    let line = said.lines().find_map(|line| line.strip_prefix("Free blocks:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn a_repair_of_a_full_volume_happens_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, hurt) = (dir.path().join("sound"), dir.path().join("hurt"));
    let (mut done, mut refused) = (0, 0);
    for args in [
        &["-t", "ext4", "-b", "1024", "-N", "512", "-m", "0", "-J", "size=1"][..],
        &["-t", "ext2", "-b", "1024", "-N", "512", "-m", "0"],
    ] {
        image(&sound, args);
        fill(&sound);
        // Inodes without a name; an index; a hole in a directory; a journal; blocks of two files.
        for request in [
            "unlink /file",
            "unlink /tree",
            "clri /tree",
            "sif /tree block[2] 0",
            "sif /tree flags 0",
            "clri <8>",
            "sif /file links_count 0",
            "sif /file mode 040755",
        ] {
            let device = injected(&sound, &hurt, request);
            for scope in [Scope::Accounting, Scope::All] {
                let Ok(plan) = plan(device.fork(), scope) else { continue };
                if plan.is_refused {
                    assert!(plan.changes.is_empty() && plan.after.count() > 0, "{request}");
                    refused += 1;
                } else if plan.after.count() == 0 {
                    let after = device.fork();
                    plan.apply(&after, &MemoryDevice::new(file_size(&plan.changes))).unwrap();
                    let said = complaint(&after, &hurt);
                    assert!(said.is_none(), "{request}: {}", said.unwrap_or_default());
                    done += 1;
                }
            }
        }
    }
    println!("{done} repaired, {refused} refused");
    assert!(done > 5 && refused > 0, "{done} repaired, {refused} refused");
}
