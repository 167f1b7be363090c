//! How to mount: the options of the FUSE side, and their `-o` names.

use std::time::Duration;

use cairn_base::stats::Report;
use fuser::MountOption;

/// Options of a mount. [`MountOptions::set`] takes those that `mount -o` knows.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What `/proc/mounts` shows as the source: the image's path.
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
    /// The kernel never asks for access times to be kept.
    pub noatime: bool,
    /// All writes are synchronous.
    pub sync: bool,
    /// Directory changes are synchronous.
    pub dirsync: bool,
    /// Quick requests carried out at the same time. More than cores lose time.
    pub threads: usize,
    /// How long a thread looks for the next request before it sleeps, while requests come that fast.
    pub spin: Duration,
    /// The kernel collects small writes until close or fsync.
    pub writeback_cache: bool,
    /// `open` and `close` cost no request. Off, write-back errors are told to each handle apart, and immutable files are refused at `open`.
    pub no_open: bool,
    /// It can be mounted again with other owners. The kernel then leaves out who sent a request, which is looked up where it matters.
    pub idmap: bool,
    /// How long the kernel may believe names and attributes; we are the only writer.
    pub timeout: Duration,
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
            threads: 2,
            spin: Duration::from_micros(50),
            writeback_cache: true,
            no_open: true,
            idmap: false,
            timeout: Duration::from_secs(3600),
        }
    }
}

impl MountOptions {
    /// Options for an image.
    pub fn new(source: impl Into<String>) -> Self {
        Self { source: source.into(), ..Self::default() }
    }

    /// Takes one option as `-o` writes it; false if it is not one of the mount's own (but perhaps the filesystem's).
    ///
    /// # Errors
    /// It is one of the mount's own, but its value is not: says which are possible.
    pub fn set(&mut self, option: &str) -> Result<bool, String> {
        if let Some((name, value)) = option.split_once('=') {
            return self.set_value(name, value);
        }
        Ok(self.set_flag(option))
    }

    fn set_flag(&mut self, option: &str) -> bool {
        match option {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "allow_other" => self.allow_other = Some(true),
            "suid" => self.suid = Some(true),
            "nosuid" => self.suid = Some(false),
            "dev" => self.dev = Some(true),
            "nodev" => self.dev = Some(false),
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            "atime" | "relatime" | "strictatime" => self.noatime = false,
            "noatime" => self.noatime = true,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dirsync = true,
            "writeback_cache" => self.writeback_cache = true,
            "nowriteback_cache" => self.writeback_cache = false,
            "no_open" => self.no_open = true,
            "nono_open" => self.no_open = false,
            "idmap" => self.idmap = true,
            "noidmap" => self.idmap = false,
            "defaults" | "default_permissions" => {}
            _ => return false,
        }
        true
    }

    fn set_value(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let number = value.parse::<usize>().ok().filter(|_| value.bytes().all(|byte| byte.is_ascii_digit()));
        match (name, number) {
            ("threads", Some(threads @ 1..=64)) => self.threads = threads,
            ("spin", Some(microseconds @ 0..=10_000)) => self.spin = Duration::from_micros(microseconds as u64),
            ("threads", _) => return Err(format!("threads={value}: give a number from 1 to 64")),
            ("spin", _) => return Err(format!("spin={value}: give microseconds, 0 to 10000")),
            _ if Self::default().set_flag(name) => return Err(format!("{name}={value}: {name} takes no value")),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The options in force, by name; for `root` or a user.
    #[must_use]
    pub fn report(&self, root: bool) -> Report {
        let on = |flag: Option<bool>| flag.unwrap_or(root);
        Report::new()
            .with("ro", self.read_only)
            .with("allow_other", on(self.allow_other))
            .with("suid", on(self.suid))
            .with("dev", on(self.dev))
            .with("exec", self.exec)
            .with("noatime", self.noatime)
            .with("sync", self.sync)
            .with("dirsync", self.dirsync)
            .with("threads", self.threads)
            .with("spin_us", u64::try_from(self.spin.as_micros()).unwrap_or(u64::MAX))
            .with("writeback_cache", self.writeback_cache)
            .with("no_open", self.no_open)
            .with("idmap", self.idmap)
    }

    /// For fuser, mounting as root or not. Permissions are always checked by the kernel.
    pub(crate) fn to_fuser(&self, root: bool) -> fuser::Config {
        let on = |flag: Option<bool>| flag.unwrap_or(root);
        let pick = |flag: bool, yes: MountOption, no: MountOption| if flag { yes } else { no };
        let mut options = vec![
            // As root it goes to the kernel by itself, else in the list of options of fusermount, which undoes such escapes.
            MountOption::FSName(if root { self.source.clone() } else { escaped(&self.source) }),
            // Not fuser's own `Subtype`, which it does not pass to the kernel when it mounts as root.
            MountOption::CUSTOM("subtype=cairn".into()),
            MountOption::DefaultPermissions,
            pick(self.read_only, MountOption::RO, MountOption::RW),
            pick(on(self.suid), MountOption::Suid, MountOption::NoSuid),
            pick(on(self.dev), MountOption::Dev, MountOption::NoDev),
            pick(self.exec, MountOption::Exec, MountOption::NoExec),
        ];
        options.extend(self.noatime.then_some(MountOption::NoAtime));
        options.extend(self.sync.then_some(MountOption::Sync));
        options.extend(self.dirsync.then_some(MountOption::DirSync));
        let mut config = fuser::Config::default();
        config.mount_options = options;
        config.acl = if on(self.allow_other) { fuser::SessionACL::All } else { fuser::SessionACL::Owner };
        config
    }
}

/// A value in a list of options, as libfuse writes it.
fn escaped(value: &str) -> String {
    let escape = |letter: char| matches!(letter, ',' | '\\').then_some('\\').into_iter().chain([letter]);
    value.chars().flat_map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_or_left_to_the_filesystem() {
        let mut options = MountOptions::new("disk.img");
        for option in ["ro", "nosuid", "allow_other", "noexec", "threads=4", "spin=0", "defaults", "noatime"] {
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
            ("nosuid=1", "takes no value"),
        ] {
            let refused = options.set(option).unwrap_err();
            assert!(refused.starts_with(option) && refused.contains(values), "{refused}");
        }
        assert!(options.read_only && !options.exec && options.threads == 4 && options.spin.is_zero());
        let config = options.to_fuser(true);
        assert!(config.mount_options.contains(&MountOption::NoSuid));
        assert!(config.mount_options.contains(&MountOption::Dev));
        assert!(config.mount_options.contains(&MountOption::DefaultPermissions));
        assert_eq!(config.acl, fuser::SessionACL::All);
        assert_eq!(MountOptions::new("x").to_fuser(false).acl, fuser::SessionACL::Owner);
    }
}
