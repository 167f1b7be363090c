//! Opening an export of an NBD server.
//!
//! The protocol has no locks. A writer on this system keeps other users of Cairn on this system
//! away: it binds a socket of Linux's abstract namespace whose name follows from the address. The
//! kernel frees the name when the process ends, however it ends. Whoever names the server in
//! another way, or is on another system, is not seen.

use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Arc;

use cairn_block::{Batch, BlockDevice, Completion, ErrorKind, Extent, Geometry};
use cairn_nbd::{Address, Client, ConnectOptions};
use uuid::Uuid;

use crate::error::{Cause, Error, Result};
use crate::image::ImageSpec;

/// Connects. A writer claims the export; a reader is refused while there is a writer.
pub(crate) fn open(
    image: &ImageSpec,
    address: &Address,
    write: bool,
) -> Result<Arc<dyn BlockDevice>> {
    let claim = claim(address).map_err(|error| Error::new(image, Cause::Open(error)))?;
    let device = connect(image, address, write)?;
    match write {
        true => Ok(Arc::new(Claimed { device, _claim: claim })),
        false => Ok(Arc::new(device)),
    }
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

/// `None` where the system has no such sockets.
fn claim(address: &Address) -> cairn_block::Result<Option<UnixListener>> {
    let plain = Address { tls: None, ..address.clone() };
    let name = Uuid::new_v5(&Uuid::NAMESPACE_URL, plain.to_string().as_bytes());
    let Ok(socket) = SocketAddr::from_abstract_name(format!("cairn-nbd-{name}")) else {
        return Ok(None);
    };
    match UnixListener::bind_addr(&socket) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let detail = "in use by another process of Cairn on this system: unmount it, or wait \
                until that has ended";
            Err(cairn_block::Error::new(ErrorKind::InUse, format!("open {address}"), detail))
        }
        Err(_) => Ok(None),
    }
}

/// An export that is written.
struct Claimed {
    device: Client,
    _claim: Option<UnixListener>,
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
