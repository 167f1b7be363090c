//! Mount options, with the kernel's names.

use std::time::Duration;

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
        }
    }
}

impl MountOptions {
    /// Parses a comma-separated list as in mount(8). Later options win.
    ///
    /// # Errors
    /// [`Error::Option`] names the option that is unknown or malformed.
    pub fn parse(list: &str) -> Result<Self> {
        let mut options = Self::default();
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
            // What Cairn always does, so that lines of fstab can stay as they are.
            ("defaults" | "delalloc" | "barrier" | "acl" | "user_xattr" | "journal_checksum", None)
            | ("barrier", Some("1"))
            | ("data", Some("ordered"))
            | ("errors", Some("remount-ro")) => {}
            _ => {
                return Err(Error::Option(format!(
                    "unknown option `{word}`; ext4 takes ro, rw, noload, commit=SECONDS, relatime, noatime, discard, \
                     nodiscard, grpid, nogrpid, cache=SIZE, data=ordered, errors=remount-ro"
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
    let (digits, shift) = match value.as_bytes().last() {
        Some(b'k' | b'K') => (&value[..value.len() - 1], 10),
        Some(b'm' | b'M') => (&value[..value.len() - 1], 20),
        Some(b'g' | b'G') => (&value[..value.len() - 1], 30),
        _ => (value, 0),
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .filter(|bytes| *bytes >= 1 << 20)
        .ok_or_else(|| Error::Option(format!("cache={value}: give a size of at least 1M, such as 64M or 1G")))
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
    fn wrong_options_are_named() {
        for bad in [
            "commit=",
            "commit=x",
            "commit=901",
            "cache=1",
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
