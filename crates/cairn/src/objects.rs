//! Volumes in object stores: opening, making and removing them, and what the volumes of a pool
//! share. docs/object-volumes.md has the layout.
//!
//! The manifest says who has a volume open for writing. A reader is refused then, as with every
//! other image: it would see the last flush at best. A snapshot can be read at any time.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Weak};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::stats::Report;
use cairn_block::file::{FileDevice, OpenOptions as FileOptions};
use cairn_block::{BlockDevice, ErrorKind};
use cairn_objects::pool::Pool;
use cairn_objects::store::connect::connect;
use cairn_objects::volume::{CreateOptions, LogOptions, LogPlace, ObjectVolume, Options, TakeOver};

use crate::error::{Cause, Error, Result};
use crate::image::{ImageSpec, Location, ObjectImage, Part};
use crate::transfer::copy as copy_range;

pub use cairn_objects::Address;
pub use cairn_objects::address::is_address;
pub use cairn_objects::pool::{Collected, Copy, Listing, Unreadable};
pub use cairn_objects::store::Stranger;
pub use cairn_objects::volume::Refused;

fn options(volume: &ObjectImage, write: bool) -> Options {
    Options {
        read_only: !write,
        exclusive: true,
        take_over: if volume.take_over { TakeOver::Unseen } else { TakeOver::Never },
        cache: volume.memory,
        cache_directory: volume.cache.clone().map(|path| (path, volume.cache_size)),
        log: volume.log.clone().map(|path| LogOptions {
            place: LogPlace::File(path),
            size: volume.log_size,
            refused: volume.log_refused.clone(),
        }),
        ..Options::default()
    }
}

fn refused(image: &impl ToString) -> impl Fn(cairn_block::Error) -> Error {
    |error| Error::new(image.to_string(), Cause::Open(error))
}

/// Opens a volume. A writer claims it; a reader is refused while there is one.
pub(crate) fn open(
    image: &ImageSpec,
    volume: &ObjectImage,
    write: bool,
) -> Result<Arc<dyn BlockDevice>> {
    let opened = connect(&volume.address.place).and_then(|store| {
        ObjectVolume::open_in(store, &volume.address.volume, &options(volume, write))
    });
    let opened = Arc::new(opened.map_err(refused(image))?);
    let mut all = OPEN.lock();
    all.retain(|(_, volume)| volume.strong_count() > 0);
    all.push((volume.address.clone(), Arc::downgrade(&opened)));
    drop(all);
    Ok(opened)
}

/// Volumes that this process has open.
static OPEN: Mutex<Vec<(Address, Weak<ObjectVolume>)>> = Mutex::new(Rank::Leaf, Vec::new());

/// Counters of the object volumes that this process has open, with their addresses: requests,
/// flushes, objects, and how it stands with a local log.
#[must_use]
pub fn reports() -> Vec<Report> {
    // Whoever drops the last reference closes the volume, which is not done under a lock.
    let open: Vec<_> = OPEN.lock().clone();
    let alive = open.iter().filter_map(|(address, volume)| Some((address, volume.upgrade()?)));
    let report = |(address, volume): (&Address, Arc<ObjectVolume>)| {
        let mut report = Report::new().with("address", address.to_string());
        report.merge(volume.report());
        report
    };
    alive.map(report).collect()
}

/// True if a filesystem has stopped with this reason because another writer has taken its volume
/// over: opening it again does not bring back what was not flushed.
#[must_use]
pub fn is_taken_over(reason: &str) -> bool {
    reason.contains(cairn_objects::volume::TAKEN_OVER)
}

/// For a process that is about to end, and has unmounted its filesystems: nobody is the writer of
/// its object volumes afterwards, even if threads still hold them. Otherwise other machines could
/// not know that the process has ended.
///
/// # Errors
/// The store, or another writer has the volume. Nothing that was flushed is lost.
pub fn release_all() -> cairn_block::Result<()> {
    let open = std::mem::take(&mut *OPEN.lock());
    let open: Vec<_> = open.iter().filter_map(|(_, volume)| volume.upgrade()).collect();
    open.iter().try_for_each(|volume| volume.release())
}

