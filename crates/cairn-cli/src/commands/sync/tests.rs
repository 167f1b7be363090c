//! The power fails at each barrier of a run, and each of its writes and flushes fails: what is left
//! is whole, and a second run finishes it.

use std::path::Path;
use std::sync::Arc;

use cairn::{ImageSpec, OpenOptions};
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_testkit::crash::{Recording, read_image, write_image};
use cairn_testkit::tree::{PathTarget, TreeSpec, VolumeTarget, build, plan};
use cairn_testkit::{deep, judge};

use super::*;

const FORMATS: [&str; 2] = ["ext4", "f2fs"];

/// What a run starts from.
struct Case {
    format: &'static str,
    dir: tempfile::TempDir,
    before: MemoryDevice,
    wanted: Tree,
}

fn spec(seed: u64) -> TreeSpec {
    TreeSpec { size_max: 30_000, ..TreeSpec::small(seed) }
}

impl Case {
    fn new(format: &'static str) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (image, source) = (dir.path().join("image"), dir.path().join("source"));
        match format {
            "ext4" => judge::mke2fs(&image, 24 << 20, &["-t", "ext4", "-J", "size=4"]),
            _ => judge::mkfs_f2fs(&image, 64 << 20, &[]),
        }
        let volume = cairn::open(&ImageSpec::whole(&image), &OpenOptions::default()).unwrap();
        build(&VolumeTarget::new(&**volume.filesystem()), &plan(&spec(1)));
        volume.filesystem().unmount().unwrap();
        std::fs::create_dir(&source).unwrap();
        build(&PathTarget::new(&source), &plan(&spec(2)));
        let wanted = tree(&format!("{}/", source.display()));
        let before = read_image(&image).unwrap();
        Self { format, dir, before, wanted }
    }

    fn image(&self) -> std::path::PathBuf {
        self.dir.path().join("image")
    }

    /// What has to change on the image.
    fn plan(&self) -> Plan {
        let options = CompareOptions { times: true, quick: false };
        let present = tree(&self.image().display().to_string());
        Plan::new(&present, &self.wanted, options, false, &LeftAlone::default()).unwrap()
    }

    /// Changes a device that holds the image of the file.
    fn run(&self, device: Arc<dyn BlockDevice>) -> Result<(), String> {
        let plan = self.plan();
        let volume = cairn::open_on(device, Threads::new(), &OpenOptions::default());
        let volume = volume.map_err(|cause| cause.to_string())?;
        let fs = &**volume.filesystem();
        let done = apply(fs, &self.wanted, &plan, &mut |_, _| Ok(()));
        let closed = fs.unmount().map_err(|error| error.to_string());
        done.map_err(|failure| failure.to_string()).and(closed)
    }

    /// What an interrupted run has left: whole after recovery, and a second run finishes it.
    fn check(&self, left: &MemoryDevice, named: &str) {
        let image = self.image();
        write_image(left, &image).unwrap();
        let volume = cairn::open(&ImageSpec::whole(&image), &OpenOptions::default());
        volume.unwrap_or_else(|error| panic!("{named}: {error}")).filesystem().unmount().unwrap();
        judged(self.format, &image);
        let device = Arc::new(read_image(&image).unwrap());
        self.run(device.clone()).unwrap_or_else(|error| panic!("{named}: {error}"));
        write_image(&device, &image).unwrap();
        assert!(self.plan().is_empty(), "{named}: a second run does not finish it");
        judged(self.format, &image);
        write_image(&self.before, &image).unwrap();
    }
}

fn judged(format: &str, image: &Path) {
    match format {
        "ext4" => judge::assert_clean(image),
        _ => judge::assert_f2fs_clean(image),
    }
}

fn tree(name: &str) -> Tree {
    let source = Source { name: name.into(), platform: None };
    assemble(&[source], Rules::default(), Limits::UNBOUNDED, std::env::temp_dir()).unwrap()
}

/// Some of `count` numbers from 1 on, or all with `CAIRN_DEEP`.
fn some(count: u64, most: u64) -> impl Iterator<Item = u64> {
    let step = if deep() { 1 } else { count.div_ceil(most) };
    (1..=count).step_by(usize::try_from(step.max(1)).unwrap())
}

#[test]
fn a_power_cut_leaves_what_a_second_run_finishes() {
    for format in FORMATS {
        let case = Case::new(format);
        let recording = Recording::start(case.before.fork());
        case.run(recording.device()).unwrap();
        let log = recording.finish();
        let log = match format {
            "f2fs" => log.with_whole(judge::node_blocks_of(&case.before)),
            _ => log,
        };
        let cuts = log.barrier_cuts();
        let mut checked: Vec<_> =
            some(cuts.len() as u64, 6).map(|nth| cuts[nth as usize - 1]).collect();
        checked.extend(log.random_cuts(if deep() { 100 } else { 3 }, 7));
        for cut in checked {
            case.check(&log.device(cut), &format!("{format}, {cut}"));
        }
    }
}

#[test]
fn a_write_that_fails_leaves_what_a_second_run_finishes() {
    for format in FORMATS {
        let case = Case::new(format);
        for operation in [Operation::Write, Operation::Flush] {
            let count = {
                let fault = Arc::new(Fault::new(Arc::new(case.before.fork())));
                case.run(fault.clone()).unwrap();
                fault.count(operation)
            };
            for nth in some(count, 4) {
                let named = format!("{format}, {operation:?} {nth} of {count}");
                let left = Arc::new(case.before.fork());
                let fault = Arc::new(Fault::new(left.clone()));
                fault.fail(operation, nth, Lasting::Forever);
                assert!(case.run(fault).is_err(), "{named}: nobody is told");
                case.check(&left, &named);
            }
        }
    }
}
