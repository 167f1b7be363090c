//! Errors of building, exporting and comparing: what was worked on, what happened, what to do.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use cairn_base::names::Escaped;
use cairn_base::system_error;

/// Result of a build, an export or a comparison.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error. Each displays as `subject: what happened: what to do`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is wrong, or options contradict each other.
    #[error("{0}")]
    Usage(String),
    /// The output exists, and was not to be replaced.
    #[error("{subject}: exists: ask for it to be replaced, or give another name")]
    Exists {
        /// Its name.
        subject: String,
    },
    /// Something else came to the place of the output after the work had begun.
    #[error(
        "{subject}: another program has made or replaced it meanwhile, so it was left as it is: \
         try again, or give another name"
    )]
    Meanwhile {
        /// Its name.
        subject: String,
    },
    /// A call of this host failed.
    #[error("{subject}: {}", words(.source))]
    Host {
        /// The file.
        subject: String,
        /// The error of the call.
        source: io::Error,
    },
    /// A source is damaged, or holds what no image can hold.
    #[error("{source_name}: {why}")]
    Source {
        /// The source as it was named.
        source_name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A member of an archive is damaged, or cannot be put into an image.
    #[error("{source_name}: {member}: {why}")]
    Member {
        /// The source as it was named.
        source_name: String,
        /// The member's name, escaped.
        member: String,
        /// What is wrong with it.
        why: String,
    },
    /// An image cannot be opened or made.
    #[error("{text}")]
    Image {
        /// The text of the error, with the name that the user knows.
        text: String,
        /// The error.
        source: Box<cairn::Error>,
    },
    /// A call on the volume in an image failed.
    #[error("{subject}: {source}")]
    Volume {
        /// The image and the path in it.
        subject: String,
        /// The error of the call.
        source: cairn_vfs::Error,
    },
    /// A file without a name, which keeps what can be read only once, cannot be made or written.
    #[error("{}: temporary files cannot be kept there: {}: {}", directory.escaped(),
        system_error::words(.source), elsewhere(.directory))]
    Scratch {
        /// Where it would be.
        directory: PathBuf,
        /// The error of the call.
        source: io::Error,
    },
    /// The tree does not fit in the size that was asked for.
    #[error("the sources do not fit in {size} bytes: {}", larger(*.need))]
    TooSmall {
        /// The size that was asked for.
        size: u64,
        /// Bytes that they need, if that is known.
        need: Option<u64>,
    },
}

/// What to do about a size that is too small.
fn larger(need: Option<u64>) -> String {
    match need {
        Some(need) => {
            format!("give a size of {}K or more, or none", need.div_ceil(1024))
        }
        None => "give a larger size, or none".into(),
    }
}

/// What to do about a directory without room for temporary files.
fn elsewhere(directory: &Path) -> &'static str {
    match directory == std::env::temp_dir() {
        true => "name another directory, with room, in TMPDIR",
        false => "make room there, or name an image in another directory",
    }
}

/// What happened on the host, and what helps, if that is known.
fn words(error: &io::Error) -> String {
    let words = system_error::words(error);
    system_error::remedy(error).map_or_else(|| words.clone(), |remedy| format!("{words}: {remedy}"))
}

impl Error {
    /// True if mkfs refuses the size that it was given.
    pub(crate) fn is_refused_size(&self) -> bool {
        matches!(self, Self::Image { source, .. }
            if matches!(source.cause(), cairn::Cause::Option(_)))
    }

    pub(crate) fn host(path: impl AsRef<Path>, source: io::Error) -> Self {
        Self::Host { subject: path.as_ref().escaped(), source }
    }

    /// A new file cannot be made in its directory.
    pub(crate) fn unmade(path: &Path, directory: &Path, source: io::Error) -> Self {
        let (name, shown) = (path.escaped(), directory.escaped());
        let source = match source.kind() {
            io::ErrorKind::PermissionDenied => io::Error::new(
                source.kind(),
                "permission denied: check the owner and mode of that directory, or give a file in \
                 another one",
            ),
            _ => source,
        };
        Self::Host {
            subject: format!("{name}: it cannot be made in the directory {shown}"),
            source,
        }
    }

    pub(crate) fn source(name: impl Display, why: impl Display) -> Self {
        Self::Source { source_name: name.to_string(), why: why.to_string() }
    }

    pub(crate) fn member(name: impl Display, member: &[u8], why: impl Display) -> Self {
        let member = member.escaped();
        Self::Member { source_name: name.to_string(), member, why: why.to_string() }
    }

    /// An error at a member of an archive, or at its start, where `member` is empty.
    pub(crate) fn at_member(name: impl Display, member: &[u8], why: impl Display) -> Self {
        match member.is_empty() {
            true => Self::source(name, why),
            false => Self::member(name, member, why),
        }
    }

    pub(crate) fn image(source: cairn::Error) -> Self {
        Self::Image { text: source.to_string(), source: Box::new(source) }
    }

    pub(crate) fn volume(subject: impl Display, source: cairn_vfs::Error) -> Self {
        Self::Volume { subject: subject.to_string(), source }
    }
}
