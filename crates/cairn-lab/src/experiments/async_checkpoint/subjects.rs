//! The subjects: two values of an option, with three journals and the modes of fs_mark.

use crate::fs_mark::{Load, SyncMethod};
use crate::scale::Scale;

/// The baseline.
pub(super) const OFF: &str = "noasync_checkpoint";
/// The option under test.
pub(super) const ON: &str = "async_checkpoint";
const MIB: u64 = 1 << 20;

/// The journals: id of the table, title, bytes.
pub(super) const JOURNALS: [(&str, &str, u64); 3] = [
    ("journal-4m", "Journal of 1,024 blocks (4 MiB)", 4 * MIB),
    ("journal-16m", "Journal of 16 MiB", 16 * MIB),
    ("journal-1g", "Journal of 1 GiB, which never fills", 1024 * MIB),
];
/// The index of the yardstick in [`JOURNALS`].
pub(super) const NEVER_FULL: usize = 2;

/// The name of a mode's row.
pub(super) fn row(sync: SyncMethod) -> String {
    format!("-S {}", sync as usize)
}

/// The work of a mode: 32 threads create files of 4 KiB.
pub(super) fn load(scale: Scale, sync: SyncMethod) -> Load {
    // A mode that waits for each file gets fewer files.
    let files = match sync {
        SyncMethod::BeforeClose | SyncMethod::Reverse | SyncMethod::InOrder => {
            scale.pick(20, 300, 4000)
        }
        SyncMethod::SyncThenReverse | SyncMethod::SyncThenInOrder => scale.pick(20, 200, 4000),
        SyncMethod::Never | SyncMethod::SyncThenOne => scale.pick(40, 500, 8000),
    };
    Load { threads: 32, files, size: 4096, directories: 16, per_directory: 256, sync }
}

/// The name of a row in the table of shared commits.
pub(super) fn threads_row(count: usize) -> String {
    if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") }
}
