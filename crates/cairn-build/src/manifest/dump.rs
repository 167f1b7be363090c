//! composefs-dump(5): a line for each file, with eleven fields and extended attributes.

use cairn_vfs::{FileKind, Timestamp};

use super::entry::{Act, Changes, Entry, Id, Missing, New, There};
use super::words::{self, Parsed, hex_byte, shown};
use crate::path::MemberPath;

/// Fields before the attributes.
const FIELDS: usize = 11;
/// Longest name and value of an attribute in Linux.
const NAME_MAX: usize = 255;
const VALUE_MAX: usize = 65_536;

/// True if a line says that its file has this form.
pub(super) fn is_line(line: &[u8]) -> bool {
    let fields: Vec<&[u8]> = line.splitn(FIELDS + 1, |byte| *byte == b' ').collect();
    let [path, size, mode, links, uid, gid, device, ..] = fields.as_slice() else { return false };
    let mode = mode.strip_prefix(b"@").unwrap_or(mode);
    fields.len() >= FIELDS
        && path.starts_with(b"/")
        && [size, links, uid, gid, device].iter().all(|field| words::decimal(field).is_ok())
        && words::octal(mode, 0o177_777).is_ok_and(|mode| mode > 0o7777)
}

/// The entries of a file.
///
/// # Errors
/// The number of a line that cannot be read, and why.
pub(super) fn parse(text: &[u8]) -> Result<Vec<Entry>, (usize, String)> {
    let lines = (1..).zip(text.split(|byte| *byte == b'\n')).filter(|(_, line)| !line.is_empty());
    lines.map(|(number, line)| entry(number, line).map_err(|why| (number, why))).collect()
}

fn entry(line: usize, text: &[u8]) -> Parsed<Entry> {
    let mut fields = text.split(|byte| *byte == b' ');
    let mut next = || fields.next().ok_or_else(|| format!("fewer than {FIELDS} fields"));
    let path = MemberPath::relative(&required(next()?)?)?;
    let size = words::decimal(next()?)?;
    let mode = next()?;
    words::decimal(next()?)?;
    let (uid, gid) = (words::id(next()?)?, words::id(next()?)?);
    let device = next()?;
    let mtime = time(next()?)?;
    let (payload, content) = (optional(next()?)?, optional(next()?)?);
    next()?;
    if let Some(mode) = mode.strip_prefix(b"@") {
        words::octal(mode, 0o177_777)?;
        let target = payload.ok_or("a hard link without a target")?;
        let act = Act::Link(MemberPath::relative(&target)?);
        return Ok(Entry { line, path, act, set: Changes::default() });
    }
    let mode = words::octal(mode, 0o177_777)?;
    let mut set = Changes {
        permissions: Some(mode & 0o7777),
        uid: Some(Id::Number(uid)),
        gid: Some(Id::Number(gid)),
        mtime: Some(mtime),
        xattrs: Vec::new(),
        all_xattrs: true,
    };
    for word in fields {
        let (name, value) = attribute(word)?;
        set.set_xattr(&name, value);
    }
    let device = || words::device_number(words::decimal(device)?);
    let new = match FileKind::from_mode(mode) {
        Some(FileKind::Directory) => New::Directory,
        Some(FileKind::Symlink) => New::Symlink(payload.ok_or("a symbolic link without a target")?),
        Some(FileKind::CharDevice) => New::CharDevice(device()?),
        Some(FileKind::BlockDevice) => New::BlockDevice(device()?),
        Some(FileKind::Fifo) => New::Fifo,
        Some(FileKind::Socket) => New::Socket,
        Some(FileKind::Regular) => match content {
            Some(bytes) if bytes.len() as u64 == size => New::Bytes(bytes),
            Some(bytes) => {
                return Err(format!("its size is {size}, but it holds {} bytes", bytes.len()));
            }
            None if size == 0 => New::Bytes(Vec::new()),
            None => {
                let kind = Some(FileKind::Regular);
                let act = Act::Change { kind, below: false, missing: Missing::Error };
                return Ok(Entry { line, path, act, set });
            }
        },
        None => return Err(format!("the mode {mode:o} has no type")),
    };
    Ok(Entry { line, path, act: Act::Put { new, there: There::Replace }, set })
}

