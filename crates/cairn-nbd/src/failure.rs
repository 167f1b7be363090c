//! Why a connection ended, and the errors of devices that follow from it.

use std::io;
use std::time::Duration;

use cairn_block::{Error, ErrorKind, error};

use crate::wire::Violation;

/// Why a connection cannot be used any longer.
#[derive(Debug)]
pub(crate) enum Broken {
    /// It ended, or nothing came in time.
    Io(io::Error),
    /// The other side does not speak the protocol.
    Violation(Violation),
    /// The other side refuses what is wanted.
    Refused(Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Violation> for Broken {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl Broken {
    /// What happened, as a part of a message.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                "the server ended the connection".into()
            }
            Self::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
                "the server did not answer in time".into()
            }
            Self::Io(error) => error::plain(error),
            Self::Violation(violation) => {
                format!("the server does not keep to the protocol: {violation}")
            }
            Self::Refused(error) => error.detail.clone(),
        }
    }

    /// As [`Broken::words`], where a server was waited for as long as `time`.
    pub(crate) fn words_after(&self, time: Duration) -> String {
        match self {
            Self::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
                format!("the server did not answer within {} s", time.as_secs_f32())
            }
            other => other.words(),
        }
    }

    /// The error of connecting to `server`, with what to do: no layer above adds to it. A server
    /// was waited for as long as `time`.
    pub(crate) fn connecting(self, server: &str, time: Duration) -> Error {
        let operation = format!("connect to {server}");
        let advice = "see that the server runs there, and that the address is right";
        match self {
            Self::Refused(error) => Error { operation: operation.as_str().into(), ..error },
            Self::Io(source) => {
                let words = Self::Io(copy(&source)).words_after(time);
                let advice = match source.kind() {
                    io::ErrorKind::PermissionDenied => {
                        "see who may use the socket (the owner and mode of it and its directories)"
                    }
                    _ => advice,
                };
                let detail = format!("{words}: {advice}");
                let kind = match source.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                        ErrorKind::NotFound
                    }
                    io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
                    _ => ErrorKind::Io,
                };
                let source = Some(std::sync::Arc::new(source));
                Error { source, ..Error::new(kind, operation, detail) }
            }
            Self::Violation(_) => {
                let detail = format!("{}: {advice}", self.words());
                Error::new(ErrorKind::Unsupported, operation, detail)
            }
        }
    }
}

/// The same error again; one with its own text keeps its kind and text.
fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None if error.get_ref().is_some() => io::Error::new(error.kind(), error.to_string()),
        None => error.kind().into(),
    }
}
