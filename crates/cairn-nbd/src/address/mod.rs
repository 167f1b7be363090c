//! [`Address`]: where an export is, written as a URI.
//!
//! The forms are those of the NBD URI specification (doc/uri.md of the protocol's repository):
//! `nbd://host[:port]/export`, `nbds://…` with TLS, `nbd+unix:///export?socket=PATH` and
//! `nbds+unix://…`. A part of an export (`#2`, `?offset=`) is not of that specification; the caller
//! takes it off first.

mod percent;

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

/// The port that IANA has given to NBD.
pub const DEFAULT_PORT: u16 = 10809;

/// Longest name of an export, in bytes: the limit of every string of the protocol.
pub(crate) const MAX_NAME: usize = 4096;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A host, by name or number, and a port.
    Tcp {
        /// Name or number; an IPv6 number without its brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// A socket in the filesystem.
    Unix(PathBuf),
}

/// How the server must prove who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TlsWish {
    /// A file with the certificates of the authorities that are trusted (PEM), or a directory with
    /// `ca-cert.pem`; without it, the system's.
    pub authorities: Option<PathBuf>,
    /// The name that the server's certificate must have, if it is not the host's.
    pub hostname: Option<String>,
}

/// An export of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The server.
    pub place: Place,
    /// The export's name; empty for the server's default.
    pub export: String,
    /// The connection is encrypted with TLS, or it is refused.
    pub tls: Option<TlsWish>,
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Not one of the four schemes.
    #[error(
        "'{0}' is not an NBD address: it begins with nbd://, nbds://, nbd+unix:// or \
             nbds+unix://"
    )]
    Scheme(String),
    /// A broken `%` sequence.
    #[error("'{0}' has a % without two hexadecimal digits: write the character % as %25")]
    Percent(String),
    /// `nbd://` without a host.
    #[error(
        "the address names no host: write nbd://HOST/EXPORT, or nbd+unix:///EXPORT?socket=PATH"
    )]
    NoHost,
    /// A host that cannot be one.
    #[error("'{0}' is not a host: give a name or a number, an IPv6 number in brackets, as [::1]")]
    Host(String),
    /// A port that is not one.
    #[error("'{0}' is not a port: give a number from 1 to 65535")]
    Port(String),
    /// `user@`.
    #[error("the address names the user '{0}', and Cairn knows no login to NBD: leave it out")]
    User(String),
    /// `nbd+unix://` without `socket=`, or with an empty one.
    #[error("the address names no socket: write nbd+unix:///EXPORT?socket=PATH")]
    NoSocket,
    /// A host where there is none, or a socket where there is none.
    #[error("the address names a host and a socket: nbd:// has a host, nbd+unix:// a socket")]
    HostAndSocket,
    /// A socket without a file.
    #[error("sockets of the abstract namespace are not supported: give the path of a socket")]
    AbstractSocket,
    /// The export's name is no text, or too long.
    #[error("an export's name has at most {MAX_NAME} bytes of UTF-8 without zeros: '{0}' is none")]
    Export(String),
    /// A parameter that is not known, comes twice or has a value that is not supported.
    #[error(
        "'{0}' is not understood: after ? can be socket=PATH, and for nbds:// also \
             tls-certificates=PATH and tls-hostname=NAME, each once, with & between them"
    )]
    Parameter(String),
    /// A wish for TLS without TLS.
    #[error("'{0}' is about TLS, which only nbds:// and nbds+unix:// use: write one of them")]
    NeedsTls(String),
}

#[derive(Default)]
struct Parameters {
    socket: Option<PathBuf>,
    tls: TlsWish,
}

impl Address {
    /// True if `text` begins like an address. It may still be a wrong one.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        scheme(text).is_some()
    }

    /// Reads an address.
    ///
    /// # Errors
    /// What is wrong with it, and what to write.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let (tls, unix, rest) =
            scheme(text).ok_or_else(|| AddressError::Scheme(text.to_owned()))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let parameters = Parameters::parse(query, tls)?;
        let export = percent::decode(path)
            .ok_or_else(|| AddressError::Percent(path.to_owned()))
            .and_then(|bytes| name(bytes, path))?;
        let place = match (unix, parameters.socket) {
            (true, _) if !authority.is_empty() => return Err(AddressError::HostAndSocket),
            (false, Some(_)) => return Err(AddressError::HostAndSocket),
            (true, None) => return Err(AddressError::NoSocket),
            (true, Some(path)) => Place::Unix(path),
            (false, None) => server(authority)?,
        };
        Ok(Self { place, export, tls: tls.then_some(parameters.tls) })
    }
}

