//! Targets with changed images of volumes.

use std::sync::Arc;

use cairn_base::{FileBlock, Pba};
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::ReadOnly;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::{Plan, Scope, undo};
use cairn_jbd2::JournalArea;

use crate::base::{self, ALL, CUT, Loaded, Part, UNCLEAN, Volume, shared};
use crate::records::Input;
use crate::tour::told;
use crate::volume::{self, READ_ONLY, WRITING, lines};
use crate::{tour, work};

/// Opens a volume for reading, and reads everything that it shows.
pub(super) fn open(bytes: &[u8]) {
    let input = Input::decode(bytes);
    read_only(&input, base::of(&input, ALL), Part::All);
}

fn read_only(input: &Input, base: &Loaded, part: Part) {
    let device = shared(&base.changed(input, part));
    drop(cairn::format::probe(&*device));
    if let Ok(fs) = volume::open(&device, input.seed, &READ_ONLY) {
        tour::read(&*fs);
        told(fs.unmount());
    }
}

/// Opens a volume for writing, and changes it. A volume in which the check finds nothing is still
/// such a one afterwards.
pub(super) fn write(bytes: &[u8]) {
    let input = Input::decode(bytes);
    change(&input, base::of(&input, ALL), Part::All);
}

fn change(input: &Input, base: &Loaded, part: Part) {
    let device = shared(&base.changed(input, part));
    let judged = input.variant.is_multiple_of(2)
        && volume::check(&device).is_ok_and(|report| report.count() == 0);
    let options = &WRITING[usize::from(input.options) % WRITING.len()];
    let Ok(fs) = volume::open(&device, input.seed, options) else { return };
    work::run(&*fs, &input.operations);
    let ended = told(fs.unmount());
    drop(fs);
    if judged && ended.is_some() {
        match volume::check(&device) {
            Ok(report) => assert!(report.count() == 0, "after the mount:\n{}", lines(&report)),
            Err(error) => panic!("after the mount: {error}"),
        }
    }
}

/// Replays a log: by itself, or as a mount does, with its fast commits.
pub(super) fn journal(bytes: &[u8]) {
    let input = Input::decode(bytes);
    let base = base::of(&input, UNCLEAN);
    match (input.variant % 8, &base.volume) {
        (6, _) => read_only(&input, base, Part::Log),
        (7, _) => change(&input, base, Part::Log),
        (_, Volume::Ext4(volume)) => {
            replay(&base.changed(&input, Part::Log), volume.block_size(), volume.journal());
        }
        (_, Volume::F2fs(_)) => {}
    }
}

fn replay(image: &Arc<MemoryDevice>, block_size: usize, blocks: &[u64]) {
    let device = shared(image);
    let extents = (0..).zip(blocks).map(|(at, block)| (FileBlock(at), Pba(*block), 1)).collect();
    let block_size = block_size as u32;
    let area = JournalArea { device: device.clone(), block_size, extents, since: 0 };
    drop(cairn_jbd2::salvage_in_memory(&area).map_err(|error| error.to_string()));
    drop(cairn_jbd2::remains(&area).map_err(|error| error.to_string()));
    drop(cairn_jbd2::fast_commits(&area).map_err(|error| error.to_string()));
    let shown = cairn_jbd2::replay_in_memory(&area);
    let done = cairn_jbd2::recover(&area, &device);
    match (shown, done) {
        (Ok(images), Ok(_)) => {
            // What was shown is what was written.
            for (pba, bytes) in images {
                let found = device.read_at(pba.get() * block_size as u64, bytes.len());
                assert!(found.is_ok_and(|found| *found == *bytes), "block {pba}");
            }
            cairn_jbd2::recover(&area, &device).expect("an empty log is recovered");
        }
        (Err(error), Ok(_)) => panic!("recovered, but not shown: {error}"),
        (_, Err(error)) => assert!(!error.to_string().is_empty()),
    }
}

/// Opens F2FS volumes whose fsynced nodes are changed: for reading and for writing.
pub(super) fn roll_forward(bytes: &[u8]) {
    let input = Input::decode(bytes);
    let base = base::of(&input, CUT);
    // The checkpoint and the tables are changed in some.
    let part = if input.variant & 8 == 0 { Part::Log } else { Part::All };
    match input.variant % 4 {
        0 | 1 => read_only(&input, base, part),
        _ => change(&input, base, part),
    }
}

/// Checks a volume on a device that refuses writes.
pub(super) fn check(bytes: &[u8]) {
    let input = Input::decode(bytes);
    let image = base::of(&input, ALL).changed(&input, Part::All);
    let device: Arc<dyn BlockDevice> = Arc::new(ReadOnly::new(shared(&image)));
    match volume::check(&device) {
        Ok(report) => drop(lines(&report)),
        Err(error) => assert!(!error.is_empty()),
    }
}

/// Repairs a volume. Then nothing is found, unless only the accounting was repaired, and a second
/// repair changes nothing.
pub(super) fn repair(bytes: &[u8]) {
    let input = Input::decode(bytes);
    let image = base::of(&input, ALL).changed(&input, Part::All);
    let device = shared(&image);
    let scope = if input.variant % 4 == 3 { Scope::Accounting } else { Scope::All };
    let Ok(plan) = volume::plan(&device, scope) else { return };
    if plan.is_refused {
        assert!(plan.changes.is_empty(), "a repair that is refused changes nothing");
        return;
    }
    plan.apply(&*device, &MemoryDevice::new(undo::file_size(&plan.changes))).expect("applied");
    let said = || {
        let steps = plan.steps.kept().iter().map(|step| format!("{step}\n"));
        steps.collect::<String>()
    };
    match volume::check(&device) {
        // What may lose something is left by a repair of the accounting, which says so.
        Ok(report) if lines(&report) == lines(&plan.after) => {
            assert!(report.count() == 0 || scope == Scope::Accounting, "{}", lines(&report));
        }
        Ok(report) => panic!(
            "after the repair:\n{}planned:\n{}steps:\n{}",
            lines(&report),
            lines(&plan.after),
            said()
        ),
        Err(error) => panic!("after the repair: {error}\nsteps:\n{}", said()),
    }
    let again = volume::plan(&device, scope);
    let is_done = |again: &Plan| again.changes.is_empty() && !again.is_refused;
    assert!(again.as_ref().is_ok_and(is_done), "a second repair changes it:\n{}", said());
}
