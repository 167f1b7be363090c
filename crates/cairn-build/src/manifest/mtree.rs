//! mtree(5): the specifications of the BSDs, and what libarchive writes (`bsdtar --format=mtree`).
//!
//! A name without a slash is in the current directory, which a directory becomes that is named so;
//! `..` leaves it. A name with a slash begins at the root. `/set` gives what the names after it
//! have unless they say otherwise.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use cairn_vfs::{FileKind, Timestamp};

use super::entry::{Act, Changes, Entry, Missing, New, There};
use super::words::{self, Parsed, shown};
use crate::path::MemberPath;

/// Keywords that say nothing of what an image stores, or repeat it.
const WITHOUT_EFFECT: &[&[u8]] = &[
    b"cksum",
    b"flags",
    b"ignore",
    b"ino",
    b"inode",
    b"md5",
    b"md5digest",
    b"nlink",
    b"resdevice",
    b"ripemd160digest",
    b"rmd160",
    b"rmd160digest",
    b"sha1",
    b"sha1digest",
    b"sha256",
    b"sha256digest",
    b"sha384",
    b"sha384digest",
    b"sha512",
    b"sha512digest",
    b"size",
    b"tags",
];

/// What a line says, in the words of the file.
#[derive(Clone, Copy, Default)]
struct Keywords<'a> {
    kind: Option<&'a [u8]>,
    mode: Option<&'a [u8]>,
    uid: Option<&'a [u8]>,
    gid: Option<&'a [u8]>,
    uname: Option<&'a [u8]>,
    gname: Option<&'a [u8]>,
    time: Option<&'a [u8]>,
    device: Option<&'a [u8]>,
    link: Option<&'a [u8]>,
    contents: Option<&'a [u8]>,
    optional: bool,
    nochange: bool,
}

impl<'a> Keywords<'a> {
    fn place(&mut self, keyword: &[u8]) -> Option<&mut Option<&'a [u8]>> {
        Some(match keyword {
            b"type" => &mut self.kind,
            b"mode" => &mut self.mode,
            b"uid" => &mut self.uid,
            b"gid" => &mut self.gid,
            b"uname" => &mut self.uname,
            b"gname" => &mut self.gname,
            b"time" => &mut self.time,
            b"device" => &mut self.device,
            b"link" => &mut self.link,
            b"contents" => &mut self.contents,
            _ => return None,
        })
    }

    fn add(&mut self, word: &'a [u8]) -> Parsed<()> {
        let equals = word.iter().position(|byte| *byte == b'=').unwrap_or(word.len());
        let (keyword, value) = word.split_at(equals);
        let value = value.strip_prefix(b"=");
        match keyword {
            b"optional" => self.optional = true,
            b"nochange" => self.nochange = true,
            _ => match self.place(keyword) {
                Some(place) => {
                    let value = value.filter(|value| !value.is_empty());
                    *place = Some(value.ok_or_else(|| format!("{} has no value", shown(keyword)))?);
                }
                None if WITHOUT_EFFECT.contains(&keyword) => {}
                None => return Err(format!("the keyword {} is not known", shown(keyword))),
            },
        }
        Ok(())
    }

    fn remove(&mut self, keyword: &[u8]) -> Parsed<()> {
        match keyword {
            b"all" => *self = Self::default(),
            b"optional" => self.optional = false,
            b"nochange" => self.nochange = false,
            _ => match self.place(keyword) {
                Some(place) => *place = None,
                None if WITHOUT_EFFECT.contains(&keyword) => {}
                None => return Err(format!("the keyword {} is not known", shown(keyword))),
            },
        }
        Ok(())
    }
}

/// True if a line of a file says that it has this form.
pub(super) fn is_line(line: &[u8]) -> bool {
    let mut fields = words::fields(line);
    match fields.next() {
        Some(b"/set" | b"/unset") => true,
        Some(name) if name != b"." && !name.contains(&b'/') && name.contains(&b'=') => false,
        Some(_) => fields.next().is_some_and(|word| {
            let equals = word.iter().position(|byte| *byte == b'=');
            let keyword = equals.and_then(|at| word.get(..at)).unwrap_or(word);
            Keywords::default().place(keyword).is_some()
                || matches!(keyword, b"optional" | b"nochange")
                || WITHOUT_EFFECT.contains(&keyword)
        }),
        None => false,
    }
}

