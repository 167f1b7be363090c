//! [`Core`]: what the device and its daemon share.

use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::{Event, Runtime};
use cairn_base::stats::{Counter, Histogram};
use cairn_block::{Error, ErrorKind, Geometry};

use super::state::State;
use crate::cache::Cache;
use crate::local_log::Log;
use crate::requests::Requests;

/// How what a writer is told begins, once another has its volume.
pub const TAKEN_OVER: &str = "another writer has taken over";

/// An open volume.
pub(super) struct Core {
    /// Its name in the pool.
    pub(super) volume: String,
    pub(super) requests: Requests,
    pub(super) cache: Cache,
    pub(super) geometry: Geometry,
    /// Of this opening's data objects.
    pub(super) nonce: u64,
    pub(super) object_size: u64,
    pub(super) reclaim: bool,
    /// Where flushes are durable before the store has them.
    pub(super) log: Option<Log>,
    pub(super) state: Mutex<State>,
    /// The state changed.
    pub(super) changed: Event,
    /// There is work in the background.
    pub(super) work: Arc<Event>,
    pub(super) counters: Counters,
}

/// What the volume did.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) flushes: Counter,
    /// Flushes that found everything in the store, or that shared the object of another.
    pub(super) flushes_without_object: Counter,
    /// Flushes, shared or not, that wrote a record of the local log.
    pub(super) logged_flushes: Counter,
    /// Flushes that found no room in it, and went to the store.
    pub(super) log_fallbacks: Counter,
    pub(super) objects: Counter,
    pub(super) object_bytes: Histogram,
    pub(super) checkpoints: Counter,
    pub(super) repacked_objects: Counter,
    pub(super) repacked_bytes: Counter,
    pub(super) removed_objects: Counter,
}

impl Core {
    pub(super) fn new(
        (volume, requests, cache): (String, Requests, Cache),
        (nonce, reclaim, read_only): (u64, bool, bool),
        (state, log): (State, Option<Log>),
    ) -> Self {
        let geometry = Geometry {
            size: state.manifest.size,
            logical_block: 512,
            physical_block: 4096,
            memory_alignment: 1,
            read_only,
            discard: true,
        };
        Self {
            volume,
            requests,
            cache,
            geometry,
            nonce,
            object_size: state.manifest.object_size,
            reclaim,
            log,
            state: Mutex::new(Rank::Leaf, state),
            changed: Event::new(),
            work: Arc::new(Event::new()),
            counters: Counters::default(),
        }
    }

    pub(super) fn runtime(&self) -> &Arc<dyn Runtime> {
        self.requests.runtime()
    }

    /// Blocks until the state is as wanted.
    pub(super) fn wait(&self, ready: impl Fn(&State) -> bool) {
        self.runtime().wait_until(&self.changed, &mut || ready(&self.state.lock()));
    }

    /// Nothing will be written any more: another writer has the volume.
    pub(super) fn fenced(&self) -> Error {
        let log = self.log.as_ref().map_or(String::new(), |log| {
            let log = log.name();
            format!(
                "; flushes that only the log {log} has are written into a new file by \
                 ?log={log}&export-log=NEW"
            )
        });
        let detail = format!(
            "{TAKEN_OVER} the volume {}: unmount it here, what was not flushed is lost{log}",
            self.volume
        );
        let error = Error::new(ErrorKind::InUse, "write", detail);
        let error = self.state.lock().stopped.get_or_insert(error).clone();
        self.changed.notify();
        error
    }
}
