//! [`Image`]: the parts of an open image and their locks.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cairn_base::ranked_lock::{Mutex, MutexGuard, Rank, RwLock};
use cairn_block::BlockDevice;

use super::decoded::Decoded;
use super::error::{Error, Result};
use super::format::header::Header;
use super::host::Host;
use super::metadata::Metadata;
use super::refcounts::Refcounts;
use super::tables::{Piece, Tables};

/// Images that hold or back another were opened before it, and are locked after it.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// An open image.
pub(super) struct Image {
    pub(super) host: Arc<Host>,
    pub(super) header: Header,
    pub(super) backing: Option<Arc<dyn BlockDevice>>,
    pub(super) metadata: Arc<Metadata>,
    writer: Option<Mutex<Writer>>,
    /// Shared by transfers from the moment when they learn where a cluster is.
    pub(super) clusters: RwLock<()>,
    pub(super) tables: Mutex<Tables>,
    pub(super) decoded: Mutex<Decoded>,
    /// The map in memory is not the one on the medium.
    pub(super) pending: AtomicBool,
    /// Why no table is written any more.
    pub(super) failed: OnceLock<cairn_block::Error>,
}

/// What one thread at a time changes.
pub(super) struct Writer {
    pub(super) refcounts: Refcounts,
    /// Clusters that lose a use when the map is on the medium.
    pub(super) freed: Vec<u64>,
}

impl Image {
    /// `refcounts` if it can be written.
    pub(super) fn new(
        host: Arc<Host>,
        header: Header,
        backing: Option<Arc<dyn BlockDevice>>,
        metadata: Arc<Metadata>,
        tables: Tables,
        refcounts: Option<Refcounts>,
    ) -> Self {
        let order = u64::MAX / 8 - OPENED.fetch_add(1, Ordering::Relaxed);
        let order = |number: u64| order * 4 + number;
        let writer = refcounts.map(|refcounts| Writer { refcounts, freed: Vec::new() });
        Self {
            writer: writer.map(|writer| Mutex::new_ordered(Rank::Image, order(0), writer)),
            clusters: RwLock::new_ordered(Rank::Image, order(1), ()),
            tables: Mutex::new_ordered(Rank::Image, order(2), tables),
            decoded: Mutex::new_ordered(Rank::Image, order(3), Decoded::new(header.cluster())),
            pending: AtomicBool::new(false),
            failed: OnceLock::new(),
            host,
            header,
            backing,
            metadata,
        }
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.writer.is_none()
    }

    pub(super) fn cluster(&self) -> u64 {
        self.header.cluster()
    }

    /// The writer, to change the map.
    ///
    /// # Errors
    /// The image is read-only, or a table could not be written.
    pub(super) fn writer(&self) -> Result<MutexGuard<'_, Writer>> {
        let Some(writer) = &self.writer else {
            return Err(Error::Refused("the qcow2 image was opened for reading".to_owned()));
        };
        let writer = writer.lock();
        match self.failed.get() {
            Some(error) => Err(error.clone().into()),
            None => Ok(writer),
        }
    }

    /// Where the parts of a range of the disk are.
    pub(super) fn pieces(&self, range: Range<u64>) -> Result<Vec<Piece>> {
        self.tables.lock().pieces(range)
    }
}
