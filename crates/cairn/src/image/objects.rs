//! [`ObjectImage`]: an object volume as an image's name says it.

use std::fmt;
use std::path::PathBuf;

use cairn_base::options::parse_size;
use cairn_objects::address::Address;
use cairn_objects::volume::Refused;

/// Bytes of a directory that keeps parts of objects, if the name gives no other limit.
const CACHE_SIZE: u64 = 1 << 30;
/// Bytes of objects in memory, as above.
const MEMORY: u64 = 64 << 20;
/// Bytes of a local log, as above.
const LOG_SIZE: u64 = 256 << 20;

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
    /// A file that makes flushes durable before the store has them (`?log=FILE`).
    pub log: Option<PathBuf>,
    /// Most bytes of it (`?log-size=SIZE`).
    pub log_size: u64,
    /// What becomes of flushes in it that cannot be written into the volume (`?discard-log`,
    /// `?export-log=FILE`).
    pub log_refused: Refused,
    /// Open it although another writer has it that nobody here can see (`?take-over`).
    pub take_over: bool,
}

impl ObjectImage {
    /// A volume, opened as usual.
    #[must_use]
    pub const fn new(address: Address) -> Self {
        Self {
            address,
            cache: None,
            cache_size: CACHE_SIZE,
            memory: MEMORY,
            log: None,
            log_size: LOG_SIZE,
            log_refused: Refused::Fail,
            take_over: false,
        }
    }

    /// Takes over items of a query.
    pub(super) fn select(&mut self, items: &[&str]) -> Result<(), String> {
        let size = |text: &str| {
            parse_size(text).ok_or_else(|| format!("'{text}' is no size, as in ?cache-size=10G"))
        };
        let (mut has_size, mut is_about_log) = (false, false);
        for item in items {
            match item.split_once('=') {
                Some(("cache", path)) if !path.is_empty() => self.cache = Some(path.into()),
                Some(("cache-size", bytes)) => (self.cache_size, has_size) = (size(bytes)?, true),
                Some(("memory", bytes)) => self.memory = size(bytes)?,
                Some(("log", path)) if !path.is_empty() => self.log = Some(path.into()),
                Some(("log-size", bytes)) => (self.log_size, is_about_log) = (size(bytes)?, true),
                Some(("export-log", path)) if !path.is_empty() => {
                    (self.log_refused, is_about_log) = (Refused::Export(path.into()), true);
                }
                None if *item == "discard-log" => {
                    (self.log_refused, is_about_log) = (Refused::Discard, true);
                }
                None if *item == "take-over" => self.take_over = true,
                _ => {
                    return Err(format!(
                        "'?{item}' is not understood; only cache=DIR, cache-size=SIZE, \
                         memory=SIZE, log=FILE, log-size=SIZE, discard-log, export-log=FILE, \
                         take-over, offset=BYTES, format=raw (or qcow2, zstd) and \
                         key-file=FILE can follow the address of an object volume, behind ? and \
                         with & between them"
                    ));
                }
            }
        }
        if has_size && self.cache.is_none() {
            return Err("cache-size limits a directory: name it with cache=DIR".into());
        }
        if is_about_log && self.log.is_none() {
            return Err("log-size, discard-log and export-log are about a log: name it with \
                        log=FILE"
                .into());
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
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        image.cache = image.cache.map(absolute);
        image.log = image.log.map(absolute);
        if let Refused::Export(path) = image.log_refused {
            image.log_refused = Refused::Export(absolute(path));
        }
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
        if let Some(path) = &self.log {
            items.push(format!("log={}", path.display()));
        }
        if self.log_size != LOG_SIZE {
            items.push(format!("log-size={}", self.log_size));
        }
        match &self.log_refused {
            Refused::Fail => {}
            Refused::Discard => items.push("discard-log".to_owned()),
            Refused::Export(path) => items.push(format!("export-log={}", path.display())),
        }
        if self.take_over {
            items.push("take-over".to_owned());
        }
        if items.is_empty() { Ok(()) } else { write!(f, "?{}", items.join("&")) }
    }
}
