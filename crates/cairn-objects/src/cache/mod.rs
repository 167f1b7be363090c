//! [`Cache`]: parts of data objects, read once.
//!
//! Objects never change, so what was read once is right. An object is read in chunks of 256 KiB.
//! The first miss in an object reads one chunk, each further one twice as many, up to 4 MiB: little
//! for a single block, and few requests for a stream or for a table in scattered blocks. After a
//! read up to the end of an object the next object continues: a stream has many objects. Two
//! readers of one chunk make one request. A directory, if there is one, keeps chunks across
//! openings; each opening asks once for the identity of an object that it has chunks of.

mod directory;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::{Event, Runtime};
use cairn_base::stats::{Counter, Report};

use crate::format::ObjectId;
use crate::format::data::HEADER;
use crate::requests::Requests;
use crate::store::{Error, ErrorKind, RESTORE, Result};

pub(crate) use directory::Directory;
use directory::Identity;

/// Bytes of a chunk.
const CHUNK: u64 = 256 << 10;
/// Most chunks that are read at once.
const MOST_CHUNKS: u64 = 16;
/// Most identities of objects that are remembered: 4 MiB.
const MOST_IDENTITIES: usize = 1 << 16;

type Key = (ObjectId, u64);

/// Chunks of objects.
pub(crate) struct Cache {
    requests: Requests,
    directory: Option<Directory>,
    budget: u64,
    state: Mutex<State>,
    changed: Event,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    hits: Counter,
    disk_hits: Counter,
    misses: Counter,
}

#[derive(Default)]
struct State {
    /// With the time of the last use.
    chunks: HashMap<Key, (Bytes, u64)>,
    /// The keys by that time.
    uses: BTreeMap<u64, Key>,
    clock: u64,
    bytes: u64,
    reading: HashSet<Key>,
    /// Chunks that the next miss in an object reads.
    windows: HashMap<ObjectId, u64>,
    /// The same for a new object: more than 1 after a read up to the end of another.
    next_window: Option<u64>,
    /// Of objects in the store, if there is a directory.
    identities: HashMap<ObjectId, Identity>,
}

impl State {
    fn get(&mut self, key: &Key) -> Option<Bytes> {
        let (bytes, used) = self.chunks.get_mut(key)?;
        self.uses.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.uses.insert(self.clock, *key);
        Some(bytes.clone())
    }

    fn put(&mut self, key: Key, bytes: Bytes, budget: u64) {
        self.clock += 1;
        self.bytes += bytes.len() as u64;
        if let Some((old, used)) = self.chunks.insert(key, (bytes, self.clock)) {
            self.bytes -= old.len() as u64;
            self.uses.remove(&used);
        }
        self.uses.insert(self.clock, key);
        while self.bytes > budget {
            let Some((_, key)) = self.uses.pop_first() else { break };
            if let Some((old, _)) = self.chunks.remove(&key) {
                self.bytes -= old.len() as u64;
            }
        }
        if self.windows.len() > 4096 {
            self.windows.clear();
        }
    }
}

impl Cache {
    /// A cache of so many bytes over the store.
    pub(crate) fn new(requests: Requests, budget: u64, directory: Option<Directory>) -> Self {
        Self {
            requests,
            directory,
            budget,
            state: Mutex::new(Rank::Leaf, State::default()),
            changed: Event::new(),
            counters: Counters::default(),
        }
    }

    /// Fills `buf` from byte `offset` of an object of `length` bytes.
    pub(crate) fn read(
        &self,
        id: ObjectId,
        length: u64,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let end = offset + buf.len() as u64;
        let mut at = offset;
        while at < end {
            let number = at / CHUNK;
            let chunk = self.chunk(id, length, number, (end - 1) / CHUNK)?;
            let start = number * CHUNK;
            let stop = end.min(start + CHUNK);
            let from = chunk.get((at - start) as usize..(stop - start) as usize);
            let from = from.ok_or_else(|| {
                let detail = format!(
                    "the object {id} has fewer than the {length} bytes that it was written with: \
                     {RESTORE}"
                );
                Error::new(ErrorKind::Failed, detail)
            })?;
            buf[(at - offset) as usize..(stop - offset) as usize].copy_from_slice(from);
            at = stop;
        }
        Ok(())
    }

