//! How the names of a directory are stored: as they are shown, by another form of their letters, or
//! encrypted. The hash of a name follows from that.

use cairn_vfs::Name;

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
            // It has no other form.
            Self::Folded if std::str::from_utf8(name).is_err() => Some(name_hash(name)),
            _ => None,
        }
    }

    /// The one name with this hash that differs from the given one in a single byte: what it was
    /// before that byte was damaged.
    pub(crate) fn with_hash(self, name: &[u8], hash: u32) -> Option<Vec<u8>> {
        if self != Self::Plain {
            return None;
        }
        let mut found = None;
        for (at, own) in name.iter().enumerate() {
            for byte in (0..=u8::MAX).filter(|byte| byte != own) {
                let mut near = name.to_vec();
                near.get_mut(at).into_iter().for_each(|place| *place = byte);
                if name_hash(&near) == hash && Name::check(&near).is_ok() {
                    if found.is_some() {
                        return None;
                    }
                    found = Some(near);
                }
            }
        }
        found
    }

    /// The hash that an entry of this name gets when Cairn makes it. `None` where it makes no such
    /// entry: it encrypts no names, and knows other forms of ASCII letters only.
    pub(crate) fn hash_of_new(self, name: &[u8]) -> Option<u32> {
        match self {
            Self::Encrypted { .. } => None,
            Self::Folded if !name.is_ascii() => None,
            names => names.hash(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_byte_of_a_name_is_corrected_by_the_hash() {
        for name in [&b"f1"[..], &[b'x'; 255], "déjà".as_bytes()] {
            for (at, byte) in [(0, b'/'), (name.len() - 1, b'!'), (name.len() / 2, 0)] {
                let mut damaged = name.to_vec();
                damaged[at] = byte;
                let found = Names::Plain.with_hash(&damaged, name_hash(name));
                assert_eq!(found.as_deref(), Some(name), "byte {at} is {byte}");
            }
        }
        assert_eq!(Names::Plain.with_hash(b"f1", name_hash(b"g2")), None, "two bytes");
        assert_eq!(Names::Folded.with_hash(b"f!", name_hash(b"f1")), None);
    }
}
