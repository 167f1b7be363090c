//! [`MemoryStore`]: a store in memory, for tests and experiments.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use cairn_base::ranked_lock::{Mutex, Rank};

use super::{Condition, Error, ErrorKind, Listed, Object, RESTORE, Result, Store, Tag};

/// A store in memory.
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Clone, Default)]
struct State {
    objects: BTreeMap<String, (Bytes, u64)>,
    puts: u64,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        let state = State { objects: BTreeMap::new(), puts: 0 };
        Self { state: Mutex::new(Rank::Leaf, state) }
    }

    /// An independent store with the same objects and tags.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { state: Mutex::new(Rank::Leaf, self.state.lock().clone()) }
    }

    /// Changes the bytes of an object where it is, as damage does.
    ///
    /// # Panics
    /// There is no such object.
    pub fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state.lock();
        let (bytes, _) = state.objects.get_mut(name).expect("an object to damage");
        let mut changed = bytes.to_vec();
        change(&mut changed);
        *bytes = changed.into();
    }
}

pub(super) fn missing(name: &str) -> Error {
    Error::new(ErrorKind::Missing, format!("{name}: there is no such object"))
}

pub(super) fn conflict(name: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("{name}: the object is not what it was"))
}

/// The part of an object of `size` bytes that a range has.
pub(super) fn clamp(name: &str, size: u64, range: &Range<u64>) -> Result<Range<u64>> {
    let end = range.end.min(size);
    if range.start >= end {
        let start = range.start;
        let detail = format!(
            "the object {name} has {size} bytes, and was written with more than {start}: {RESTORE}"
        );
        return Err(Error::new(ErrorKind::Failed, detail));
    }
    Ok(range.start..end)
}

impl Store for MemoryStore {
    fn put(&self, name: &str, parts: &[Bytes], condition: Condition<'_>) -> Result<Tag> {
        let mut state = self.state.lock();
        let present = state.objects.get(name).map(|(_, tag)| Tag(tag.to_string()));
        let holds = match condition {
            Condition::IfAbsent => present.is_none(),
            Condition::IfMatch(tag) => present.as_ref() == Some(tag),
        };
        if !holds {
            return Err(conflict(name));
        }
        state.puts += 1;
        let tag = state.puts;
        state.objects.insert(name.to_owned(), (parts.concat().into(), tag));
        Ok(Tag(tag.to_string()))
    }

    fn get(&self, name: &str) -> Result<Object> {
        let state = self.state.lock();
        let (bytes, tag) = state.objects.get(name).ok_or_else(|| missing(name))?;
        Ok(Object { bytes: bytes.clone(), tag: Tag(tag.to_string()) })
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let Object { bytes, .. } = self.get(name)?;
        let range = clamp(name, bytes.len() as u64, &range)?;
        Ok(bytes.slice(range.start as usize..range.end as usize))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Vec<Listed>> {
        let state = self.state.lock();
        let names = state.objects.range(prefix.to_owned()..);
        let names = names.take_while(|(name, _)| name.starts_with(prefix));
        let names = names.filter(|(name, _)| after.is_none_or(|after| name.as_str() > after));
        let listed =
            names.map(|(name, (bytes, _))| Listed { name: name.clone(), size: bytes.len() as u64 });
        Ok(listed.collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.state.lock().objects.remove(name);
        Ok(())
    }
}
