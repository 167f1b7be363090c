//! How to mount: the options of the FUSE side, and their `-o` names.

use std::ops::RangeInclusive;
use std::time::Duration;

use cairn_base::options::Action::{Flag, Value};
use cairn_base::options::{self, Setting, words};
use cairn_base::stats::Report;
use fuser::MountOption;

use crate::owners::Owners;

/// How requests reach Cairn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// FUSE over io_uring for mounts with what `build` sets, where the kernel offers it; otherwise
    /// `/dev/fuse`.
    #[default]
    Auto,
    /// FUSE over io_uring; an error where the kernel does not offer it.
    Ring,
    /// `/dev/fuse`.
    Dev,
}

/// Options of a mount. [`MountOptions::set`] takes those that `mount -o` knows.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The source in `/proc/mounts`: the image's path.
    pub source: String,
    /// Mount read-only.
    pub read_only: bool,
    /// Let other users in. `None`: if we are root.
    pub allow_other: Option<bool>,
    /// Honour set-user-id bits. `None`: if we are root.
    pub suid: Option<bool>,
    /// Let device nodes work. `None`: if we are root.
    pub dev: Option<bool>,
    /// Let files be executed.
    pub exec: bool,
    /// Access times are not updated.
    pub noatime: bool,
    /// All writes are synchronous.
    pub sync: bool,
    /// Directory changes are synchronous.
    pub dirsync: bool,
    /// Quick requests that are carried out at the same time, unless they wait for the disk. More
    /// than there are cores is slower.
    pub threads: usize,
    /// How long a thread polls for the next request before it sleeps, while requests arrive within
    /// that time.
    pub spin: Duration,
    /// The kernel collects small writes until close or fsync.
    pub writeback_cache: bool,
    /// `open` and `close` cost no request. The price: immutable and append-only files can be opened
    /// for writing, and a write-back error is not reported to each handle.
    pub no_open: bool,
    /// The kernel asks for no extended attributes. The price: there are none, no access control
    /// lists and no capabilities of files.
    pub noxattr: bool,
    /// Only the user who mounts gets in, and is refused nothing by modes and owners: the kernel
    /// does not check them, and so does not ask for attributes of a directory after each change.
    pub private: bool,
    /// The mount can be mounted a second time with other owners. The kernel then does not say who
    /// sent a request; it is looked up where it matters.
    pub idmap: bool,
    /// Which owners the kernel is told of.
    pub owners: Owners,
    /// How requests arrive and answers go back.
    pub transport: TransportChoice,
    /// How long the kernel may cache names and attributes. Cairn is the only writer.
    pub timeout: Duration,
}

/// Accepted without an effect: Cairn always works that way.
const ALWAYS: [&str; 1] = ["defaults"];

/// Each setting has a case in `tests/mounted/options.rs` of the command.
const SETTINGS: &[Setting<MountOptions, String>] = &[
    (&["ro"], Flag(|options| options.read_only = true)),
    (&["rw"], Flag(|options| options.read_only = false)),
    (&["allow_other"], Flag(|options| options.allow_other = Some(true))),
    (&["suid"], Flag(|options| options.suid = Some(true))),
    (&["nosuid"], Flag(|options| options.suid = Some(false))),
    (&["dev"], Flag(|options| options.dev = Some(true))),
    (&["nodev"], Flag(|options| options.dev = Some(false))),
    (&["exec"], Flag(|options| options.exec = true)),
    (&["noexec"], Flag(|options| options.exec = false)),
    (&["relatime", "atime", "strictatime"], Flag(|options| options.noatime = false)),
    (&["noatime"], Flag(|options| options.noatime = true)),
    (&["sync"], Flag(|options| options.sync = true)),
    (&["async"], Flag(|options| options.sync = false)),
    (&["dirsync"], Flag(|options| options.dirsync = true)),
    (&["writeback_cache"], Flag(|options| options.writeback_cache = true)),
    (&["nowriteback_cache"], Flag(|options| options.writeback_cache = false)),
    (&["no_open"], Flag(|options| options.no_open = true)),
    (&["nono_open"], Flag(|options| options.no_open = false)),
    (&["noxattr"], Flag(|options| options.noxattr = true)),
    (&["xattr"], Flag(|options| options.noxattr = false)),
    // mount(8) does not pass `private` on: to it, it is a word about how mounts propagate.
    (&["private", "one_user"], Flag(|options| options.private = true)),
    (&["noprivate", "default_permissions"], Flag(|options| options.private = false)),
    (
        &["build"],
        Flag(|options| {
            (options.no_open, options.private, options.writeback_cache) = (true, true, false);
        }),
    ),
    (&["idmap"], Flag(|options| options.idmap = true)),
    (&["noidmap"], Flag(|options| options.idmap = false)),
    (
        &["threads"],
        Value("N", |options, word, value| {
            let threads = within(value, 1..=64)
                .ok_or_else(|| format!("{}: give a number from 1 to 64", word.text))?;
            options.threads = threads;
            Ok(())
        }),
    ),
    (
        &["transport"],
        Value("auto|ring|dev", |options, word, value| {
            options.transport = match value {
                "auto" => TransportChoice::Auto,
                "ring" => TransportChoice::Ring,
                "dev" => TransportChoice::Dev,
                _ => return Err(format!("{}: give auto, ring or dev", word.text)),
            };
            Ok(())
        }),
    ),
    (
        &["spin"],
        Value("MICROSECONDS", |options, word, value| {
            let time = within(value, 0..=10_000)
                .ok_or_else(|| format!("{}: give microseconds, 0 to 10000", word.text))?;
            options.spin = Duration::from_micros(time as u64);
            Ok(())
        }),
    ),
];

