//! Mount options of ext4, with the kernel's names.

use std::time::Duration;

use cairn_base::option_table::OptionTable;
use cairn_base::options::Action::{Flag, Value};
use cairn_base::options::Setting;
use cairn_base::stats::Report;
use cairn_cache::file::{BufferedMode, MAX_FOLIO};
use cairn_cache::options::{parse_cache, parse_max_folio};
use cairn_jbd2::{CheckpointClean, KeepFree};
use cairn_vfs::{OnDamage, root_reserved};

use crate::error::{Error, Result};

mod linux;

/// The mount options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// No write reaches the device; an unclean journal is replayed in memory.
    pub read_only: bool,
    /// The journal is not replayed (`noload`); for read-only volumes only.
    pub no_load: bool,
    /// Offset in KiB of the superblock by which the volume is opened (`sb=N`). `None` is the first
    /// one, or a backup if that is damaged. With a backup the volume is read-only.
    pub superblock: Option<u64>,
    /// Longest time until a change is on the disk (`commit=SECONDS`): metadata is then committed
    /// and file data written.
    pub commit_interval: Duration,
    /// Access times are kept as `relatime` does; `noatime` turns them off.
    pub access_times: bool,
    /// Free blocks are discarded when their transaction commits (`discard`).
    pub discard: bool,
    /// Memory for folios and metadata buffers, in bytes (`cache=SIZE`).
    pub cache_bytes: usize,
    /// New files and directories get the group of their directory (`grpid`, `bsdgroups`).
    pub group_of_parent: bool,
    /// Large requests for space begin at multiples of this number of blocks (`stripe=BLOCKS`).
    /// `None` uses the superblock's RAID geometry.
    pub stripe: Option<u32>,
    /// Most blocks that are kept for maps of data in memory (`reserved_clusters=BLOCKS`).
    pub reserved_clusters: Option<u64>,
    /// `statfs` counts the blocks of metadata (`minixdf`), or only those for files (`bsddf`).
    pub minix_df: bool,
    /// Buffered I/O with large mappings and folios (`buffered_iomap`), or by block
    /// (`nobuffered_iomap`).
    pub buffered: BufferedMode,
    /// Largest folio in bytes (`max_folio=SIZE`).
    pub max_folio: usize,
    /// What a daemon keeps free of the journal, if there is one (`async_checkpoint[=PERCENT]`).
    /// With `None` the journal is checkpointed when it is full (`noasync_checkpoint`).
    pub async_checkpoint: Option<KeepFree>,
    /// The option was given, so that it is an error if there is no journal to be written.
    pub(crate) async_checkpoint_asked: bool,
    /// What to do about damage (`errors=continue|remount-ro|panic`); `None`: the superblock's
    /// setting.
    pub on_damage: Option<OnDamage>,
    /// The user and the group who may use the root-reserved blocks (`resuid=UID`, `resgid=GID`).
    /// `None`: as the superblock says.
    pub reserved_uid: Option<u32>,
    /// See [`Self::reserved_uid`].
    pub reserved_gid: Option<u32>,
    /// How checkpointed transactions are found (`checkpoint_clean=counted|bail_out|scan`).
    pub checkpoint_clean: CheckpointClean,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            no_load: false,
            superblock: None,
            commit_interval: Duration::from_secs(5),
            access_times: true,
            discard: false,
            cache_bytes: 256 << 20,
            group_of_parent: false,
            stripe: None,
            reserved_clusters: None,
            minix_df: false,
            buffered: BufferedMode::Extents,
            max_folio: MAX_FOLIO,
            async_checkpoint: Some(KeepFree::AsNeeded),
            async_checkpoint_asked: false,
            on_damage: None,
            reserved_uid: None,
            reserved_gid: None,
            checkpoint_clean: CheckpointClean::default(),
        }
    }
}

impl MountOptions {
    /// The settings, and how options of Linux's driver without a setting are treated.
    pub const TABLE: OptionTable<Self, Error> = OptionTable {
        format: "ext4",
        settings: SETTINGS,
        linux: linux::WORDS,
        error: Error::Option,
    };