/// Whether TLS and a socket are meant, and the rest.
fn scheme(text: &str) -> Option<(bool, bool, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let (tls, unix) = match scheme {
        "nbd" => (false, false),
        "nbds" => (true, false),
        "nbd+unix" => (false, true),
        "nbds+unix" => (true, true),
        _ => return None,
    };
    Some((tls, unix, rest))
}

fn name(bytes: Vec<u8>, written: &str) -> Result<String, AddressError> {
    let wrong = || AddressError::Export(written.to_owned());
    if bytes.len() > MAX_NAME || bytes.contains(&0) {
        return Err(wrong());
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

fn server(authority: &str) -> Result<Place, AddressError> {
    if let Some((user, _)) = authority.rsplit_once('@') {
        return Err(AddressError::User(user.to_owned()));
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) =
                rest.split_once(']').ok_or_else(|| AddressError::Host(authority.to_owned()))?;
            match port.strip_prefix(':') {
                None if !port.is_empty() => return Err(AddressError::Host(authority.to_owned())),
                port => (host, port),
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err(AddressError::NoHost);
    }
    let wrong = || AddressError::Host(host.to_owned());
    let text = percent::decode(host).and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.filter(|text| !text.contains(['\0', '/', '?', '#', '@', '[', ']', ' ']));
    let in_brackets = authority.starts_with('[');
    let text = text.filter(|text| in_brackets == text.contains(':')).ok_or_else(wrong)?;
    let port = match port {
        None | Some("") => DEFAULT_PORT,
        Some(port) => port_of(port).ok_or_else(|| AddressError::Port(port.to_owned()))?,
    };
    Ok(Place::Tcp { host: text, port })
}

fn port_of(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0)
}

impl Parameters {
    fn parse(query: &str, tls: bool) -> Result<Self, AddressError> {
        let mut found = Self::default();
        for item in query.split('&').filter(|item| !item.is_empty()) {
            let unknown = || AddressError::Parameter(item.to_owned());
            let (key, value) = item.split_once('=').ok_or_else(unknown)?;
            let bytes =
                percent::decode(value).ok_or_else(|| AddressError::Percent(value.to_owned()))?;
            if key.starts_with("tls-") && !tls {
                return Err(AddressError::NeedsTls(item.to_owned()));
            }
            match key {
                "socket" if found.socket.is_none() => found.socket = Some(socket(bytes)?),
                "tls-certificates" if found.tls.authorities.is_none() && !bytes.is_empty() => {
                    found.tls.authorities = Some(OsString::from_vec(bytes).into());
                }
                "tls-hostname" if found.tls.hostname.is_none() && !bytes.is_empty() => {
                    let name = String::from_utf8(bytes).map_err(|_| unknown())?;
                    found.tls.hostname = Some(name);
                }
                // What is done in any case.
                "tls-type" if bytes == b"x509" => {}
                "tls-verify-peer" if bytes == b"1" => {}
                _ => return Err(unknown()),
            }
        }
        Ok(found)
    }
}

fn socket(bytes: Vec<u8>) -> Result<PathBuf, AddressError> {
    match bytes.first() {
        None => Err(AddressError::NoSocket),
        Some(0) => Err(AddressError::AbstractSocket),
        Some(_) => Ok(OsString::from_vec(bytes).into()),
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Display for Address {
    /// The text that [`Address::parse`] reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls.is_some() { "nbds" } else { "nbd" })?;
        let mut parameters = Vec::new();
        match &self.place {
            Place::Tcp { host, port } => {
                match host.contains(':') {
                    true => {
                        write!(f, "://[{}]", percent::encode(host.as_bytes()).replace("%3A", ":"))?
                    }
                    false => write!(f, "://{}", percent::encode(host.as_bytes()))?,
                }
                if *port != DEFAULT_PORT {
                    write!(f, ":{port}")?;
                }
            }
            Place::Unix(path) => {
                f.write_str("+unix://")?;
                parameters.push(("socket", percent::encode(path.as_os_str().as_bytes())));
            }
        }
        write!(f, "/{}", percent::encode(self.export.as_bytes()))?;
        if let Some(tls) = &self.tls {
            let path = tls.authorities.as_ref();
            let path = path.map(|path| percent::encode(path.as_os_str().as_bytes()));
            let name = tls.hostname.as_ref().map(|name| percent::encode(name.as_bytes()));
            parameters.extend(path.map(|path| ("tls-certificates", path)));
            parameters.extend(name.map(|name| ("tls-hostname", name)));
        }
        for (number, (key, value)) in parameters.iter().enumerate() {
            write!(f, "{}{key}={value}", if number == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
