//! In place of `tls`, where that is not built.

use std::io::{self, IoSlice};
use std::sync::Arc;

use cairn_block::{Error, ErrorKind};

use super::socket::Socket;
use crate::address::{Address, TlsWish};
use crate::clock::Deadline;
use crate::failure::Broken;

/// There is none.
pub(crate) enum Tls {}

/// There is nothing.
pub(crate) struct Arrived;

impl Arrived {
    pub(crate) fn new() -> Self {
        Self
    }
}

/// There are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificates {}

impl Certificates {
    /// Nothing is read.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`].
    pub fn load(_: &std::path::Path) -> cairn_block::Result<Self> {
        Err(Error::new(ErrorKind::Unsupported, "read the certificates", WITHOUT))
    }
}

const WITHOUT: &str = "this program was built without TLS: build it with the feature `tls`";

impl Tls {
    pub(crate) fn accept(
        _: &Arc<Socket>,
        certificates: &Certificates,
        _: Deadline,
    ) -> Result<Arc<Self>, Broken> {
        match *certificates {}
    }

    pub(crate) fn connect(
        _: &Arc<Socket>,
        _: &Address,
        _: &TlsWish,
        _: Deadline,
    ) -> Result<Arc<Self>, Broken> {
        Err(Broken::Refused(Error::new(ErrorKind::Unsupported, "connect", WITHOUT)))
    }

    pub(crate) fn send(&self, _: &[IoSlice<'_>]) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn close(&self) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn read(&self, _: &mut Arrived, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}