    /// Parses a list separated by commas, as in mount(8). Later options override earlier ones.
    ///
    /// # Errors
    /// [`Error::Option`] names the option that is unknown or malformed.
    pub fn parse(list: &str) -> Result<Self> {
        Self::default().changed(list)
    }

    /// These options with the changes of a list. Options that it does not name stay.
    ///
    /// # Errors
    /// As [`MountOptions::parse`].
    pub fn changed(&self, list: &str) -> Result<Self> {
        let mut options = self.clone();
        Self::TABLE.apply(&mut options, list)?;
        if options.no_load && !options.read_only {
            return Err(Error::Option(
                "noload does not replay an unclean journal, which is safe only read-only: add ro"
                    .to_owned(),
            ));
        }
        // An option that was set before waits until the volume is writable again.
        let named = list.split(',').any(|word| word.starts_with("async_checkpoint"));
        if options.read_only && named && options.async_checkpoint.is_some() {
            return Err(Error::Option(
                "async_checkpoint: a read-only volume writes no journal: leave it out, or mount \
                 with rw"
                    .to_owned(),
            ));
        }
        Ok(options)
    }

    fn set_async_checkpoint(&mut self, keep: Option<KeepFree>) {
        self.async_checkpoint = keep;
        self.async_checkpoint_asked = keep.is_some();
    }

    /// Checks options that need a writable journal. `journal`: the volume has one; `read_only`: why
    /// nothing is written.
    pub(crate) fn check_journal(&self, journal: bool, read_only: Option<&str>) -> Result<()> {
        let why_not = match (journal, read_only) {
            _ if !self.async_checkpoint_asked => return Ok(()),
            (false, _) => "the volume has no journal",
            (true, Some(reason)) => reason,
            (true, None) => return Ok(()),
        };
        Err(Error::Option(format!("async_checkpoint needs a journal that is written: {why_not}")))
    }

    /// The present options by name.
    #[must_use]
    pub fn report(&self) -> Report {
        Report::new()
            .with("ro", self.read_only)
            .with("noload", self.no_load)
            .with("sb", self.superblock.unwrap_or(1))
            .with("commit", self.commit_interval.as_secs())
            .with("noatime", !self.access_times)
            .with("discard", self.discard)
            .with("grpid", self.group_of_parent)
            .with("stripe", u64::from(self.stripe.unwrap_or(0)))
            .with(
                "reserved_clusters",
                self.reserved_clusters.map_or("auto".to_owned(), |blocks| blocks.to_string()),
            )
            .with("minixdf", self.minix_df)
            .with("cache", self.cache_bytes)
            .with("buffered_iomap", self.buffered == BufferedMode::Extents)
            .with("max_folio", self.max_folio)
            .with("async_checkpoint", u64::from(self.async_checkpoint.map_or(0, KeepFree::percent)))
            .with("checkpoint_clean", self.checkpoint_clean.name())
    }
}

