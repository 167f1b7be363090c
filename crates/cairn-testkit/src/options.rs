//! Checks that each accepted mount option has an effect: an observed quantity differs with and
//! without it. The quantity is the same whether the option was given at mount or at remount.
//!
//! The list of options comes from the code, so a new option without a case is found.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Stats;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, SetAttributes, SetTime, Timestamp};

/// Opens a volume with these options.
pub type Open<'a> = &'a dyn Fn(Arc<dyn BlockDevice>, Arc<Simulated>, &str) -> Arc<dyn FileSystem>;

/// The effect of one word.
#[derive(Clone, Copy)]
pub struct Effect {
    /// The options besides it.
    pub against: &'static str,
    /// The word.
    pub word: &'static str,
    /// True if a remount can change it.
    pub live: bool,
    /// The observed quantity.
    pub seen: fn(&Given<'_>) -> String,
}

impl Effect {
    /// Of a word that a remount can change.
    #[must_use]
    pub const fn live(
        against: &'static str,
        word: &'static str,
        seen: fn(&Given<'_>) -> String,
    ) -> Self {
        Self { against, word, live: true, seen }
    }

    /// Of a word for mounts only.
    #[must_use]
    pub const fn at_mount(
        against: &'static str,
        word: &'static str,
        seen: fn(&Given<'_>) -> String,
    ) -> Self {
        Self { against, word, live: false, seen }
    }
}

/// A volume that is to be opened with some options.
pub struct Given<'a> {
    fresh: &'a MemoryDevice,
    open: Open<'a>,
    at_mount: String,
    live: Option<&'a str>,
    /// The clock of the volume that [`Given::open`] opens.
    pub runtime: Arc<Simulated>,
}

impl Given<'_> {
    /// A fresh volume.
    #[must_use]
    pub fn fresh(&self) -> Arc<MemoryDevice> {
        Arc::new(self.fresh.fork())
    }

    /// Opens it with the options.
    #[must_use]
    pub fn open(&self, device: Arc<dyn BlockDevice>) -> Arc<dyn FileSystem> {
        let fs = (self.open)(device, self.runtime.clone(), &self.at_mount);
        if let Some(word) = self.live {
            fs.remount(word).unwrap_or_else(|error| panic!("`{word}` on a live volume: {error}"));
        }
        fs
    }

    /// Opens it without options.
    #[must_use]
    pub fn plain(&self, device: Arc<dyn BlockDevice>) -> Arc<dyn FileSystem> {
        (self.open)(device, Simulated::new(2), "")
    }

    /// The contents that this name would have after a power cut now.
    #[must_use]
    pub fn is_on(&self, device: &MemoryDevice, name: &str) -> String {
        let fs = self.plain(Arc::new(device.fork()));
        match fs.lookup(fs.root(), name.as_bytes()) {
            Ok(found) => format!("{} bytes", found.size),
            Err(error) => error.to_string(),
        }
    }
}

/// Asserts that every setting has an effect, and every effect is seen.
///
/// # Panics
/// One has no effect; the message names it.
pub fn judge(
    settings: impl Iterator<Item = String>,
    effects: &[Effect],
    fresh: &MemoryDevice,
    open: Open<'_>,
) {
    assert_covered(settings, effects);
    for effect in effects {
        let Effect { against, word, .. } = *effect;
        let seen = |at_mount: String, live| {
            (effect.seen)(&Given { fresh, open, at_mount, live, runtime: Simulated::new(1) })
        };
        let (without, with) =
            (seen(against.to_owned(), None), seen(format!("{against},{word}"), None));
        println!("`{word}` against `{against}`: {without} / {with}");
        assert_ne!(without, with, "`{word}` against `{against}` has no effect");
        if effect.live {
            assert_eq!(
                seen(against.to_owned(), Some(word)),
                with,
                "`{word}` on a live volume with `{against}`"
            );
        } else {
            let fs = open(Arc::new(fresh.fork()), Simulated::new(1), against);
            let refused = fs.remount(word).expect_err(word).to_string();
            assert!(refused.contains("mount again"), "`{word}` on a live volume: {refused}");
        }
    }
}

fn assert_covered(settings: impl Iterator<Item = String>, effects: &[Effect]) {
    // Name, and whether there is a value.
    let shape = |word: &str| {
        let (name, value) = word.split_once('=').map_or((word, false), |(name, _)| (name, true));
        (name.to_owned(), value)
    };
    let cases: Vec<_> = effects.iter().map(|effect| shape(effect.word)).collect();
    let missing: Vec<String> =
        settings.filter(|setting| !cases.contains(&shape(setting))).collect();
    assert!(missing.is_empty(), "options whose effect no test has shown: {missing:?}");
}

fn create(fs: &dyn FileSystem, name: &str) -> Result<Ino, cairn_vfs::Error> {
    let caller = Caller { gid: 5, ..Caller::ROOT };
    fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &caller).map(|made| made.ino)
}

