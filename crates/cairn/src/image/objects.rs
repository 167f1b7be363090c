//! [`ObjectImage`]: an object volume as an image's name says it.

use std::fmt;
use std::path::PathBuf;

use cairn_base::options::parse_size;
use cairn_objects::address::Address;

/// Bytes of a directory that keeps parts of objects, if the name gives no other limit.
const CACHE_SIZE: u64 = 1 << 30;
/// Bytes of objects in memory, as above.
const MEMORY: u64 = 64 << 20;

/// An object volume, and how it is opened: `s3://bucket/prefix@name?cache=/var/cache/cairn`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectImage {
    /// Where it is.
    pub address: Address,
    /// A directory that keeps parts of objects across openings (`?cache=DIR`).
    pub cache: Option<PathBuf>,
    /// Bytes of it (`?cache-size=SIZE`).
    pub cache_size: u64,
    /// Bytes of objects that are kept in memory (`?memory=SIZE`).
    pub memory: u64,
    /// Open it although another writer has it (`?take-over`).
    pub take_over: bool,
}

impl ObjectImage {
    /// A volume, opened as usual.
    #[must_use]
    pub const fn new(address: Address) -> Self {
        Self { address, cache: None, cache_size: CACHE_SIZE, memory: MEMORY, take_over: false }
    }

    /// Takes over items of a query.
    pub(super) fn select(&mut self, items: &[&str]) -> Result<(), String> {
        let size = |text: &str| {
            parse_size(text).ok_or_else(|| format!("'{text}' is no size, as in ?cache-size=10G"))
        };
        let mut has_size = false;
        for item in items {
            match item.split_once('=') {
                Some(("cache", path)) if !path.is_empty() => self.cache = Some(path.into()),
                Some(("cache-size", bytes)) => (self.cache_size, has_size) = (size(bytes)?, true),
                Some(("memory", bytes)) => self.memory = size(bytes)?,
                None if *item == "take-over" => self.take_over = true,
                _ => {
                    return Err(format!(
                        "'?{item}' is not understood; only cache=DIR, cache-size=SIZE, \
                         memory=SIZE, take-over, offset=BYTES, format=raw (or qcow2, zstd) and \
                         key-file=FILE can follow the address of an object volume, behind ? and \
                         with & between them"
                    ));
                }
            }
        }
        if has_size && self.cache.is_none() {
            return Err("cache-size limits a directory: name it with cache=DIR".into());
        }
        Ok(())
    }

    /// The same, whatever the working directory, and whatever links lead to a store.
    pub(super) fn absolute(&self) -> Self {
        let mut image = self.clone();
        if let cairn_objects::address::Place::Directory(path) = &mut image.address.place
            && let Ok(found) = path.canonicalize()
        {
            *path = found;
        }
        image.cache = image.cache.map(|path| std::path::absolute(&path).unwrap_or(path));
        image
    }
}

impl fmt::Display for ObjectImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        let mut items = Vec::new();
        if let Some(path) = &self.cache {
            items.push(format!("cache={}", path.display()));
        }
        if self.cache_size != CACHE_SIZE {
            items.push(format!("cache-size={}", self.cache_size));
        }
        if self.memory != MEMORY {
            items.push(format!("memory={}", self.memory));
        }
        if self.take_over {
            items.push("take-over".to_owned());
        }
        if items.is_empty() { Ok(()) } else { write!(f, "?{}", items.join("&")) }
    }
}
