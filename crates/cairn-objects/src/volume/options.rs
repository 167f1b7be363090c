//! How a volume is made and opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::threads::Threads;
use cairn_block::{Error, ErrorKind, Result};

use crate::local_log::{LogOptions, LogPlace, Refused};
use crate::store::Store;

/// How a volume is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// Bytes of data after which an object is written without a flush: from 4 KiB to 1 GiB.
    pub object_size: u64,
    /// The volume's ID; without one, a random one.
    pub id: Option<u64>,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self { object_size: 8 << 20, id: None }
    }
}

/// Whether a volume is opened although somebody else has it open for writing. If it is opened for
/// writing, that writer's next flush fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TakeOver {
    /// It is not, unless that was a process of this machine, and has ended.
    #[default]
    Never,
    /// It is, unless that is a process of this machine, and runs.
    Unseen,
    /// It is, whoever it may be.
    Always,
}

/// How a volume is opened.
#[derive(Clone)]
pub struct Options {
    /// For reading only: nothing is written to the store.
    pub read_only: bool,
    /// For reading only: refuse it while a writer has it open, unless that one is taken over.
    pub exclusive: bool,
    /// Whether it is taken from a writer that has it open.
    pub take_over: TakeOver,
    /// Bytes of objects that are kept in memory.
    pub cache: u64,
    /// A directory that keeps parts of objects across openings, and its bytes.
    pub cache_directory: Option<(PathBuf, u64)>,
    /// A file that makes flushes durable before the store has them.
    pub log: Option<LogOptions>,
    /// How long a request is repeated while the store does not answer, or asks to come again.
    pub patience: Duration,
    /// Repack and remove objects while the volume is open.
    pub reclaim: bool,
    /// Threads for requests. Not the runtime of a filesystem on the volume: its threads may all
    /// wait for this device.
    pub runtime: Arc<dyn Runtime>,
}

impl Options {
    /// Refuses files of this opening among the objects of its store, which would be taken for some.
    pub(super) fn check_places(&self, store: &dyn Store) -> Result<()> {
        let log = self.log.as_ref().and_then(|log| match &log.place {
            LogPlace::File(path) => Some(path),
            LogPlace::Medium(_) => None,
        });
        let export = self.log.as_ref().and_then(|log| match &log.refused {
            Refused::Export(path) => Some(path),
            Refused::Fail | Refused::Discard => None,
        });
        let cache = self.cache_directory.as_ref().map(|(path, _)| path);
        let places = [("log", log), ("export-log", export), ("cache", cache)];
        let named = places.iter().filter_map(|(what, path)| Some((what, (*path)?)));
        for (what, path) in named {
            if store.holds(path) {
                let detail = format!(
                    "?{what}={} lies in the pool, where nothing but objects may be: name another \
                     place",
                    path.display()
                );
                return Err(Error::new(ErrorKind::Unsupported, "open", detail));
            }
        }
        Ok(())
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            exclusive: false,
            take_over: TakeOver::Never,
            cache: 64 << 20,
            cache_directory: None,
            log: None,
            patience: Duration::from_secs(60),
            reclaim: true,
            runtime: Threads::new(),
        }
    }
}