/// Opens a volume for reading, whoever writes it: what that one has flushed is there.
pub(crate) fn open_unclaimed(
    image: &ImageSpec,
    volume: &ObjectImage,
) -> Result<Arc<dyn BlockDevice>> {
    let options = Options { exclusive: false, ..options(volume, false) };
    cairn_objects::open(&volume.address, &options).map_err(refused(image))
}

/// The size of a volume; none if there is no such volume.
pub(crate) fn size(image: &ImageSpec, volume: &ObjectImage) -> Result<Option<u64>> {
    match open_unclaimed(image, volume) {
        Ok(device) => Ok(Some(device.geometry().size)),
        Err(error) => match error.cause() {
            Cause::Open(why) if why.kind == ErrorKind::NotFound => Ok(None),
            _ => Err(error),
        },
    }
}

/// Makes a volume, which reads as zeros.
pub(crate) fn create(image: &ImageSpec, volume: &ObjectImage, size: u64) -> Result<()> {
    let made = CreateOptions::default();
    cairn_objects::create(&volume.address, size, &made, &options(volume, true))
        .map_err(refused(image))
}

/// Gives a volume's disk another size.
pub(crate) fn resize(image: &ImageSpec, volume: &ObjectImage, size: u64) -> Result<()> {
    connect(&volume.address.place)
        .and_then(|store| {
            ObjectVolume::open_in(store, &volume.address.volume, &options(volume, true))
        })
        .and_then(|opened| opened.resize(size))
        .map_err(refused(image))
}

/// Best effort: removes a volume that could not be made.
pub(crate) fn undo(volume: &ObjectImage) {
    if let Ok(pool) = pool_of(&volume.address) {
        let _ = pool.remove(&volume.address.volume, false);
    }
}

fn pool_of(address: &Address) -> cairn_block::Result<Pool> {
    let Options { runtime, patience, .. } = Options::default();
    Ok(Pool::new(connect(&address.place)?, runtime, patience))
}

/// What is done with a pool, with an error about its address.
fn with_pool<T>(
    address: &Address,
    work: impl FnOnce(&Pool) -> cairn_block::Result<T>,
) -> Result<T> {
    pool_of(address).and_then(|pool| work(&pool)).map_err(refused(address))
}

/// The address of the volume that is all of an image.
///
/// # Errors
/// The image is something else.
pub fn address(image: &ImageSpec) -> Result<&Address> {
    match &image.location {
        Location::Objects(volume) if image.part == Part::Whole => Ok(&volume.address),
        _ => Err(Error::new(
            image,
            Cause::Address(
                "this needs the address of a volume in an object store, such as \
                 s3://BUCKET/PREFIX@NAME or file-store:///DIR@NAME"
                    .into(),
            ),
        )),
    }
}

/// The volumes and snapshots beside a volume, and those that cannot be read.
///
/// # Errors
/// Nobody has made a volume there; the store.
pub fn volumes(address: &Address) -> Result<(Vec<Listing>, Vec<Unreadable>)> {
    with_pool(address, Pool::volumes)
}

/// What lies in a pool and belongs to no volume, such as links of other users.
///
/// # Errors
/// The store.
pub fn strangers(address: &Address) -> Result<Vec<Stranger>> {
    with_pool(address, Pool::strangers)
}

/// How the name of a volume begins that is not whole. Its ID follows, so that no volume that
/// somebody has called so is taken for one.
const UNFINISHED: &str = "unfinished-";

