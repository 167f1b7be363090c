//! Changing the kernel's side of a live mount: read-only or not, and the flags that the kernel
//! alone acts on.
//!
//! The kernel sends its dirty pages before it turns a mount read-only, and refuses as long
//! as a file is open for writing. So this must not be called by a thread that serves requests.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cairn_base::system_error;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};

use crate::error::{Error, Result};
use crate::options::MountOptions;

/// For how long a file that is open for writing may refuse a remount without an error. A process
/// that another thread is starting has, until it runs its program, every file of its parent open:
/// those, too, that the parent has closed since.
const PATIENCE: Duration = Duration::from_millis(500);

/// Gives the mount at `mountpoint` the flags of `options`. Only root may, on a mount that root
/// made.
///
/// # Errors
/// [`Error::OpenForWriting`] if the mount is to be read-only and a file stays open for writing,
/// [`Error::RemountAsUser`] without the privilege, [`Error::Refused`] with another reason of the
/// kernel.
pub fn remount(mountpoint: &Path, options: &MountOptions) -> Result<()> {
    let start = Instant::now();
    let remounted = loop {
        match mount_remount(mountpoint, flags(options), c"") {
            Err(Errno::BUSY) if start.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(5));
            }
            result => break result,
        }
    };
    remounted.map_err(|error| match error {
        Errno::BUSY => Error::OpenForWriting,
        Errno::PERM => Error::RemountAsUser,
        error => Error::Refused {
            path: mountpoint.to_owned(),
            reason: system_error::words(&error.into()),
            advice: "see what `dmesg` says, or unmount and mount again",
        },
    })
}

fn flags(options: &MountOptions) -> MountFlags {
    let set = |flag: Option<bool>| flag.unwrap_or(true);
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !set(options.suid));
    flags.set(MountFlags::NODEV, !set(options.dev));
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::NOATIME, options.noatime);
    // With neither, the kernel keeps what was.
    flags.set(MountFlags::RELATIME, !options.noatime);
    flags.set(MountFlags::SYNCHRONOUS, options.sync);
    flags.set(MountFlags::DIRSYNC, options.dirsync);
    flags
}

impl MountOptions {
    /// The first option, by name, in which `new` differs although it cannot change while mounted.
    #[must_use]
    pub fn fixed_change(&self, new: &Self) -> Option<&'static str> {
        [
            ("allow_other", self.allow_other == new.allow_other),
            ("threads", self.threads == new.threads),
            ("spin", self.spin == new.spin),
            ("transport", self.transport == new.transport),
            ("writeback_cache", self.writeback_cache == new.writeback_cache),
            ("no_open", self.no_open == new.no_open),
            ("noxattr", self.noxattr == new.noxattr),
            ("private", self.private == new.private),
            ("idmap", self.idmap == new.idmap),
        ]
        .into_iter()
        .find_map(|(name, same)| (!same).then_some(name))
    }

    /// True if the kernel must be told of the difference.
    #[must_use]
    pub fn changes_kernel(&self, new: &Self) -> bool {
        flags(self) != flags(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_change_and_what_cannot() {
        let old = MountOptions::new("image");
        let with = |words: &[&str]| {
            let mut new = old.clone();
            assert!(words.iter().all(|word| new.set(word) == Ok(true)));
            new
        };
        let new = with(&["ro", "nosuid", "noexec", "nodev", "noatime", "sync", "dirsync"]);
        assert!(old.fixed_change(&new).is_none() && old.changes_kernel(&new));
        assert!(!old.changes_kernel(&with(&["rw", "exec", "atime", "async"])));
        for (word, name) in [
            ("allow_other", "allow_other"),
            ("threads=9", "threads"),
            ("nowriteback_cache", "writeback_cache"),
        ] {
            assert_eq!(old.fixed_change(&with(&[word])), Some(name));
        }
    }
}
