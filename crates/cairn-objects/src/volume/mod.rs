//! [`ObjectVolume`]: the device.

mod adoption;
mod background;
mod checkpoint;
mod claim;
mod core;
mod flush;
mod logged;
mod options;
mod read;
mod repack;
mod state;
mod write;

use std::sync::Arc;

use cairn_base::runtime::DaemonHandle;
use cairn_base::stats::Report;
use cairn_block::{
    Batch, BlockDevice, Completion, Error, ErrorKind, Geometry, IoBuf, Request, Result, bounds,
};

use self::adoption::Adoption;
use self::background::Background;
use self::claim::{Opened, claim_and_load, read};
use self::core::Core;
use self::state::State;
use crate::address::{Address, check_name};
use crate::cache::{Cache, Directory};
use crate::format::SECTOR;
use crate::format::manifest::{self, Manifest};
use crate::marks;
use crate::requests::{Created, Requests};
use crate::store::connect::connect;
use crate::store::{Counted, Counters, Store};

pub use self::core::TAKEN_OVER;
pub use crate::local_log::{LogOptions, LogPlace, Medium, MemoryMedium, Refused};
pub use options::{CreateOptions, Options, TakeOver};

/// A virtual disk in an object store.
///
/// When it is dropped, it is [closed](ObjectVolume::close), and errors of that are lost. What was
/// flushed is durable in any case.
pub struct ObjectVolume {
    core: Arc<Core>,
    daemon: Option<DaemonHandle>,
    closed: bool,
    store: Arc<Counters>,
}

/// Makes a volume of `size` bytes, which read as zeros.
///
/// # Errors
/// [`ErrorKind::Exists`] if the address has a volume, [`ErrorKind::OutOfRange`] if the size is no
/// multiple of 512 or too large, [`ErrorKind::Unsupported`] if the store ignores conditions; others
/// of the store.
pub fn create(
    address: &Address,
    size: u64,
    create: &CreateOptions,
    options: &Options,
) -> Result<()> {
    create_in(connect(&address.place)?, &address.volume, size, create, options)
}

/// Opens the volume at an address.
///
/// # Errors
/// [`ErrorKind::NotFound`], [`ErrorKind::InUse`] if another writer has it open (a reader is refused
/// only if it asks for that), [`ErrorKind::ReadOnly`] if it is a snapshot;
/// [`ErrorKind::Unsupported`] if a newer Cairn has written it or the store ignores conditions;
/// others of the store.
pub fn open(address: &Address, options: &Options) -> Result<Arc<dyn BlockDevice>> {
    Ok(Arc::new(ObjectVolume::open_in(connect(&address.place)?, &address.volume, options)?))
}

/// As [`create()`], in a store that is at hand.
///
/// # Errors
/// As [`create()`].
pub fn create_in(
    store: Arc<dyn Store>,
    volume: &str,
    size: u64,
    create: &CreateOptions,
    options: &Options,
) -> Result<()> {
    let refused = |kind, detail: String| Err(Error::new(kind, "create", detail));
    check_name(volume)
        .map_err(|bad| Error::new(ErrorKind::Unsupported, "create", bad.to_string()))?;
    check_size(size, "create")?;
    let object_size = create.object_size;
    let sizes = manifest::OBJECT_SIZES;
    if !sizes.contains(&object_size) {
        let (least, most) = (sizes.start(), sizes.end());
        let detail =
            format!("objects of {object_size} bytes cannot be: use a size from {least} to {most}");
        return refused(ErrorKind::OutOfRange, detail);
    }
    let requests = Requests::new(store, options.runtime.clone(), options.patience);
    requests.probe()?;
    let manifest = Manifest {
        version: crate::format::VERSION,
        id: create.id.unwrap_or_else(|| options.runtime.random()),
        size,
        object_size,
        epoch: 0,
        generation: 0,
        writer: None,
        read_only: false,
        incomplete: false,
        map: Vec::new(),
        replay: Vec::new(),
    };
    match requests.create(&manifest::name(volume), &[manifest.encode()])? {
        Created::Ours => marks::set(&requests, volume, "create"),
        Created::Theirs => {
            let detail =
                format!("there is a volume {volume}: choose another name, or remove it first");
            refused(ErrorKind::Exists, detail)
        }
    }
}

