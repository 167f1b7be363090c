//! Carries out the request in an entry.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cairn_block::uring::{Entry, IN_OUT};
use rustix::io::Errno;

use super::shared::Shared;
use crate::operations::Operations;
use crate::wire::abi::opcode;
use crate::wire::{Lent, Outbox, Reply, Request};

/// Longer arguments stay in the entry.
const SHORT: usize = 16 << 10;
/// The data of longer WRITEs is taken out of the entry without a copy.
const LONG: usize = 512 << 10;

/// A thread's place for the arguments of a request: its entry then takes the answer.
pub(super) struct Scratch {
    header: [u8; IN_OUT],
    operation: [u8; IN_OUT],
    payload: Box<[u8]>,
}

impl Scratch {
    pub(super) fn new() -> Self {
        let payload = vec![0; SHORT].into_boxed_slice();
        Self { header: [0; IN_OUT], operation: [0; IN_OUT], payload }
    }

    /// Copies what has a fixed size.
    fn copy_heads(&mut self, entry: &Entry) {
        self.header.copy_from_slice(entry.header());
        self.operation.copy_from_slice(entry.operation());
    }
}

/// Carries a request out. Its answer, now or later, is put into the outbox.
pub(super) fn carry_out(
    shared: &Shared,
    outbox: &Arc<Outbox>,
    entry: Entry,
    scratch: &mut Scratch,
) {
    // Operations catch their panics. What panics here is answered with EIO by the dropped reply.
    let done = catch_unwind(AssertUnwindSafe(|| {
        let operations = &*shared.operations;
        let len = entry.payload().len();
        if len > LONG && Request::of(&entry).is_some_and(|it| it.header.opcode == opcode::WRITE) {
            return carry_out_exchanged(shared, outbox, entry, scratch);
        }
        if len > SHORT {
            return carry_out_lent(operations, outbox, entry);
        }
        scratch.copy_heads(&entry);
        scratch.payload[..len].copy_from_slice(entry.payload());
        let unique = Request::unique_of(&scratch.header);
        let reply = Reply::of_entry(outbox.clone(), entry, unique);
        match Request::of_parts(&scratch.header, &scratch.operation, &scratch.payload[..len]) {
            Some(request) => operations.answer(request, reply),
            None => malformed(reply),
        }
    }));
    if done.is_err() {
        tracing::error!("a request panicked outside of the filesystem");
    }
}

fn carry_out_exchanged(
    shared: &Shared,
    outbox: &Arc<Outbox>,
    mut entry: Entry,
    scratch: &mut Scratch,
) {
    let Some(payload) = shared.areas.take(&mut entry) else {
        return carry_out_lent(&shared.operations, outbox, entry);
    };
    scratch.copy_heads(&entry);
    let unique = Request::unique_of(&scratch.header);
    let reply = Reply::of_entry(outbox.clone(), entry, unique);
    match Request::of_payload(&scratch.header, &scratch.operation, &payload) {
        Some(request) => shared.operations.answer(request, reply),
        None => malformed(reply),
    }
}

/// Gives the entry back when the request needs it no more.
struct Borrowed {
    lent: Arc<Lent>,
    entry: Option<Entry>,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.entry.take().into_iter().for_each(|entry| self.lent.give_back(entry));
    }
}

fn carry_out_lent(operations: &Operations, outbox: &Arc<Outbox>, entry: Entry) {
    let lent = Lent::new(outbox.clone());
    let reply = Reply::of_lent(lent.clone(), Request::unique_of(entry.header()));
    let borrowed = Borrowed { lent, entry: Some(entry) };
    match borrowed.entry.as_ref().and_then(Request::of) {
        Some(request) => operations.answer(request, reply),
        None => malformed(reply),
    }
}

fn malformed(reply: Reply) {
    tracing::error!(
        "the kernel sent a request through a ring that is not of the FUSE protocol: it gets EIO"
    );
    reply.error(Errno::IO);
}
