//! A toy format: block 0 has the number of blocks with a mark, block 1 must be zero.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation, Partition, Record};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_testkit::crash::{CrashLog, Cut, Volatile};

use super::undo::{Error, file_size, take_back};
use super::{Mend, Plan, Scope, Step, Steps, plan};
use crate::{Finding, Findings, Kind, Place, Report, Severity, Usage};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 40;

static COUNT: Kind = Kind {
    code: "toy.count",
    severity: Severity::Accounting,
    meaning: "The count is wrong.",
    repair: "The count is set.",
};
static MARK: Kind = Kind {
    code: "toy.mark",
    severity: Severity::Losing,
    meaning: "A mark is wrong.",
    repair: "The mark is removed.",
};
static GONE: Kind = Kind {
    code: "toy.gone",
    severity: Severity::Fatal,
    meaning: "The volume is gone.",
    repair: "Nothing.",
};

struct Toy;

impl Mend for Toy {
    type Error = cairn_block::Error;

    fn round(
        &self,
        device: &Arc<dyn BlockDevice>,
        scope: Scope,
        steps: &mut Steps,
    ) -> Result<Report, Self::Error> {
        let findings = Findings::new();
        let first = |block: u64| device.read_at(block * BLOCK, 1).map(|bytes| bytes[0]);
        let mut marked = 0;
        for block in 2..BLOCKS {
            match first(block)? {
                0 => {}
                1 => marked += 1,
                2 => {
                    findings.add(Finding::new(&MARK, Place::block(block)));
                    if scope.allows(&MARK) {
                        let loss = format!("/{block}");
                        let step = Step::new(&MARK, Place::block(block));
                        steps.add(step.losing(loss.into_bytes(), "the mark"));
                        device.write_at(block * BLOCK, vec![0; 1])?;
                    }
                }
                _ => findings.add(Finding::new(&GONE, Place::block(block))),
            }
        }
        if first(0)? != marked {
            findings.add(Finding::new(&COUNT, Place::volume()));
            // What is counted must be right before.
            if findings.count_of(&MARK) == 0 && findings.count_of(&GONE) == 0 {
                steps.add(Step::new(&COUNT, Place::volume()));
                device.write_at(0, vec![marked; 1])?;
            }
        }
        Ok(Report::new(findings, Usage::default()))
    }
}

fn device(marks: &[(u64, u8)]) -> MemoryDevice {
    let device = MemoryDevice::new(BLOCK * BLOCKS);
    marks.iter().for_each(|(block, mark)| device.load(block * BLOCK, &[*mark; 10]));
    device
}

fn bytes(device: &dyn BlockDevice) -> Vec<u8> {
    let len = usize::try_from(device.geometry().size).unwrap();
    device.read_at(0, len).unwrap().to_vec()
}

fn planned(device: MemoryDevice, scope: Scope) -> (Arc<dyn BlockDevice>, Plan) {
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let plan = plan(&Toy, &device, scope).unwrap();
    (device, plan)
}

fn undo_for(plan: &Plan) -> MemoryDevice {
    MemoryDevice::new(file_size(&plan.changes))
}

#[test]
fn a_plan_needs_the_rounds_that_it_needs_and_writes_nothing() {
    let (device, plan) = planned(device(&[(0, 1), (5, 1), (6, 1), (9, 2), (30, 2)]), Scope::All);
    assert_eq!(bytes(&*device)[0], 1);
    assert_eq!((plan.before.count(), plan.after.count(), plan.is_refused), (3, 0, false));
    assert_eq!((plan.steps.count(), plan.steps.losing().count()), (3, 2));
    assert_eq!(plan.changes.bytes(), 3 * BLOCK);
}

#[test]
fn a_sound_volume_is_not_written() {
    let (device, plan) = planned(device(&[(0, 1), (5, 1)]), Scope::All);
    assert!(plan.changes.is_empty() && !plan.is_refused && plan.steps.count() == 0);
    let before = bytes(&*device);
    plan.apply(&*device, &MemoryDevice::new(0)).unwrap();
    assert_eq!(bytes(&*device), before);
}

#[test]
fn losing_defects_are_left_to_the_user_and_others_refuse() {
    let (_, plan) = planned(device(&[(0, 7), (5, 1), (9, 2)]), Scope::Accounting);
    assert!(!plan.is_refused && plan.changes.is_empty() && plan.after.count() == 2);
    let (_, plan) = planned(device(&[(0, 1), (5, 1), (9, 3), (10, 2)]), Scope::All);
    assert!(plan.is_refused && plan.changes.is_empty());
}

/// Clears block 1 first. Says whether a repair may end in part.
struct Partial(bool);

impl Mend for Partial {
    type Error = cairn_block::Error;

