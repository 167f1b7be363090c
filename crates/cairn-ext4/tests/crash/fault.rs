//! Failing devices: `cairn_testkit::faults` with e2fsck as the judge.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Operation};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::faults::{self, FaultSubject, create, kept, write};
use cairn_testkit::judge::e2fsck_preen;
use cairn_vfs::{
    Caller, Error, FileExtent, FileSystem, IoFlags, NewInode, OpenMode, RenameMode, Result,
    SetAttributes,
};

use crate::run::{format, open, shm};
use crate::search::clean;

struct Subject;

impl FaultSubject for Subject {
    fn open(
        &self,
        device: Arc<dyn BlockDevice>,
        simulated: &Arc<Simulated>,
        options: &str,
    ) -> Arc<dyn FileSystem> {
        open(device, simulated.clone(), options).expect("it opens")
    }

    fn workload(&self, fs: &dyn FileSystem, simulated: &Simulated) -> Result<()> {
        workload(fs, simulated)
    }

    /// e2fsck recovers a copy.
    fn left(&self, device: MemoryDevice, named: &str) -> Vec<Arc<MemoryDevice>> {
        let dir = shm();
        let image = dir.path().join("left");
        write_image(&device, &image).expect("the image is written");
        let verdict = e2fsck_preen(&image);
        assert!(
            (0..=1).contains(&verdict.status),
            "{named}: e2fsck -p exits {}:\n{}",
            verdict.status,
            verdict.output
        );
        clean(&image, "after e2fsck -p").unwrap_or_else(|error| panic!("{named}: {error}"));
        vec![Arc::new(read_image(&image).expect("the image is there")), Arc::new(device)]
    }

    fn judge(&self, device: &MemoryDevice, named: &str) {
        let dir = shm();
        let image = dir.path().join("recovered");
        write_image(device, &image).expect("the image is written");
        clean(&image, "after the fault").unwrap_or_else(|error| panic!("{named}: {error}"));
    }
}

/// It touches every kind of write: log, commit record, data, checkpoint, orphans, superblock.
fn workload(fs: &dyn FileSystem, simulated: &Simulated) -> Result<()> {
    for round in 0..3_u8 {
        let name = format!("file{round}");
        let ino = create(fs, &name)?;
        write(fs, ino, 0, &[round + 1; 16_384])?;
        fs.fsync(ino, 0, false)?;
        fs.setattr(ino, &SetAttributes { size: Some(4096), ..SetAttributes::default() })?;
        let dir = fs.create(
            fs.root(),
            format!("dir{round}").as_bytes(),
            NewInode::Directory,
            0o755,
            &Caller::ROOT,
        )?;
        fs.rename(fs.root(), name.as_bytes(), dir.ino, b"moved", RenameMode::Replace)?;
        fs.sync()?;
        simulated.run_until_idle();
        fs.unlink(dir.ino, b"moved")?;
        fs.forget(ino, 1);
        fs.rmdir(fs.root(), format!("dir{round}").as_bytes())?;
        fs.forget(dir.ino, 1);
    }
    fs.sync()
}

/// A volume with one synced file.
fn prepared(args: &[&str], megabytes: u64) -> Arc<MemoryDevice> {
    let dir = shm();
    let device = Arc::new(format(dir.path(), args, megabytes).fork());
    faults::prepare(&Subject, &device);
    device
}

/// [`faults::every_fault`] on a new volume.
pub fn every_fault(
    args: &[&str],
    megabytes: u64,
    operation: Operation,
    step: u64,
    options: &str,
) -> u64 {
    faults::every_fault(&Subject, &prepared(args, megabytes), operation, step, options)
}

/// A failed write in the background: each open handle gets the error once, and the data is kept and
/// written by the next write-back.
#[test]
fn each_handle_hears_of_a_failed_write_once() {
    let fault = Arc::new(Fault::new(prepared(&["-t", "ext4"], 16)));
    let simulated = Simulated::new(1);
    let fs = open(fault.clone(), simulated.clone(), "").unwrap();
    let ino = kept(&*fs);
    let mode = OpenMode { write: true, ..OpenMode::default() };
    let handles = [fs.open(ino, mode).unwrap(), fs.open(ino, mode).unwrap(), 0];
    let mut place = 0;
    let mut first = |extent: FileExtent| {
        place = extent.physical;
        false
    };
    fs.extents(ino, 0, 4096, true, &mut first).unwrap();
    fs.write(ino, 0, &[1; 4096], IoFlags::empty()).unwrap();
    fault.fail_range(Operation::Write, place..place + 4096);
    // Until write-back finds it old enough.
    simulated.advance(Duration::from_secs(60));
    fault.clear();
    for handle in handles {
        let told = fs.fsync(ino, handle, false).expect_err("this handle has not heard of it");
        assert!(
            matches!(told, Error::Io(_)) && told.to_string().contains("injected fault"),
            "told as {told}"
        );
        fs.fsync(ino, handle, false).expect("this handle has heard of it");
    }
    let late = fs.open(ino, mode).unwrap();
    fs.fsync(ino, late, false).expect("others have heard of it");
    let mut buf = [0; 4096];
    fs.read(ino, 0, &mut buf, IoFlags::DIRECT).unwrap();
    assert_eq!(buf, [1; 4096]);
    [handles[0], handles[1], late].into_iter().for_each(|handle| fs.release(ino, handle));
    fs.unmount().unwrap();
}