    /// A chunk of an object. The caller will need those up to `last`.
    fn chunk(&self, id: ObjectId, length: u64, number: u64, last: u64) -> Result<Bytes> {
        let key = (id, number);
        loop {
            let mut state = self.state.lock();
            if let Some(bytes) = state.get(&key) {
                self.counters.hits.add(1);
                return Ok(bytes);
            }
            if !state.reading.contains(&key) {
                break;
            }
            drop(state);
            self.runtime()
                .wait_until(&self.changed, &mut || !self.state.lock().reading.contains(&key));
        }
        if let Some(bytes) = self.kept(id, number) {
            self.counters.disk_hits.add(1);
            self.state.lock().put(key, bytes.clone(), self.budget);
            return Ok(bytes);
        }
        let wanted = self.begin(id, length, number, last);
        if wanted.is_empty() {
            // Another reader has begun meanwhile.
            return self.chunk(id, length, number, last);
        }
        self.counters.misses.add(1);
        let bytes = wanted.start * CHUNK..(wanted.end * CHUNK).min(length);
        let answer = self.requests.get_range(&id.to_string(), bytes);
        let mut state = self.state.lock();
        for chunk in wanted.clone() {
            state.reading.remove(&(id, chunk));
        }
        let mut found = None;
        if let Ok(answer) = &answer {
            for (chunk, at) in wanted.zip((0..answer.len()).step_by(CHUNK as usize)) {
                let bytes = answer.slice(at..answer.len().min(at + CHUNK as usize));
                if chunk == number {
                    found = Some(bytes.clone());
                }
                // A copy, so that no chunk keeps the memory of all.
                let bytes = Bytes::copy_from_slice(&bytes);
                state.put((id, chunk), bytes, self.budget);
            }
        }
        drop(state);
        self.changed.notify();
        let answer = answer?;
        self.keep(id, number, &answer);
        found.ok_or_else(|| {
            let detail = format!("the object {id} has no bytes where data was written: {RESTORE}");
            Error::new(ErrorKind::Failed, detail)
        })
    }

    /// A chunk of the directory, if it is of the object that the store has.
    fn kept(&self, id: ObjectId, number: u64) -> Option<Bytes> {
        let (bytes, identity) = self.directory.as_ref()?.get(id, number)?;
        (self.identity(id)? == identity).then_some(bytes)
    }

    /// The identity of an object in the store, if that answers.
    fn identity(&self, id: ObjectId) -> Option<Identity> {
        if let Some(known) = self.state.lock().identities.get(&id) {
            return Some(*known);
        }
        let answer = self.requests.get_range(&id.to_string(), 0..HEADER as u64).ok()?;
        self.identify(id, &answer)
    }

    /// The same, from the first bytes of the object.
    fn identify(&self, id: ObjectId, bytes: &[u8]) -> Option<Identity> {
        let identity = *bytes.first_chunk()?;
        let mut state = self.state.lock();
        if state.identities.len() >= MOST_IDENTITIES {
            state.identities.clear();
        }
        state.identities.insert(id, identity);
        Some(identity)
    }

    /// Writes what was read to the directory.
    fn keep(&self, id: ObjectId, first: u64, answer: &Bytes) {
        let Some(directory) = &self.directory else { return };
        let identity = if first == 0 { self.identify(id, answer) } else { self.identity(id) };
        let Some(identity) = identity else { return };
        for (chunk, at) in (first..).zip((0..answer.len()).step_by(CHUNK as usize)) {
            directory.put(id, &identity, chunk, &answer[at..answer.len().min(at + CHUNK as usize)]);
        }
    }

    /// The chunks that this reader reads, from `number` on.
    fn begin(&self, id: ObjectId, length: u64, number: u64, last: u64) -> Range<u64> {
        let mut state = self.state.lock();
        let first = state.next_window.take().unwrap_or(1);
        let window = state.windows.entry(id).or_insert(first);
        let ahead = *window;
        *window = (*window * 2).min(MOST_CHUNKS);
        let grown = *window;
        let needed = (last - number + 1).clamp(1, MOST_CHUNKS);
        let stop = (number + ahead.max(needed)).min(length.div_ceil(CHUNK)).max(number + 1);
        let mut end = number;
        while end < stop {
            let key = (id, end);
            if state.reading.contains(&key) || state.chunks.contains_key(&key) {
                break;
            }
            state.reading.insert(key);
            end += 1;
        }
        // The end of a small object says nothing of what follows.
        let chunks = length.div_ceil(CHUNK);
        if end == chunks && chunks > MOST_CHUNKS {
            state.next_window = Some(grown);
        }
        number..end
    }

    fn runtime(&self) -> &Arc<dyn Runtime> {
        self.requests.runtime()
    }

    pub(crate) fn report(&self) -> Report {
        let Counters { hits, disk_hits, misses } = &self.counters;
        let bytes = self.state.lock().bytes;
        let report = Report::new().with("hits", hits).with("directory_hits", disk_hits);
        report.with("misses", misses).with("bytes", bytes)
    }
}

#[cfg(test)]
mod tests;
