//! [`Address`]: where a volume is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use cairn_base::names::Escaped;

/// The name of the volume of an address without one.
pub const MAIN: &str = "main";
/// Most bytes of a volume's name.
const LONGEST_NAME: usize = 64;

/// Where the objects are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// S3 and what speaks its protocol.
    S3 {
        /// The bucket.
        bucket: String,
        /// What all names begin with, without a slash at its end; may be empty.
        prefix: String,
    },
    /// Google Cloud Storage.
    Gs {
        /// The bucket.
        bucket: String,
        /// As above.
        prefix: String,
    },
    /// Azure Blob Storage.
    Az {
        /// The container.
        container: String,
        /// As above.
        prefix: String,
    },
    /// A directory of the host, from `/` on.
    Directory(PathBuf),
}

/// A volume in a store: `s3://bucket/prefix@name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The pool.
    pub place: Place,
    /// The volume.
    pub volume: String,
}

/// A text that is no address of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAddress(String);

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadAddress {}

/// The schemes, each with an example.
const SCHEMES: [(&str, &str); 4] = [
    ("s3://", "s3://bucket/prefix"),
    ("gs://", "gs://bucket/prefix"),
    ("az://", "az://container/prefix"),
    ("file-store://", "file-store:///directory"),
];

/// True if a text has one of the schemes of object volumes.
#[must_use]
pub fn is_address(text: &str) -> bool {
    SCHEMES.iter().any(|(scheme, _)| text.starts_with(scheme))
}

/// Checks a volume's name.
///
/// # Errors
/// It is empty, too long, or has other characters than names may have.
pub fn check_name(name: &str) -> Result<(), BadAddress> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let first = name.bytes().next().is_some_and(good);
    let rest = name.bytes().all(|byte| good(byte) || b"._-".contains(&byte));
    if first && rest && name.len() <= LONGEST_NAME {
        return Ok(());
    }
    Err(BadAddress(format!(
        "'{}' is no name of a volume: use at most {LONGEST_NAME} of a-z, 0-9, '.', '_' and \
         '-', and begin with a letter or a digit",
        name.escaped()
    )))
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// The scheme is another one, the bucket or the directory is missing, or the volume's name is
    /// none.
    pub fn parse(text: &str) -> Result<Self, BadAddress> {
        let scheme = SCHEMES.iter().find(|(scheme, _)| text.starts_with(scheme));
        let shown = text.escaped();
        let Some((scheme, example)) = scheme else {
            let all: Vec<_> = SCHEMES.iter().map(|(_, example)| *example).collect();
            let all = all.join(", ");
            return Err(BadAddress(format!("'{shown}' is no address of a store: use {all}")));
        };
        let bad = |what: &str| BadAddress(format!("'{shown}' {what}: write {example}"));
        let rest = &text[scheme.len()..];
        // An @ in the midst of a path is part of it.
        let (rest, volume) = match rest.rsplit_once('@') {
            Some((rest, volume)) if !volume.contains('/') => (rest, volume),
            _ => (rest, MAIN),
        };
        check_name(volume)?;
        if *scheme == "file-store://" {
            if !rest.starts_with('/') || rest.trim_matches('/').is_empty() {
                return Err(bad("has no directory from / on"));
            }
            let directory = PathBuf::from(rest.trim_end_matches('/'));
            return Ok(Self { place: Place::Directory(directory), volume: volume.to_owned() });
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        if bucket.is_empty() {
            return Err(bad("names no bucket"));
        }
        if prefix.starts_with('/') || prefix.contains("//") {
            return Err(bad("has an empty part in its prefix"));
        }
        if prefix.split('/').any(|part| part == "." || part == "..") {
            return Err(bad("has a part '.' or '..', which stores do not follow"));
        }
        let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
        let place = match *scheme {
            "s3://" => Place::S3 { bucket, prefix },
            "gs://" => Place::Gs { bucket, prefix },
            _ => Place::Az { container: bucket, prefix },
        };
        Ok(Self { place, volume: volume.to_owned() })
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        Self::parse(text)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, bucket, prefix) = match self {
            Self::S3 { bucket, prefix } => ("s3", bucket, prefix),
            Self::Gs { bucket, prefix } => ("gs", bucket, prefix),
            Self::Az { container, prefix } => ("az", container, prefix),
            Self::Directory(path) => return write!(f, "file-store://{}", path.display()),
        };
        let slash = if prefix.is_empty() { "" } else { "/" };
        write!(f, "{scheme}://{bucket}{slash}{prefix}")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)?;
        let shown = self.volume != MAIN || self.place.to_string().contains('@');
        if shown { write!(f, "@{}", self.volume) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for text in [
            "s3://bucket/a/b",
            "s3://bucket",
            "gs://bucket/a@web-1",
            "az://box/p@2026.snap",
            "file-store:///srv/pool",
            "file-store:///srv/pool@x",
            "file-store:///srv/a@b/pool@x",
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert!(is_address(text));
        }
        let same = |one: &str, other: &str| {
            assert_eq!(Address::parse(one), Address::parse(other), "{one}");
        };
        same("s3://bucket/a/", "s3://bucket/a@main");
        same("file-store:///srv/pool/", "file-store:///srv/pool@main");
        let directory = Address::parse("file-store:///srv/a@b/pool").unwrap();
        assert_eq!(directory.volume, MAIN);
        assert_eq!(Address::parse(&directory.to_string()), Ok(directory));
    }

    #[test]
    fn what_is_no_address_says_how_one_looks() {
        for (text, said) in [
            ("disk.img", "use s3://bucket/prefix, gs://"),
            ("s3://", "names no bucket: write s3://bucket/prefix"),
            ("s3:///a", "names no bucket"),
            ("gs://bucket//a", "empty part"),
            ("az://box/a/../b", "'..'"),
            ("file-store://srv/pool", "no directory from / on: write file-store:///directory"),
            ("file-store:///", "no directory"),
            ("s3://bucket/a@", "no name of a volume"),
            ("s3://bucket/a@UP", "use at most 64"),
            ("s3://bucket/a@-x", "begin with a letter"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
