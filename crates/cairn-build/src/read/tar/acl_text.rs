//! Access control lists as text: `user::rw-,user:1000:r--,group::r--,mask::r--,other::r--`. star
//! adds the number behind a name; a name without a number is looked up in the image.

use cairn_base::names::Escaped;
use cairn_vfs::acl::{Acl, Entry, Tag};

/// Finds the number of a name in `passwd` or `group`.
type FindId<'a> = &'a dyn Fn(&str, &str) -> Option<u32>;

/// Why text is not a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadList {
    /// It is malformed.
    Text(String),
    /// A user or group has no number.
    NoId(String),
}

impl From<String> for BadList {
    fn from(why: String) -> Self {
        Self::Text(why)
    }
}

/// Parses a list, separated by commas or lines.
pub(crate) fn parse(text: &[u8], find: FindId<'_>) -> Result<Acl, BadList> {
    let text =
        std::str::from_utf8(text).map_err(|_| "an access list that is not text".to_owned())?;
    let mut entries = Vec::new();
    for word in text.split([',', '\n']).map(str::trim).filter(|word| !word.is_empty()) {
        // Effective rights may stand behind the entry as a comment.
        let word = word.split(['#', '\t']).next().unwrap_or(word).trim();
        let wrong = || format!("damaged access list: '{}'", word.escaped());
        let mut parts = word.split(':');
        let (tag, who) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let Some(permissions) = parts.next() else { return Err(wrong().into()) };
        let number = parts.next().unwrap_or(who).parse::<u32>().ok();
        let id =
            |file| number.or_else(|| find(file, who)).ok_or_else(|| BadList::NoId(who.to_owned()));
        let tag = match (tag, who.is_empty()) {
            ("user" | "u", true) => Tag::UserObj,
            ("group" | "g", true) => Tag::GroupObj,
            ("user" | "u", false) => Tag::User(id("passwd")?),
            ("group" | "g", false) => Tag::Group(id("group")?),
            ("mask" | "m", _) => Tag::Mask,
            ("other" | "o", _) => Tag::Other,
            _ => return Err(wrong().into()),
        };
        let bit = |letter| match letter {
            'r' => Some(4),
            'w' => Some(2),
            'x' => Some(1),
            '-' => Some(0),
            _ => None,
        };
        let bits: Option<Vec<u8>> = permissions.chars().map(bit).collect();
        let permissions = bits.ok_or_else(wrong)?.into_iter().fold(0, |all, bit| all | bit);
        entries.push(Entry { tag, permissions });
    }
    Ok(Acl::new(entries).map_err(|error| error.to_string())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Result<Acl, BadList> {
        super::parse(text, &|file, name| (file == "passwd" && name == "known").then_some(7))
    }

    #[test]
    fn both_forms() {
        let gnu = parse(b"user::rw-,user:7:r-x,group::r--,mask::rwx,other::---").unwrap();
        let star = parse(b"user::rw-\nuser:name:r-x:7\ngroup::r--\nmask::rwx\nother::---\n");
        assert_eq!(star.unwrap(), gnu);
        let named = parse(b"user::rw-,user:known:r-x,group::r--,mask::rwx,other::---");
        assert_eq!(named.unwrap(), gnu);
        assert_eq!(gnu.entries().len(), 5);
        let unknown = parse(b"user::rw-,group:known:r-x,group::r--,mask::rwx,other::---");
        assert_eq!(unknown, Err(BadList::NoId("known".into())));
        for wrong in [&b"user::rw-"[..], b"user:name:r--,user::r--,group::r--,other::r--", b"x"] {
            assert!(parse(wrong).is_err());
        }
    }
}
