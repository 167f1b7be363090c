//! Makes the kernel look at the requests of a queue that wait for an entry.
//!
//! It does so when an entry comes back with an answer, but not when a new one is registered.
//! Therefore it is made to send a request to that queue that is answered at once.

use cairn_base::thread::spawn;

use super::placement::pin;
use super::shared::Shared;

impl Shared {
    /// Called by the thread of a ring, which is pinned to the processor `home`, after it registered
    /// an entry for the queue of `processor`. Requests that wait for others are often about regular
    /// files: `recent` are nodes of the last ones.
    pub(super) fn nudge(&self, processor: usize, home: usize, recent: &[u64]) {
        pin(processor);
        // For none of the pages of a file. The kernel refuses directories and what it has
        // forgotten.
        let ask = |node: &u64| self.connection.fuse.ask_for_nothing(*node).is_ok();
        let asked = recent.iter().any(ask) || self.operations.known_nodes().iter().any(ask);
        if processor != home {
            pin(home);
        }
        if !asked {
            self.ask_through_the_mount(processor);
        }
    }

    /// Asks for the volume's statistics as any program does. The thread is not waited for, because
    /// nothing answers it if the connection is not served any more.
    fn ask_through_the_mount(&self, processor: usize) {
        let mountpoint = self.connection.mountpoint.clone();
        let started = spawn("cairn-ring-ask", move || {
            pin(processor);
            // Something else may be mounted there by now: then nothing comes of it.
            let _ = rustix::fs::statvfs(&mountpoint);
        });
        if let Err(error) = started {
            tracing::debug!("queue {processor} is not nudged: {error}");
        }
    }
}