/// The entries of a file.
///
/// # Errors
/// The number of a line that cannot be read, and why.
pub(super) fn parse(text: &[u8]) -> Result<Vec<Entry>, (usize, String)> {
    let lines = words::joined(text);
    let mut entries = Vec::new();
    let mut defaults = Keywords::default();
    let mut directory = MemberPath::default();
    for (number, line) in &lines {
        let at_line = |why| (*number, why);
        let line: &Cow<'_, [u8]> = line;
        let mut fields = words::fields(line);
        match fields.next() {
            Some(b"/set") => {
                fields.try_for_each(|word| defaults.add(word)).map_err(at_line)?;
            }
            Some(b"/unset") => {
                fields.try_for_each(|word| defaults.remove(word)).map_err(at_line)?;
            }
            Some(b"..") => directory = directory.parent(),
            Some(name) => {
                let mut says = defaults;
                fields.try_for_each(|word| says.add(word)).map_err(at_line)?;
                let path = path(name, &directory).map_err(at_line)?;
                if says.kind == Some(b"dir") && !name.contains(&b'/') {
                    directory = path.clone();
                }
                let (act, set) = entry(&says).map_err(at_line)?;
                entries.push(Entry { line: *number, path, act, set });
            }
            None => {}
        }
    }
    Ok(entries)
}

fn path(name: &[u8], directory: &MemberPath) -> Parsed<MemberPath> {
    if name == b"." {
        return Ok(directory.clone());
    }
    let name = unescaped(name).ok_or_else(|| format!("{} has a wrong escape", shown(name)))?;
    if name.contains(&b'/') { MemberPath::relative(&name) } else { directory.join(&name) }
}

/// What a line asks for.
fn entry(says: &Keywords<'_>) -> Parsed<(Act, Changes)> {
    let missing = if says.optional { Missing::Ignore } else { Missing::Error };
    let kind = says.kind.map(kind).transpose()?;
    let change = Act::Change { kind, below: false, missing };
    if says.nochange {
        return Ok((change, Changes::default()));
    }
    // A number says more than a name.
    let owner = |id: Option<&[u8]>, name: Option<&[u8]>| match (id, name) {
        (Some(id), _) => words::id(id).map(|id| Some(super::entry::Id::Number(id))),
        (None, Some(name)) => {
            let name = unescaped(name).ok_or_else(|| format!("{} is no name", shown(name)))?;
            words::owner(&name).map(Some)
        }
        (None, None) => Ok(None),
    };
    let set = Changes {
        permissions: says.mode.map(words::permissions).transpose()?,
        uid: owner(says.uid, says.uname)?,
        gid: owner(says.gid, says.gname)?,
        mtime: says.time.map(time).transpose()?,
        ..Changes::default()
    };
    let device = || {
        let device = says.device.ok_or("a device needs device=, as in device=native,1,3")?;
        device_of(device)
    };
    let new = match kind {
        Some(FileKind::Directory) => New::Directory,
        Some(FileKind::CharDevice) => New::CharDevice(device()?),
        Some(FileKind::BlockDevice) => New::BlockDevice(device()?),
        Some(FileKind::Fifo) => New::Fifo,
        Some(FileKind::Socket) => New::Socket,
        Some(FileKind::Symlink) => {
            let link = says.link.ok_or("a symbolic link needs link=")?;
            let target = unescaped(link);
            New::Symlink(target.ok_or_else(|| format!("{} has a wrong escape", shown(link)))?)
        }
        Some(FileKind::Regular) if says.contents.is_some() => {
            let contents = says.contents.unwrap_or_default();
            let path = unescaped(contents);
            let path = path.ok_or_else(|| format!("{} has a wrong escape", shown(contents)))?;
            return Ok((
                Act::Put { new: New::Host(OsString::from_vec(path).into()), there: There::Replace },
                set,
            ));
        }
        Some(FileKind::Regular) | None => return Ok((change, set)),
    };
    match says.optional {
        true => Ok((change, set)),
        false => Ok((Act::Put { new, there: There::Restate }, set)),
    }
}

fn kind(word: &[u8]) -> Parsed<FileKind> {
    Ok(match word {
        b"file" => FileKind::Regular,
        b"dir" => FileKind::Directory,
        b"link" => FileKind::Symlink,
        b"char" => FileKind::CharDevice,
        b"block" => FileKind::BlockDevice,
        b"fifo" => FileKind::Fifo,
        b"socket" => FileKind::Socket,
        other => {
            let shown = shown(other);
            let known = "block, char, dir, fifo, file, link and socket";
            return Err(format!("there is no type {shown}: the types are {known}"));
        }
    })
}

/// `SECONDS[.NANOSECONDS]`: what stands behind the point is a whole number, not a fraction.
fn time(word: &[u8]) -> Parsed<Timestamp> {
    let wrong = || format!("{} is not a time", shown(word));
    let text = std::str::from_utf8(word).map_err(|_| wrong())?;
    let (seconds, nanoseconds) = text.split_once('.').unwrap_or((text, "0"));
    let seconds = seconds.parse().map_err(|_| wrong())?;
    let nanoseconds = words::small(nanoseconds.as_bytes()).map_err(|_| wrong())?;
    if nanoseconds > 999_999_999 {
        return Err(wrong());
    }
    Ok(Timestamp { seconds, nanoseconds })
}