fn written(fs: &dyn FileSystem, name: &str, bytes: usize) -> Ino {
    let ino = create(fs, name).unwrap();
    for at in (0..bytes).step_by(1 << 20) {
        let len = (bytes - at).min(1 << 20);
        assert_eq!(fs.write(ino, at as u64, &vec![7; len], IoFlags::empty()).unwrap(), len);
    }
    ino
}

/// True if a file can be made.
#[must_use]
pub fn writing(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    create(&*fs, "new").map_or_else(|error| format!("error {}", error.errno()), |_| "made".into())
}

/// A time of access long ago, after the file was read.
#[must_use]
pub fn access_times(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    let ino = written(&*fs, "read", 10);
    let long_ago = SetAttributes {
        atime: Some(SetTime::To(Timestamp { seconds: 1000, nanoseconds: 0 })),
        ..Default::default()
    };
    fs.setattr(ino, &long_ago).unwrap();
    fs.read(ino, 0, &mut [0; 10], IoFlags::empty()).unwrap();
    let renewed = fs.getattr(ino).unwrap().atime.seconds != 1000;
    format!("renewed: {renewed}")
}

/// The discards that the device gets when a file has been deleted.
#[must_use]
pub fn discards(given: &Given<'_>) -> String {
    let stats = Arc::new(Stats::new(given.fresh()));
    let fs = given.open(stats.clone());
    let ino = written(&*fs, "removed", 4 << 20);
    fs.sync().unwrap();
    fs.unlink(fs.root(), b"removed").unwrap();
    fs.forget(ino, 1);
    fs.sync().unwrap();
    format!("blocks discarded: {}", stats.snapshot().discard_bytes >= 4 << 20)
}

/// Bytes of a file of 12 MiB that stay in memory.
#[must_use]
pub fn memory(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    written(&*fs, "large", 12 << 20);
    fs.sync().unwrap();
    format!("something had to go: {}", fs.report().u64("cache.evictions").unwrap() > 0)
}

/// How often the mapper was called.
#[must_use]
pub fn mappings(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    written(&*fs, "large", 4 << 20);
    fs.sync().unwrap();
    format!("asked for every block: {}", fs.report().u64("cache.map_calls").unwrap() >= 1024)
}

/// The size of folios.
#[must_use]
pub fn folios(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    written(&*fs, "large", 4 << 20);
    let report = fs.report();
    let large = ["64K", "128K", "256K", "512K", "1024K", "2048K"];
    let many: u64 = large
        .iter()
        .map(|size| report.u64(&format!("cache.folios_by_order.{size}")).unwrap())
        .sum();
    format!("large folios: {}", many > 0)
}

/// The contents of the device after some seconds without a sync.
#[must_use]
pub fn after_seconds(given: &Given<'_>, seconds: u64) -> String {
    let device = given.fresh();
    let fs = given.open(device.clone());
    written(&*fs, "aged", 9000);
    given.runtime.advance(Duration::from_secs(seconds));
    given.is_on(&device, "aged")
}
