//! Digests of the parts of container images, as an index has them: `sha256:` and hexadecimal
//! digits.

use std::fmt;
use std::io::{self, Read};

use sha2::digest::DynDigest;
use sha2::{Digest as _, Sha256, Sha512};

/// Bytes read at a time.
const PIECE: usize = 1 << 18;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sha256,
    Sha512,
}

/// A digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    kind: Kind,
    hex: String,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    fn digits(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

impl Digest {
    /// Parses a digest.
    ///
    /// # Errors
    /// It is none, or of a kind that cannot be compared.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        const NONE: &str = "is not a digest";
        let (kind, hex) = text.split_once(':').ok_or(NONE)?;
        let kind = match kind {
            "sha256" => Kind::Sha256,
            "sha512" => Kind::Sha512,
            "" => return Err(NONE),
            other if !other.bytes().all(|byte| byte.is_ascii_alphanumeric()) => return Err(NONE),
            _ => return Err("is a digest that cannot be compared: copy the image with sha256"),
        };
        let is_hex = hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match is_hex && hex.len() == kind.digits() {
            true => Ok(Self { kind, hex: hex.to_owned() }),
            false => Err(NONE),
        }
    }

    /// The digest that names a file, as `blobs/sha256/…`, or `….json` in older archives.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let hex = name.strip_prefix("blobs/sha256/").or_else(|| name.strip_suffix(".json"))?;
        Self::parse(&format!("sha256:{hex}")).ok()
    }

    /// Where a layout has the blob with this digest.
    pub(super) fn blob(&self) -> String {
        format!("blobs/{}/{}", self.kind.name(), self.hex)
    }

    /// Reads a blob to its end. If it is another one: what is wrong with it.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn difference(&self, blob: &mut dyn Read) -> io::Result<Option<String>> {
        let mut sum = self.sum();
        let mut piece = vec![0; PIECE];
        loop {
            match blob.read(&mut piece) {
                Ok(0) => return Ok(self.other(sum)),
                Ok(count) => sum.update(piece.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Begins to compute a digest of the same kind.
    pub(super) fn sum(&self) -> Sum {
        Sum(match self.kind {
            Kind::Sha256 => Box::new(Sha256::new()),
            Kind::Sha512 => Box::new(Sha512::new()),
        })
    }

    /// What is wrong, if the digest that was computed is another one.
    pub(super) fn other(&self, sum: Sum) -> Option<String> {
        let hex: String = sum.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let kind = self.kind.name();
        let why = || format!("has changed: its digest is {kind}:{hex}: fetch or make it again");
        (hex != self.hex).then(why)
    }

    /// True if both are of the same kind, and equal bytes have equal ones.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

/// A digest that is being computed.
pub(super) struct Sum(Box<dyn DynDigest>);

impl Sum {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.hex)
    }
}
