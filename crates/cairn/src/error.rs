//! Errors of opening and making volumes: the image, what happened, and what to do.

use std::fmt;
use std::path::PathBuf;

use cairn_base::system_error;

use crate::format::Format;

/// Result of opening or making a volume.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An image that could not be opened or made.
///
/// Displays as `IMAGE: what happened: what to do`.
#[derive(Debug)]
pub struct Error {
    image: String,
    cause: Box<Cause>,
}

/// The cause, to match on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The image's name cannot be understood.
    #[error("{0}")]
    Address(String),
    /// An option or a parameter is wrong.
    #[error("{0}")]
    Option(String),
    /// The volume cannot become what is asked for. The text says what is possible.
    #[error("{0}")]
    Refused(String),
    /// The volume can only be read, and was to be written.
    #[error("the volume can only be read: {why}")]
    ReadOnly {
        /// What forbids writing, and what to do where that can be changed.
        why: String,
    },
    /// A volume would be made in an image that has no size yet, and none was given.
    #[error("{what}")]
    NoSize {
        /// What has no size.
        what: String,
    },
    /// A repair of a device was given no file for what was there.
    #[error("a repair of a device needs an undo file, which keeps what was there")]
    NoUndoFile,
    /// A volume of a format that this build of the library does not have.
    #[error("this build has no {format}, which is the feature `{feature}` of the crate cairn")]
    NoFeature {
        /// The format.
        format: Format,
        /// The feature of the crate `cairn`.
        feature: &'static str,
    },
    /// The host has no room for a change.
    #[error("{}", host_full(*.free, *.needed))]
    HostFull {
        /// Bytes that its filesystem has for the image.
        free: u64,
        /// Bytes that the change may need, if that is known.
        needed: Option<u64>,
    },
    /// The file or device cannot be opened: it is missing, in use, forbidden, or neither a file nor
    /// a block device.
    #[error(transparent)]
    Open(cairn_block::Error),
    /// The file or device cannot be read or written.
    #[error(transparent)]
    Device(#[from] cairn_block::Error),
    /// The disk is encrypted, and nothing was given that opens it.
    #[error("the disk is encrypted (LUKS {version})")]
    Encrypted {
        /// Version of LUKS.
        version: u32,
    },
    /// A partition was asked for, but there is neither a GPT nor an MBR.
    #[error("no partition table found")]
    NoPartitionTable,
    /// The table has no such partition.
    #[error("no partition {number}; the {table} table has {}", list(.present))]
    NoSuchPartition {
        /// The number asked for.
        number: u32,
        /// `GPT` or `MBR`.
        table: &'static str,
        /// The numbers in use.
        present: Vec<u32>,
    },
    /// The table's bytes are wrong.
    #[error("damaged {table} partition table: {detail}")]
    PartitionTable {
        /// `GPT` or `MBR`.
        table: &'static str,
        /// Place and values.
        detail: String,
    },
    /// The image ends before a partition of its table, as an interrupted copy does.
    #[error(
        "the image is shorter than its {table} partition table says: partition {number} ends at \
         byte {end}, and the image has {size} bytes"
    )]
    ShortDisk {
        /// `GPT` or `MBR`.
        table: &'static str,
        /// The number of the partition.
        number: u32,
        /// Where it ends.
        end: u64,
        /// Bytes of the image.
        size: u64,
    },
    /// The byte offset lies at or beyond the end.
    #[error("offset {offset} is beyond the end ({size} bytes)")]
    OffsetBeyondEnd {
        /// Asked for.
        offset: u64,
        /// Of the file or device.
        size: u64,
    },
    /// A further device of the volume is missing or is another one.
    #[error("the volume has a further device '{}', {why}", path.display())]
    FurtherDevice {
        /// The file or block device.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// No known format. `hint` names one that is recognised but not supported.
    #[error("not a filesystem that Cairn \
        knows{}", hint.map_or(String::new(), |h| format!(" (it \
        looks like {h})")))]
    UnknownFormat {
        /// What it looks like.
        hint: Option<Hint>,
    },
    /// mkfs would overwrite something.
    #[error("it holds {found}, which would be lost")]
    WouldOverwrite {
        /// What is there.
        found: String,
    },
    /// A repair cannot be applied or taken back.
    #[error(transparent)]
    Undo(#[from] cairn_check::repair::undo::Error),
    /// The format's own refusal: corrupt, unsupported feature, failing device.
    #[error("{source}")]
    Format {
        /// Which it is.
        format: Format,
        /// What the error means to the caller.
        class: Class,
        /// The typed error of the format.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Recognised contents: what they are, and how to get at a volume in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// What it looks like.
    pub what: &'static str,
    /// What to do.
    pub advice: &'static str,
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

/// What a format's error means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The bytes on disk are wrong.
    Corrupt,
    /// The journal cannot be replayed: a reader would see an old state, with parts that are wrong.
    Unreplayable,
    /// The image ends before the volume.
    TooShort,
    /// The volume uses something that Cairn does not support.
    Unsupported,
    /// The device failed.
    Io,
    /// The caller asked for something impossible.
    Usage,
}

impl Error {
    /// An error about `image`.
    pub fn new(image: impl ToString, cause: Cause) -> Self {
        Self { image: image.to_string(), cause: Box::new(cause) }
    }

    /// What happened, without what can be done: `IMAGE: what happened`.
    #[must_use]
    pub fn fact(&self) -> String {
        let what = match &*self.cause {
            // The name is printed already.
            Cause::Open(error) if self.names(&error.operation) => error.detail.clone(),
            cause => cause.to_string(),
        };
        match self.image.is_empty() {
            true => what,
            false => format!("{}: {what}", self.image),
        }
    }

    /// The image as the caller named it.
    #[must_use]
    pub fn image(&self) -> &str {
        &self.image
    }

    /// Why.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Did the operation open this image, and not another file?
    fn names(&self, operation: &cairn_block::Operation) -> bool {
        let operation = operation.to_string();
        let path = operation.strip_prefix("open ").filter(|path| !path.is_empty());
        path.and_then(|path| self.image.strip_prefix(path))
            .is_some_and(|part| part.is_empty() || part.starts_with(['#', '?']))
    }

    pub(crate) fn into_cause(self) -> Cause {
        *self.cause
    }

    /// What the caller can do, in one clause.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        let is_remote =
            |image: &str| cairn_nbd::Address::is_meant(image) || cairn_objects::is_address(image);
        match &*self.cause {
            // The client has said what to do: neither a name nor a mode of a file is meant.
            Cause::Open(_) | Cause::Device(_) if is_remote(&self.image) => None,
            cause => cause.advice(),
        }
    }
}

impl Cause {
    fn advice(&self) -> Option<&'static str> {
        use cairn_block::ErrorKind as Kind;
        Some(match self {
            Self::Address(_)
            | Self::Option(_)
            | Self::Refused(_)
            | Self::Undo(_)
            | Self::ReadOnly { .. }
            | Self::NoSuchPartition { .. } => return None,
            Self::HostFull { .. } => "free space there, and run it again",
            // An error that is not the system's has said what to do.
            Self::Open(error) | Self::Device(error) if !is_of_system(error) => return None,
            Self::Open(error) | Self::Device(error) => match error.kind {
                Kind::NotFound => "check the name",
                Kind::PermissionDenied => {
                    "check the owner and mode of the file and its directories; a file that you may \
                     only read can be opened for reading"
                }
                // What the host's limits leave no room for says what to raise.
                Kind::NoSpace if says_what_to_do(error) => return None,
                Kind::ReadOnly => "it can only be opened for reading",
                Kind::NoSpace => "free space on the host",
                // A refused lock names its holder. The other errors need no advice.
                _ => return None,
            },
            Self::Encrypted { .. } => {
                "give its passphrase, or what has it: 'IMAGE?key-file=FILE' or 'IMAGE?key-fd=N'"
            }
            Self::NoPartitionTable => "leave out the #NUMBER, or give 'IMAGE?offset=BYTES'",
            Self::PartitionTable { .. } => {
                "repair the table (gdisk, fdisk), or give 'IMAGE?offset=BYTES'"
            }
            Self::ShortDisk { .. } => {
                "copy it again, whole; only if this is all of it, repair the table (gdisk, fdisk)"
            }
            Self::OffsetBeyondEnd { .. } => "give a smaller offset",
            Self::FurtherDevice { .. } => "name its further devices in their order",
            Self::WouldOverwrite { .. } => "ask for it to be overwritten, or choose another image",
            Self::NoSize { .. } => "give its size",
            Self::NoUndoFile => "name one",
            Self::NoFeature { .. } => "build it with that",
            Self::UnknownFormat { hint: Some(hint) } => hint.advice,
            Self::UnknownFormat { .. } => {
                "check the name, or give the filesystem's place: 'IMAGE?offset=BYTES'"
            }
            Self::Format { class: Class::TooShort, .. } => {
                "copy it again, whole; if nothing else is left, rescue what it has, or make a copy \
                 of it as long as the volume (truncate) and repair that"
            }
            Self::Format { class: Class::Unreplayable, .. } => {
                "repair it, with losses allowed, by what is intact of the journal, or copy out \
                 what is left"
            }
            Self::Format { class: Class::Corrupt, .. } => {
                "check and repair it, or copy out what is left"
            }
            Self::Format { .. } => return None,
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fact())?;
        match self.advice() {
            Some(advice) => write!(f, ": {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.cause {
            Cause::Open(error) | Cause::Device(error) => Some(error),
            Cause::Format { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

fn host_full(free: u64, needed: Option<u64>) -> String {
    let needed = needed.map_or(String::new(), |bytes| format!(" of the {bytes} that it may need"));
    format!(
        "no room for the change on the host, which has {free} bytes{needed}; the volume is whole"
    )
}

/// True if it is an error of a call of the system, which does not say what to do.
fn is_of_system(error: &cairn_block::Error) -> bool {
    error.source.as_ref().is_some_and(|source| source.raw_os_error().is_some())
}

fn says_what_to_do(error: &cairn_block::Error) -> bool {
    error.source.as_ref().is_some_and(|source| system_error::remedy(source).is_some())
}

fn list(numbers: &[u32]) -> String {
    match numbers {
        [] => "none".into(),
        [one] => format!("only {one}"),
        many => many.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_image_what_and_what_to_do() {
        let error = Error::new("disk.img", Cause::UnknownFormat { hint: None });
        let text = error.to_string();
        assert!(text.starts_with("disk.img: not a filesystem"), "{text}");
        assert!(text.ends_with("'IMAGE?offset=BYTES'"), "{text}");
    }

    #[test]
    fn a_name_stands_once() {
        let open = |path: &str| {
            Cause::Open(cairn_block::Error::from_io(
                format!("open {path}"),
                std::io::Error::from_raw_os_error(2),
            ))
        };
        let text = Error::new("d.img#2", open("d.img")).to_string();
        assert!(text.starts_with("d.img#2: no such file or directory: check the name"), "{text}");
        assert!(
            Error::new("d.img", open("other"))
                .to_string()
                .starts_with("d.img: open other: no such file")
        );
    }

    /// An image of mode 444, and a size beyond what the host's filesystem has.
    #[test]
    fn what_the_host_refuses_says_what_can_be_done() {
        let said = |errno: i32| {
            let system = std::io::Error::from_raw_os_error(errno);
            Error::new("d", Cause::Open(cairn_block::Error::from_io("open d", system))).to_string()
        };
        assert!(said(13).contains("opened for reading"), "{}", said(13));
        assert!(said(27).contains("raise `ulimit -f`"), "{}", said(27));
    }

    #[test]
    fn names_the_partitions_that_exist() {
        let cause = Cause::NoSuchPartition { number: 7, table: "GPT", present: vec![1, 2] };
        assert_eq!(Error::new("d", cause).to_string(), "d: no partition 7; the GPT table has 1, 2");
    }
}
