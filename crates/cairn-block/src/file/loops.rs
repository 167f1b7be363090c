//! Loop devices: the backing file of one, and the loop devices of a file.
//!
//! A file and a loop device of it have separate locks for the same bytes. So opening a loop device
//! (or a partition of one) also locks its backing file, and that file's backing file, down to the
//! last. Opening a file for writing checks all loop devices of it, because the kernel may have
//! mounted one. Each opener takes its own locks first and checks then: two that start at the same
//! time may both be refused, but never both admitted.
//!
//! Files are compared by device and inode where the system tells them (`LOOP_GET_STATUS64`): a file
//! may have been renamed or removed, or have several names.

use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::lock::{self, Share, Use};
use super::{claimant, holder, kind};
use crate::error::{Error, ErrorKind, Result};
use crate::ioctl::{self, LoopStatus};

/// Most loop devices on top of each other that are followed.
const MOST_LEVELS: usize = 8;

/// Bytes of a sector in `/sys`.
const SECTOR: u64 = 512;

/// The backing files of a loop device, with their locks.
#[derive(Debug, Default)]
pub(super) struct Beneath(Vec<File>);

impl Drop for Beneath {
    fn drop(&mut self) {
        self.0.iter().for_each(lock::release);
    }
}

/// A loop device with a backing file.
struct Loop {
    /// `loop3`.
    name: String,
    /// The backing file, if there is a path to it.
    backing: PathBuf,
    /// The part of the file.
    range: Range<u64>,
}

impl Loop {
    /// By its directory in `/sys`.
    fn at(directory: &Path) -> Option<Self> {
        let backing = holder::backing_of(directory)?;
        let number = |file: &str| read_number(&directory.join("loop").join(file)).unwrap_or(0);
        let (offset, limit) = (number("offset"), number("sizelimit"));
        let end = if limit == 0 { u64::MAX } else { offset.saturating_add(limit) };
        let name = directory.file_name()?.to_str()?.to_owned();
        Some(Self { name, backing, range: offset..end })
    }

    fn node(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    /// A range of the device as a range of the backing file.
    fn narrow(&self, inner: &Range<u64>) -> Range<u64> {
        let place = |at: u64| self.range.start.saturating_add(at).min(self.range.end);
        place(inner.start)..place(inner.end)
    }

    fn shows(&self, file: &Identity) -> bool {
        let told = File::options()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(self.node());
        match told.ok().and_then(|device| ioctl::loop_status(&device).ok()) {
            Some(status) => file.is(&status),
            // The device may not be opened, so the path is used. It is wrong once the file was
            // removed.
            None => {
                std::fs::metadata(&self.backing).is_ok_and(|found| Identity::of(&found) == *file)
            }
        }
    }
}

fn read_number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Identifies a file or block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    File { device: u64, inode: u64 },
    BlockDevice(u64),
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        if metadata.file_type().is_block_device() {
            Self::BlockDevice(metadata.rdev())
        } else {
            Self::File { device: metadata.dev(), inode: metadata.ino() }
        }
    }

    fn is(&self, status: &LoopStatus) -> bool {
        match *self {
            Self::File { device, inode } => (status.device, status.inode) == (device, inode),
            Self::BlockDevice(number) => status.rdevice != 0 && status.rdevice == number,
        }
    }
}

/// The loop device that a block device is, or is a partition of; and the range of it that the block
/// device has.
fn loop_of(number: u64) -> Option<(Loop, Range<u64>)> {
    let directory = Path::new("/sys/dev/block").join(holder::number(number)).canonicalize().ok()?;
    if let Some(found) = Loop::at(&directory) {
        return Some((found, 0..u64::MAX));
    }
    let sectors = |file: &str| Some(read_number(&directory.join(file))?.saturating_mul(SECTOR));
    let (start, size) = (sectors("start")?, sectors("size")?);
    Some((Loop::at(directory.parent()?)?, start..start.saturating_add(size)))
}

/// Takes the locks of the backing files of an open block device, and checks their other loop
/// devices.
pub(super) fn claim_beneath(
    operation: &str,
    file: &File,
    metadata: &Metadata,
    usage: Use,
) -> Result<Beneath> {
    let mut beneath = Beneath::default();
    let mut upper =
        (file.try_clone().map_err(|error| Error::from_io(operation, error))?, metadata.clone());
    let mut range = 0..u64::MAX;
    for _ in 0..MOST_LEVELS {
        if !upper.1.file_type().is_block_device() {
            break;
        }
        let Some((device, inner)) = loop_of(upper.1.rdev()) else { break };
        range = device.narrow(&narrowed(&inner, &range));
        let share = if range == (0..u64::MAX) { Share::Whole } else { Share::Part(range.clone()) };
        let status = ioctl::loop_status(&upper.0).ok();
        let Some(lower) = open_backing(&device, status.as_ref(), usage) else {
            refuse_unreachable(operation, &device, status.as_ref())?;
            break;
        };
        let metadata = lower.metadata().map_err(|error| Error::from_io(operation, error))?;
        if usage == Use::Write
            && metadata.file_type().is_block_device()
            && is_claimed(&device.backing)
        {
            return Err(claimant::claimed(operation, &device.backing));
        }
        if !lock::take(&lower, usage, &share).map_err(|error| Error::from_io(operation, error))? {
            return Err(holder::in_use(operation, &device.backing, &metadata));
        }
        let copy = lower.try_clone();
        beneath.0.push(lower);
        if usage == Use::Write {
            refuse_loops_above(operation, &metadata, &range, Some(&device.name))?;
        }
        upper = (copy.map_err(|error| Error::from_io(operation, error))?, metadata);
    }
    Ok(beneath)
}

