//! How requests arrive and answers go back.
//!
//! The only transport so far is `/dev/fuse` by way of fuser. The trait is the place where FUSE over io_uring comes in: everything else
//! sees a [`Transport`] and the adapter's operations.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::adapter::Adapter;

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

/// `/dev/fuse`, read and written by fuser's threads.
pub(crate) struct DevFuse(pub(crate) fuser::Session<Adapter>);

impl Transport for DevFuse {
    fn serve(self: Box<Self>) -> io::Result<()> {
        self.0.run()
    }

    fn unmounter(&mut self) -> Unmounter {
        Unmounter(Arc::new(Mutex::new(self.0.unmount_callable())))
    }
}