/// Makes a volume of a file's bytes: those of the ranges, and zeros. It has its name when it is
/// whole; one that is replaced has its old contents until then. A program that dies before that
/// leaves a volume `unfinished-…` in the pool, which the next upload from this machine removes.
///
/// # Errors
/// The name is taken and `replace` is not set, or that volume is a snapshot or a writer has it
/// open; the file cannot be read, or the store fails.
pub fn upload(
    address: &Address,
    (file, size): (&Path, u64),
    data: &[Range<u64>],
    replace: bool,
) -> Result<()> {
    with_pool(address, |pool| {
        let options = Options::default();
        pool.remove_abandoned(UNFINISHED)?;
        let id = options.runtime.random();
        let made = CreateOptions { id: Some(id), ..CreateOptions::default() };
        let unfinished = Address { volume: format!("{UNFINISHED}{id:016x}"), ..address.clone() };
        let write = || {
            cairn_objects::create(&unfinished, size, &made, &options)?;
            let device = cairn_objects::open(&unfinished, &options)?;
            fill(&*device, &FileDevice::open(file, FileOptions::read())?, data)?;
            drop(device);
            match replace && pool.exists(&address.volume)? {
                true => pool.replace(&unfinished.volume, &address.volume),
                false => pool.copy(&unfinished.volume, &address.volume, Copy::Clone),
            }
        };
        let written = write();
        let removed = remove_if_there(pool, &unfinished.volume);
        written.and(removed)
    })
}

fn fill(to: &dyn BlockDevice, from: &FileDevice, data: &[Range<u64>]) -> cairn_block::Result<()> {
    data.iter().try_for_each(|range| copy_range(to, from, range.clone()))?;
    to.flush()
}

fn remove_if_there(pool: &Pool, volume: &str) -> cairn_block::Result<()> {
    match pool.remove(volume, false) {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whether there is a volume of this name.
///
/// # Errors
/// The store.
pub fn exists(address: &Address) -> Result<bool> {
    with_pool(address, |pool| pool.exists(&address.volume))
}

/// Refuses a volume that [`upload`] would not replace, such as a snapshot. A name that no volume
/// has is not refused.
///
/// # Errors
/// The volume is a snapshot, damaged, or a writer has it open; the store.
pub fn check_replaceable(address: &Address) -> Result<()> {
    with_pool(address, |pool| pool.may_replace(&address.volume))
}

/// Copies what a volume has flushed under a new name of its pool, in a few requests whatever its
/// size. The volume may be in use.
///
/// # Errors
/// There is no such volume, the new name is taken or none, or the store fails.
pub fn copy(address: &Address, name: &str, kind: Copy) -> Result<Address> {
    with_pool(address, |pool| pool.copy(&address.volume, name, kind))?;
    Ok(Address { volume: name.to_owned(), ..address.clone() })
}

/// Removes a volume. Its objects stay until [`gc`].
///
/// # Errors
/// There is no such volume, a writer has it open and `force` is not set, or the store fails.
pub fn remove(address: &Address, force: bool) -> Result<()> {
    with_pool(address, |pool| pool.remove(&address.volume, force))
}

/// Removes volumes of a pool by their names: all of them, or none if one cannot be removed. Their
/// objects stay until [`gc`].
///
/// # Errors
/// As [`remove`]; if the store fails, the first may be removed.
pub fn remove_all(address: &Address, volumes: &[String], force: bool) -> Result<()> {
    with_pool(address, |pool| pool.remove_all(volumes, force))
}

/// Removes objects that no volume of the pool needs. Volumes may be in use meanwhile.
///
/// # Errors
/// Nobody has made a volume there; the store; a damaged manifest or map, because nobody knows what
/// it needs.
pub fn gc(address: &Address) -> Result<Collected> {
    with_pool(address, Pool::gc)
}

/// Reads all objects of a volume, and compares their checksums: how many there are, and what is
/// wrong with the damaged ones.
///
/// # Errors
/// The store; a damaged manifest, map or log.
pub fn verify(address: &Address) -> Result<(u64, Vec<String>)> {
    with_pool(address, |pool| pool.verify(&address.volume))
}