/// A range within a range.
fn narrowed(outer: &Range<u64>, inner: &Range<u64>) -> Range<u64> {
    let place = |at: u64| outer.start.saturating_add(at).min(outer.end);
    place(inner.start)..place(inner.end)
}

/// The backing file of a loop device, if its path still leads to it.
fn open_backing(device: &Loop, status: Option<&LoopStatus>, usage: Use) -> Option<File> {
    let opened = match usage {
        // Locks of parts need a descriptor that is open for writing.
        Use::Write => kind::existing(&device.backing, true, OFlags::empty()).ok(),
        Use::Read => None,
    };
    let file = opened.or_else(|| kind::existing(&device.backing, false, OFlags::empty()).ok())?;
    let found = Identity::of(&file.metadata().ok()?);
    status.is_none_or(|status| found.is(status)).then_some(file)
}

/// A file without a name here cannot be locked. Whether another process has it locked can be found
/// out.
fn refuse_unreachable(operation: &str, device: &Loop, status: Option<&LoopStatus>) -> Result<()> {
    if !status.is_some_and(|status| holder::is_locked(status.device, status.inode)) {
        return Ok(());
    }
    let detail = format!(
        "the file that {} shows ({}) is in use by another program: end that, or unmount it",
        device.node().display(),
        device.backing.display()
    );
    Err(Error::new(ErrorKind::InUse, operation, detail))
}

/// Has the kernel or a program opened the block device exclusively?
fn is_claimed(node: &Path) -> bool {
    let flags = (OFlags::EXCL | OFlags::NONBLOCK).bits().cast_signed();
    let opened = File::options().read(true).custom_flags(flags).open(node);
    opened.is_err_and(|error| error.kind() == std::io::ErrorKind::ResourceBusy)
}

/// Where the kernel has mounted a block device or an image file: it, a loop device of it, or a
/// partition of these.
pub(super) fn mounted(metadata: &Metadata) -> Option<String> {
    let identity = Identity::of(metadata);
    let mut devices = Vec::new();
    if let Identity::BlockDevice(number) = identity {
        devices.extend(Path::new("/sys/dev/block").join(holder::number(number)).canonicalize());
    }
    let all = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let shows =
        |directory: &PathBuf| Loop::at(directory).is_some_and(|found| found.shows(&identity));
    devices.extend(all.map(|entry| entry.path()).filter(shows));
    let mut numbers = devices.iter().flat_map(|directory| claimant::numbers(directory));
    numbers.find_map(|number| holder::mountpoint(&number))
}

/// Refuses a file or block device that is in use through a loop device.
pub(super) fn refuse_loops(operation: &str, metadata: &Metadata) -> Result<()> {
    refuse_loops_above(operation, metadata, &(0..u64::MAX), None)
}

fn refuse_loops_above(
    operation: &str,
    metadata: &Metadata,
    range: &Range<u64>,
    except: Option<&str>,
) -> Result<()> {
    above(operation, Identity::of(metadata), range, except, MOST_LEVELS)
}

fn above(
    operation: &str,
    file: Identity,
    range: &Range<u64>,
    except: Option<&str>,
    levels: usize,
) -> Result<()> {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    for directory in devices.map(|entry| entry.path()) {
        let Some(device) =
            Loop::at(&directory).filter(|device| Some(device.name.as_str()) != except)
        else {
            continue;
        };
        let apart = device.range.end <= range.start || range.end <= device.range.start;
        if apart || !device.shows(&file) {
            continue;
        }
        refuse_used(operation, &device, &directory)?;
        let number = std::fs::metadata(device.node())
            .ok()
            .filter(|found| found.file_type().is_block_device());
        if let (Some(number), 1..) = (number, levels) {
            above(operation, Identity::of(&number), &(0..u64::MAX), None, levels - 1)?;
        }
    }
    Ok(())
}

/// Refuses a loop device that is in use.
fn refuse_used(operation: &str, device: &Loop, directory: &Path) -> Result<()> {
    let node = device.node();
    let in_use = |what: String| {
        let detail = format!("in use through the loop device {}{what}", node.display());
        Err(Error::new(ErrorKind::InUse, operation, detail))
    };
    if let Some(said) = claimant::mounted_by_cairn(&node) {
        return in_use(format!(", which is {said}"));
    }
    let numbers = claimant::numbers(directory);
    if let Some(mountpoint) = numbers.iter().find_map(|number| holder::mountpoint(number)) {
        return Err(claimant::mounted(operation, &node.display().to_string(), &mountpoint));
    }
    let locked = || {
        File::open(&node)
            .is_ok_and(|file| lock::is_denied(&file, Use::Write, &Share::Whole).unwrap_or(false))
    };
    if is_claimed(&node) || locked() {
        return in_use(
            ": unmount that, or end the program that has it (`losetup -a` and `findmnt -A` show \
             loop devices and mounts)"
                .to_owned(),
        );
    }
    Ok(())
}