    fn round(
        &self,
        device: &Arc<dyn BlockDevice>,
        scope: Scope,
        steps: &mut Steps,
    ) -> Result<Report, Self::Error> {
        if device.read_at(BLOCK, 1)?[0] != 0 {
            device.write_at(BLOCK, vec![0; 1])?;
            steps.add(Step::new(&COUNT, Place::block(1_u64)));
        }
        Toy.round(device, scope, steps)
    }

    fn may_end(
        &self,
        before: &Arc<dyn BlockDevice>,
        after: &Arc<dyn BlockDevice>,
    ) -> Result<bool, Self::Error> {
        let first = |device: &dyn BlockDevice| device.read_at(BLOCK, 1).map(|bytes| bytes[0]);
        assert_eq!((first(&**before)?, first(&**after)?), (5, 0));
        Ok(self.0)
    }
}

#[test]
fn a_repair_in_part_asks_whether_it_may_end() {
    for may_end in [true, false] {
        let device: Arc<dyn BlockDevice> = Arc::new(device(&[(0, 0), (1, 5), (9, 2)]));
        let plan = plan(&Partial(may_end), &device, Scope::Accounting).unwrap();
        assert_eq!((plan.is_refused, plan.changes.is_empty()), (!may_end, !may_end));
        assert_eq!(plan.after.count(), 1);
    }
}

/// Changes to nothing but another defect.
struct Circle;

impl Mend for Circle {
    type Error = cairn_block::Error;

    fn round(
        &self,
        device: &Arc<dyn BlockDevice>,
        _: Scope,
        steps: &mut Steps,
    ) -> Result<Report, Self::Error> {
        let now = device.read_at(0, 1)?[0];
        device.write_at(0, vec![now.wrapping_add(1); 1])?;
        steps.add(Step::new(&COUNT, Place::volume()));
        let findings = Findings::new();
        findings.add(Finding::new(&COUNT, Place::volume()));
        Ok(Report::new(findings, Usage::default()))
    }
}

/// Mends nothing, and says so each time.
struct Vain(AtomicU32);

impl Mend for Vain {
    type Error = cairn_block::Error;

    fn round(
        &self,
        _: &Arc<dyn BlockDevice>,
        _: Scope,
        steps: &mut Steps,
    ) -> Result<Report, Self::Error> {
        self.0.fetch_add(1, Relaxed);
        steps.add(Step::new(&COUNT, Place::volume()));
        let findings = Findings::new();
        findings.add(Finding::new(&COUNT, Place::volume()));
        Ok(Report::new(findings, Usage::default()))
    }
}

#[test]
fn a_step_that_does_not_help_ends_the_rounds_and_is_listed_once() {
    let device: Arc<dyn BlockDevice> = Arc::new(device(&[]));
    let vain = Vain(AtomicU32::new(0));
    let plan = plan(&vain, &device, Scope::Accounting).unwrap();
    assert!(plan.is_refused && plan.changes.is_empty());
    assert_eq!((plan.steps.kept().len(), vain.0.into_inner()), (1, 2));
}

/// Breaks what it may lose something of.
struct Harmful;

impl Mend for Harmful {
    type Error = cairn_block::Error;

    fn round(
        &self,
        device: &Arc<dyn BlockDevice>,
        scope: Scope,
        steps: &mut Steps,
    ) -> Result<Report, Self::Error> {
        let findings = Findings::new();
        if device.read_at(0, 1)?[0] != 0 {
            findings.add(Finding::new(&COUNT, Place::volume()));
            steps.add(Step::new(&COUNT, Place::volume()));
            device.write_at(0, vec![u8::from(scope == Scope::All); 1])?;
        }
        Ok(Report::new(findings, Usage::default()))
    }
}

#[test]
fn what_a_repair_without_losses_gets_sound_is_not_refused() {
    let device: Arc<dyn BlockDevice> = Arc::new(device(&[(0, 7)]));
    for scope in [Scope::Accounting, Scope::All] {
        let plan = plan(&Harmful, &device, scope).unwrap();
        assert!(!plan.is_refused && plan.after.count() == 0, "{scope:?}");
        assert_eq!((plan.before.count(), plan.changes.bytes()), (1, BLOCK));
    }
}

#[test]
fn what_does_not_get_sound_is_refused() {
    let device: Arc<dyn BlockDevice> = Arc::new(device(&[]));
    let plan = plan(&Circle, &device, Scope::All).unwrap();
    assert!(plan.is_refused && plan.changes.is_empty());
}

fn part(device: Arc<dyn BlockDevice>, at: u64, len: u64) -> Partition {
    Partition::new(device, at, len).unwrap()
}

