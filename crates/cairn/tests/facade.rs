//! What the facade's signatures need is in the facade: this names no other crate of the library.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use cairn::block::{BlockDevice, BlockDeviceExt, MemoryDevice};
use cairn::checking::{Observer, Phase, Report, Scope};
use cairn::runtime::{Runtime, Threads};
use cairn::stats::Report as Statistics;
use cairn::vfs::{self, Attributes, Caller, FileSystem, IoFlags, NewInode, OpenMode, walk};
use cairn::{CheckProgress, Format, ImageSpec, Ino, MkfsOptions, OpenOptions, Volume};

#[derive(Default)]
struct Watch {
    phases: AtomicU64,
    ends: AtomicBool,
}

impl Observer for Watch {
    fn begin(&self, phase: Phase) {
        assert!(phase.number >= 1 && phase.number <= phase.of);
        self.phases.fetch_add(1, Relaxed);
    }

    fn done(&self, _: u64) {}

    fn is_cancelled(&self) -> bool {
        self.ends.load(Relaxed)
    }
}

fn written(filesystem: &dyn FileSystem) -> vfs::Result<(Ino, Attributes)> {
    let root = filesystem.root();
    let made = filesystem.create(root, b"file", NewInode::Regular, 0o644, &Caller::ROOT)?;
    let handle = filesystem.open(made.ino, OpenMode::default())?;
    filesystem.write(made.ino, 0, b"contents", IoFlags::empty())?;
    filesystem.release(made.ino, handle);
    Ok((root, walk::resolve(filesystem, b"/file", true)?))
}

#[test]
fn a_program_needs_no_other_crate() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(32 << 20));
    let options = MkfsOptions::new(Format::Ext4);
    cairn::mkfs_on(device.clone(), &options).unwrap();
    assert_eq!(device.read_at(1024 + 56, 2).unwrap().to_vec(), [0x53, 0xef]);
    let threads: Arc<dyn Runtime> = Threads::new();
    let volume: Volume = cairn::open_on(device, threads, &OpenOptions::default()).unwrap();
    let (root, file) = written(&**volume.filesystem()).unwrap();
    assert!(root != file.ino && file.size == 8);
    let statistics: Statistics = volume.filesystem().report();
    assert!(statistics.iter().count() > 3);
    volume.close().unwrap();
}

#[test]
fn a_check_is_watched_and_ended() {
    let dir = tempfile::tempdir().unwrap();
    let image = ImageSpec::whole(dir.path().join("image"));
    let options = MkfsOptions { size: Some(32 << 20), ..MkfsOptions::new(Format::Ext4) };
    cairn::mkfs(&image, &options).unwrap();
    let watch = Arc::new(Watch::default());
    let report: Report = cairn::check(&image, &[], watch.clone()).unwrap().report;
    assert!(report.findings.is_empty() && watch.phases.load(Relaxed) > 1);
    watch.ends.store(true, Relaxed);
    assert!(cairn::check(&image, &[], watch.clone()).unwrap().report.cancelled);
    let planned = cairn::plan_repair(&image, &[], Scope::All, false, watch).unwrap();
    assert!(planned.plan.after.cancelled && planned.plan.changes.is_empty());

    // In the thread of the caller, which need not be shared.
    let mut seen = Vec::new();
    let checked = cairn::check_watched(&image, &[], &mut |progress: CheckProgress| {
        seen.push(progress);
        ControlFlow::Continue(())
    });
    assert!(!checked.unwrap().report.cancelled);
    let phases = seen.iter().map(|progress| progress.phase.number);
    assert!(phases.clone().is_sorted() && phases.max() == seen.last().map(|last| last.phase.of));
    let mut calls = 0;
    let ended = cairn::check_watched(&image, &[], &mut |_| {
        calls += 1;
        ControlFlow::Break(())
    });
    assert!(ended.unwrap().report.cancelled && calls == 1);
}
