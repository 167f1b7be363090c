//! The subjects: the option off and on, and a journal that never fills; with three journals and the
//! modes of fs_mark.

use crate::fs_mark::{Load, SyncMethod};
use crate::scale::Scale;

/// The baseline.
pub(super) const OFF: &str = "noasync_checkpoint";
/// The option under test.
pub(super) const ON: &str = "async_checkpoint";
/// The yardstick.
pub(super) const NEVER: &str = "never full";
pub(super) const SUBJECTS: [&str; 3] = [OFF, ON, NEVER];

/// The journals: name and bytes.
pub(super) const JOURNALS: [(&str, u64); 3] =
    [("4 MiB", 4 << 20), ("16 MiB", 16 << 20), ("64 MiB", 64 << 20)];
/// Bytes of a journal that never fills.
pub(super) const NEVER_FULL: u64 = 1 << 30;

/// The name of a row.
pub(super) fn row(journal: &str, sync: SyncMethod) -> String {
    format!("{journal}, -S {}", sync as usize)
}

/// The modes.
pub(super) fn modes(scale: Scale) -> &'static [SyncMethod] {
    const SOME: &[SyncMethod] = &[SyncMethod::BeforeClose, SyncMethod::Reverse];
    scale.pick(SOME, &SyncMethod::ALL, &SyncMethod::ALL)
}

/// The model has no noise but the order of threads, so a few repetitions are enough.
pub(super) fn most_repetitions(scale: Scale) -> usize {
    scale.pick(2, 3, 3)
}

/// The work of a mode. Modes that commit often get more files, to fill the journal.
pub(super) fn load(scale: Scale, sync: SyncMethod) -> Load {
    let files = match sync {
        SyncMethod::BeforeClose | SyncMethod::Reverse | SyncMethod::InOrder => {
            scale.pick(24, 250, 2000)
        }
        SyncMethod::SyncThenReverse | SyncMethod::SyncThenInOrder => scale.pick(20, 60, 1000),
        SyncMethod::Never | SyncMethod::SyncThenOne => scale.pick(20, 100, 2000),
    };
    Load { threads: 32, files, size: 4096, directories: 16, per_directory: 256, sync }
}
