//! Opening an export of an NBD server.
//!
//! A writer claims it ([`crate::claim`]).

use std::ops::Range;
use std::sync::Arc;

use cairn_block::{Batch, BlockDevice, Completion, ErrorKind, Extent, Geometry};
use cairn_nbd::{Address, Client, ConnectOptions};

use crate::claim::{self, Claim};
use crate::error::{Cause, Error, Result};
use crate::image::ImageSpec;

/// Connects. A writer claims the export; a reader is refused while there is a writer.
pub(crate) fn open(
    image: &ImageSpec,
    address: &Address,
    write: bool,
) -> Result<Arc<dyn BlockDevice>> {
    let in_use = || Error::new(image, Cause::Open(in_use(address)));
    if !write {
        if claim::is_claimed(address) {
            return Err(in_use());
        }
        return Ok(Arc::new(connect(image, address, write)?));
    }
    let claim = Claim::of(address).ok_or_else(in_use)?;
    Ok(Arc::new(Claimed { device: connect(image, address, write)?, _claim: claim }))
}

/// Connects, whoever else uses the export.
pub(crate) fn open_unclaimed(
    image: &ImageSpec,
    address: &Address,
    write: bool,
) -> Result<Arc<dyn BlockDevice>> {
    Ok(Arc::new(connect(image, address, write)?))
}

fn connect(image: &ImageSpec, address: &Address, write: bool) -> Result<Client> {
    let options = ConnectOptions { write, ..ConnectOptions::default() };
    Client::connect(address, &options).map_err(|error| Error::new(image, Cause::Open(error)))
}

fn in_use(address: &Address) -> cairn_block::Error {
    let detail = "in use by another process of Cairn on this system: unmount it, or wait until \
        that has ended";
    cairn_block::Error::new(ErrorKind::InUse, format!("open {address}"), detail)
}

/// An export that is written.
struct Claimed {
    device: Client,
    _claim: Claim,
}

impl BlockDevice for Claimed {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        self.device.submit(batch)
    }

    fn extents(&self, range: Range<u64>) -> cairn_block::Result<Vec<Extent>> {
        self.device.extents(range)
    }

    fn flush(&self) -> cairn_block::Result<()> {
        self.device.flush()
    }
}
