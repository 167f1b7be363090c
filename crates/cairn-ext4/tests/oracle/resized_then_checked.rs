//! e2fsck between a change of the size of a volume without a journal that was cut, and the next one
//! who opens the volume: e2fsck does not know the record of the change, and ends it in its own way.
//! What it leaves is the volume, and nobody finishes the change over it.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_ext4::check::check;
use cairn_ext4::{Info, resize};
use cairn_testkit::crash::{Recording, read_image, write_image};
use cairn_testkit::judge::{KernelMount, command};
use cairn_testkit::tree::{SnapshotOptions, digest_path, digest_volume};

use crate::checked::assert_clean;
use crate::resize::{SPREAD, digest, is_marked_clean, least_of, resized, spread};
use crate::support::{self, open};

/// States of which this many are judged.
const JUDGED: usize = 4;

#[test]
fn what_e2fsck_makes_of_a_change_that_was_cut_stays() {
    let before = spread(SPREAD, &["-t", "ext2", "-b", "1024"], 3);
    let least = least_of(&before);
    let recording = Recording::start(before.fork());
    resize::resize(recording.device(), Arc::new(Threads::new()), least).unwrap();
    let log = recording.finish();
    let mut cuts = log.barrier_cuts();
    cuts.extend(log.random_cuts(12, 17));
    cuts.retain(|cut| !is_marked_clean(&log.device(*cut)));
    assert!(cuts.len() > 1, "{} states are unfinished", cuts.len());
    let every = if cairn_testkit::deep() { 1 } else { cuts.len().div_ceil(JUDGED) };
    let image = tempfile::NamedTempFile::new().unwrap();
    for cut in cuts.into_iter().step_by(every) {
        let state: Arc<dyn BlockDevice> = Arc::new(log.device(cut));
        // Who only reads sees the change as finished.
        let report = check(state.clone(), Arc::new(Threads::new()), Arc::new(())).unwrap();
        assert!(report.count() == 0, "{:?}", report.findings);
        assert_eq!(report.recovered, ["record of an interrupted change"]);
        let info = Info::of_device(&state, 0).unwrap().unwrap();
        assert_eq!(info.blocks * u64::from(info.block_size), least, "{info:?}");
        assert_eq!((info.blocks, info.state), (report.usage.blocks_most, "needs recovery"));
        let advice = info.needs_check.unwrap();
        assert!(advice.contains("interrupted") && !advice.contains("e2fsck"), "{advice}");
        write_image(&log.device(cut), image.path()).unwrap();
        command("e2fsck").arg("-fy").arg(image.path()).output().expect("e2fsck starts");
        assert_clean(image.path());
        let kernel = KernelMount::new(image.path(), "ro");
        let seen = digest_path(kernel.path(), SnapshotOptions::default()).unwrap();
        kernel.unmount();
        let settled = Arc::new(read_image(image.path()).unwrap());
        let read_only = open(&settled, "ro");
        digest_volume(&*read_only, SnapshotOptions::default()).unwrap().assert_same(&seen);
        digest(&settled).assert_same(&seen);
        support::judge(&settled);
        resized(&settled, least_of(&settled)).unwrap();
        support::judge(&settled);
        digest(&settled).assert_same(&seen);
    }
}