fn check_size(size: u64, operation: &str) -> Result<()> {
    if size == 0 || size > manifest::LARGEST || !size.is_multiple_of(SECTOR) {
        let detail = format!(
            "a disk of {size} bytes cannot be: use a multiple of {SECTOR} up to {}",
            manifest::LARGEST
        );
        return Err(Error::new(ErrorKind::OutOfRange, operation, detail));
    }
    Ok(())
}

impl ObjectVolume {
    /// Opens a volume of a store that is at hand.
    ///
    /// # Errors
    /// As [`open`].
    pub fn open_in(store: Arc<dyn Store>, volume: &str, options: &Options) -> Result<Self> {
        options.check_places(&*store)?;
        let counted = Counted::new(store);
        let counters = counted.counters();
        let runtime = options.runtime.clone();
        let nonce = runtime.random();
        let requests = Requests::new(Arc::new(counted), runtime, options.patience);
        let writes = !options.read_only;
        let adoption = Adoption::open(options)?;
        let opened = if writes {
            requests.probe()?;
            claim_and_load(&requests, volume, nonce, options.take_over, adoption)?
        } else {
            let exclusive = options.exclusive.then_some(options.take_over);
            read(&requests, volume, exclusive, adoption)?
        };
        let Opened { manifest, tag, map, replayed, adoption } = opened;
        let directory = match &options.cache_directory {
            Some((path, bytes)) => {
                let kept = Directory::new(path, *bytes);
                let operation = || format!("open the cache {}", path.display());
                Some(kept.map_err(|error| Error::from_io(operation(), error))?)
            }
            None => None,
        };
        let cache = Cache::new(requests.clone(), options.cache, directory);
        let old_logs = manifest.replay.len() - usize::from(writes);
        let (log, taken) = adoption.into_parts();
        let core = Arc::new(Core::new(
            (volume.to_owned(), requests, cache),
            (nonce, options.reclaim, options.read_only),
            (State::new(map, manifest, tag), log),
        ));
        // While the volume lacks what the log has, nothing may say that its writer ended in order.
        let closed = !writes || taken.is_some();
        let mut opened = Self { core, daemon: None, closed, store: counters };
        if writes && (replayed > 0 || old_logs > 1) {
            opened.core.checkpoint(false)?;
        }
        opened.core.take_in(taken.as_ref(), writes)?;
        opened.closed = !writes;
        if writes {
            let (wake, daemon) = (opened.core.work.clone(), Background(opened.core.clone()));
            opened.daemon = Some(opened.core.runtime().spawn("objects", wake, Arc::new(daemon))?);
        }
        Ok(opened)
    }

    /// Writes everything, and a last checkpoint, so that the next opening is fast and no writer is
    /// known.
    ///
    /// # Errors
    /// As [`BlockDevice::flush`]; the checkpoint failed. Nothing that was flushed is lost.
    pub fn close(mut self) -> Result<()> {
        self.finish()
    }

