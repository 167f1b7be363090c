//! The layers of a container image: several are read at once, each by a thread, and put over each
//! other in their order.
//!
//! A thread decompresses its layer, keeps the contents of files in a spool of its own, and sends
//! what members change through a queue of bounded size. The caller's thread takes the queues one
//! after the other, so the tree, and the first error, do not depend on the number of threads.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};

use super::digest::Digest;
use super::layer;
use super::members::{Change, Members};
use super::reasons::{broken, not_kept};
use super::stream::Stream;
use super::tar;
use crate::assembly::Assembly;
use crate::error::{Error, Result};
use crate::path::MemberPath;
use crate::rules::Rules;
use crate::store::{KeepError, Spool};

/// Most threads: each has a decompressor and a queue.
const THREADS: usize = 8;
/// Bytes of changes that a queue holds.
const QUEUE: usize = 4 << 20;

/// A layer, which lies in a file of a store.
pub(super) struct Layer {
    /// Its name, for errors.
    pub(super) source: String,
    pub(super) file: Arc<File>,
    pub(super) store: u32,
    pub(super) at: u64,
    pub(super) len: u64,
    pub(super) known: Known,
}

/// What an image says of a layer.
#[derive(Clone, Default)]
pub(super) struct Known {
    /// The digest of its bytes.
    pub(super) stored: Option<Digest>,
    /// The digest of the archive that they give.
    pub(super) unpacked: Option<Digest>,
}

impl Layer {
    /// Reads the layer. The digest of its bytes is compared first. That of the archive is computed
    /// while it is decompressed.
    fn read_into(&self, members: &mut impl Members) -> Result<()> {
        let failed = |error| Error::source(&self.source, broken(&error));
        let place = || (self.file.clone(), self.store, self.at, self.len);
        let unpacked = || {
            let (file, store, at, len) = place();
            Stream::in_store(file, store, at, len).map_err(failed)
        };
        let same = |changed: Option<String>| match changed {
            Some(why) => Err(Error::source(&self.source, why)),
            None => Ok(()),
        };
        let Known { stored, unpacked: archive } = &self.known;
        if let Some(digest) = stored {
            let (file, store, at, len) = place();
            let mut bytes = Stream::stored(file, store, at, len).map_err(failed)?;
            same(digest.difference(&mut bytes).map_err(failed)?)?;
        }
        let stream = unpacked()?;
        let Some(digest) = archive else { return tar::read(members, &self.source, stream, true) };
        match (stored, &stream) {
            (Some(_), Stream::Pipe(_)) => {}
            // The same bytes.
            (Some(stored), Stream::Place(_)) if stored.is_like(digest) => {
                same((stored != digest).then(|| of_another(digest)))?;
                return tar::read(members, &self.source, stream, true);
            }
            // What a layer without a name of its own says is not trusted before.
            _ => {
                same(digest.difference(&mut unpacked()?).map_err(failed)?)?;
                return tar::read(members, &self.source, stream, true);
            }
        }
        let sum = Rc::new(RefCell::new(digest.sum()));
        let watching = sum.clone();
        let stream = stream.watched(move |bytes| watching.borrow_mut().update(bytes));
        tar::read(members, &self.source, stream, true)?;
        let changed = digest.other(sum.replace(digest.sum()));
        same(changed.map(|_| of_another(digest)))
    }
}

/// What is wrong with a layer that is not the one that the configuration names.
fn of_another(digest: &Digest) -> String {
    format!(
        "is not the layer that the configuration of the image has there, which is {digest} without \
         compression: fetch or make the image again"
    )
}

/// Puts layers in, the lowest first.
///
/// # Errors
/// A layer is damaged, or a member cannot be put in.
pub(super) fn read(assembly: &mut Assembly, layers: Vec<Layer>) -> Result<()> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    if threads < 2 || layers.len() < 2 {
        return layers.iter().try_for_each(|layer| {
            let mut members = layer::Layer::new(assembly);
            layer.read_into(&mut members)?;
            members.finish(&layer.source)
        });
    }
    thread::scope(|scope| {
        let mut waiting = layers.iter();
        let mut running = VecDeque::new();
        for layer in waiting.by_ref().take(threads) {
            running.push_back(start(scope, assembly, layer)?);
        }
        while let Some((layer, queue)) = running.pop_front() {
            let mut members = layer::Layer::new(assembly);
            match queue {
                Some(queue) => queue.apply(&mut members, &layer.source)?,
                None => layer.read_into(&mut members)?,
            }
            members.finish(&layer.source)?;
            if let Some(next) = waiting.next() {
                running.push_back(start(scope, assembly, next)?);
            }
        }
        Ok(())
    })
}

/// Starts to read a layer. Without a queue, the host has no thread for it.
fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    assembly: &mut Assembly,
    layer: &'env Layer,
) -> Result<(&'env Layer, Option<Receiver>)> {
    let spool = assembly.stores.new_spool();
    let spool = spool.map_err(|error| not_kept(error, |why| Error::source(&layer.source, why)))?;
    let queue: Arc<Queue> = Arc::default();
    let mut sender = Sender { queue: queue.clone(), rules: assembly.rules.clone(), spool };
    let receiver = Receiver(queue);
    let work = move || {
        let outcome = layer.read_into(&mut sender);
        sender.queue.lock().outcome = Some(outcome);
    };
    let started = thread::Builder::new().name("layer".into()).spawn_scoped(scope, work);
    Ok((layer, started.is_ok().then_some(receiver)))
}

/// Changes on their way, with their members' names.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    changes: VecDeque<(Vec<u8>, Change)>,
    bytes: usize,
    /// The layer has been read.
    outcome: Option<Result<()>>,
    /// The thread that reads has ended.
    ended: bool,
    /// Nobody takes further changes.
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a queue that a layer's thread has.
struct Sender {
    queue: Arc<Queue>,
    rules: Rules,
    spool: Spool,
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.queue.lock().ended = true;
        self.queue.changed.notify_all();
    }
}

impl Members for Sender {
    fn excludes(&self, path: &MemberPath) -> bool {
        self.rules.excludes(path, false)
    }

    fn keep(&mut self, stream: &mut Stream, len: u64) -> Result<(u32, u64), KeepError> {
        stream.keep(len, &mut self.spool)
    }

    fn change(&mut self, source: &str, member: &[u8], change: Change) -> Result<()> {
        let bytes = change.bytes() + member.len();
        let mut state = self.queue.lock();
        while state.bytes > 0 && state.bytes + bytes > QUEUE && !state.closed {
            state = self.queue.wait(state);
        }
        if state.closed {
            return Err(Error::source(source, "an earlier layer cannot be read"));
        }
        state.bytes += bytes;
        state.changes.push_back((member.to_vec(), change));
        drop(state);
        self.queue.changed.notify_all();
        Ok(())
    }
}

/// The end of a queue that applies the changes.
struct Receiver(Arc<Queue>);

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_all();
    }
}

impl Receiver {
    /// Applies changes until the layer ends.
    fn apply(self, members: &mut impl Members, source: &str) -> Result<()> {
        loop {
            let changes = {
                let mut state = self.0.lock();
                while state.changes.is_empty() && !state.ended {
                    state = self.0.wait(state);
                }
                if state.changes.is_empty() {
                    return state.outcome.take().unwrap_or_else(|| {
                        Err(Error::source(source, "the thread that reads it has failed"))
                    });
                }
                state.bytes = 0;
                std::mem::take(&mut state.changes)
            };
            self.0.changed.notify_all();
            for (member, change) in changes {
                members.change(source, &member, change)?;
            }
        }
    }
}
