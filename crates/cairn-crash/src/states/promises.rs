//! Which changes of a workload are durable, and since when.

use std::collections::BTreeMap;

/// For each key, such as a path, the history of its durable values. `V` is an observer's value; use
/// an `Option` if the key can be removed.
///
/// The workload calls [`Promises::changing`] *before* each operation that may alter the key's state
/// and [`Promises::kept`] *after* the fsync that makes it durable, each with the recorder's present
/// moment.
#[derive(Clone, Debug)]
pub struct Promises<K, V> {
    history: BTreeMap<K, Vec<(u64, Option<V>)>>,
}

impl<K: Ord + Clone, V: Clone> Promises<K, V> {
    /// Nothing promised.
    #[must_use]
    pub fn new() -> Self {
        Self { history: BTreeMap::new() }
    }

    /// From this moment on, the key may have its old or its new state.
    pub fn changing(&mut self, key: K, moment: u64) {
        self.push(key, moment, None);
    }

    /// From this moment on, the key has this state, until it changes again.
    pub fn kept(&mut self, key: K, value: V, moment: u64) {
        self.push(key, moment, Some(value));
    }

    fn push(&mut self, key: K, moment: u64, entry: Option<V>) {
        let history = self.history.entry(key).or_default();
        assert!(history.last().is_none_or(|(last, _)| *last <= moment), "moments do not go back");
        history.push((moment, entry));
    }

    /// The values that a power cut at `moment` must leave.
    #[must_use]
    pub fn at(&self, moment: u64) -> BTreeMap<&K, &V> {
        let latest =
            |history: &'_ [(u64, Option<V>)]| history.iter().rposition(|(when, _)| *when <= moment);
        self.history
            .iter()
            .filter_map(|(key, history)| {
                let (_, entry) = history.get(latest(history)?)?;
                entry.as_ref().map(|value| (key, value))
            })
            .collect()
    }

    /// The number of promises.
    #[must_use]
    pub fn count(&self) -> usize {
        self.history.values().flatten().filter(|(_, entry)| entry.is_some()).count()
    }
}

impl<K: Ord + Clone, V: Clone> Default for Promises<K, V> {
    fn default() -> Self {
        Self::new()
    }
}
