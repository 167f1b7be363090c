//! [`Requests`]: a store's requests, repeated while it asks to come again.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::runtime::{Event, Runtime};

use crate::store::{
    Condition, Error, ErrorKind, Listed, Object, Result, Store, Stranger, Swept, Tag,
};

/// The first pause before a request is repeated. Each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Bytes of an object that tell whose it is: a data object's header, a whole fence.
const IDENTITY: usize = 64;
/// How often a name that is taken may turn out to be free.
const MOST_VANISHED: u32 = 8;

/// What became of a name that was to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Created {
    /// It has the caller's bytes.
    Ours,
    /// It has others.
    Theirs,
}

/// The requests of a volume or a pool.
#[derive(Clone)]
pub(crate) struct Requests {
    store: Arc<dyn Store>,
    runtime: Arc<dyn Runtime>,
    patience: Duration,
    /// Never notified: pauses end by time.
    pause: Arc<Event>,
}

impl Requests {
    /// Requests that are repeated for `patience`.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        runtime: Arc<dyn Runtime>,
        patience: Duration,
    ) -> Self {
        Self { store, runtime, patience, pause: Arc::new(Event::new()) }
    }

    /// The runtime of the pauses.
    pub(crate) const fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    fn again<T>(&self, mut request: impl FnMut(&dyn Store) -> Result<T>) -> Result<T> {
        let start = self.runtime.monotonic();
        let mut pause = FIRST_PAUSE;
        loop {
            match request(&*self.store) {
                Err(error) if error.kind == ErrorKind::Transient => {
                    let waited = self.runtime.monotonic().saturating_sub(start);
                    if waited + pause > self.patience {
                        return Err(error);
                    }
                    self.runtime.wait_until_timeout(&self.pause, pause, &mut || false);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                answer => return answer,
            }
        }
    }

    pub(crate) fn get(&self, name: &str) -> Result<Object> {
        self.again(|store| store.get(name))
    }

    pub(crate) fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.again(|store| store.get_range(name, range.clone()))
    }

    pub(crate) fn list(&self, prefix: &str, after: Option<&str>) -> Result<Vec<Listed>> {
        self.again(|store| store.list(prefix, after))
    }

    pub(crate) fn delete(&self, name: &str) -> Result<()> {
        self.again(|store| store.delete(name))
    }

    /// Removes what killed processes had not finished.
    pub(crate) fn sweep(&self) -> Result<Swept> {
        self.store.sweep()
    }

    pub(crate) fn strangers(&self) -> Result<Vec<Stranger>> {
        self.store.strangers()
    }

    pub(crate) fn is_foreign(&self, name: &str) -> bool {
        self.store.is_foreign(name)
    }

    pub(crate) fn is_made(&self) -> Result<bool> {
        self.store.is_made()
    }

    /// Creates an object. A name that is taken has its bytes already if the first of them are
    /// equal: every object begins with something that no other has.
    pub(crate) fn create(&self, name: &str, parts: &[Bytes]) -> Result<Created> {
        let mut vanished = 0;
        loop {
            match self.again(|store| store.put(name, parts, Condition::IfAbsent)) {
                Err(error) if error.kind == ErrorKind::Conflict => {}
                answer => return answer.map(|_| Created::Ours),
            }
            let mut ours: Vec<u8> = Vec::with_capacity(IDENTITY);
            for part in parts {
                ours.extend(part.iter().take(IDENTITY - ours.len()));
            }
            match self.get_range(name, 0..IDENTITY as u64) {
                Ok(theirs) if *theirs == *ours => return Ok(Created::Ours),
                Ok(_) => return Ok(Created::Theirs),
                Err(error) if error.kind == ErrorKind::Missing && vanished < MOST_VANISHED => {
                    vanished += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Replaces an object that has this tag. None if it has another, and other bytes.
    pub(crate) fn replace(&self, name: &str, bytes: &Bytes, tag: &Tag) -> Result<Option<Tag>> {
        let parts = [bytes.clone()];
        match self.again(|store| store.put(name, &parts, Condition::IfMatch(tag))) {
            Err(error) if error.kind == ErrorKind::Conflict => {}
            Err(error) if error.kind == ErrorKind::Missing => return Ok(None),
            answer => return answer.map(Some),
        }
        match self.get(name) {
            Ok(object) => Ok((object.bytes == *bytes).then_some(object.tag)),
            Err(error) if error.kind == ErrorKind::Missing => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Finds out whether the store keeps the conditions of PUTs.
    pub(crate) fn probe(&self) -> Result<()> {
        let name = format!("probe/{:016x}", self.runtime.random());
        let lacks = |what: &str| {
            let detail = format!(
                "the store ignores {what} of a PUT, so two writers could damage a volume: use a \
                 store with conditional writes (S3, Google Cloud Storage, Azure, MinIO do)"
            );
            Err(Error::new(ErrorKind::Unsupported, detail))
        };
        let put = |text: &'static str, condition: Condition<'_>| {
            let parts = [Bytes::from_static(text.as_bytes())];
            self.again(|store| store.put(&name, &parts, condition))
        };
        let is_conflict = |answer: &Result<Tag>| {
            answer.as_ref().err().is_some_and(|error| error.kind == ErrorKind::Conflict)
        };
        let probe = || {
            // An answer that was lost may make a conflict of the first PUT: it proves as much.
            let first = match put("first", Condition::IfAbsent) {
                Err(error) if error.kind == ErrorKind::Conflict => self.get(&name)?.tag,
                first => first?,
            };
            let created = put("second", Condition::IfAbsent);
            if !is_conflict(&created) {
                created?;
                return lacks("the condition If-None-Match");
            }
            let second = put("third", Condition::IfMatch(&first));
            if !is_conflict(&second) {
                second?;
            }
            let replaced = put("fourth", Condition::IfMatch(&first));
            if !is_conflict(&replaced) {
                replaced?;
                return lacks("the condition If-Match");
            }
            Ok(())
        };
        let outcome = probe();
        // What is left of a probe does no harm.
        let _ = self.delete(&name);
        outcome
    }
}

impl From<Error> for cairn_block::Error {
    fn from(error: Error) -> Self {
        use cairn_block::ErrorKind as Kind;
        let kind = match error.kind {
            ErrorKind::Missing => Kind::NotFound,
            ErrorKind::Conflict => Kind::InUse,
            ErrorKind::Denied => Kind::PermissionDenied,
            ErrorKind::Unsupported => Kind::Unsupported,
            ErrorKind::Full => Kind::NoSpace,
            ErrorKind::Transient | ErrorKind::Failed => Kind::Io,
        };
        Self::new(kind, "object store", error.detail)
    }
}