/// `FORMAT,MAJOR,MINOR`, or a number.
fn device_of(word: &[u8]) -> Parsed<u32> {
    let mut parts = word.split(|byte| *byte == b',');
    let number = |digits: &[u8]| match digits.starts_with(b"0x") {
        true => words::hexadecimal(digits),
        false => words::decimal(digits),
    };
    let part = |digits: &[u8]| {
        u32::try_from(number(digits)?).map_err(|_| format!("{} is too large", shown(digits)))
    };
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(whole), None, ..) => words::device_number(number(whole)?),
        (Some(_), Some(major), Some(minor), None) => words::device(part(major)?, part(minor)?),
        _ => Err(format!("{} is no device: give FORMAT,MAJOR,MINOR", shown(word))),
    }
}

/// Undoes vis(3): a backslash and three octal digits or a letter; `\M` sets the highest bit, `\^`
/// makes a control character.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    words::unescaped(text, |escape| match *escape {
        [a @ b'0'..=b'7', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
            let byte = u32::from(a - b'0') << 6 | u32::from(b - b'0') << 3 | u32::from(c - b'0');
            Some((u8::try_from(byte).ok()?, 3))
        }
        [b'a', ..] => Some((7, 1)),
        [b'b', ..] => Some((8, 1)),
        [b't', ..] => Some((b'\t', 1)),
        [b'n', ..] => Some((b'\n', 1)),
        [b'v', ..] => Some((11, 1)),
        [b'f', ..] => Some((12, 1)),
        [b'r', ..] => Some((b'\r', 1)),
        [b's', ..] => Some((b' ', 1)),
        [b'0', ..] => Some((0, 1)),
        [mark @ (b'\\' | b'#' | b'=' | b'"' | b'\'' | b'*' | b'?' | b'['), ..] => Some((mark, 1)),
        [b'M', b'-', low, ..] => Some((low | 0x80, 3)),
        [b'M', b'^', b'?', ..] => Some((0xff, 3)),
        [b'M', b'^', low, ..] => Some(((low & 0x1f) | 0x80, 3)),
        [b'^', b'?', ..] => Some((0x7f, 2)),
        [b'^', low, ..] => Some((low & 0x1f, 2)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::entry::Id;

    fn paths(text: &[u8]) -> Vec<String> {
        let entries = parse(text).unwrap_or_else(|(line, why)| panic!("line {line}: {why}"));
        entries.iter().map(|entry| entry.path.bytes().escape_ascii().to_string()).collect()
    }

    #[test]
    fn names_are_relative_or_whole() {
        let text =
            b"#mtree\n. type=dir\n  bin type=dir\n    ls type=file \\\n      mode=755\n  ..\n\
            etc type=dir\n..\n..\n./a/b\\040c type=file\nx type=file\n";
        assert_eq!(paths(text), ["", "bin", "bin/ls", "etc", "a/b c", "x"]);
    }

    #[test]
    fn what_set_says_holds_until_it_is_unset() {
        let text =
            b"/set type=file uid=5 mode=0644\na\nb uid=6 time=1.5\n/unset uid\nc uname=daemon\n";
        let entries = parse(text).unwrap();
        let ids: Vec<_> = entries.iter().map(|entry| entry.set.uid.clone()).collect();
        let name = Id::Name((*b"daemon").into());
        assert_eq!(ids, [Some(Id::Number(5)), Some(Id::Number(6)), Some(name)]);
        assert_eq!(entries[1].set.mtime, Some(Timestamp { seconds: 1, nanoseconds: 5 }));
    }

    #[test]
    fn lines_that_cannot_be_read_have_their_number() {
        for (wrong, why) in [
            (&b"a type=file\nb colour=red"[..], "colour"),
            (b"a\nb type=door", "door"),
            (b"a\nb mode=9", "'9'"),
            (b"a\nb mode=u+x", "octal"),
            (b"a\nb type=char", "device="),
            (b"a\nb type=link", "link="),
            (b"a\n../b type=dir", "'..'"),
            (b"a\nb\\8 type=file", "escape"),
            (b"a\nb uid=", "no value"),
            (b"a\nb time=1.1000000000", "time"),
            (b"a\nb type=block device=native,1", "FORMAT,MAJOR,MINOR"),
        ] {
            let (line, said) = parse(wrong).unwrap_err();
            assert!(line == 2 && said.contains(why), "{}: {line}: {said}", wrong.escape_ascii());
        }
    }

    #[test]
    fn escapes_of_vis() {
        let plain = unescaped(br"a\040\s\#\\\M-a\^A\M^?").unwrap();
        assert_eq!(plain, b"a  #\\\xe1\x01\xff");
        assert_eq!(unescaped(br"\777"), None);
    }
}
