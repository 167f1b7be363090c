//! The pseudo-files of mksquashfs (`-p`, `-pf`): `NAME TYPE MODE UID GID …`. The types are `d`,
//! `m` (modify), `b`, `c`, `s` (symbolic link), `i` (socket or FIFO) and `x` (extended attribute);
//! as capital letters they have a time before the mode.

use std::borrow::Cow;

use cairn_vfs::Timestamp;

use super::entry::{Act, Changes, Entry, Missing, New, There};
use super::words::{self, Parsed, shown};
use crate::path::MemberPath;

/// True if a line may have this form.
pub(super) fn is_line(line: &[u8]) -> bool {
    let Ok((_, rest)) = name(line) else { return false };
    let mut fields = words::fields(rest);
    let kind = fields.next().unwrap_or_default();
    match kind {
        [b'd' | b'm' | b'b' | b'c' | b'f' | b's' | b'i'] => {
            fields.next().is_some_and(|mode| words::permissions(mode).is_ok())
        }
        [b'D' | b'M' | b'B' | b'C' | b'F' | b'S' | b'I' | b'R' | b'l' | b'L'] => {
            fields.next().is_some()
        }
        b"x" => fields.next().is_some_and(|word| word.contains(&b'=')),
        _ => false,
    }
}

/// The entries of a file.
///
/// # Errors
/// The number of a line that cannot be read, and why.
pub(super) fn parse(text: &[u8]) -> Result<Vec<Entry>, (usize, String)> {
    let lines = words::joined(text);
    lines.iter().map(|(number, line)| entry(*number, line).map_err(|why| (*number, why))).collect()
}

/// The name, which may be quoted, and what is behind it.
fn name(line: &[u8]) -> Parsed<(Cow<'_, [u8]>, &[u8])> {
    let line = line.trim_ascii_start();
    let quoted = line.first() == Some(&b'"');
    let mut rest = if quoted { line.get(1..).unwrap_or_default() } else { line };
    let mut name = Vec::new();
    while let Some((first, behind)) = rest.split_first() {
        match first {
            b'\\' => {
                let (byte, behind) = behind.split_first().ok_or("the name ends in a backslash")?;
                name.push(*byte);
                rest = behind;
                continue;
            }
            b'"' if quoted => return Ok((name.into(), behind)),
            byte if !quoted && byte.is_ascii_whitespace() => return Ok((name.into(), behind)),
            byte => name.push(*byte),
        }
        rest = behind;
    }
    if quoted {
        return Err("the name has no closing quote".into());
    }
    Ok((name.into(), rest))
}

fn entry(line: usize, text: &[u8]) -> Parsed<Entry> {
    let (name, mut rest) = name(text)?;
    let path = MemberPath::relative(&name)?;
    let mut field = |what: &str| -> Parsed<&[u8]> {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        rest = behind;
        if word.is_empty() { Err(format!("it has no {what}")) } else { Ok(word) }
    };
    let kind = field("type")?;
    let (kind, timed) = match kind {
        [letter] => (letter.to_ascii_lowercase(), letter.is_ascii_uppercase()),
        other => return Err(format!("there is no type {}", shown(other))),
    };
    match kind {
        b'x' if !timed => {
            let set = attribute(rest.trim_ascii())?;
            let act = Act::Change { kind: None, below: false, missing: Missing::Error };
            return Ok(Entry { line, path, act, set });
        }
        b'd' | b'm' | b'b' | b'c' | b's' | b'i' => {}
        b'f' => return Err(refused("the file comes from a command")),
        b'l' => return Err(refused("the file comes from another place")),
        b'r' if timed => return Err(refused("the contents stand behind the definitions")),
        _ => return Err(format!("there is no type {}", shown(&[kind]))),
    }
    let mtime = if timed { Some(time(field("time")?)?) } else { None };
    let set = Changes {
        mtime,
        permissions: Some(words::permissions(field("mode")?)?),
        uid: Some(words::owner(field("owner")?)?),
        gid: Some(words::owner(field("group")?)?),
        ..Changes::default()
    };
    let mut device = || {
        let (major, minor) = (field("major number")?, field("minor number")?);
        words::device(words::small(major)?, words::small(minor)?)
    };
    let new = match kind {
        b'm' => {
            let act = Act::Change { kind: None, below: false, missing: Missing::Warn };
            return Ok(Entry { line, path, act, set });
        }
        b'b' => New::BlockDevice(device()?),
        b'c' => New::CharDevice(device()?),
        b's' => match rest.trim_ascii() {
            b"" => return Err("a symbolic link without a target".into()),
            target => New::Symlink(target.to_vec()),
        },
        b'i' => match rest.trim_ascii() {
            b"s" => New::Socket,
            b"f" => New::Fifo,
            other => return Err(format!("{} is neither s (socket) nor f (FIFO)", shown(other))),
        },
        _ => New::Directory,
    };
    if !matches!(kind, b's' | b'i') && !rest.trim_ascii().is_empty() {
        return Err(format!("{} is too much", shown(rest.trim_ascii())));
    }
    Ok(Entry { line, path, act: Act::Put { new, there: There::Keep }, set })
}

