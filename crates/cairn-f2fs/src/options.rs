//! Mount options, with the kernel's names.

use cairn_base::stats::Report;
use cairn_cache::file::{BufferedMode, MAX_FOLIO, MIN_FOLIO};

use crate::error::{Error, Result};
use crate::segment::Mode;

/// Least memory for caches.
const MIN_CACHE: usize = 1 << 20;

/// How a volume is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// No write reaches the device; what was fsynced since the last checkpoint is replayed in memory.
    pub read_only: bool,
    /// Do not look at what was fsynced since the last checkpoint (`norecovery`); read-only volumes only.
    pub no_recovery: bool,
    /// Memory for folios and metadata buffers, in bytes (`cache=SIZE`).
    pub cache_bytes: usize,
    /// Buffered I/O over large mappings and folios (`buffered_iomap`), or block by block (`nobuffered_iomap`).
    pub buffered: BufferedMode,
    /// Largest folio in bytes (`max_folio=SIZE`).
    pub max_folio: usize,
    /// How logs find room (`mode=adaptive`, `mode=lfs`).
    pub mode: Mode,
    /// Tell the device about freed blocks (`discard`, `nodiscard`).
    pub discard: bool,
    /// Seconds between checkpoints of a volume that changes (`checkpoint_interval=SECONDS`).
    pub checkpoint_interval: u32,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            no_recovery: false,
            cache_bytes: 256 << 20,
            buffered: BufferedMode::Extents,
            max_folio: MAX_FOLIO,
            mode: Mode::Adaptive,
            discard: true,
            checkpoint_interval: 60,
        }
    }
}

impl MountOptions {
    /// Parses a comma-separated list as in mount(8). Later options win.
    ///
    /// # Errors
    /// [`Error::Option`] names the option that is unknown or malformed.
    pub fn parse(list: &str) -> Result<Self> {
        Self::default().changed(list)
    }

    /// These options, changed by a list: what it does not name stays.
    ///
    /// # Errors
    /// As [`MountOptions::parse`].
    pub fn changed(&self, list: &str) -> Result<Self> {
        let mut options = self.clone();
        for word in list.split(',').filter(|word| !word.is_empty()) {
            options.apply(word)?;
        }
        if options.no_recovery && !options.read_only {
            return Err(Error::Option(
                "norecovery leaves fsynced data behind and is only safe read-only: add ro".to_owned(),
            ));
        }
        Ok(options)
    }

    /// The options in force, by the names under which they are given.
    #[must_use]
    pub fn report(&self) -> Report {
        Report::new()
            .with("ro", self.read_only)
            .with("norecovery", self.no_recovery)
            .with("cache", self.cache_bytes)
            .with("buffered_iomap", self.buffered == BufferedMode::Extents)
            .with("max_folio", self.max_folio)
            .with("mode", if self.mode == Mode::Lfs { "lfs" } else { "adaptive" })
            .with("discard", self.discard)
            .with("checkpoint_interval", self.checkpoint_interval)
    }

    fn apply(&mut self, word: &str) -> Result<()> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        match (name, value) {
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("norecovery" | "disable_roll_forward", None) => self.no_recovery = true,
            ("cache", Some(size)) => self.cache_bytes = size_of_option(word, size, MIN_CACHE..=usize::MAX)?,
            ("buffered_iomap", None) => self.buffered = BufferedMode::Extents,
            ("nobuffered_iomap", None) => self.buffered = BufferedMode::PerBlock,
            ("max_folio", Some(size)) => {
                let bytes = size_of_option(word, size, MIN_FOLIO..=MAX_FOLIO)?;
                if !bytes.is_power_of_two() {
                    return Err(Error::Option(format!("`{word}`: the size must be a power of two")));
                }
                self.max_folio = bytes;
            }
            ("mode", Some("adaptive")) => self.mode = Mode::Adaptive,
            ("mode", Some("lfs")) => self.mode = Mode::Lfs,
            ("mode", Some(_)) => return Err(Error::Option(format!("`{word}`: the modes are adaptive and lfs"))),
            ("discard", None) => self.discard = true,
            ("nodiscard", None) => self.discard = false,
            ("checkpoint_interval", Some(seconds)) => self.checkpoint_interval = seconds_of_option(word, seconds)?,
            // What Cairn always does, so that lines of fstab can stay as they are.
            (
                "defaults" | "acl" | "user_xattr" | "inline_xattr" | "inline_data" | "inline_dentry" | "noatime",
                None,
            ) => {}
            _ => {
                return Err(Error::Option(format!(
                    "unknown option `{word}`; f2fs takes ro, rw, norecovery, cache=SIZE, buffered_iomap, \
                     nobuffered_iomap, max_folio=SIZE, mode=adaptive|lfs, discard, nodiscard, \
                     checkpoint_interval=SECONDS"
                )));
            }
        }
        Ok(())
    }
}

fn seconds_of_option(word: &str, text: &str) -> Result<u32> {
    let seconds = text.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
    seconds.ok_or_else(|| Error::Option(format!("`{word}`: the interval must be 1 to 86400 seconds")))
}

/// A size with an optional suffix K, M or G.
fn size_of_option(word: &str, text: &str, range: std::ops::RangeInclusive<usize>) -> Result<usize> {
    let malformed = || Error::Option(format!("`{word}`: a size is a number, perhaps with K, M or G behind it"));
    let (digits, shift) = match text.trim_end_matches(['K', 'M', 'G', 'k', 'm', 'g']) {
        digits if digits.len() == text.len() => (digits, 0),
        digits if digits.len() + 1 == text.len() => match text.as_bytes().last() {
            Some(b'K' | b'k') => (digits, 10),
            Some(b'M' | b'm') => (digits, 20),
            _ => (digits, 30),
        },
        _ => return Err(malformed()),
    };
    let number: usize = digits.parse().map_err(|_| malformed())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(malformed)?;
    if range.contains(&bytes) {
        return Ok(bytes);
    }
    Err(Error::Option(format!("`{word}`: the size must be {} to {} bytes", range.start(), range.end())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_from_left_to_right() {
        let options = MountOptions::parse("ro,rw,,ro,cache=8M,nobuffered_iomap,max_folio=64K").unwrap();
        assert!(options.read_only && options.buffered == BufferedMode::PerBlock);
        assert_eq!((options.cache_bytes, options.max_folio), (8 << 20, 65_536));
        assert!(MountOptions::parse("norecovery,ro").unwrap().no_recovery);
    }

    #[test]
    fn mistakes_are_named() {
        for bad in ["norecovery", "cache=1", "cache=xM", "cache=1MM", "max_folio=5000", "max_folio=8M", "ro=1", "what"]
        {
            let error = MountOptions::parse(bad).unwrap_err().to_string();
            assert!(error.contains(bad), "{error}");
        }
    }
}
