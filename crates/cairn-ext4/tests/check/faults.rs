//! Repairs on devices that fail, judged by e2fsck.

use cairn_base::runtime::threads::Threads;
use cairn_check::repair::Scope;
use cairn_testkit::deep;

use crate::injected::image;
use crate::repair_faults::Subject;
use crate::repaired::{complaint, injected};

#[test]
fn a_repair_on_a_failing_device_happens_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let (sound, hurt) = (dir.path().join("sound"), dir.path().join("hurt"));
    image(&sound, &["-t", "ext4", "-b", "1024", "-N", "512"]);
    let subject = Subject {
        device: injected(&sound, &hurt, "clri /tree"),
        plan: &|device| {
            cairn_ext4::check::repair::plan(
                &device,
                Threads::new(),
                std::sync::Arc::new(()),
                Scope::All,
            )
            .map_err(|error| error.to_string())
        },
        judge: &|device, named| {
            let said = complaint(device, &hurt);
            assert!(said.is_none(), "{named}: {}", said.unwrap_or_default());
        },
    };
    subject.every_read_of_the_plan_may_fail(if deep() { 1 } else { 7 });
    subject.every_write_of_the_change_may_fail();
    subject.without_room_for_the_undo_file_nothing_changes();
}