/// On two processors the caller keeps one busy: a second thread there only takes its place.
fn default_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors > 2 { 2 } else { 1 }
}

fn within(value: &str, range: RangeInclusive<usize>) -> Option<usize> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|number| digits && range.contains(number))
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "cairn".into(),
            read_only: false,
            allow_other: None,
            suid: None,
            dev: None,
            exec: true,
            noatime: false,
            sync: false,
            dirsync: false,
            threads: default_threads(),
            spin: Duration::from_micros(50),
            transport: TransportChoice::default(),
            writeback_cache: true,
            no_open: false,
            noxattr: false,
            private: false,
            idmap: false,
            owners: Owners::default(),
            timeout: Duration::from_secs(3600),
        }
    }
}

impl MountOptions {
    /// Options for an image.
    pub fn new(source: impl Into<String>) -> Self {
        Self { source: source.into(), ..Self::default() }
    }

    /// Applies one option of `-o`. False if it is not an option of the mount; it may be one of the
    /// filesystem.
    ///
    /// # Errors
    /// It is an option of the mount with an invalid value. The text says which values are valid.
    pub fn set(&mut self, option: &str) -> Result<bool, String> {
        let Some(word) = words(option).next() else { return Ok(false) };
        if let Some(taken) = options::set(SETTINGS, self, word) {
            return taken.map(|()| true);
        }
        let known = ALWAYS.contains(&word.name)
            || SETTINGS
                .iter()
                .any(|(names, action)| matches!(action, Flag(_)) && names.contains(&word.name));
        match word.value {
            Some(_) if known => Err(format!("{}: {} takes no value", word.text, word.name)),
            _ => Ok(known),
        }
    }

    /// All settings under all their names.
    pub fn settings() -> impl Iterator<Item = String> {
        options::written(SETTINGS)
    }

    /// Checks that the options agree with each other.
    ///
    /// # Errors
    /// They do not. The text says which one to leave out.
    pub fn check(&self) -> Result<(), String> {
        if self.private && self.allow_other == Some(true) {
            return Err("private is for one user: leave allow_other out, or private (build sets \
                        it, noprivate after it takes it back)"
                .into());
        }
        if self.private && self.idmap {
            return Err("idmap gives a mount other owners, whose rights private does not check: \
                        leave one of them out"
                .into());
        }
        Ok(())
    }

    /// The same options, with those that depend on who mounts: `root` or a user.
    #[must_use]
    pub fn settled(&self, root: bool) -> Self {
        let mut settled = self.clone();
        settled.allow_other.get_or_insert(root && !self.private);
        settled.suid.get_or_insert(root);
        settled.dev.get_or_insert(root);
        settled
    }

    /// The present options by name, for `root` or a user.
    #[must_use]
    pub fn report(&self, root: bool) -> Report {
        let Self { allow_other, suid, dev, .. } = self.settled(root);
        Report::new()
            .with("ro", self.read_only)
            .with("allow_other", allow_other == Some(true))
            .with("suid", suid == Some(true))
            .with("dev", dev == Some(true))
            .with("exec", self.exec)
            .with("noatime", self.noatime)
            .with("sync", self.sync)
            .with("dirsync", self.dirsync)
            .with("threads", self.threads)
            .with("spin_us", u64::try_from(self.spin.as_micros()).unwrap_or(u64::MAX))
            .with("writeback_cache", self.writeback_cache)
            .with("no_open", self.no_open)
            .with("noxattr", self.noxattr)
            .with("private", self.private)
            .with("idmap", self.idmap)
    }

