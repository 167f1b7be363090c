//! Mount options, with the kernel's names.

use std::time::Duration;

use cairn_base::option_table::OptionTable;
use cairn_base::options::Action::{Flag, Value};
use cairn_base::options::{Setting, Word};
use cairn_base::stats::Report;
use cairn_cache::file::{BufferedMode, MAX_FOLIO};
use cairn_cache::options::{parse_cache, parse_max_folio};
use cairn_vfs::{OnDamage, ReservedFor, root_reserved};

use crate::error::{Error, Result};
use crate::gc::{BackgroundGc, GcVictim};
use crate::segment::Mode;

mod linux;

/// Linux's `dirty_expire_centisecs`.
const DIRTY_EXPIRE: Duration = Duration::from_secs(30);

/// Space that may become unusable while checkpoints are disabled: `checkpoint=disable:N` or
/// `checkpoint=disable:N%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnusableCap {
    /// In blocks.
    Blocks(u64),
    /// In percent of what users can have.
    Percent(u8),
}

impl UnusableCap {
    pub(crate) fn blocks(self, user_blocks: u64) -> u64 {
        match self {
            Self::Blocks(blocks) => blocks,
            Self::Percent(percent) => user_blocks / 100 * u64::from(percent),
        }
    }
}

impl std::fmt::Display for UnusableCap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Blocks(0) => Ok(()),
            Self::Blocks(blocks) => write!(f, ":{blocks}"),
            Self::Percent(percent) => write!(f, ":{percent}%"),
        }
    }
}

/// How a volume is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// No write reaches the device. Changes that were fsynced since the last checkpoint are
    /// replayed in memory.
    pub read_only: bool,
    /// Ignore changes that were fsynced since the last checkpoint (`norecovery`); read-only volumes
    /// only.
    pub no_recovery: bool,
    /// Memory for folios and metadata buffers, in bytes (`cache=SIZE`).
    pub cache_bytes: usize,
    /// Buffered I/O over large mappings and folios (`buffered_iomap`), or block by block
    /// (`nobuffered_iomap`).
    pub buffered: BufferedMode,
    /// Largest folio in bytes (`max_folio=SIZE`).
    pub max_folio: usize,
    /// The reaction to damage (`errors=continue|remount-ro|panic`).
    pub on_damage: OnDamage,
    /// Keep access times as `relatime` does; `noatime` switches them off.
    pub access_times: bool,
    /// How logs find room (`mode=adaptive`, `mode=lfs`).
    pub mode: Mode,
    /// Which sections are cleaned first (`gc_victim=data_first|greedy|adaptive`).
    pub gc_victim: GcVictim,
    /// Cleaning while the volume is idle (`background_gc=on|off|sync`).
    pub background_gc: BackgroundGc,
    /// The background daemon cleans for operations that need room (`gc_merge`, `nogc_merge`).
    pub gc_merge: bool,
    /// The background chooses among old sections (`atgc`, `noatgc`).
    pub atgc: bool,
    /// Discard freed blocks (`discard`, `nodiscard`).
    pub discard: bool,
    /// Seconds between checkpoints of a volume that changes (`checkpoint_interval=SECONDS`).
    pub checkpoint_interval: u32,
    /// One daemon writes one checkpoint for all concurrent requests (`checkpoint_merge`,
    /// `nocheckpoint_merge`).
    pub checkpoint_merge: bool,
    /// Blocks that are kept for root (`reserve_root=BLOCKS`); an eighth of the volume at most.
    pub reserve_root: u32,
    /// The user and the group that may use them, too (`resuid=UID`, `resgid=GID`).
    pub reserved_for: ReservedFor,
    /// Checkpoints are disabled (`checkpoint=disable`), at the cost of at most this space; `None`:
    /// `checkpoint=enable`.
    pub checkpoint_disabled: Option<UnusableCap>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            no_recovery: false,
            cache_bytes: 256 << 20,
            buffered: BufferedMode::Extents,
            max_folio: MAX_FOLIO,
            on_damage: OnDamage::default(),
            access_times: true,
            mode: Mode::Adaptive,
            gc_victim: GcVictim::default(),
            background_gc: BackgroundGc::default(),
            gc_merge: false,
            atgc: false,
            discard: true,
            checkpoint_interval: 60,
            checkpoint_merge: true,
            reserve_root: 0,
            reserved_for: ReservedFor { uid: 0, gid: 0 },
            checkpoint_disabled: None,
        }
    }
}