/// Each setting has a case in `tests/options.rs`.
const SETTINGS: &[Setting<MountOptions, Error>] = &[
    (&["ro"], Flag(|options| options.read_only = true)),
    (&["rw"], Flag(|options| options.read_only = false)),
    (&["noload", "norecovery"], Flag(|options| options.no_load = true)),
    (
        &["sb"],
        Value("KIB", |options, _, value| {
            parse_superblock(value).map(|kib| options.superblock = Some(kib))
        }),
    ),
    (
        &["commit"],
        Value("SECONDS", |options, _, value| {
            parse_commit(value).map(|time| options.commit_interval = time)
        }),
    ),
    (&["relatime"], Flag(|options| options.access_times = true)),
    (&["noatime"], Flag(|options| options.access_times = false)),
    (&["discard"], Flag(|options| options.discard = true)),
    (&["nodiscard"], Flag(|options| options.discard = false)),
    (&["grpid", "bsdgroups"], Flag(|options| options.group_of_parent = true)),
    (&["nogrpid", "sysvgroups"], Flag(|options| options.group_of_parent = false)),
    (
        &["stripe"],
        Value("BLOCKS", |options, _, value| {
            parse_stripe(value).map(|stripe| options.stripe = stripe)
        }),
    ),
    (
        &["reserved_clusters"],
        Value("BLOCKS|auto", |options, _, value| {
            parse_reserved(value).map(|blocks| options.reserved_clusters = blocks)
        }),
    ),
    (&["minixdf"], Flag(|options| options.minix_df = true)),
    (&["bsddf"], Flag(|options| options.minix_df = false)),
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
    (&["async_checkpoint"], Flag(|options| options.set_async_checkpoint(Some(KeepFree::AsNeeded)))),
    (
        &["async_checkpoint"],
        Value("PERCENT", |options, _, value| {
            parse_percent(value)
                .map(|percent| options.set_async_checkpoint(Some(KeepFree::Percent(percent))))
        }),
    ),
    (&["noasync_checkpoint"], Flag(|options| options.set_async_checkpoint(None))),
    (
        &["checkpoint_clean"],
        Value("counted|bail_out|scan", |options, _, value| {
            parse_clean(value).map(|mode| options.checkpoint_clean = mode)
        }),
    ),
    (
        &["errors"],
        Value(OnDamage::WORDS, |options, _, value| {
            parse_on_damage(value).map(|policy| options.on_damage = Some(policy))
        }),
    ),
    (
        &["resuid"],
        Value("UID", |options, _, value| {
            parse_id("resuid", value).map(|uid| options.reserved_uid = Some(uid))
        }),
    ),
    (
        &["resgid"],
        Value("GID", |options, _, value| {
            parse_id("resgid", value).map(|gid| options.reserved_gid = Some(gid))
        }),
    ),
];

fn parse_superblock(value: &str) -> Result<u64> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let kib = digits.then(|| value.parse::<u64>().ok()).flatten().filter(|kib| *kib > 0);
    kib.ok_or_else(|| {
        Error::Option(format!("sb={value}: give the place of a superblock in KiB, as in sb=131072"))
    })
}

/// As in ext4, 0 means what the superblock says, and 1 means no stripes.
fn parse_stripe(value: &str) -> Result<Option<u32>> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let blocks = digits.then(|| value.parse::<u32>().ok()).flatten();
    let what =
        "give the blocks of a stripe, as in stripe=64 (0: what the superblock says; 1: no stripes)";
    blocks
        .map(|blocks| Some(blocks).filter(|blocks| *blocks > 0))
        .ok_or_else(|| Error::Option(format!("stripe={value}: {what}")))
}

fn parse_reserved(value: &str) -> Result<Option<u64>> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let blocks = digits.then(|| value.parse::<u32>().ok()).flatten();
    let what = "give a number of blocks, as in reserved_clusters=64, or auto";
    match (value, blocks) {
        ("auto", _) => Ok(None),
        (_, Some(blocks)) => Ok(Some(blocks.into())),
        _ => Err(Error::Option(format!("reserved_clusters={value}: {what}"))),
    }
}

fn parse_commit(value: &str) -> Result<Duration> {
    match value.parse::<u64>() {
        // As in ext4, 0 means the default.
        Ok(0) => Ok(MountOptions::default().commit_interval),
        Ok(seconds) if seconds <= 900 => Ok(Duration::from_secs(seconds)),
        _ => Err(Error::Option(format!(
            "commit={value}: give whole seconds, 1 to 900 (0: the default of 5)"
        ))),
    }
}

/// A percentage from 1 to 99, with an optional `%`.
fn parse_percent(value: &str) -> Result<u8> {
    let digits = value.strip_suffix('%').unwrap_or(value);
    let number = digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse::<u8>().ok())
        .flatten();
    number.filter(|percent| (1..=99).contains(percent)).ok_or_else(|| {
        let what = "give the share of the journal to be kept free in percent, 1 to 99";
        Error::Option(format!("async_checkpoint={value}: {what}"))
    })
}

fn parse_id(name: &str, value: &str) -> Result<u32> {
    root_reserved::parse_id(name, value).map_err(Error::Option)
}