    /// For fuser, mounting as root or not. The kernel checks permissions, but not on a private
    /// mount.
    pub(crate) fn to_fuser(&self, root: bool) -> fuser::Config {
        let Self { allow_other, suid, dev, .. } = self.settled(root);
        let pick = |flag: bool, yes: MountOption, no: MountOption| if flag { yes } else { no };
        let mut options = vec![
            // Root passes it to the kernel separately. A user passes it in fusermount's list of
            // options, which undoes such escapes.
            MountOption::FSName(if root { self.source.clone() } else { escaped(&self.source) }),
            // Not fuser's own `Subtype`, which it does not pass to the kernel when it mounts as
            // root.
            MountOption::CUSTOM("subtype=cairn".into()),
            pick(self.read_only, MountOption::RO, MountOption::RW),
            pick(suid == Some(true), MountOption::Suid, MountOption::NoSuid),
            pick(dev == Some(true), MountOption::Dev, MountOption::NoDev),
            pick(self.exec, MountOption::Exec, MountOption::NoExec),
        ];
        options.extend((!self.private).then_some(MountOption::DefaultPermissions));
        options.extend(self.noatime.then_some(MountOption::NoAtime));
        options.extend(self.sync.then_some(MountOption::Sync));
        options.extend(self.dirsync.then_some(MountOption::DirSync));
        let mut config = fuser::Config::default();
        config.mount_options = options;
        let others = allow_other == Some(true);
        config.acl = if others { fuser::SessionACL::All } else { fuser::SessionACL::Owner };
        config
    }
}

/// A value in a list of options, as libfuse writes it.
fn escaped(value: &str) -> String {
    let escape =
        |letter: char| matches!(letter, ',' | '\\').then_some('\\').into_iter().chain([letter]);
    value.chars().flat_map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_or_left_to_the_filesystem() {
        let mut options = MountOptions::new("disk.img");
        for option in
            ["ro", "nosuid", "allow_other", "noexec", "threads=4", "spin=0", "defaults", "noatime"]
        {
            assert_eq!(options.set(option), Ok(true), "{option}");
        }
        for option in ["commit=5", "data=ordered", "", "threads", "spin"] {
            assert_eq!(options.set(option), Ok(false), "{option}");
        }
        for (option, values) in [
            ("threads=0", "1 to 64"),
            ("threads=x", "1 to 64"),
            ("threads=+1", "1 to 64"),
            ("spin=10001", "0 to 10000"),
            ("spin=", "0 to 10000"),
            ("transport=uring", "auto, ring or dev"),
            ("nosuid=1", "takes no value"),
        ] {
            let refused = options.set(option).unwrap_err();
            assert!(refused.starts_with(option) && refused.contains(values), "{refused}");
        }
        assert!(
            options.read_only && !options.exec && options.threads == 4 && options.spin.is_zero()
        );
        assert!(options.check().is_ok());
        let config = options.to_fuser(true);
        assert!(config.mount_options.contains(&MountOption::NoSuid));
        assert!(config.mount_options.contains(&MountOption::Dev));
        assert!(config.mount_options.contains(&MountOption::DefaultPermissions));
        assert_eq!(config.acl, fuser::SessionACL::All);
        assert_eq!(MountOptions::new("x").to_fuser(false).acl, fuser::SessionACL::Owner);
    }

    #[test]
    fn private_is_for_one_user_whoever_mounts() {
        let with = |words: &str| {
            let mut options = MountOptions::new("x");
            words.split(',').for_each(|word| assert_eq!(options.set(word), Ok(true), "{word}"));
            options
        };
        for words in ["private", "one_user", "build", "noxattr,build"] {
            let (options, checked) = (with(words), MountOption::DefaultPermissions);
            assert!(options.check().is_ok());
            for config in [options.to_fuser(true), options.to_fuser(false)] {
                assert_eq!(config.acl, fuser::SessionACL::Owner, "{words}");
                assert!(!config.mount_options.contains(&checked), "{words}");
            }
        }
        assert!(with("private,allow_other").check().unwrap_err().contains("allow_other"));
        assert!(with("idmap,build").check().unwrap_err().contains("idmap"));
        for words in ["build,noprivate,allow_other", "private,default_permissions,idmap"] {
            assert!(with(words).check().is_ok(), "{words}");
        }
        let build = with("build,writeback_cache,nono_open");
        assert!(build.private && build.writeback_cache && !build.no_open, "later words win");
    }
}
