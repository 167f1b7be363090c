//! How the names of a directory are stored: as they are shown, by another form of their letters, or
//! encrypted. The hash of a name follows from that.

use crate::format::hash::name_hash;
use crate::format::inode::{Advise, FileFlags};
use crate::format::{Features, Inode};

/// What is known of the names of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// As they are shown.
    Plain,
    /// The directory ignores case.
    Folded,
    /// Encrypted. `hashed` if the hash is that of the encrypted name.
    Encrypted { hashed: bool },
}

impl Names {
    pub(crate) fn of(record: &Inode, features: Features) -> Self {
        let folds =
            record.flags.contains(FileFlags::CASEFOLD) && features.contains(Features::CASEFOLD);
        match (record.advise.contains(Advise::ENCRYPT), folds) {
            (true, folds) => Self::Encrypted { hashed: !folds },
            (false, true) => Self::Folded,
            (false, false) => Self::Plain,
        }
    }

    /// Do several names lead to one entry?
    pub(crate) const fn ignore_case(self) -> bool {
        matches!(self, Self::Folded | Self::Encrypted { hashed: false })
    }

    /// Is the stored name the wanted one, as far as Cairn knows?
    pub(crate) fn are_equal(self, stored: &[u8], wanted: &[u8]) -> bool {
        match self {
            Self::Folded => stored.eq_ignore_ascii_case(wanted),
            _ => stored == wanted,
        }
    }

    /// The hash that a name must have, if that is known.
    pub(crate) fn hash(self, name: &[u8]) -> Option<u32> {
        match self {
            Self::Plain | Self::Encrypted { hashed: true } => Some(name_hash(name)),
            Self::Folded if name.is_ascii() => Some(name_hash(&name.to_ascii_lowercase())),
            _ => None,
        }
    }

    /// The hash that an entry of this name gets when Cairn makes it. `None` where it makes no such
    /// entry: it encrypts no names, and knows other forms of ASCII letters only.
    pub(crate) fn hash_of_new(self, name: &[u8]) -> Option<u32> {
        match self {
            Self::Encrypted { .. } => None,
            names => names.hash(name),
        }
    }
}
