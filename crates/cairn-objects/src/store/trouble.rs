//! [`Trouble`]: a store whose requests fail, or lose their answers, as a test wishes.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::ranked_lock::{Mutex, Rank};

use super::{Condition, Error, ErrorKind, Listed, Object, Result, Store, Stranger, Swept, Tag};

/// Where in a request the wish is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the request reaches the store.
    Before,
    /// After the store has done it.
    After,
}

/// Called for each request with its number from 0 on, the moment, its kind in HTTP's words, and the
/// name. `true` fails the request there: after it was done, the answer is lost.
type Wish = dyn Fn(u64, Moment, &str, &str) -> bool + Send + Sync;

/// A store with failures on demand: errors that ask to come again, and lost answers. The wish may
/// also wait, or use the store below: that happens in the midst of a request.
pub struct Trouble {
    inner: Arc<dyn Store>,
    state: Mutex<State>,
}

struct State {
    wish: Arc<Wish>,
    requests: u64,
}

impl Trouble {
    /// Around `inner`, without failures yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        let wish: Arc<Wish> = Arc::new(|_, _, _, _| false);
        Self { inner, state: Mutex::new(Rank::Leaf, State { wish, requests: 0 }) }
    }

    /// Decides about all requests from now on; they are counted from 0 again.
    pub fn set(&self, wish: impl Fn(u64, Moment, &str, &str) -> bool + Send + Sync + 'static) {
        *self.state.lock() = State { wish: Arc::new(wish), requests: 0 };
    }

    /// Requests since then.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    fn through<T>(&self, kind: &str, name: &str, request: impl FnOnce() -> Result<T>) -> Result<T> {
        let (wish, number) = {
            let mut state = self.state.lock();
            state.requests += 1;
            (state.wish.clone(), state.requests - 1)
        };
        if wish(number, Moment::Before, kind, name) {
            return Err(lost(kind, name));
        }
        let answer = request();
        if wish(number, Moment::After, kind, name) {
            return Err(lost(kind, name));
        }
        answer
    }
}

fn lost(kind: &str, name: &str) -> Error {
    Error::new(ErrorKind::Transient, format!("{kind} {name}: no answer; try again later"))
}

impl Store for Trouble {
    fn put(&self, name: &str, parts: &[Bytes], condition: Condition<'_>) -> Result<Tag> {
        self.through("PUT", name, || self.inner.put(name, parts, condition))
    }

    fn get(&self, name: &str) -> Result<Object> {
        self.through("GET", name, || self.inner.get(name))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.through("GET", name, || self.inner.get_range(name, range))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Vec<Listed>> {
        self.through("LIST", prefix, || self.inner.list(prefix, after))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.through("DELETE", name, || self.inner.delete(name))
    }

    fn sweep(&self) -> Result<Swept> {
        self.inner.sweep()
    }

    fn strangers(&self) -> Result<Vec<Stranger>> {
        self.inner.strangers()
    }

    fn is_foreign(&self, name: &str) -> bool {
        self.inner.is_foreign(name)
    }

    fn holds(&self, path: &Path) -> bool {
        self.inner.holds(path)
    }

    fn is_made(&self) -> Result<bool> {
        self.inner.is_made()
    }
}
