//! One line for the user, and an exit status for scripts.

mod advice;
mod overwritten;
#[cfg(test)]
mod tests;

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use cairn::{Cause, Class};
use cairn_base::system_error;
use cairn_block::ErrorKind;
pub use cairn_block::error::plain;

pub use self::overwritten::Overwritten;
use self::overwritten::is_host_full;

use crate::{print, wording};

/// Exit statuses. Stable: scripts rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Success = 0,
    /// The operation failed: no such file, it exists, no space, not permitted, on the volume or on
    /// the host.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The image cannot be opened: it is missing, or its mode forbids it.
    NoImage = 3,
    /// Not a filesystem Cairn knows, a damaged partition table, or corrupt metadata.
    Corrupt = 4,
    /// The volume uses a feature that Cairn does not support.
    Unsupported = 5,
    /// The image or mount point is in use.
    Busy = 6,
    /// The device or image failed to read or write.
    Io = 7,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status as u8)
    }
}

/// A message, printed after `cairn: `, and the exit status.
#[derive(Debug)]
pub struct Failure {
    /// The kind.
    pub status: Status,
    message: String,
    /// True if the advice is a check, which says what repairs the volume.
    is_damage: bool,
    /// What fails with it.
    reach: Reach,
    /// True if it concerns a file of the host, which is not in the image.
    on_host: bool,
    /// The path of a call that the volume does not permit.
    refused: Option<String>,
    /// The exit status of a command that has those of another program.
    code: Option<u8>,
    /// The directory of a file for which there is no room.
    full: Option<String>,
    /// The file whose old contents may be lost with it.
    overwritten: Option<Box<Overwritten>>,
    /// Later failures of the same command, each on a line of its own.
    also: Vec<Failure>,
}

/// How much of a command a failure stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// One file.
    One,
    /// One file, for lack of room. A smaller one may have room.
    Room,
    /// The whole command: the volume or the host is read-only, or nothing can be printed.
    All,
}

