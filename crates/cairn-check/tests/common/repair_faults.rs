//! Repairs on devices that fail, for the tests of each format: at each read of the plan, at each
//! write, flush and read of the change, and with an undo file for which there is no room.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Plan;
use cairn_check::repair::undo::{Error, file_size, take_back};

/// A damaged volume.
pub struct Subject<'a> {
    /// It is repaired in several steps.
    pub device: MemoryDevice,
    /// Plans its repair.
    pub plan: &'a dyn Fn(Arc<dyn BlockDevice>) -> Result<Plan, String>,
    /// Panics if something is wrong with a repaired one.
    pub judge: &'a dyn Fn(&MemoryDevice, &str),
}

impl Subject<'_> {
    fn planned(&self) -> Plan {
        let plan = (self.plan)(Arc::new(self.device.fork())).unwrap();
        assert!(plan.steps.count() > 1 && !plan.is_refused && !plan.changes.is_empty());
        plan
    }

    /// A read that fails is an error, a finding, or of no consequence: what is planned is right.
    pub fn every_read_of_the_plan_may_fail(&self, step: usize) {
        let (mut failed, mut refused, mut planned) = (0, 0, 0);
        for lasting in [Lasting::Once, Lasting::Forever] {
            for nth in (1..).step_by(step) {
                let named = format!("read {nth}, {lasting:?}");
                let fault = Arc::new(Fault::new(Arc::new(self.device.fork())));
                fault.fail(Operation::Read, nth, lasting);
                let plan = (self.plan)(fault.clone());
                if fault.count(Operation::Read) < nth {
                    break;
                }
                match plan {
                    Err(why) => {
                        assert!(!why.is_empty());
                        failed += 1;
                    }
                    Ok(plan) if plan.is_refused => {
                        assert!(plan.changes.is_empty() && plan.after.count() > 0, "{named}");
                        refused += 1;
                    }
                    Ok(plan) => {
                        let after = self.device.fork();
                        plan.apply(&after, &MemoryDevice::new(file_size(&plan.changes))).unwrap();
                        (self.judge)(&after, &named);
                        planned += 1;
                    }
                }
            }
        }
        println!("{failed} failed, {refused} refused, {planned} planned");
        assert!(failed + refused > 3, "{failed} failed, {refused} refused");
    }

    /// A write or flush that fails: the volume is as before, or the undo file makes it so.
    pub fn every_write_of_the_change_may_fail(&self) {
        let plan = self.planned();
        let original = bytes(&self.device);
        let mut faults = 0;
        for operation in [Operation::Write, Operation::Flush, Operation::Read] {
            for lasting in [Lasting::Once, Lasting::Forever] {
                for nth in 1.. {
                    let named = format!("{operation:?} {nth}, {lasting:?}");
                    let failing = Fault::new(Arc::new(self.device.fork()));
                    failing.fail(operation, nth, lasting);
                    if operation == Operation::Read {
                        // Only who takes back reads.
                        failing.fail(Operation::Flush, 1, Lasting::Once);
                    }
                    let undo = MemoryDevice::new(file_size(&plan.changes));
                    let told = plan.apply(&failing, &undo);
                    let is_hit = failing.count(operation) >= nth;
                    failing.clear();
                    match told {
                        Ok(()) => {
                            assert!(!is_hit, "{named}");
                            break;
                        }
                        Err(Error::Unchanged(_)) => {}
                        Err(Error::Partly(_)) => drop(take_back(&failing, &undo).unwrap()),
                        Err(other) => panic!("{named}: {other}"),
                    }
                    assert!(bytes(&failing) == original, "{named}");
                    if !is_hit {
                        break;
                    }
                    faults += 1;
                }
            }
        }
        assert!(faults > 5, "{faults}");
    }

    /// The disk of the undo file gets full at any of its writes: the volume is not written.
    pub fn without_room_for_the_undo_file_nothing_changes(&self) {
        let plan = self.planned();
        let original = bytes(&self.device);
        let mut full = 0;
        for nth in 1.. {
            let undo = Fault::new(Arc::new(MemoryDevice::new(file_size(&plan.changes))));
            undo.fill_at(nth, 0);
            let volume = self.device.fork();
            match plan.apply(&volume, &undo) {
                Ok(()) => break,
                Err(Error::Write(why)) => assert!(!why.to_string().is_empty()),
                Err(other) => panic!("write {nth}: {other}"),
            }
            assert!(bytes(&volume) == original, "write {nth}");
            undo.clear();
            assert!(matches!(take_back(&volume, &undo), Err(Error::NoFile { .. })), "write {nth}");
            full += 1;
        }
        assert!(full > 2, "{full}");
    }
}

fn bytes(device: &dyn BlockDevice) -> Vec<u8> {
    let len = usize::try_from(device.geometry().size).unwrap();
    device.read_at(0, len).unwrap().to_vec()
}
