//! Lines, fields and numbers of manifests.

use std::borrow::Cow;

use cairn_base::names::Escaped;

use super::entry::Id;
pub(super) use crate::node::device;

/// A line of a manifest: its number and its bytes.
pub(super) type Line<'a> = (usize, &'a [u8]);

/// Why a line cannot be read.
pub(super) type Parsed<T> = Result<T, String>;

/// The lines that say something: neither empty nor a comment.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = Line<'_>> {
    let numbered = (1..).zip(text.split(|byte| *byte == b'\n'));
    numbered.filter(|(_, line)| {
        let begin = line.trim_ascii_start();
        !begin.is_empty() && !begin.starts_with(b"#")
    })
}

/// As [`lines`], with those joined that end in a backslash.
pub(super) fn joined(text: &[u8]) -> Vec<(usize, Cow<'_, [u8]>)> {
    let mut joined: Vec<(usize, Cow<'_, [u8]>)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let part = line.strip_suffix(b"\\");
        let begin = part.unwrap_or(line);
        match joined.last_mut().filter(|_| goes_on) {
            Some((_, whole)) => {
                let whole = whole.to_mut();
                whole.push(b' ');
                whole.extend_from_slice(begin);
            }
            // A comment ends with its line.
            None if begin.trim_ascii_start().starts_with(b"#") => continue,
            None => joined.push((number, Cow::Borrowed(begin))),
        }
        goes_on = part.is_some();
    }
    joined.retain(|(_, line)| !line.trim_ascii().is_empty());
    joined
}

/// The words of a line.
pub(super) fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty())
}

/// Text without its escapes. `escape` gets what follows a backslash, and returns the byte that it
/// means and how many bytes it has read. `None` if it means nothing.
pub(super) fn unescaped(
    text: &[u8],
    escape: impl Fn(&[u8]) -> Option<(u8, usize)>,
) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        let byte = if *first == b'\\' {
            let (byte, read) = escape(rest)?;
            rest = rest.get(read..)?;
            byte
        } else {
            *first
        };
        plain.push(byte);
    }
    Some(plain)
}

/// For messages.
pub(super) fn shown(word: &[u8]) -> String {
    const MOST: usize = 60;
    match word.get(..MOST) {
        Some(begin) if word.len() > MOST => format!("'{}…'", begin.escaped()),
        _ => format!("'{}'", word.escaped()),
    }
}

fn number(word: &[u8], radix: u32) -> Option<u64> {
    // `from_str_radix` takes a sign.
    let digits = std::str::from_utf8(word).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(digits, radix).ok()
}

/// A number in base 10.
pub(super) fn decimal(word: &[u8]) -> Parsed<u64> {
    number(word, 10).ok_or_else(|| format!("{} is not a decimal number", shown(word)))
}

/// A number of 32 bits in base 10.
pub(super) fn small(word: &[u8]) -> Parsed<u32> {
    let small = u32::try_from(decimal(word)?);
    small.map_err(|_| format!("{} is too large", shown(word)))
}

/// A number in base 16, perhaps with `0x` before it.
pub(super) fn hexadecimal(word: &[u8]) -> Parsed<u64> {
    let digits = word.strip_prefix(b"0x").or(word.strip_prefix(b"0X")).unwrap_or(word);
    number(digits, 16).ok_or_else(|| format!("{} is not a hexadecimal number", shown(word)))
}

/// An octal mode below `most`.
pub(super) fn octal(word: &[u8], most: u64) -> Parsed<u32> {
    let mode = number(word, 8).filter(|mode| *mode <= most);
    mode.and_then(|mode| u32::try_from(mode).ok())
        .ok_or_else(|| format!("{} is not an octal mode", shown(word)))
}

/// Permission bits.
pub(super) fn permissions(word: &[u8]) -> Parsed<u32> {
    octal(word, 0o7777)
}

/// An owner as a number.
pub(super) fn id(word: &[u8]) -> Parsed<u32> {
    match small(word)? {
        // It means "leave alone" to the kernel.
        u32::MAX => Err(format!("owner {} is not possible", shown(word))),
        id => Ok(id),
    }
}

/// An owner as a number, or by name.
pub(super) fn owner(word: &[u8]) -> Parsed<Id> {
    if word.iter().all(u8::is_ascii_digit) {
        return id(word).map(Id::Number);
    }
    match word.first() {
        Some(first) if first.is_ascii_alphabetic() || *first == b'_' => Ok(Id::Name(word.into())),
        _ => Err(format!("{} is neither a number nor a name", shown(word))),
    }
}

/// A device number as stat(2) gives it on Linux.
pub(super) fn device_number(number: u64) -> Parsed<u32> {
    let major = ((number >> 8) & 0xfff) | ((number >> 32) & !0xfff);
    let minor = (number & 0xff) | ((number >> 12) & !0xff & 0xffff_ffff);
    let parts = u32::try_from(major).ok().zip(u32::try_from(minor).ok());
    let (major, minor) = parts.ok_or_else(|| format!("device {number} is not possible"))?;
    device(major, minor)
}

/// The value of two hexadecimal digits.
pub(super) fn hex_byte(digits: &[u8]) -> Option<u8> {
    let byte = number(digits.get(..2)?, 16)?;
    u8::try_from(byte).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_they_look_like() {
        assert_eq!(decimal(b"12"), Ok(12));
        assert_eq!(permissions(b"04755"), Ok(0o4755));
        for wrong in [&b""[..], b"+1", b"-1", b"1x", b"18446744073709551616", b"\xff"] {
            assert!(decimal(wrong).is_err(), "{}", wrong.escape_ascii());
        }
        assert!(permissions(b"10000").is_err() && permissions(b"8").is_err());
        assert!(id(b"4294967295").is_err() && small(b"4294967296").is_err());
        assert_eq!(owner(b"daemon"), Ok(Id::Name((*b"daemon").into())));
        assert!(owner(b"").is_err() && owner(b"-1").is_err());
    }

    #[test]
    fn device_numbers_are_linux_s() {
        assert_eq!(device_number(0x103), device(1, 3));
        assert_eq!(device_number(0x10_0801), device(8, 257));
        assert!(device(4096, 0).is_err() && device_number(u64::MAX).is_err());
    }

    #[test]
    fn lines_keep_their_numbers() {
        let text = b"# no\n\na\\\n b\n# x\\\nc";
        let joined = joined(text);
        assert_eq!(joined.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [3, 6]);
        assert_eq!(&*joined[0].1, b"a  b");
        assert_eq!(lines(text).map(|(at, _)| at).collect::<Vec<_>>(), [3, 4, 6]);
    }
}