/// At every power cut the volume is as before, or the undo file makes it so; with torn writes and
/// any subset of those between two barriers.
#[test]
fn a_repair_cut_anywhere_is_taken_back() {
    let marks = [(0, 9), (3, 2), (5, 1), (9, 2), (30, 2)];
    let (volume, plan) = planned(device(&marks), Scope::All);
    let original = bytes(&*volume);
    let len = BLOCK * BLOCKS;
    let undo_len = file_size(&plan.changes).div_ceil(BLOCK) * BLOCK;
    // One device has both, so that there is one order of all writes.
    let before = MemoryDevice::new(len + undo_len);
    before.load(0, &original);
    let recorder = Arc::new(Record::new(Arc::new(before.fork())));
    let undo = part(recorder.clone(), len, undo_len);
    plan.apply(&part(recorder.clone(), 0, len), &undo).unwrap();
    let log = CrashLog::new(before, recorder.log());
    let mut restored = 0;
    for moment in 0..=recorder.moment() {
        let seeds = (0..4).flat_map(|seed| [Volatile::Random(seed), Volatile::Torn(seed)]);
        for volatile in seeds.chain([Volatile::Lost, Volatile::Kept]) {
            let cut = Cut { moment, volatile };
            let after: Arc<dyn BlockDevice> = Arc::new(log.device(cut));
            let volume = part(after.clone(), 0, len);
            match take_back(&volume, &part(after, len, undo_len)) {
                Ok(_) => restored += 1,
                Err(Error::NoFile { .. }) => {}
                Err(error) => panic!("{cut}: {error}"),
            }
            assert!(bytes(&volume) == original, "{cut}");
        }
    }
    assert!(restored > 20, "{restored}");
}

/// A device that fails at any write or flush is as it was, or says that it is not.
#[test]
fn a_failing_device_is_put_back() {
    let marks = [(0, 9), (3, 2), (5, 1), (30, 2)];
    let (volume, plan) = planned(device(&marks), Scope::All);
    let original = bytes(&*volume);
    for (operation, nth) in [(Operation::Write, 1), (Operation::Write, 3), (Operation::Flush, 1)] {
        for lasting in [Lasting::Once, Lasting::Forever] {
            let failing = Fault::new(Arc::new(device(&marks)));
            failing.fail(operation, nth, lasting);
            let undo = undo_for(&plan);
            let told = plan.apply(&failing, &undo);
            let is_same = bytes(&failing) == original;
            match told {
                Err(Error::Unchanged(_)) => assert!(is_same),
                Err(Error::Partly(_)) => {
                    failing.clear();
                    take_back(&failing, &undo).unwrap();
                    assert!(bytes(&failing) == original);
                }
                other => panic!("{operation:?} {nth} {lasting:?}: {other:?}"),
            }
        }
    }
    let full = Fault::new(Arc::new(undo_for(&plan)));
    full.fail(Operation::Write, 2, Lasting::Forever);
    let volume = device(&marks);
    assert!(matches!(plan.apply(&volume, &full), Err(Error::Write(_))));
    assert!(bytes(&volume) == original);
}

#[test]
fn what_changed_after_the_repair_is_not_taken_back() {
    let marks = [(0, 9), (3, 2), (5, 1), (30, 2)];
    let (volume, plan) = planned(device(&marks), Scope::All);
    let undo = undo_for(&plan);
    plan.apply(&*volume, &undo).unwrap();
    let repaired = bytes(&*volume);
    volume.write_at(30 * BLOCK + 600, vec![9; 1]).unwrap();
    let told = take_back(&*volume, &undo);
    assert!(matches!(told, Err(Error::Changed { offset }) if offset == 30 * BLOCK + 512));
    volume.write_at(30 * BLOCK + 600, vec![0; 1]).unwrap();
    assert!(bytes(&*volume) == repaired);
    take_back(&*volume, &undo).unwrap();
    assert!(bytes(&*volume) == bytes(&device(&marks)));
    let other = MemoryDevice::new(BLOCK);
    assert!(matches!(take_back(&other, &undo), Err(Error::Size { .. })));
}

/// Any byte of an undo file changed: it is refused, or the volume gets its old bytes.
#[test]
fn a_damaged_undo_file_is_refused() {
    let marks = [(0, 9), (5, 1), (30, 2)];
    let (volume, plan) = planned(device(&marks), Scope::All);
    let undo = undo_for(&plan);
    plan.apply(&*volume, &undo).unwrap();
    let (repaired, len) = (bytes(&*volume), usize::try_from(file_size(&plan.changes)).unwrap());
    for at in (0..len).step_by(7).chain(0..48) {
        let damaged = undo.fork();
        let byte = damaged.read_at(at as u64, 1).unwrap()[0];
        damaged.load(at as u64, &[!byte]);
        let volume = MemoryDevice::from_image(&repaired);
        match take_back(&volume, &damaged) {
            Ok(_) => assert!(bytes(&volume) == bytes(&device(&marks)), "byte {at}"),
            Err(_) => assert!(bytes(&volume) == repaired, "byte {at}"),
        }
    }
}