fn parse_on_damage(value: &str) -> Result<OnDamage> {
    OnDamage::named(value)
        .ok_or_else(|| Error::Option(format!("errors={value}: give {}", OnDamage::WORDS)))
}

fn parse_clean(value: &str) -> Result<CheckpointClean> {
    CheckpointClean::named(value).ok_or_else(|| {
        Error::Option(format!("checkpoint_clean={value}: give counted, bail_out or scan"))
    })
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
        assert_eq!(
            MountOptions::parse("commit=0").unwrap().commit_interval,
            Duration::from_secs(5)
        );
    }

    #[test]
    fn buffered_io_is_large_unless_told_otherwise() {
        let parse = |list| {
            let options = MountOptions::parse(list).unwrap();
            (options.buffered, options.max_folio)
        };
        assert_eq!(parse(""), (BufferedMode::Extents, 2 << 20));
        assert_eq!(parse("nobuffered_iomap,max_folio=4K"), (BufferedMode::PerBlock, 4096));
        assert_eq!(
            parse("nobuffered_iomap,buffered_iomap,max_folio=2M"),
            (BufferedMode::Extents, 2 << 20)
        );
        assert_eq!(parse("max_folio=65536").1, 64 << 10);
        let refused = MountOptions::parse("max_folio=96K").unwrap_err().to_string();
        assert!(refused.contains("a power of two from 4K to 2M"), "{refused}");
    }

    #[test]
    fn checkpointing_ahead_takes_a_percentage() {
        let parse = |list| MountOptions::parse(list).unwrap().async_checkpoint;
        assert_eq!(parse(""), Some(KeepFree::AsNeeded));
        assert_eq!(parse("async_checkpoint"), Some(KeepFree::AsNeeded));
        assert_eq!(parse("async_checkpoint=1"), Some(KeepFree::Percent(1)));
        assert_eq!(parse("async_checkpoint=99%"), Some(KeepFree::Percent(99)));
        assert_eq!(parse("async_checkpoint=30,noasync_checkpoint"), None);
        assert_eq!(parse("noasync_checkpoint,async_checkpoint=30"), Some(KeepFree::Percent(30)));
        for bad in
            ["0", "100", "255", "256", "", "%", "5%%", "-1", "+5", "50.0", "half", "0x10", " 5"]
        {
            let refused =
                MountOptions::parse(&format!("async_checkpoint={bad}")).unwrap_err().to_string();
            assert!(refused.contains("in percent, 1 to 99"), "{bad}: {refused}");
        }
        let refused = MountOptions::parse("async_checkpoint,ro").unwrap_err().to_string();
        assert!(refused.contains("async_checkpoint") && refused.contains("read-only"), "{refused}");
    }

    #[test]
    fn finished_transactions_are_counted_unless_told_otherwise() {
        let parse = |list| MountOptions::parse(list).unwrap().checkpoint_clean;
        assert_eq!(parse(""), CheckpointClean::Counted);
        assert_eq!(parse("checkpoint_clean=scan"), CheckpointClean::Scan);
        assert_eq!(
            parse("checkpoint_clean=scan,checkpoint_clean=bail_out"),
            CheckpointClean::BailOut
        );
        assert_eq!(
            parse("checkpoint_clean=scan,checkpoint_clean=counted"),
            CheckpointClean::Counted
        );
    }

    #[test]
    fn wrong_options_are_named() {
        for bad in [
            "sb",
            "sb=",
            "sb=0",
            "sb=-1",
            "sb=0x20000",
            "commit=",
            "commit=x",
            "commit=901",
            "stripe",
            "stripe=",
            "stripe=-1",
            "stripe=99999999999",
            "reserved_clusters",
            "reserved_clusters=x",
            "cache=1",
            "max_folio=2K",
            "max_folio=4M",
            "max_folio=12K",
            "max_folio=0",
            "max_folio=",
            "max_folio",
            "buffered_iomap=1",
            "noasync_checkpoint=1",
            "checkpoint_clean",
            "checkpoint_clean=",
            "checkpoint_clean=all",
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
