//! How requests arrive and answers go back.
//!
//! The only transport so far is `/dev/fuse`, mounted by fuser and served by [`Servers`]. The trait is the place where FUSE over
//! io_uring comes in: everything else sees a [`Transport`].

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::handshake::Handshake;
use crate::servers::Servers;

/// A mounted connection.
pub(crate) trait Transport: Send {
    /// Serves requests until unmounted.
    fn serve(self: Box<Self>) -> io::Result<()>;

    /// Something that unmounts from another thread.
    fn unmounter(&mut self) -> Unmounter;
}

/// Unmounts a session from another thread, such as a signal handler's.
#[derive(Clone)]
pub struct Unmounter(Arc<Mutex<fuser::SessionUnmounter>>);

impl Unmounter {
    /// Unmounts; [`crate::Session::run`] then returns.
    pub fn unmount(&self) -> io::Result<()> {
        self.0.lock().unmount()
    }
}

/// `/dev/fuse`.
pub(crate) struct DevFuse {
    /// Dropped, it unmounts whatever is mounted on its path.
    pub(crate) mounted: fuser::Session<Handshake>,
    pub(crate) servers: Arc<Servers>,
}

impl Transport for DevFuse {
    fn serve(self: Box<Self>) -> io::Result<()> {
        self.servers.serve()?;
        // Served to its end, it is unmounted. Dropping fuser's session would unmount the path once more: in vain, with a warning, or
        // with success if somebody has mounted something else there meanwhile. Its descriptor of a dead connection is the price.
        std::mem::forget(self.mounted);
        Ok(())
    }

    fn unmounter(&mut self) -> Unmounter {
        Unmounter(Arc::new(Mutex::new(self.mounted.unmount_callable())))
    }
}