/// Result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure with this message: `subject: what happened: what to do`.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            is_damage: false,
            reach: Reach::One,
            on_host: false,
            refused: None,
            code: None,
            full: None,
            overwritten: None,
            also: Vec::new(),
        }
    }

    /// With this exit status in place of that of its kind.
    #[must_use]
    pub fn with_code(self, code: u8) -> Self {
        Self { code: Some(code), ..self }
    }

    /// The exit status in place of that of its kind, if the command has its own.
    #[must_use]
    pub fn code(&self) -> Option<u8> {
        self.code
    }

    /// Wrong usage.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Status::Usage, message)
    }

    /// A call on the volume failed for `path`.
    pub fn volume(path: impl fmt::Display, error: &cairn_vfs::Error) -> Self {
        use cairn_vfs::Error as E;
        let (status, advice) = match error {
            // No other process uses the volume, so a stale inode means that a name points to an
            // inode that is not in use.
            E::Corrupt(_) | E::Stale => (Status::Corrupt, None),
            E::Io(source) if is_host_full(&**source) => {
                (Status::Io, Some("make room on the host of the image, and try again"))
            }
            E::Io(_) => (Status::Io, None),
            E::Busy => (Status::Busy, None),
            E::IsDirectory => (Status::Failed, Some("name a file")),
            E::NotFound => (Status::Failed, Some("check the name; `cairn ls` lists a directory")),
            E::NotEmpty => (Status::Failed, Some("remove what is in it first")),
            E::NoSpace => (
                Status::Failed,
                Some("remove something, or make a larger image (cairn resize, cairn build)"),
            ),
            _ => (Status::Failed, None),
        };
        let advice = advice.map_or(String::new(), |advice| format!(": {advice}"));
        let is_damage = matches!(error, E::Corrupt(_) | E::Stale);
        let reach = match error {
            E::NoSpace => Reach::Room,
            E::ReadOnly(_) => Reach::All,
            _ => Reach::One,
        };
        let refused = matches!(error, E::NotPermitted).then(|| path.to_string());
        let full = (reach == Reach::Room).then(|| directory(&path.to_string()));
        let text = format!("{path}: {error}{advice}");
        Self { is_damage, reach, refused, full, ..Self::new(status, text) }
    }

    /// `path` is a directory, and the command needs an option to go into directories.
    pub fn needs_recursive(path: impl fmt::Display) -> Self {
        Self::new(Status::Failed, format!("{path}: is a directory: add -r"))
    }

    /// True if it concerns one file, so that the command can continue with the others.
    #[must_use]
    pub fn is_of_one_file(&self) -> bool {
        self.status == Status::Failed && self.reach != Reach::All
    }

    /// True if it concerns a file of the host, which is not in the image.
    #[must_use]
    pub fn is_of_host(&self) -> bool {
        self.on_host
    }

    /// The directory of the file for which there was no room.
    #[must_use]
    pub fn full_directory(&self) -> Option<&str> {
        self.full.as_deref()
    }

    /// Marks that later operations would fail, too.
    #[must_use]
    pub fn ending_all(mut self) -> Self {
        self.reach = Reach::All;
        self
    }

    /// Adds a later failure. The status stays that of the first.
    #[must_use]
    pub fn and(mut self, mut later: Self) -> Self {
        // The same message for many names (standard output is full) is printed once.
        if self.also.last().unwrap_or(&self).message != later.message {
            let rest = std::mem::take(&mut later.also);
            self.also.push(later);
            self.also.extend(rest);
        }
        self
    }

    /// The failures to print, one on each line.
    pub fn lines(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.also)
    }

    /// Adds what the failure leaves behind, or what to do.
    #[must_use]
    pub fn leaving(mut self, what: String) -> Self {
        self.message = format!("{}: {what}", self.message);
        self
    }

    /// Adds that a file was being overwritten. What became of its old contents is known when the
    /// volume is closed.
    #[must_use]
    pub fn overwriting(self, file: Overwritten) -> Self {
        Self { overwritten: Some(Box::new(file)), ..self }
    }

    /// Adds what became of old contents; `is_there` tells whether a file is as it was.
    #[must_use]
    pub fn settled(mut self, is_there: &dyn Fn(&Overwritten) -> bool) -> Self {
        if let Some(file) = self.overwritten.take() {
            let what = match is_there(&file) {
                true => "its old contents are still there",
                false => "its old contents are gone",
            };
            self = self.leaving(what.to_owned());
        }
        self.also = self.also.into_iter().map(|later| later.settled(is_there)).collect();
        self
    }

    /// Adds why the volume does not permit the call, where `why` knows it for the path.
    #[must_use]
    pub fn explained(mut self, why: &dyn Fn(&str) -> Option<String>) -> Self {
        if let Some(reason) = self.refused.take().and_then(|path| why(&path)) {
            self = self.leaving(reason);
        }
        self.also = self.also.into_iter().map(|later| later.explained(why)).collect();
        self
    }

    /// A call on the host failed for `path`. The message names no image.
    pub fn host(path: impl AsRef<std::path::Path>, error: &std::io::Error) -> Self {
        // Without the `.` of `directory/.`.
        let path: PathBuf = path.as_ref().components().collect();
        Self::host_named(&print::escaped(path.as_os_str().as_bytes()), error)
    }

    /// As [`Failure::host`], of a name as it is shown.
    pub fn host_named(path: &str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        let remedy = system_error::remedy(error).or(match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => Some("make room there, and try again"),
            _ => None,
        });
        let remedy = remedy.map_or(String::new(), |remedy| format!(": {remedy}"));
        let what = match error.kind() {
            Kind::NotFound => "no such file on this host: check the name".to_owned(),
            _ => plain(error),
        };
        let reach = match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => Reach::Room,
            Kind::ReadOnlyFilesystem => Reach::All,
            _ => Reach::One,
        };
        let full = (reach == Reach::Room).then(|| directory(path));
        Self { reach, full, ..Self::of_host(format!("{path}: {what}{remedy}")) }
    }

    /// A failure of a file on the host. The message names no image.
    #[must_use]
    pub fn of_host(message: String) -> Self {
        Self { on_host: true, ..Self::new(Status::Failed, message) }
    }

    /// As [`Failure::host`], with advice for errors that have no remedy of their own.
    pub fn start(what: &str, error: &std::io::Error, otherwise: &str) -> Self {
        Self::new(
            Status::Failed,
            format!("{what}: {}", system_error::with_remedy(error, otherwise)),
        )
    }

    /// A failure that another process (the daemon) has already printed, with its exit status.
    #[must_use]
    pub fn told(code: i32) -> Self {
        use Status as S;
        let known = [S::Usage, S::NoImage, S::Corrupt, S::Unsupported, S::Busy, S::Io];
        let status =
            known.into_iter().find(|status| i32::from(*status as u8) == code).unwrap_or(S::Failed);
        Self::new(status, "")
    }

    /// The reader of standard output has gone. The command ends early, without an error.
    #[must_use]
    pub fn closed_pipe() -> Self {
        Self::new(Status::Success, "")
    }

    /// True if there is nothing left to print.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.message.is_empty()
    }

    /// Puts the image's name in front, unless a file of the host has failed.
    #[must_use]
    pub fn in_image(mut self, image: impl fmt::Display + Copy) -> Self {
        if !self.is_told() && !self.on_host {
            self.message = format!("{image}: {}", self.message);
        }
        self.also = self.also.into_iter().map(|later| later.in_image(image)).collect();
        self
    }
}

