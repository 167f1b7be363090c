//! Mount options, with the kernel's names.

use std::time::Duration;

use cairn_base::stats::Report;
use cairn_cache::file::{BufferedMode, MAX_FOLIO, MIN_FOLIO};

use crate::error::{Error, Result};

/// How a volume is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// No write reaches the device; an unclean journal is replayed in memory.
    pub read_only: bool,
    /// Do not look at the journal at all (`noload`); read-only volumes only.
    pub no_load: bool,
    /// Longest time until a change is committed (`commit=SECONDS`).
    pub commit_interval: Duration,
    /// Keep access times as `relatime` does; `noatime` switches them off.
    pub access_times: bool,
    /// Free blocks are discarded when their transaction commits (`discard`).
    pub discard: bool,
    /// Memory for folios and metadata buffers, in bytes (`cache=SIZE`).
    pub cache_bytes: usize,
    /// New files and directories take the group of their directory (`grpid`, `bsdgroups`).
    pub group_of_parent: bool,
    /// Buffered I/O over large mappings and folios (`buffered_iomap`), or block by block (`nobuffered_iomap`).
    pub buffered: BufferedMode,
    /// Largest folio in bytes (`max_folio=SIZE`).
    pub max_folio: usize,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            no_load: false,
            commit_interval: Duration::from_secs(5),
            access_times: true,
            discard: false,
            cache_bytes: 256 << 20,
            group_of_parent: false,
            buffered: BufferedMode::Extents,
            max_folio: MAX_FOLIO,
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
        if options.no_load && !options.read_only {
            return Err(Error::Option(
                "noload leaves an unclean journal unplayed and is only safe read-only: add ro".to_owned(),
            ));
        }
        Ok(options)
    }

    /// The options in force, by the names under which they are given.
    #[must_use]
    pub fn report(&self) -> Report {
        Report::new()
            .with("ro", self.read_only)
            .with("noload", self.no_load)
            .with("commit", self.commit_interval.as_secs())
            .with("noatime", !self.access_times)
            .with("discard", self.discard)
            .with("grpid", self.group_of_parent)
            .with("cache", self.cache_bytes)
            .with("buffered_iomap", self.buffered == BufferedMode::Extents)
            .with("max_folio", self.max_folio)
    }

    fn apply(&mut self, word: &str) -> Result<()> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        match (name, value) {
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("noload" | "norecovery", None) => self.no_load = true,
            ("commit", Some(seconds)) => self.commit_interval = parse_commit(seconds)?,
            ("relatime", None) => self.access_times = true,
            ("noatime", None) => self.access_times = false,
            ("discard", None) => self.discard = true,
            ("nodiscard", None) => self.discard = false,
            ("grpid" | "bsdgroups", None) => self.group_of_parent = true,
            ("nogrpid" | "sysvgroups", None) => self.group_of_parent = false,
            ("cache", Some(size)) => self.cache_bytes = parse_size(size)?,
            ("buffered_iomap", None) => self.buffered = BufferedMode::Extents,
            ("nobuffered_iomap", None) => self.buffered = BufferedMode::PerBlock,
            ("max_folio", Some(size)) => self.max_folio = parse_folio(size)?,
            // What Cairn always does, so that lines of fstab can stay as they are.
            ("defaults" | "delalloc" | "barrier" | "acl" | "user_xattr" | "journal_checksum", None)
            | ("barrier", Some("1"))
            | ("data", Some("ordered"))
            | ("errors", Some("remount-ro")) => {}
            _ => {
                return Err(Error::Option(format!(
                    "unknown option `{word}`; ext4 takes ro, rw, noload, commit=SECONDS, relatime, noatime, discard, \
                     nodiscard, grpid, nogrpid, cache=SIZE, buffered_iomap, nobuffered_iomap, max_folio=SIZE, data=ordered, errors=remount-ro"
                )));
            }
        }
        Ok(())
    }
}

fn parse_commit(value: &str) -> Result<Duration> {
    match value.parse::<u64>() {
        // As in ext4, 0 asks for the default.
        Ok(0) => Ok(MountOptions::default().commit_interval),
        Ok(seconds) if seconds <= 900 => Ok(Duration::from_secs(seconds)),
        _ => Err(Error::Option(format!("commit={value}: give whole seconds, 1 to 900 (0: the default of 5)"))),
    }
}

/// `64M`, `1G`, `262144`: bytes with an optional binary suffix, at least 1 MiB.
fn parse_size(value: &str) -> Result<usize> {
    bytes_of(value)
        .filter(|bytes| *bytes >= 1 << 20)
        .ok_or_else(|| Error::Option(format!("cache={value}: give a size of at least 1M, such as 64M or 1G")))
}

/// A power of two from 4K to 2M.
fn parse_folio(value: &str) -> Result<usize> {
    bytes_of(value)
        .filter(|bytes| bytes.is_power_of_two() && (MIN_FOLIO..=MAX_FOLIO).contains(bytes))
        .ok_or_else(|| Error::Option(format!("max_folio={value}: give a power of two from 4K to 2M, such as 64K")))
}

/// A number with an optional binary suffix.
fn bytes_of(value: &str) -> Option<usize> {
    let (digits, shift) = match value.as_bytes().last() {
        Some(b'k' | b'K') => (&value[..value.len() - 1], 10),
        Some(b'm' | b'M') => (&value[..value.len() - 1], 20),
        Some(b'g' | b'G') => (&value[..value.len() - 1], 30),
        _ => (value, 0),
    };
    digits.parse::<usize>().ok().and_then(|n| n.checked_mul(1 << shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_options_win_and_defaults_are_the_kernels() {
        let options = MountOptions::parse("ro,rw,commit=30,noatime,cache=64M").unwrap();
        assert!(!options.read_only && !options.access_times);
        assert_eq!(options.commit_interval, Duration::from_secs(30));
        assert_eq!(options.cache_bytes, 64 << 20);
        assert_eq!(MountOptions::parse("").unwrap(), MountOptions::default());
        assert_eq!(MountOptions::parse("commit=0").unwrap().commit_interval, Duration::from_secs(5));
    }

    #[test]
    fn buffered_io_is_large_unless_told_otherwise() {
        let parse = |list| {
            let options = MountOptions::parse(list).unwrap();
            (options.buffered, options.max_folio)
        };
        assert_eq!(parse(""), (BufferedMode::Extents, 2 << 20));
        assert_eq!(parse("nobuffered_iomap,max_folio=4K"), (BufferedMode::PerBlock, 4096));
        assert_eq!(parse("nobuffered_iomap,buffered_iomap,max_folio=2M"), (BufferedMode::Extents, 2 << 20));
        assert_eq!(parse("max_folio=65536").1, 64 << 10);
        let refused = MountOptions::parse("max_folio=96K").unwrap_err().to_string();
        assert!(refused.contains("a power of two from 4K to 2M"), "{refused}");
    }

    #[test]
    fn wrong_options_are_named() {
        for bad in [
            "commit=",
            "commit=x",
            "commit=901",
            "cache=1",
            "max_folio=2K",
            "max_folio=4M",
            "max_folio=12K",
            "max_folio=0",
            "max_folio=",
            "max_folio",
            "buffered_iomap=1",
            "cache=K",
            "cache=",
            "cache=99999999999999G",
            "frob",
            "noload",
        ] {
            let message = MountOptions::parse(bad).unwrap_err().to_string();
            assert!(message.contains(bad.split('=').next().unwrap()), "{bad}: {message}");
        }
    }
}
