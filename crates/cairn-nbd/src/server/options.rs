//! What a server exports, and what it allows.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cairn_block::{BlockDevice, Extent, Result};

use crate::transport::Certificates;
use crate::wire::{BlockSizes, DEFAULT_PAYLOAD, ExportFlags, Headers};

/// Tells what a range of a device is made of: extents that follow each other from its start.
pub type Extents = Arc<dyn Fn(Range<u64>) -> Result<Vec<Extent>> + Send + Sync>;

/// A device that is exported.
#[derive(Clone)]
pub struct Export {
    /// Its name. Clients that name none get the first export.
    pub name: String,
    /// Text for people, or nothing.
    pub description: String,
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// Clients cannot change it.
    pub read_only: bool,
    /// Answers questions for what is allocated.
    pub extents: Option<Extents>,
}

impl Export {
    /// A device under a name, with what it knows of its extents.
    #[must_use]
    pub fn new(name: impl Into<String>, device: Arc<dyn BlockDevice>, read_only: bool) -> Self {
        let told = device.clone();
        let extents: Extents = Arc::new(move |range| told.extents(range));
        let description = String::new();
        Self { name: name.into(), description, device, read_only, extents: Some(extents) }
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A socket in the filesystem, which the server makes and removes. Only its owner can connect.
    Unix(PathBuf),
    /// An address and a port; 0 for a free one.
    Tcp(SocketAddr),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// What a server allows its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Connections at once. Further ones are ended as soon as they come.
    pub connections: usize,
    /// Requests of one connection that are carried out at once.
    pub requests: usize,
    /// Bytes of data of all requests that are under way.
    pub memory: u64,
    /// Time for the negotiation.
    pub handshake: Duration,
    /// A client that has begun a message goes on in this time, and takes its answers.
    pub stall: Duration,
    /// Clients must encrypt, and find these.
    pub certificates: Option<Certificates>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 64,
            requests: 16,
            memory: 256 << 20,
            handshake: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            certificates: None,
        }
    }
}

impl Export {
    pub(super) fn size(&self) -> u64 {
        self.device.geometry().size
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only || self.device.geometry().read_only
    }

    pub(super) fn flags(&self, headers: Headers) -> ExportFlags {
        // A device has one cache, so a flush covers the writes of all connections.
        let mut flags = ExportFlags::HAS_FLAGS
            | ExportFlags::SEND_FLUSH
            | ExportFlags::SEND_FUA
            | ExportFlags::CAN_MULTI_CONN;
        if self.is_read_only() {
            flags |= ExportFlags::READ_ONLY;
        } else {
            flags |= ExportFlags::SEND_WRITE_ZEROES | ExportFlags::SEND_FAST_ZERO;
            flags.set(ExportFlags::SEND_TRIM, self.device.geometry().discard);
        }
        flags.set(ExportFlags::SEND_DF, headers != Headers::Simple);
        flags
    }

    pub(super) fn blocks(&self) -> BlockSizes {
        let minimum = self.device.geometry().logical_block.max(1);
        BlockSizes { minimum, preferred: minimum.max(4096), maximum: DEFAULT_PAYLOAD }
    }
}