/// `SECONDS.NANOSECONDS`, both whole numbers.
fn time(word: &[u8]) -> Parsed<Timestamp> {
    let wrong = || format!("{} is not a time", shown(word));
    let text = std::str::from_utf8(word).map_err(|_| wrong())?;
    let (seconds, nanoseconds) = text.split_once('.').ok_or_else(wrong)?;
    let seconds = seconds.parse().map_err(|_| wrong())?;
    let nanoseconds = words::small(nanoseconds.as_bytes()).map_err(|_| wrong())?;
    if nanoseconds > 999_999_999 {
        return Err(wrong());
    }
    Ok(Timestamp { seconds, nanoseconds })
}

fn attribute(word: &[u8]) -> Parsed<(Vec<u8>, Vec<u8>)> {
    let equals = word.iter().position(|byte| *byte == b'=');
    let (name, value) = equals
        .and_then(|at| Some((word.get(..at)?, word.get(at + 1..)?)))
        .ok_or_else(|| format!("{} is no attribute NAME=VALUE", shown(word)))?;
    let (name, value) = (unescaped(name)?, unescaped(value)?);
    if name.is_empty() || name.len() > NAME_MAX || name.contains(&0) || value.len() > VALUE_MAX {
        return Err(format!("the attribute {} is not possible", shown(&name)));
    }
    Ok((name, value))
}

fn required(word: &[u8]) -> Parsed<Vec<u8>> {
    if word.is_empty() {
        return Err("an empty field".into());
    }
    unescaped(word)
}

/// A field that `-` leaves out.
fn optional(word: &[u8]) -> Parsed<Option<Vec<u8>>> {
    if word == b"-" { Ok(None) } else { unescaped(word).map(Some) }
}

fn unescaped(text: &[u8]) -> Parsed<Vec<u8>> {
    let plain = words::unescaped(text, |escape| match escape.first()? {
        b'\\' => Some((b'\\', 1)),
        b'n' => Some((b'\n', 1)),
        b'r' => Some((b'\r', 1)),
        b't' => Some((b'\t', 1)),
        b'x' => Some((escape.get(1..).and_then(hex_byte)?, 3)),
        _ => None,
    });
    plain.ok_or_else(|| format!("{} has a wrong escape", shown(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_of_lines() {
        let text = b"/ 4096 40755 4 0 0 0 1.5 - - - user.a=b\\x00\n\
            /a\\x20b 5 100644 1 1000 1001 0 2.0 - a\\nb\\\\c -\n\
            /null 0 20666 1 0 0 259 0.0 - - -\n\
            /link 0 120777 1 0 0 0 0.0 /a\\x20b - -\n\
            /hard 5 @100644 2 0 0 0 0.0 /a\\x20b - -\n\
            /big 900 100600 1 0 0 0 0.0 ab/cd - 1234\n";
        let entries = parse(text).unwrap();
        assert_eq!(entries[0].path, MemberPath::default());
        assert_eq!(&*entries[0].set.xattrs[0].value, b"b\0");
        let Act::Put { new: New::Bytes(bytes), .. } = &entries[1].act else { panic!() };
        assert_eq!(bytes, b"a\nb\\c");
        assert!(matches!(entries[2].act, Act::Put { new: New::CharDevice(0x103), .. }));
        assert!(matches!(&entries[3].act, Act::Put { new: New::Symlink(to), .. } if to == b"/a b"));
        assert!(matches!(&entries[4].act, Act::Link(to) if to.bytes() == b"a b"));
        assert!(matches!(entries[5].act, Act::Change { missing: Missing::Error, .. }));
        assert!(text.split(|byte| *byte == b'\n').take(6).all(is_line));
    }

    #[test]
    fn lines_that_cannot_be_read() {
        for (wrong, why) in [
            (&b"/a 1 100644 1 0 0 0 0.0 - -"[..], "fields"),
            (b"/a 2 100644 1 0 0 0 0.0 - abc -", "3 bytes"),
            (b"/a 0 644 1 0 0 0 0.0 - - -", "no type"),
            (b"/a 0 100644 1 0 0 0 0 - - -", "time"),
            (b"/../a 0 100644 1 0 0 0 0.0 - - -", "'..'"),
            (b"/a 0 100644 1 0 0 0 0.0 - - - user.a", "NAME=VALUE"),
            (b"/a\\x2 0 100644 1 0 0 0 0.0 - - -", "escape"),
            (b"/a 0 @100644 1 0 0 0 0.0 - - -", "target"),
        ] {
            let (line, said) = parse(wrong).unwrap_err();
            assert!(line == 1 && said.contains(why), "{}: {said}", wrong.escape_ascii());
        }
    }
}
