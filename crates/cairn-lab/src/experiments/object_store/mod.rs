//! `object-store`: what filesystems on an object volume cost: requests, bytes, money and time.
//!
//! | table | what is done |
//! |---|---|
//! | `fsync` | clients that each fsync a new file, over and over |
//! | `stream` | a large file, and the device itself, against what the store takes |
//! | `listing` | `ls -lR` of many files behind a cold cache |
//! | `copies` | a snapshot and a clone of a large volume |
//! | `cleaning` | repacking objects that are mostly dead, and removing them |
//!
//! The volume is a log of objects ([`cairn_objects`]). In `fsync`, F2FS is also on zones that are
//! an object each ([`zones`]): what its own log costs without one below it.

mod copies;
mod goals;
mod slow;
mod work;
mod zones;

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_objects::store::Store;
use cairn_objects::volume::{CreateOptions, ObjectVolume, Options, create_in};

use self::slow::Slow;
use crate::error::Result;
use crate::experiment::{Context, Experiment, Findings};

/// The entry in [`crate::experiments`].
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "object-store",
    question: "What do ext4 and F2FS on an object volume cost: requests, bytes, money, time?",
    run,
    about: None,
};

/// A volume as a log of objects.
const LOG: &str = "log volume";
/// Bytes of a whole object.
const OBJECT: u64 = 8 << 20;
const VOLUME: &str = "disk";

fn run(context: &Context) -> Result<Findings> {
    let sections = vec![
        work::fsync(context)?,
        work::stream(context)?,
        work::listing(context)?,
        copies::copies(context)?,
        copies::cleaning(context)?,
    ];
    Ok(Findings { goals: goals::all(&sections), sections, notes: notes() })
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "The store is in memory. A PUT takes {} ms, any other request {} ms, and each byte the \
             time of {} MiB/s; requests run beside each other. Money is that of a large provider: \
             5 $ for a million PUTs and LISTs, 0.4 $ for a million GETs, DELETEs are free; bytes \
             cost nothing inside its network.",
            slow::PUT.as_millis(),
            slow::OTHER.as_millis(),
            slow::BYTES_PER_S >> 20
        ),
        "object zones: F2FS on a zoned device, a zone of 8 MiB for each section. A flush makes one \
         PUT of each zone that was written since the last, of what is new in it, and one of each \
         64 KiB that was changed where zones are not in order; a reset is a DELETE. Reads are not \
         counted there."
            .to_owned(),
        "Cold: the volume is opened again, and its cache is empty.".to_owned(),
    ]
}

/// How volumes are opened: nothing happens in the background, so that all requests have a cause.
fn options() -> Options {
    Options { reclaim: false, ..Options::default() }
}

/// A new volume.
fn create(store: &Arc<Slow>, size: u64) -> Result<Arc<ObjectVolume>> {
    let made = CreateOptions { object_size: OBJECT };
    let store: Arc<dyn Store> = store.clone();
    create_in(store.clone(), VOLUME, size, &made, &options())?;
    open(&store)
}

/// Opens the volume with an empty cache.
fn open(store: &Arc<dyn Store>) -> Result<Arc<ObjectVolume>> {
    Ok(Arc::new(ObjectVolume::open_in(store.clone(), VOLUME, &options())?))
}

/// Closes a volume that nobody else has.
fn close(volume: Arc<ObjectVolume>) -> Result<()> {
    Arc::into_inner(volume).map_or(Ok(()), |volume| Ok(volume.close()?))
}

/// The volume as a device.
fn device(volume: &Arc<ObjectVolume>) -> Arc<dyn BlockDevice> {
    volume.clone()
}
