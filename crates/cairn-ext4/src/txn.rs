//! Handles for volumes with and without a journal.
//!
//! Locking: a handle has rank Operation. It is started after `inode.data` is locked and before any
//! lock of a folio, mapping, allocator or buffer. Only [`Txn::begin`] waits for log space.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cairn_base::{Pba, Tid};
use cairn_cache::block::{Buffer, BufferCache, BufferGuard};
use cairn_jbd2::Journal;
use parking_lot::Mutex;

use crate::alloc::reservations::Class;
use crate::error::Result;

/// Called with `true` when a transaction is durable, or with `false` if it never will be.
pub(crate) type CommitHook = Box<dyn FnOnce(bool) + Send>;

/// The destination of metadata changes.
#[derive(Clone)]
pub(crate) enum Txn {
    /// The journal.
    Journaled(Arc<Journal>),
    /// No journal: buffers become dirty, and sync writes them.
    Direct(Arc<BufferCache>),
}

impl Txn {
    /// The newest transaction. No change made so far is in a later one.
    #[must_use]
    pub(crate) fn newest(&self) -> Tid {
        match self {
            Self::Journaled(journal) => journal.newest_tid(),
            Self::Direct(_) => Tid(0),
        }
    }

    /// Starts a handle that changes at most `credits` metadata blocks.
    ///
    /// # Errors
    /// The journal was aborted, or no transaction can have this many blocks.
    pub(crate) fn begin(&self, credits: u32) -> Result<Handle> {
        let kind = match self {
            Self::Journaled(journal) => Kind::Journaled(journal.start(credits)?),
            Self::Direct(buffers) => Kind::Direct(DirectHandle {
                buffers: buffers.clone(),
                hooks: Mutex::default(),
                credits: AtomicU32::new(credits),
            }),
        };
        Ok(Handle { kind, class: Class::of_call(), changed: AtomicBool::new(false) })
    }
}

/// A handle: an operation in progress. Dropping it stops it.
///
/// If an operation fails after a change and has not called [`Handle::finish`] since, it leaves a
/// `PartialChange`.
#[must_use = "the operation stops when its handle is dropped"]
pub(crate) struct Handle {
    kind: Kind,
    /// The class of the call that began the operation.
    class: Class,
    /// The operation has changed something and is not complete.
    changed: AtomicBool,
}

enum Kind {
    /// A handle of the journal.
    Journaled(cairn_jbd2::Handle),
    /// No journal.
    Direct(DirectHandle),
}

/// A handle without a journal. Its hooks run when it is dropped.
struct DirectHandle {
    buffers: Arc<BufferCache>,
    hooks: Mutex<Vec<CommitHook>>,
    credits: AtomicU32,
}

/// Records that an operation of this thread failed after a part of its changes.
///
/// A handle starts and stops on one thread, that of the call or daemon. The error of the operation
/// reaches [`crate::mount_state::MountState::observe`] on the same thread.
pub(crate) struct PartialChange;

thread_local! {
    static PARTIAL_CHANGE: Cell<bool> = const { Cell::new(false) };
}

impl PartialChange {
    /// True if an operation of this thread left a partial change since the last call.
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
    /// The operation is complete: a later failure leaves no partial change.
    pub(crate) fn finish(&self) {
        self.changed.store(false, Ordering::Relaxed);
    }

    /// Which blocks this operation may have.
    pub(crate) fn class(&self) -> Class {
        self.class
    }

    fn note_change(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Write access to a metadata block.
    ///
    /// # Errors
    /// The journal was aborted.
    pub(crate) fn write<'b>(&self, buffer: &'b Arc<Buffer>) -> Result<BufferGuard<'b>> {
        self.note_change();
        match &self.kind {
            Kind::Journaled(handle) => Ok(handle.get_write_access(buffer)?),
            Kind::Direct(_) => Ok(buffer.modify_direct()),
        }
    }

    /// The buffer of a newly allocated metadata block, with zeros. It is changed by
    /// [`Handle::write`].
    ///
    /// # Errors
    /// The journal was aborted.
    pub(crate) fn create(&self, pba: Pba) -> Result<Arc<Buffer>> {
        self.note_change();
        match &self.kind {
            Kind::Journaled(handle) => Ok(handle.get_create_access(pba)?),
            Kind::Direct(handle) => Ok(handle.buffers.create(pba)),
        }
    }

    /// Frees a metadata block: no older version of it is written home or replayed.
    ///
    /// # Errors
    /// The journal was aborted, or there is no credit for a revoke record.
    pub(crate) fn forget(&self, pba: Pba) -> Result<()> {
        self.note_change();
        match &self.kind {
            Kind::Journaled(handle) => Ok(handle.forget(pba)?),
            Kind::Direct(handle) => {
                handle.buffers.forget(pba);
                Ok(())
            }
        }
    }

    /// The handle's transaction; 0 without a journal.
    pub(crate) fn tid(&self) -> Tid {
        match &self.kind {
            Kind::Journaled(handle) => handle.tid(),
            Kind::Direct(_) => Tid(0),
        }
    }

    /// Runs `hook` when the transaction is durable; without a journal, when the handle stops.
    pub(crate) fn on_commit(&self, hook: CommitHook) {
        match &self.kind {
            Kind::Journaled(handle) => handle.on_commit(hook),
            Kind::Direct(handle) => handle.hooks.lock().push(hook),
        }
    }

    /// Metadata blocks that the handle may still change.
    pub(crate) fn credits_left(&self) -> u32 {
        match &self.kind {
            Kind::Journaled(handle) => handle.credits_left(),
            Kind::Direct(handle) => handle.credits.load(Ordering::Relaxed),
        }
    }

    /// Asks for more credits. False if the transaction is full: the caller brings its changes to a
    /// consistent point and calls [`Handle::restart`].
    ///
    /// # Errors
    /// The journal was aborted.
    pub(crate) fn extend(&self, credits: u32) -> Result<bool> {
        match &self.kind {
            Kind::Journaled(handle) => Ok(handle.extend(credits)?),
            Kind::Direct(_) => Ok(true),
        }
    }

    /// Stops the handle at a consistent point and starts it again in a transaction with room. The
    /// caller holds no lock that ranks above the handle.
    ///
    /// # Errors
    /// The journal was aborted.
    pub(crate) fn restart(&mut self, credits: u32) -> Result<()> {
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
