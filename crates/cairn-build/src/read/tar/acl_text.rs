//! Access control lists as text: `user::rw-,user:1000:r--,group::r--,mask::r--,other::r--`. star
//! adds the number behind a name.

use cairn_vfs::acl::{Acl, Entry, Tag};

/// Parses a list, separated by commas or lines.
pub(super) fn parse(text: &[u8]) -> Result<Acl, String> {
    let text = std::str::from_utf8(text).map_err(|_| "an access list that is not text")?;
    let mut entries = Vec::new();
    for word in text.split([',', '\n']).map(str::trim).filter(|word| !word.is_empty()) {
        // Effective rights may stand behind the entry as a comment.
        let word = word.split(['#', '\t']).next().unwrap_or(word).trim();
        let wrong = || format!("damaged access list: '{}'", word.escape_default());
        let mut parts = word.split(':');
        let (tag, who) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let permissions = parts.next().ok_or_else(wrong)?;
        let mut id = || match parts.next().unwrap_or(who).parse::<u32>() {
            Ok(id) => Ok(id),
            Err(_) => Err(format!(
                "an access list for '{}': archive with numbers, as bsdtar --numeric-owner does",
                who.escape_default()
            )),
        };
        let tag = match (tag, who.is_empty()) {
            ("user" | "u", true) => Tag::UserObj,
            ("group" | "g", true) => Tag::GroupObj,
            ("user" | "u", false) => Tag::User(id()?),
            ("group" | "g", false) => Tag::Group(id()?),
            ("mask" | "m", _) => Tag::Mask,
            ("other" | "o", _) => Tag::Other,
            _ => return Err(wrong()),
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
    Acl::new(entries).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        let gnu = parse(b"user::rw-,user:7:r-x,group::r--,mask::rwx,other::---").unwrap();
        let star = parse(b"user::rw-\nuser:name:r-x:7\ngroup::r--\nmask::rwx\nother::---\n");
        assert_eq!(star.unwrap(), gnu);
        assert_eq!(gnu.entries().len(), 5);
        for wrong in [&b"user::rw-"[..], b"user:name:r--,user::r--,group::r--,other::r--", b"x"] {
            assert!(parse(wrong).is_err());
        }
    }
}