/// A path without its last name.
fn directory(path: &str) -> String {
    path.rsplit_once('/').map_or("", |(directory, _)| directory).to_owned()
}

/// What an undo file of a repair says, with the command that takes the repair back.
#[must_use]
pub fn undo(error: &cairn_check::repair::undo::Error) -> String {
    advice::taking_back(error, &error.to_string())
}

/// Does `work` for each operand. As in coreutils, a failure for one does not stop the others, and
/// the status is that of the first failure.
///
/// # Errors
/// Those of `work`, together. Ends at once if the reader of standard output has gone.
pub fn each<T>(
    operands: impl IntoIterator<Item = T>,
    mut work: impl FnMut(T) -> Outcome,
) -> Outcome {
    let mut failed: Option<Failure> = None;
    for operand in operands {
        match work(operand) {
            Ok(()) => {}
            Err(gone) if gone.status == Status::Success => return Err(failed.unwrap_or(gone)),
            Err(failure) => {
                failed = Some(match failed {
                    Some(before) => before.and(failure),
                    None => failure,
                });
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// All failures of several steps together; the status is that of the first.
///
/// # Errors
/// One of the steps failed.
pub fn all(steps: impl IntoIterator<Item = Outcome>) -> Outcome {
    each(steps, |step| step)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever the message contains. Later failures have lines of their own.
        f.write_str(&print::harmless(&wording::named(&self.message)))?;
        if self.overwritten.is_some() {
            f.write_str(": its old contents may be gone")?;
        }
        match self.is_damage {
            true => f.write_str(": run `cairn check` on the image, which says what repairs it"),
            false => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl From<cairn::Error> for Failure {
    fn from(error: cairn::Error) -> Self {
        Self::new(status_of(error.cause()), advice::text(&error))
    }
}

fn status_of(cause: &Cause) -> Status {
    match cause {
        Cause::Address(_) | Cause::Option(_) => Status::Usage,
        Cause::NoSize { .. } | Cause::NoUndoFile => Status::Usage,
        Cause::NoFeature { .. } | Cause::ReadOnly { .. } => Status::Unsupported,
        Cause::Refused(_) | Cause::HostFull { .. } => Status::Failed,
        Cause::Open(error) | Cause::Device(error) if error.kind == ErrorKind::InUse => Status::Busy,
        Cause::Open(error) | Cause::Device(error)
            if matches!(
                error.kind,
                ErrorKind::Exists | ErrorKind::NoSpace | ErrorKind::NoMemory
            ) =>
        {
            Status::Failed
        }
        Cause::Open(error) if error.kind == ErrorKind::UnsupportedFeature => Status::Unsupported,
        Cause::Open(_) => Status::NoImage,
        Cause::Device(error) if error.kind == ErrorKind::ReadOnly => Status::NoImage,
        Cause::Device(_) | Cause::Undo(_) => Status::Io,
        Cause::FurtherDevice { .. }
        | Cause::NoPartitionTable
        | Cause::NoSuchPartition { .. }
        | Cause::Encrypted { .. }
        | Cause::OffsetBeyondEnd { .. } => Status::NoImage,
        Cause::PartitionTable { .. } | Cause::ShortDisk { .. } | Cause::UnknownFormat { .. } => {
            Status::Corrupt
        }
        Cause::Format { class, .. } => match class {
            Class::Corrupt | Class::Unreplayable | Class::TooShort => Status::Corrupt,
            Class::Unsupported => Status::Unsupported,
            Class::Io => Status::Io,
            Class::Usage => Status::Failed,
        },
        _ => Status::Failed,
    }
}
