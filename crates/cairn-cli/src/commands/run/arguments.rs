//! Arguments of `cairn run`, as the user and as the processes of a run give them.

use std::ffi::OsString;
use std::path::PathBuf;

use cairn_base::names::Escaped;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::failure::{Failure, Outcome, Status};
use crate::session::ImageArg;
use crate::usage::number;

/// Arguments of `run`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn run root.img -- sh
  cairn run root.img -- apt-get install -y nginx
  cairn run --ephemeral --bind $PWD:/mnt root.img -- make -C /mnt

Needs neither root nor a set-user-id program. The command sees the image as its root directory, \
/proc, a small /dev, the host's /sys to read, an empty /tmp, the host's network and \
/etc/resolv.conf, and is root there. PATH and HOME are root's; the rest of the environment stays.
The users of the image are those of /etc/subuid and /etc/subgid, if newuidmap and newgidmap are \
installed (package uidmap). Otherwise there is one user: all files are shown as root's, and \
programs that give files away fail.
The status is that of the command, or 128 and the number of the signal that killed it; 127 if \
there is no such command, 126 if it cannot be run. When it ends, so do all programs that it has \
started, and the image is clean.")]
pub struct Args {
    /// Change nothing on the image.
    #[arg(long, conflicts_with = "ephemeral")]
    pub ro: bool,
    /// Keep changes in memory, and drop them at the end.
    #[arg(long)]
    pub ephemeral: bool,
    /// Show a file or directory of the host at a path of the image, with :ro for reading only. May
    /// be repeated.
    #[arg(long, value_name = "SRC:DST", value_parser = parse_bind)]
    pub bind: Vec<Bind>,
    /// Leave this many descriptors from 3 on open for the command. All others are closed.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=1000_u32, 1))]
    pub preserve_fds: u32,
    /// As root: trust the command with root's power over this host.
    #[arg(long)]
    pub host_root: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// A file or directory of the host that the command sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// On the host.
    pub source: PathBuf,
    /// On the image; absolute.
    pub target: PathBuf,
    /// Whether the command can only read it.
    pub read_only: bool,
}

fn parse_bind(text: &str) -> Result<Bind, String> {
    let (rest, read_only) = match text.strip_suffix(":ro") {
        Some(rest) => (rest, true),
        None => (text.strip_suffix(":rw").unwrap_or(text), false),
    };
    match rest.rsplit_once(':') {
        Some((source, target)) if !source.is_empty() && target.starts_with('/') => {
            Ok(Bind { source: source.into(), target: target.into(), read_only })
        }
        _ => Err("give SRC:DST or SRC:DST:ro, DST from / on, such as $PWD:/mnt".into()),
    }
}

impl Args {
    /// The words that give these arguments again.
    pub(super) fn words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        words.extend(self.ro.then(|| "--ro".into()));
        words.extend(self.ephemeral.then(|| "--ephemeral".into()));
        words.extend(self.host_root.then(|| "--host-root".into()));
        for bind in &self.bind {
            let mut word = bind.source.clone().into_os_string();
            word.push(":");
            word.push(&bind.target);
            word.push(if bind.read_only { ":ro" } else { ":rw" });
            words.extend(["--bind".into(), word]);
        }
        for device in &self.image.devices {
            words.extend(["--device".into(), device.clone().into_os_string()]);
        }
        words.push(self.image.image.clone());
        words.push("--".into());
        words.extend(self.command.iter().cloned());
        words
    }

    /// The same arguments, with absolute names of what is on the host.
    ///
    /// # Errors
    /// One of them is not there.
    pub(super) fn settled(&self) -> Outcome<Self> {
        let host = |path: &PathBuf| {
            std::fs::canonicalize(path).map_err(|error| Failure::host(path, &error))
        };
        let mut settled = self.clone();
        settled.image.image = self.image.spec()?.canonical()?.to_os_string();
        for device in &mut settled.image.devices {
            *device = host(device)?;
        }
        for bind in &mut settled.bind {
            bind.source = host(&bind.source)?;
        }
        Ok(settled)
    }

    /// Whether the caller may use the image and its devices as asked. In the namespace this
    /// process has all capabilities over the caller's files, whatever their modes are.
    ///
    /// # Errors
    /// The mode of one of them forbids it.
    pub(super) fn check_modes(&self) -> Outcome {
        let (wanted, verb, advice) = match self.ro || self.ephemeral {
            true => (Access::READ_OK, "read", "change its mode with `chmod u+r`, or its owner"),
            false => (
                Access::WRITE_OK | Access::READ_OK,
                "write",
                "give --ro to change nothing or --ephemeral to drop changes, or change its mode \
                 with `chmod u+rw`",
            ),
        };
        let image = self.image.spec()?;
        let devices = self.image.devices.iter().map(PathBuf::as_path);
        for path in image.file().into_iter().chain(devices) {
            // What else is wrong with it is found when it is opened.
            if accessat(CWD, path, wanted, AtFlags::EACCESS) == Err(Errno::ACCESS) {
                let path = path.escaped();
                let message = format!("{path}: you may not {verb} the image: {advice}");
                return Err(Failure::new(Status::NoImage, message));
            }
        }
        Ok(())
    }
}

/// What is started in the namespace.
#[derive(Clone, Debug, clap::Args)]
pub struct Inside {
    /// The process that `run` is.
    pub starter: u32,
    /// Those of `run`.
    #[command(flatten)]
    pub args: Args,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parsed(words: &[&str]) -> Result<Args, clap::Error> {
        Line::try_parse_from([&["run"], words].concat()).map(|line| line.args)
    }

    #[test]
    fn words_give_the_same_arguments_again() {
        let line = ["disk.img#2", "--ephemeral", "--bind", "/a:b:/c:ro", "--bind", "d:/e", "--"];
        let command = ["sh", "-c", "exit 3", "--", "--ro"];
        let args = parsed(&[&line[..], &command].concat()).unwrap();
        assert_eq!(args.bind.first().unwrap().source, Path::new("/a:b"));
        assert_eq!(args.command, command);
        let words = args.words();
        let again = Line::try_parse_from([vec!["run".into()], words.clone()].concat()).unwrap();
        assert_eq!((again.args.words(), again.args.bind), (words, args.bind));
    }

    #[test]
    fn wrong_lines_are_refused() {
        for words in [
            &["x.img"][..],
            &["x.img", "ls"],
            &["--ro", "--ephemeral", "x.img", "--", "ls"],
            &["--bind", "/a", "x.img", "--", "ls"],
            &["--bind", "/a:b", "x.img", "--", "ls"],
            &["--bind", ":/b", "x.img", "--", "ls"],
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }
}
