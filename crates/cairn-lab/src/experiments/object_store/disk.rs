//! The volume below the filesystems: how it is made, opened and closed.

use std::path::Path;
use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_objects::store::Store;
use cairn_objects::volume::{
    CreateOptions, LogOptions, LogPlace, ObjectVolume, Options, Refused, create_in,
};

use super::slow::Slow;
use crate::error::Result;

/// A volume as a log of objects.
pub(super) const LOG: &str = "log volume";
/// The same, with a local log.
pub(super) const LOCAL_LOG: &str = "with a local log";
/// Most bytes of that.
const LOCAL_LOG_SIZE: u64 = 256 << 20;
/// Bytes of a whole object.
pub(super) const OBJECT: u64 = 8 << 20;
pub(super) const VOLUME: &str = "disk";

/// How volumes are opened: nothing happens in the background, so that all requests have a cause.
pub(super) fn options() -> Options {
    Options { reclaim: false, ..Options::default() }
}

/// A new volume.
pub(super) fn create(store: &Arc<Slow>, size: u64) -> Result<Arc<ObjectVolume>> {
    create_with(store, size, options())
}

/// A new volume with a local log, which is a new file.
pub(super) fn create_logged(
    store: &Arc<Slow>,
    size: u64,
    file: &Path,
) -> Result<Arc<ObjectVolume>> {
    let place = LogPlace::File(file.to_owned());
    let log = LogOptions { place, size: LOCAL_LOG_SIZE, refused: Refused::Fail };
    create_with(store, size, Options { log: Some(log), ..options() })
}

fn create_with(store: &Arc<Slow>, size: u64, options: Options) -> Result<Arc<ObjectVolume>> {
    let made = CreateOptions { object_size: OBJECT, ..CreateOptions::default() };
    let store: Arc<dyn Store> = store.clone();
    create_in(store.clone(), VOLUME, size, &made, &options)?;
    Ok(Arc::new(ObjectVolume::open_in(store, VOLUME, &options)?))
}

/// Opens the volume with an empty cache.
pub(super) fn open(store: &Arc<dyn Store>) -> Result<Arc<ObjectVolume>> {
    Ok(Arc::new(ObjectVolume::open_in(store.clone(), VOLUME, &options())?))
}

/// Closes a volume that nobody else has.
pub(super) fn close(volume: Arc<ObjectVolume>) -> Result<()> {
    Arc::into_inner(volume).map_or(Ok(()), |volume| Ok(volume.close()?))
}

/// The volume as a device.
pub(super) fn device(volume: &Arc<ObjectVolume>) -> Arc<dyn BlockDevice> {
    volume.clone()
}