    /// Writes everything, and a checkpoint that names no writer: for a program that will not write
    /// any more, but may end without [closing](ObjectVolume::close) the volume.
    ///
    /// # Errors
    /// As [`ObjectVolume::close`].
    pub fn release(&self) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        self.core.flush_to_store()?;
        self.core.end_log();
        self.core.checkpoint(true)?;
        self.core.clean_log();
        Ok(())
    }

    /// Ends as a power cut does: nothing is written.
    pub fn abandon(mut self) {
        self.closed = true;
    }

    /// Gives the disk another size, and closes it. A larger disk has zeros behind its old end. The
    /// end of a smaller one is lost, also if this fails. The size itself changes with one PUT.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] if the size is no multiple of 512 or too large; as
    /// [`ObjectVolume::close`].
    pub fn resize(mut self, size: u64) -> Result<()> {
        self.writable()?;
        check_size(size, "resize")?;
        let old = self.core.geometry.size;
        // A checkpoint in the background would write the old size.
        if let Some(daemon) = self.daemon.take() {
            daemon.stop();
        }
        if size < old {
            self.core.change(&Request::Discard { offset: size, len: old - size })?;
        }
        self.core.flush_to_store()?;
        self.core.state.lock().manifest.size = size;
        self.close()
    }

    fn finish(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        if let Some(daemon) = self.daemon.take() {
            daemon.stop();
        }
        self.core.flush_to_store()?;
        self.core.end_log();
        self.core.checkpoint(true)?;
        self.core.clean_log();
        Ok(())
    }

    /// Writes a checkpoint now.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`]; the store; another writer has the volume.
    pub fn checkpoint(&self) -> Result<()> {
        self.writable()?;
        self.core.flush_to_store()?;
        self.core.checkpoint(false)
    }

    /// Repacks all objects that are mostly dead, and removes those that nobody needs. Returns how
    /// many were repacked.
    ///
    /// # Errors
    /// As [`ObjectVolume::checkpoint`].
    pub fn repack(&self) -> Result<u64> {
        self.writable()?;
        self.core.flush_to_store()?;
        let mut repacked = 0;
        loop {
            let done = self.core.repack_some()?;
            repacked += done;
            if done == 0 {
                return Ok(repacked);
            }
        }
    }

    fn writable(&self) -> Result<()> {
        if self.core.geometry.read_only {
            let detail = "the volume is open for reading only";
            return Err(Error::new(ErrorKind::ReadOnly, "checkpoint", detail));
        }
        Ok(())
    }

    /// What the store was asked for since the opening.
    #[must_use]
    pub fn requests(&self) -> &Counters {
        &self.store
    }

    /// Counters: requests by kind, bytes, flushes, objects, cache.
    #[must_use]
    pub fn report(&self) -> Report {
        let core = &*self.core;
        let mut report = Report::new();
        report.set("requests", self.store.report());
        report.set("cache", core.cache.report());
        let counters = &core.counters;
        report
            .set("flushes", &counters.flushes)
            .set("flushes_without_object", &counters.flushes_without_object)
            .set("logged_flushes", &counters.logged_flushes)
            .set("log_fallbacks", &counters.log_fallbacks)
            .set("objects", &counters.objects)
            .set("object_bytes", &counters.object_bytes)
            .set("checkpoints", &counters.checkpoints)
            .set("repacked_objects", &counters.repacked_objects)
            .set("repacked_bytes", &counters.repacked_bytes)
            .set("removed_objects", &counters.removed_objects);
        let state = core.state.lock();
        report.set("epoch", state.manifest.epoch).set("extents", state.map.len());
        if let Some(log) = &core.log {
            report.set("log", log.name()).set("log_in_use", state.logs);
        }
        if let Some(error) = &state.log_error {
            report.set("log_error", error.as_str());
        }
        report
    }
}

impl Drop for ObjectVolume {
    fn drop(&mut self) {
        // Whoever wants to know calls `close`.
        let _ = self.finish();
    }
}

impl BlockDevice for ObjectVolume {
    fn geometry(&self) -> Geometry {
        self.core.geometry
    }

    /// A batch with barriers is one object together with what was written before it: that object is
    /// in the store as a whole or not at all, so one flush behind the batch is both barriers.
    fn submit(&self, batch: Batch) -> Completion {
        let run = || {
            let Batch { requests, durability } = batch;
            requests.iter().try_for_each(|one| bounds::check(&self.core.geometry, one))?;
            let changes = requests.iter().any(|one| !matches!(one, Request::Read { .. }));
            let mut read: Vec<IoBuf> = Vec::new();
            for request in requests {
                self.core.change(&request)?;
                if let Request::Read { offset, mut buf } = request {
                    self.core.read(offset, &mut buf)?;
                    read.push(buf);
                }
            }
            if durability.preflush || (durability.fua && changes) {
                self.core.flush()?;
            }
            Ok(read)
        };
        Completion::ready(run())
    }

    fn flush(&self) -> Result<()> {
        self.core.flush()
    }
}