fn refused(why: &str) -> String {
    format!("{why}, which Cairn does not take: put the file into a source instead")
}

/// Seconds since 1970.
fn time(word: &[u8]) -> Parsed<Timestamp> {
    let seconds = words::small(word).map_err(|_| {
        format!("{} is no time: give seconds since 1970, as date +%s prints them", shown(word))
    })?;
    Ok(Timestamp { seconds: seconds.into(), nanoseconds: 0 })
}

/// `NAME=VALUE`: text, `0x` and hexadecimal digits, `0s` and base64, or `0t` and text with `\ooo`.
fn attribute(word: &[u8]) -> Parsed<Changes> {
    let wrong = || format!("{} is no attribute NAME=VALUE", shown(word));
    let equals = word.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
    let (name, value) = word.split_at(equals);
    let value = value.get(1..).unwrap_or_default();
    let is_known = [&b"user."[..], b"trusted.", b"security.", b"system."]
        .iter()
        .any(|prefix| name.strip_prefix(*prefix).is_some_and(|rest| !rest.is_empty()));
    if !is_known || name.len() > 255 || name.contains(&0) {
        return Err(format!("the attribute {} is not possible", shown(name)));
    }
    let value = match value {
        [b'0', b'x' | b'X', digits @ ..] => match digits.len().is_multiple_of(2) {
            true => digits.chunks(2).map(words::hex_byte).collect(),
            false => None,
        },
        [b'0', b's' | b'S', text @ ..] => crate::base64::decode(text),
        [b'0', b't' | b'T', text @ ..] => octal_escapes(text),
        text => Some(text.to_vec()),
    };
    let mut set = Changes::default();
    set.set_xattr(name, value.filter(|value| value.len() <= 65_536).ok_or_else(wrong)?);
    Ok(set)
}

fn octal_escapes(text: &[u8]) -> Option<Vec<u8>> {
    words::unescaped(text, |escape| match escape.first()? {
        b'\\' => Some((b'\\', 1)),
        _ => {
            let byte = words::octal(escape.get(..3)?, 0o377).ok()?;
            Some((u8::try_from(byte).ok()?, 3))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::entry::Id;

    #[test]
    fn all_kinds_of_lines() {
        let text = b"/dev d 755 0 root\n\"a b\" m 4755 5 6\nc\\ d s 777 0 0 to a place\n\
            dev/null c 666 0 0 1 3\npipe i 600 0 0 f\nD D 77 700 0 0\nx x user.a=0x6162\n\
            x x user.b=0sYWI=\nx x user.c=0ta\\142\n";
        let entries = parse(text).unwrap();
        let at = |index: usize| &entries[index];
        assert!(matches!(at(0).act, Act::Put { new: New::Directory, there: There::Keep }));
        assert_eq!((at(1).path.bytes(), &at(1).set.uid), (b"a b".to_vec(), &Some(Id::Number(5))));
        assert!(
            matches!(&at(2).act, Act::Put { new: New::Symlink(to), .. } if to == b"to a place")
        );
        assert!(matches!(at(3).act, Act::Put { new: New::CharDevice(0x103), .. }));
        assert!(matches!(at(4).act, Act::Put { new: New::Fifo, .. }));
        assert_eq!(at(5).set.mtime, Some(Timestamp { seconds: 77, nanoseconds: 0 }));
        for entry in &entries[6..] {
            assert_eq!(&*entry.set.xattrs[0].value, b"ab");
        }
    }

    #[test]
    fn lines_that_cannot_be_read() {
        for (wrong, why) in [
            (&b"a d 999 0 0"[..], "octal"),
            (b"a d 755 0", "group"),
            (b"a q 755 0 0", "'q'"),
            (b"a f 644 0 0 date", "command"),
            (b"a b 644 0 0 1", "minor"),
            (b"\"a d 755 0 0", "quote"),
            (b"a d 755 0 0 1", "too much"),
            (b"a i 755 0 0 x", "socket"),
            (b"a D now 755 0 0", "1970"),
            (b"a x user.a=0xabc", "NAME=VALUE"),
            (b"a x colour=0xab", "not possible"),
            (b"../a d 755 0 0", "'..'"),
        ] {
            let (line, said) = parse(wrong).unwrap_err();
            assert!(line == 1 && said.contains(why), "{}: {said}", wrong.escape_ascii());
        }
    }
}
