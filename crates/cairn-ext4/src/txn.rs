//! Transactions: one handle type for volumes with and without a journal.
//!
//! Locking: a handle is the GATE of the lock order; it is begun after `inode.data` and before any folio, mapping,
//! allocator or buffer lock. Space in the log is waited for in [`Txn::begin`] only.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cairn_base::{Pba, Tid};
use cairn_cache::block::{Buffer, BufferCache, BufferGuard};
use cairn_jbd2::Journal;
use parking_lot::Mutex;

use crate::error::Result;

/// Called when a transaction is durable (`true`) or will never be (`false`).
pub type CommitHook = Box<dyn FnOnce(bool) + Send>;

/// Where metadata changes go.
#[derive(Clone)]
pub enum Txn {
    /// Through the journal.
    Journaled(Arc<Journal>),
    /// No journal: buffers are marked dirty and written home by sync.
    Direct(Arc<BufferCache>),
}

impl Txn {
    /// The newest transaction: whatever was changed so far is in it or an older one.
    #[must_use]
    pub fn newest(&self) -> Tid {
        match self {
            Self::Journaled(journal) => journal.newest_tid(),
            Self::Direct(_) => Tid(0),
        }
    }

    /// Starts an operation that will change at most `credits` metadata blocks.
    pub fn begin(&self, credits: u32) -> Result<Handle> {
        let kind = match self {
            Self::Journaled(journal) => Kind::Journaled(journal.start(credits)?),
            Self::Direct(buffers) => Kind::Direct(DirectHandle {
                buffers: buffers.clone(),
                hooks: Mutex::default(),
                credits: AtomicU32::new(credits),
            }),
        };
        Ok(Handle { kind, changed: AtomicBool::new(false) })
    }
}

/// An operation in progress. Dropping it ends it; its changes then belong to the transaction.
///
/// An operation that fails after it has changed something, and has not said [`Handle::finish`] since, leaves a `PartialChange`.
pub struct Handle {
    kind: Kind,
    /// Something was changed that is not whole yet.
    changed: AtomicBool,
}

enum Kind {
    /// Part of the journal's running transaction.
    Journaled(cairn_jbd2::Handle),
    /// No journal.
    Direct(DirectHandle),
}

/// A handle without a journal: hooks run when it ends.
struct DirectHandle {
    buffers: Arc<BufferCache>,
    hooks: Mutex<Vec<CommitHook>>,
    credits: AtomicU32,
}

/// What an operation of this thread left behind that ended before it was whole.
///
/// A handle is begun and ended on one thread, that of the call or daemon whose operation it is; the error that ended it reaches
/// [`crate::volume::Volume::observe`] on the same thread.
pub(crate) struct PartialChange;

thread_local! {
    static PARTIAL_CHANGE: Cell<bool> = const { Cell::new(false) };
}

impl PartialChange {
    /// True if an operation ended after a part of its changes since the last call.
    pub(crate) fn take() -> bool {
        PARTIAL_CHANGE.replace(false)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if *self.changed.get_mut() {
            PARTIAL_CHANGE.set(true);
        }
    }
}

impl Handle {
    /// All that belongs together has been changed: what fails from here on leaves no partial change.
    pub fn finish(&self) {
        self.changed.store(false, Ordering::Relaxed);
    }

    fn note_change(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Write access to a metadata block, as part of this operation.
    pub fn write<'b>(&self, buffer: &'b Arc<Buffer>) -> Result<BufferGuard<'b>> {
        self.note_change();
        match &self.kind {
            Kind::Journaled(handle) => Ok(handle.get_write_access(buffer)?),
            Kind::Direct(_) => Ok(buffer.modify_direct()),
        }
    }

    /// A freshly allocated metadata block, zeroed, not read from the device. Write it through [`Handle::write`].
    pub fn create(&self, pba: Pba) -> Result<Arc<Buffer>> {
        self.note_change();
        match &self.kind {
            Kind::Journaled(handle) => Ok(handle.get_create_access(pba)?),
            Kind::Direct(handle) => Ok(handle.buffers.create(pba)),
        }
    }

    /// The metadata block is being freed: no older copy of it may be written home or replayed over its next use.
    pub fn forget(&self, pba: Pba) -> Result<()> {
        self.note_change();
        match &self.kind {
            Kind::Journaled(handle) => Ok(handle.forget(pba)?),
            Kind::Direct(handle) => {
                handle.buffers.forget(pba);
                Ok(())
            }
        }
    }

    /// The transaction this operation belongs to (0 without a journal).
    pub fn tid(&self) -> Tid {
        match &self.kind {
            Kind::Journaled(handle) => handle.tid(),
            Kind::Direct(_) => Tid(0),
        }
    }

    /// Runs `hook` when the transaction is durable; without a journal, when the handle ends.
    pub fn on_commit(&self, hook: CommitHook) {
        match &self.kind {
            Kind::Journaled(handle) => handle.on_commit(hook),
            Kind::Direct(handle) => handle.hooks.lock().push(hook),
        }
    }

    /// Metadata blocks this operation may still change.
    pub fn credits_left(&self) -> u32 {
        match &self.kind {
            Kind::Journaled(handle) => handle.credits_left(),
            Kind::Direct(handle) => handle.credits.load(Ordering::Relaxed),
        }
    }

    /// Asks for more credits without ending the operation. False: the transaction is full; come to a consistent
    /// point and use [`Handle::restart`].
    pub fn extend(&self, credits: u32) -> Result<bool> {
        match &self.kind {
            Kind::Journaled(handle) => Ok(handle.extend(credits)?),
            Kind::Direct(_) => Ok(true),
        }
    }

    /// Ends the operation at a consistent point and goes on in a transaction with room. No lock of a rank above the
    /// gate may be held.
    pub fn restart(&mut self, credits: u32) -> Result<()> {
        self.finish();
        match &mut self.kind {
            Kind::Journaled(handle) => Ok(handle.restart(credits)?),
            Kind::Direct(_) => Ok(()),
        }
    }
}

impl Drop for DirectHandle {
    fn drop(&mut self) {
        for hook in self.hooks.get_mut().drain(..) {
            hook(true);
        }
    }
}