impl MountOptions {
    /// The settings, and how options of Linux's driver without a setting are treated.
    pub const TABLE: OptionTable<Self, Error> = OptionTable {
        format: "f2fs",
        settings: SETTINGS,
        linux: linux::WORDS,
        error: Error::Option,
    };

    /// The longest time that dirty file data stays in memory: Linux's default, or the checkpoint
    /// interval if that is shorter.
    #[must_use]
    pub fn dirty_expire(&self) -> Duration {
        DIRTY_EXPIRE.min(Duration::from_secs(self.checkpoint_interval.into()))
    }

    /// Parses a comma-separated list as in mount(8). Later options win.
    ///
    /// # Errors
    /// [`Error::Option`] names the option that is unknown or malformed.
    pub fn parse(list: &str) -> Result<Self> {
        Self::default().changed(list)
    }

    /// These options, changed by a list. Other options stay as they are.
    ///
    /// # Errors
    /// As [`MountOptions::parse`].
    pub fn changed(&self, list: &str) -> Result<Self> {
        let mut options = self.clone();
        Self::TABLE.apply(&mut options, list)?;
        let merges = |word: &str| matches!(word, "checkpoint_merge" | "checkpoint=merge");
        if options.checkpoint_disabled.is_some()
            && list.split(',').rfind(|word| merges(word)).is_some()
        {
            return Err(Error::Option(
                "checkpoint=merge cannot be used with checkpoint=disable: leave one of them out"
                    .to_owned(),
            ));
        }
        if options.checkpoint_disabled.is_some() && options.read_only {
            return Err(Error::Option(
                "checkpoint=disable needs a writable volume: give checkpoint=enable, or rw"
                    .to_owned(),
            ));
        }
        if options.atgc && options.mode == Mode::Lfs {
            return Err(Error::Option(
                "atgc and mode=lfs exclude each other: leave one of them out".to_owned(),
            ));
        }
        if options.no_recovery && !options.read_only {
            return Err(Error::Option(
                "norecovery ignores what was fsynced after the last checkpoint, which is safe only \
                 read-only: add ro"
                    .to_owned(),
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
            .with("noatime", !self.access_times)
            .with("errors", self.on_damage.name())
            .with("mode", if self.mode == Mode::Lfs { "lfs" } else { "adaptive" })
            .with("gc_victim", self.gc_victim.name())
            .with("background_gc", self.background_gc.name())
            .with("gc_merge", self.gc_merge)
            .with("atgc", self.atgc)
            .with("discard", self.discard)
            .with("checkpoint_interval", self.checkpoint_interval)
            .with("checkpoint_merge", self.checkpoint_merge)
            .with("checkpoint", self.checkpoint_word())
            .with("reserve_root", u64::from(self.reserve_root))
    }

    fn checkpoint_word(&self) -> String {
        self.checkpoint_disabled.map_or_else(|| "enable".to_owned(), |cap| format!("disable{cap}"))
    }
}

/// Every one has a case in `tests/files/options.rs`.
const SETTINGS: &[Setting<MountOptions, Error>] = &[
    (&["ro"], Flag(|options| options.read_only = true)),
    (&["rw"], Flag(|options| options.read_only = false)),
    (&["norecovery", "disable_roll_forward"], Flag(|options| options.no_recovery = true)),
    (&["relatime"], Flag(|options| options.access_times = true)),
    (&["noatime"], Flag(|options| options.access_times = false)),
    (
        &["errors"],
        Value(OnDamage::WORDS, |options, _, value| {
            parse_on_damage(value).map(|policy| options.on_damage = policy)
        }),
    ),
    (
        &["cache"],
        Value("SIZE", |options, _, value| {
            parse_cache(value).map(|size| options.cache_bytes = size).map_err(Error::Option)
        }),
    ),
    (&["buffered_iomap"], Flag(|options| options.buffered = BufferedMode::Extents)),
    (&["nobuffered_iomap"], Flag(|options| options.buffered = BufferedMode::PerBlock)),
    (
        &["max_folio"],
        Value("SIZE", |options, _, value| {
            parse_max_folio(value).map(|size| options.max_folio = size).map_err(Error::Option)
        }),
    ),
    (
        &["mode"],
        Value("adaptive|lfs", |options, word, value| {
            parse_mode(word, value).map(|mode| options.mode = mode)
        }),
    ),
    (
        &["gc_victim"],
        Value("data_first|greedy|adaptive", |options, word, value| {
            GcVictim::parse(word.text, value).map(|policy| options.gc_victim = policy)
        }),
    ),
    (
        &["background_gc"],
        Value("on|off|sync", |options, word, value| {
            BackgroundGc::parse(word.text, value).map(|mode| options.background_gc = mode)
        }),
    ),
    (&["gc_merge"], Flag(|options| options.gc_merge = true)),
    (&["nogc_merge"], Flag(|options| options.gc_merge = false)),
    (&["atgc"], Flag(|options| options.atgc = true)),
    (&["noatgc"], Flag(|options| options.atgc = false)),
    (&["discard"], Flag(|options| options.discard = true)),
    (&["nodiscard"], Flag(|options| options.discard = false)),
    (
        &["checkpoint_interval"],
        Value("SECONDS", |options, word, value| {
            seconds_of_option(word.text, value).map(|seconds| options.checkpoint_interval = seconds)
        }),
    ),
    (&["checkpoint_merge"], Flag(|options| options.checkpoint_merge = true)),
    (&["nocheckpoint_merge"], Flag(|options| options.checkpoint_merge = false)),
    (
        &["reserve_root"],
        Value("BLOCKS", |options, word, value| {
            let blocks = value.parse().map_err(|_| {
                Error::Option(format!("`{}`: give a number of blocks of 4096 bytes", word.text))
            });
            blocks.map(|blocks| options.reserve_root = blocks)
        }),
    ),
    (
        &["resuid"],
        Value("UID", |options, _, value| {
            parse_id("resuid", value).map(|uid| options.reserved_for.uid = uid)
        }),
    ),
    (
        &["resgid"],
        Value("GID", |options, _, value| {
            parse_id("resgid", value).map(|gid| options.reserved_for.gid = gid)
        }),
    ),
    (&["checkpoint"], Value("merge|enable|disable[:BLOCKS|:N%]", set_checkpoint)),
];

fn set_checkpoint(options: &mut MountOptions, word: Word<'_>, value: &str) -> Result<()> {
    match value {
        "merge" => options.checkpoint_merge = true,
        "enable" => options.checkpoint_disabled = None,
        _ => options.checkpoint_disabled = Some(cap_of_option(word.text, value)?),
    }
    Ok(())
}

fn parse_mode(word: Word<'_>, value: &str) -> Result<Mode> {
    match value {
        "adaptive" => Ok(Mode::Adaptive),
        "lfs" => Ok(Mode::Lfs),
        _ => Err(Error::Option(format!("`{}`: the modes are adaptive and lfs", word.text))),
    }
}

fn parse_id(name: &str, value: &str) -> Result<u32> {
    root_reserved::parse_id(name, value).map_err(Error::Option)
}

fn parse_on_damage(value: &str) -> Result<OnDamage> {
    OnDamage::named(value)
        .ok_or_else(|| Error::Option(format!("errors={value}: give {}", OnDamage::WORDS)))
}

/// The value of `checkpoint=` that disables checkpoints.
fn cap_of_option(word: &str, value: &str) -> Result<UnusableCap> {
    let malformed = || {
        Error::Option(format!(
            "`{word}`: checkpoint takes merge, enable, disable, disable:BLOCKS or disable:N% (0 to \
             100)"
        ))
    };
    let cap = match value.strip_prefix("disable") {
        Some("") => Some(UnusableCap::Blocks(0)),
        Some(rest) => rest.strip_prefix(':').and_then(|amount| match amount.strip_suffix('%') {
            Some(percent) => {
                percent.parse().ok().filter(|percent| *percent <= 100).map(UnusableCap::Percent)
            }
            None => amount.parse().ok().map(UnusableCap::Blocks),
        }),
        None => None,
    };
    cap.ok_or_else(malformed)
}

fn seconds_of_option(word: &str, text: &str) -> Result<u32> {
    let seconds = text.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
    seconds
        .ok_or_else(|| Error::Option(format!("`{word}`: the interval must be 1 to 86400 seconds")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_from_left_to_right() {
        let options =
            MountOptions::parse("ro,rw,,ro,cache=8M,nobuffered_iomap,max_folio=64K").unwrap();
        assert!(options.read_only && options.buffered == BufferedMode::PerBlock);
        assert_eq!((options.cache_bytes, options.max_folio), (8 << 20, 65_536));
        assert!(MountOptions::parse("norecovery,ro").unwrap().no_recovery);
    }

    #[test]
    fn checkpoints_are_merged_disabled_and_enabled() {
        let shown = |list: &str| {
            MountOptions::parse(list).unwrap().report().text("checkpoint").unwrap().to_owned()
        };
        for (list, word) in [
            ("", "enable"),
            ("checkpoint=disable", "disable"),
            ("checkpoint=disable:10%", "disable:10%"),
            ("checkpoint=disable:4096", "disable:4096"),
            ("nocheckpoint_merge,checkpoint=disable,checkpoint=enable", "enable"),
        ] {
            assert_eq!(shown(list), word);
        }
        let merges = |list| MountOptions::parse(list).map(|options| options.checkpoint_merge);
        assert!(merges("").unwrap() && !merges("nocheckpoint_merge").unwrap());
        assert!(merges("nocheckpoint_merge,checkpoint=merge").unwrap());
        for list in
            ["checkpoint=merge,checkpoint=disable", "checkpoint=disable:5%,checkpoint_merge"]
        {
            let refused = merges(list).unwrap_err().to_string();
            assert!(
                refused.contains("checkpoint=merge cannot be used with checkpoint=disable"),
                "{refused}"
            );
        }
        let disabled = MountOptions::parse("checkpoint=disable").unwrap();
        assert!(disabled.changed("checkpoint_merge").is_err() && disabled.changed("ro").is_err());
        assert!(disabled.changed("checkpoint=enable,checkpoint_merge").unwrap().checkpoint_merge);
    }

    #[test]
    fn mistakes_are_named() {
        for bad in [
            "checkpoint=off",
            "checkpoint=disable:",
            "checkpoint=disable:101%",
            "checkpoint=disable:-1",
            "checkpoint",
        ] {
            let error = MountOptions::parse(bad).unwrap_err().to_string();
            assert!(error.contains(bad), "{error}");
        }
        for bad in [
            "norecovery",
            "cache=1",
            "cache=xM",
            "cache=1MM",
            "max_folio=5000",
            "max_folio=8M",
            "ro=1",
            "what",
        ] {
            let error = MountOptions::parse(bad).unwrap_err().to_string();
            assert!(error.contains(bad), "{error}");
        }
    }
}
