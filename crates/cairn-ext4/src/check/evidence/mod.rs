//! Fields that say where everything else is, and other values that they may have had.
//!
//! One such field of the superblock, or one place of a descriptor, makes files look like blocks of
//! the volume's structures, and inodes like noise. Its checksum says nothing of a program that
//! wrote it on purpose. But the rest of the volume is a witness: backups, the map of the resize
//! inode, where the descriptors say that bitmaps and tables are. Each other value is a
//! [`Candidate`]; a check with it ([`super::examine`]) shows whether it explains what was found.

mod candidate;
mod descriptors;
mod features;
mod fields;
mod guesses;
mod links;
mod lists;
mod maps;
mod root;
mod uuids;
mod values;
mod witnesses;

use cairn_block::BlockDevice;
use cairn_check::{Report, Severity};

use super::kinds;
use super::state::State;
pub(in crate::check) use candidate::Candidate;

/// Findings from which on, in proportion to the files, all of the volume seems to be wrong.
const MANY: u64 = 8;
/// One in so many files.
const SHARE: u64 = 16;

/// What a report has found that a wrong place of everything would explain.
pub(super) fn weight(report: &Report) -> u64 {
    let excused = [
        &kinds::SUPERBLOCK_CHECKSUM,
        &kinds::SUPERBLOCK_REVISION,
        &kinds::JOURNAL_REPLAY,
        &kinds::DEVICE_READ,
        // Of one file, wherever the rest is.
        &kinds::INODE_SIZE_UNPROVED,
        &kinds::XATTR_DISPUTED,
        &kinds::MAP_DISPUTED,
    ];
    let telling = [
        &kinds::GROUP_CHECKSUM,
        &kinds::INODE_FLAGS,
        &kinds::INODE_UNREACHABLE,
        &kinds::INODE_RESIZE,
        &kinds::JOURNAL_INVALID,
    ];
    let is = |list: &[&cairn_check::Kind], code| list.iter().any(|kind| kind.code == code);
    let counts = report.counts.iter().filter(|(kind, _)| {
        let is_losing = kind.severity != Severity::Accounting;
        (is_losing && !is(&excused, kind.code)) || is(&telling, kind.code)
    });
    counts.fold(0, |all, (_, count)| all.saturating_add(*count))
}

/// Was there something that the device did not give?
pub(super) fn is_partial(report: &Report) -> bool {
    report.counts.iter().any(|(kind, _)| kind.code == kinds::DEVICE_READ.code)
}

/// Does a report with another value show that the value is right? `before` is what was found
/// without it. Where there is no root, all may be noise, of which another value changes a little.
pub(super) fn is_proved(candidate: &Candidate, before: u64, report: &Report) -> bool {
    let weight = weight(report);
    let has_root = report.counts.iter().all(|(kind, _)| kind.code != kinds::INODE_ROOT.code);
    candidate.is_proved(before, weight) && (has_root || weight.saturating_mul(2) <= before)
}

/// Does so much seem to be wrong that it is likely to have one cause?
fn is_systematic(state: &State, report: &Report) -> bool {
    let count = |kinds: &[&cairn_check::Kind]| {
        let of = report.counts.iter().filter(|(kind, _)| kinds.iter().any(|k| k.code == kind.code));
        of.fold(0_u64, |all, (_, count)| all.saturating_add(*count))
    };
    let groups = count(&[&kinds::GROUP_CHECKSUM, &kinds::GROUP_PLACE, &kinds::GROUP_OVERLAP]);
    let is_rootless = count(&[&kinds::INODE_ROOT]) > 0;
    let weight = weight(report);
    let many = weight >= MANY && weight.saturating_mul(SHARE) >= report.usage.files;
    many || is_rootless || (groups >= 3 && groups.saturating_mul(2) >= state.layout.groups.into())
}

/// Is the superblock that was read not the first one as it is?
fn is_replaced(report: &Report) -> bool {
    let replaced = [
        &kinds::SUPERBLOCK_BIT,
        &kinds::SUPERBLOCK_DAMAGED,
        &kinds::SUPERBLOCK_CHECKSUM,
        &kinds::SUPERBLOCK_REVISION,
    ];
    report.counts.iter().any(|(kind, _)| replaced.iter().any(|other| other.code == kind.code))
}

/// Other values that the fields of the volume may have had, the likeliest first.
pub(super) fn candidates(
    device: &dyn BlockDevice,
    state: &State,
    report: &Report,
) -> Vec<Candidate> {
    if is_replaced(report) {
        return Vec::new();
    }
    let mut found = witnesses::seeds(device, state);
    found.extend(uuids::candidates(device, state));
    found.extend(values::candidates(device, state));
    found.extend(witnesses::candidates(device, state));
    if report.counts.iter().any(|(kind, _)| kind.code == kinds::INODE_FLAGS.code) {
        found.extend(witnesses::features_of_files(device, state));
    }
    found.extend(descriptors::candidates(state, report));
    found.extend(links::candidates(state, report));
    if is_systematic(state, report) {
        found.extend(guesses::candidates(device, state));
    }
    found
}

/// Single bits whose damage may show in numbers alone: features, places of attributes, and block
/// maps.
pub(super) fn single_bits(
    device: &dyn BlockDevice,
    state: &State,
    report: &Report,
) -> Vec<Candidate> {
    let mut found = Vec::new();
    if !is_replaced(report) {
        found = features::candidates(device, state, report);
    }
    found.extend(lists::candidates(state));
    // The block that an inode may lack is no other file's.
    if state.doubted_lists.found().is_empty() {
        found.extend(maps::candidates(state, report));
    }
    found
}

/// Does a report with such a bit right show that it was wrong? `before` is the one without it.
pub(super) fn explains(candidate: &Candidate, before: &Report, report: &Report) -> bool {
    let corrected =
        [kinds::MAP_BIT.code, kinds::MAP_DISPUTED.code, kinds::SUPERBLOCK_CONTRADICTED.code];
    let count = |report: &Report| {
        let others = report.counts.iter().filter(|(kind, _)| !corrected.contains(&kind.code));
        others.fold(0_u64, |all, (_, count)| all.saturating_add(*count))
    };
    let inodes: Vec<u64> =
        candidate.findings.iter().filter_map(|finding| finding.place.inode).collect();
    let is_left = report.findings.iter().any(|finding| {
        let is_other = !corrected.contains(&finding.kind.code);
        is_other && finding.place.inode.is_some_and(|ino| inodes.contains(&ino))
    });
    // A log that nobody said was to be replayed may be an old one.
    let is_replayed = |report: &Report| report.recovered.contains(&"journal");
    let asked = before.counts.iter().any(|(kind, _)| kind.code == kinds::JOURNAL_REPLAY.code);
    let is_old = is_replayed(report) && !is_replayed(before) && !asked;
    !is_partial(report)
        && !is_old
        && !is_left
        && weight(report) <= weight(before)
        && candidate.is_proved(count(before), count(report))
}
