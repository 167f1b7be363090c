//! Freezing a volume for a limited time.
//!
//! Locking: one mutex, held while the volume is frozen or thawed, so that the end of one freeze
//! never thaws the next.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use cairn::FileSystem;
use cairn_base::system_error::with_remedy;

/// Freezes and thaws one volume.
#[derive(Clone)]
pub struct Freezing {
    filesystem: Arc<dyn FileSystem>,
    /// How often the volume was frozen.
    times: Arc<Mutex<u64>>,
}

impl Freezing {
    /// Freezes and thaws this volume.
    #[must_use]
    pub fn new(filesystem: Arc<dyn FileSystem>) -> Self {
        Self { filesystem, times: Arc::default() }
    }

    /// Freezes the volume. After `limit` it is thawed, unless it was thawed before.
    ///
    /// # Errors
    /// The volume is already frozen, it could not be written, or the thread that thaws it could not
    /// be started.
    pub fn freeze(&self, limit: Option<Duration>) -> Result<(), String> {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        self.filesystem.freeze().map_err(|error| error.to_string())?;
        *times += 1;
        let (this, time) = (self.clone(), *times);
        let Some(limit) = limit else { return Ok(()) };
        let end = move || {
            thread::sleep(limit);
            this.expire(time, limit);
        };
        let spawned = thread::Builder::new().name("thaw".into()).spawn(end);
        spawned.map(drop).map_err(|error| {
            // A freeze with a limit must not last without the limit.
            let _ = self.filesystem.thaw();
            format!("no thread to thaw it in time: {}", with_remedy(&error, "try again"))
        })
    }

    /// Thaws it.
    ///
    /// # Errors
    /// The volume is not frozen, or cannot be written any more.
    pub fn thaw(&self) -> Result<(), String> {
        let _times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        self.filesystem.thaw().map_err(|error| error.to_string())
    }

    /// Ends the freeze with this number if it is still in force.
    fn expire(&self, time: u64, limit: Duration) {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if *times != time || !self.filesystem.is_frozen() {
            return;
        }
        let seconds = limit.as_secs();
        match self.filesystem.thaw() {
            Ok(()) => tracing::warn!("thawed by itself: it was frozen for {seconds} seconds"),
            Err(error) => tracing::error!("thawed by itself after {seconds} seconds: {error}"),
        }
    }
}
