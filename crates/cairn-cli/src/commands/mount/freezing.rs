//! Freezing a volume, with a limit of time if the caller gives one.
//!
//! Requests that freeze the volume, thaw it, change its options or end its mount run one after the
//! other. So no request waits for the kernel's dirty pages on a volume that another one has frozen:
//! nothing but a thaw would end that wait.
//!
//! Locking: one mutex, held for the whole of such a request, and while a freeze with a limit ends.
//! The end of one freeze therefore never thaws the next. The ranked locks of the volume are taken
//! under it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use cairn::FileSystem;
use cairn_base::system_error::with_remedy;
use cairn_base::thread::spawn;
use cairn_fuse::control::Hold;

use crate::log_ring;

/// Freezes and thaws one volume.
#[derive(Clone)]
pub struct Freezing {
    filesystem: Arc<dyn FileSystem>,
    state: Arc<Mutex<State>>,
    /// How often the volume was thawed.
    thaws: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    /// How often the volume was frozen.
    freezes: u64,
    /// The mount is about to end: no freeze may delay that.
    ending: bool,
}

/// While this exists, no other request freezes or thaws the volume.
pub struct Alone<'a>(MutexGuard<'a, State>);

/// A freeze that ends when this is dropped, if it is still in force then.
pub struct Held {
    freezing: Freezing,
    freeze: u64,
}

impl Hold for Held {
    fn end(&mut self) -> Result<(), String> {
        let Alone(state) = self.freezing.alone();
        if state.freezes != self.freeze || !self.freezing.filesystem.is_frozen() {
            return Err("it was thawed before: try again".into());
        }
        self.freezing.thaw_now().map_err(|error| error.to_string())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.freezing.expire(self.freeze, "the program that held the freeze has ended");
    }
}

impl Freezing {
    /// Freezes and thaws this volume.
    #[must_use]
    pub fn new(filesystem: Arc<dyn FileSystem>) -> Self {
        Self { filesystem, state: Arc::default(), thaws: Arc::default() }
    }

    /// Waits for other requests, and keeps them waiting.
    #[must_use]
    pub fn alone(&self) -> Alone<'_> {
        Alone(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls `prepare` and freezes the volume. After `limit` it is thawed, unless it was thawed
    /// before. A freeze whose client no longer waits for it (`is_awaited`) has no effect.
    ///
    /// # Errors
    /// The volume is already frozen, it could not be written, it was thawed or its mount began to
    /// end while this waited, or the thread that thaws it could not be started.
    pub fn freeze(
        &self,
        limit: Option<Duration>,
        is_awaited: &dyn Fn() -> bool,
        prepare: impl FnOnce(),
    ) -> Result<(), String> {
        let freeze = self.freeze_now(is_awaited, prepare)?;
        let Some(limit) = limit else { return Ok(()) };
        let this = self.clone();
        let end = move || {
            thread::sleep(limit);
            this.expire(freeze, &format!("it was frozen for {} seconds", limit.as_secs()));
        };
        let spawned = spawn("thaw", end);
        spawned.map(drop).map_err(|error| {
            // A freeze with a limit must not last without the limit.
            self.expire(freeze, "no thread would thaw it in time");
            format!("no thread to thaw it in time: {}", with_remedy(&error, "try again"))
        })
    }

    /// As [`Freezing::freeze`], until the result is dropped.
    ///
    /// # Errors
    /// As [`Freezing::freeze`].
    pub fn hold(
        &self,
        is_awaited: &dyn Fn() -> bool,
        prepare: impl FnOnce(),
    ) -> Result<Held, String> {
        let freeze = self.freeze_now(is_awaited, prepare)?;
        Ok(Held { freezing: self.clone(), freeze })
    }

    /// Returns the number of the freeze.
    fn freeze_now(
        &self,
        is_awaited: &dyn Fn() -> bool,
        prepare: impl FnOnce(),
    ) -> Result<u64, String> {
        let thaws = self.thaws.load(Ordering::Acquire);
        let Alone(mut state) = self.alone();
        if self.filesystem.is_frozen() {
            return Err(cairn_vfs::Error::Frozen.to_string());
        }
        if state.ending {
            return Err("the mount is about to end: mount the image again to freeze it".into());
        }
        if thaws != self.thaws.load(Ordering::Acquire) {
            return Err("it was thawed at the same moment: freeze it again".into());
        }
        prepare();
        if is_awaited() {
            self.filesystem.freeze().map_err(|error| error.to_string())?;
        }
        if !is_awaited() {
            // Fails if it was not frozen at all. A thaw that cannot write has stopped the volume.
            let _ = self.thaw_now();
            return Err("the client has gone: freeze it again".into());
        }
        state.freezes += 1;
        Ok(state.freezes)
    }

    /// Thaws it.
    ///
    /// # Errors
    /// The volume is not frozen, or cannot be written any more.
    pub fn thaw(&self) -> Result<(), String> {
        let _alone = self.alone();
        self.thaw_now().map_err(|error| error.to_string())
    }

    /// Thaws it if it is frozen, because its mount is about to end. No later freeze delays that.
    #[must_use]
    pub fn end(&self) -> Alone<'_> {
        let mut alone = self.alone();
        alone.0.ending = true;
        // Fails if the volume is not frozen, as usual. An error of writing is reported when the
        // volume is closed.
        let _ = self.thaw_now();
        alone
    }

    /// Ends the freeze with this number if it is still in force.
    fn expire(&self, freeze: u64, why: &str) {
        let Alone(state) = self.alone();
        if state.freezes != freeze || !self.filesystem.is_frozen() {
            return;
        }
        match self.thaw_now() {
            Ok(()) => {
                let note = format!("thawed by itself: {why}");
                tracing::info!("{note}");
                log_ring::keep(tracing::Level::INFO, &note);
            }
            Err(error) => tracing::error!("thawed by itself, because {why}: {error}"),
        }
    }

    /// The caller holds the mutex.
    fn thaw_now(&self) -> cairn_vfs::Result<()> {
        let was_frozen = self.filesystem.is_frozen();
        let thawed = self.filesystem.thaw();
        if was_frozen {
            self.thaws.fetch_add(1, Ordering::AcqRel);
        }
        thawed
    }
}
