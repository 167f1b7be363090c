//! Repairs on devices that fail, judged by fsck.f2fs.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_check::repair::Scope;
use cairn_testkit::crash::write_image;
use cairn_testkit::deep;
use cairn_testkit::judge::fsck_f2fs;

use crate::inject::Target;
use crate::repair::{damaged, plan};
use crate::repair_faults::Subject;

#[test]
fn a_repair_on_a_failing_device_happens_or_not() {
    let target = Target::new(&[]);
    // Without its levels the root seems to have no names: links, counts and the SIT follow.
    let root = target.inode_of(3);
    let mut injection = target.inject_nat(2, crate::fields::NAT[2], 5000);
    let mut bytes = target.read(root);
    bytes[12] ^= 9;
    bytes[72..76].fill(0);
    injection.blocks.push((root, bytes));
    let image = tempfile::NamedTempFile::new().unwrap();
    let subject = Subject {
        device: damaged(&target, &injection),
        plan: &|device: Arc<dyn BlockDevice>| {
            plan(&device, Scope::All).map_err(|error| error.to_string())
        },
        judge: &|device, named| {
            write_image(device, image.path()).unwrap();
            let verdict = fsck_f2fs(image.path());
            assert!(verdict.is_clean(), "{named}: {}", verdict.output);
        },
    };
    subject.every_read_of_the_plan_may_fail(if deep() { 1 } else { 37 });
    subject.every_write_of_the_change_may_fail();
    subject.without_room_for_the_undo_file_nothing_changes();
}
