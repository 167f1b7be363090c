//! The format of `stat -c`: stat(1)'s directives, parsed once.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use cairn_base::shell;
use cairn_vfs::{Attributes, FileKind, Timestamp};

use crate::print;

/// A parsed format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Directive(Directive),
}

/// `%`, flags, width, precision, letter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Directive {
    left: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
    letter: char,
}

/// Widest field.
const WIDEST: usize = 1024;
/// Directives that are known, for messages.
const LETTERS: &str = "aAbBfFgGhinNostTuUwWxXyYzZ";

/// A file to print.
pub(super) struct Subject<'a> {
    pub path: &'a [u8],
    pub attributes: &'a Attributes,
    pub target: Option<&'a [u8]>,
}

impl Format {
    /// Parses the argument of `-c`: a newline follows each file.
    ///
    /// # Errors
    /// A directive is unknown or too wide.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut format = Self::directives(text)?;
        format.0.push(Piece::Text("\n".into()));
        Ok(format)
    }

    /// Parses the argument of `--printf`: nothing follows, and `\n`, `\t`, `\0` and `\\` mean what
    /// they mean in C.
    ///
    /// # Errors
    /// As [`Format::parse`].
    pub fn parse_printf(text: &str) -> Result<Self, String> {
        let mut plain = String::with_capacity(text.len());
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match (letter, letter == '\\') {
                (_, true) => plain.push(match letters.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('0') => '\0',
                    Some('\\') | None => '\\',
                    Some(other) => {
                        return Err(format!("\\{other} is not known: give \\n, \\t, \\0 or \\\\"));
                    }
                }),
                (letter, false) => plain.push(letter),
            }
        }
        Self::directives(&plain)
    }

    fn directives(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                match pieces.last_mut() {
                    Some(Piece::Text(text)) => text.push(letter),
                    _ => pieces.push(Piece::Text(letter.into())),
                }
                continue;
            }
            let mut directive =
                Directive { left: false, zeros: false, width: 0, precision: None, letter: '%' };
            while let Some(flag) = letters.next_if(|letter| matches!(letter, '-' | '0')) {
                match flag {
                    '-' => directive.left = true,
                    _ => directive.zeros = true,
                }
            }
            directive.width = number(&mut letters)?.unwrap_or(0);
            if letters.next_if_eq(&'.').is_some() {
                directive.precision = Some(number(&mut letters)?.unwrap_or(9));
            }
            directive.letter =
                letters.next().ok_or("a letter must follow %, as in %n; %% is a per cent sign")?;
            if directive.letter != '%' && !LETTERS.contains(directive.letter) {
                let known: Vec<String> =
                    LETTERS.chars().map(|letter| format!("%{letter}")).collect();
                return Err(format!("%{} is not known: use {}", directive.letter, known.join(" ")));
            }
            pieces.push(Piece::Directive(directive));
        }
        Ok(Self(pieces))
    }

    /// The text for this file. Names are printed byte for byte.
    pub(super) fn of(&self, subject: &Subject<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => bytes.extend_from_slice(text.as_bytes()),
                Piece::Directive(directive) => directive.append(subject, &mut bytes),
            }
        }
        bytes
    }
}

fn number(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Option<usize>, String> {
    let mut digits = String::new();
    while let Some(digit) = letters.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    if digits.is_empty() {
        return Ok(None);
    }
    let width = digits.parse().ok().filter(|width| *width <= WIDEST);
    width.map(Some).ok_or_else(|| format!("{digits} is too wide: give at most {WIDEST}"))
}

impl Directive {
    fn append(&self, subject: &Subject<'_>, bytes: &mut Vec<u8>) {
        let of = subject.attributes;
        let time = |at: Timestamp| match self.precision {
            Some(digits) => format!("{}.{:.digits$}", at.seconds, Fraction(at.nanoseconds)),
            None => at.seconds.to_string(),
        };
        let (major, minor) = cairn_vfs::decode_device(of.device);
        let text = match self.letter {
            'a' => format!("{:o}", of.permissions),
            'A' => print::mode(of),
            'b' => of.sectors.to_string(),
            'B' => "512".into(),
            'f' => format!("{:x}", of.kind.mode_bits() | of.permissions),
            'F' => kind(of).into(),
            'g' | 'G' => of.gid.to_string(),
            'h' => of.links.to_string(),
            'i' => of.ino.to_string(),
            'n' => return self.pad(subject.path, bytes),
            'N' => return self.pad(&quoted(subject), bytes),
            'o' => of.block_size.to_string(),
            's' => of.size.to_string(),
            't' => format!("{major:x}"),
            'T' => format!("{minor:x}"),
            'u' | 'U' => of.uid.to_string(),
            'w' => of.crtime.map_or("-".into(), print::time_exact),
            'W' => of.crtime.map_or("0".into(), time),
            'x' => print::time_exact(of.atime),
            'X' => time(of.atime),
            'y' => print::time_exact(of.mtime),
            'Y' => time(of.mtime),
            'z' => print::time_exact(of.ctime),
            'Z' => time(of.ctime),
            _ => "%".into(),
        };
        self.pad(text.as_bytes(), bytes);
    }

    fn pad(&self, text: &[u8], bytes: &mut Vec<u8>) {
        let letters = String::from_utf8_lossy(text).chars().count();
        let missing = self.width.saturating_sub(letters);
        let is_number = text.iter().all(u8::is_ascii_digit);
        let fill = if self.zeros && is_number && !self.left { b'0' } else { b' ' };
        let padding = std::iter::repeat_n(fill, missing);
        match self.left {
            true => {
                bytes.extend_from_slice(text);
                bytes.extend(padding);
            }
            false => {
                bytes.extend(padding);
                bytes.extend_from_slice(text);
            }
        }
    }
}

/// Nanoseconds as the digits behind a point, cut to the precision.
struct Fraction(u32);

impl std::fmt::Display for Fraction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = format!("{:09}", self.0);
        let wanted = f.precision().unwrap_or(9);
        let cut: String = digits.chars().chain(std::iter::repeat('0')).take(wanted).collect();
        f.write_str(&cut)
    }
}

fn kind(of: &Attributes) -> &'static str {
    match of.kind {
        FileKind::Regular if of.size == 0 => "regular empty file",
        FileKind::Regular => "regular file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::BlockDevice => "block special file",
        FileKind::CharDevice => "character special file",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

fn quoted(subject: &Subject<'_>) -> Vec<u8> {
    let is_harmless = |name: &str| matches!(print::harmless(name), Cow::Borrowed(_));
    let quote = |name: &[u8]| match str::from_utf8(name).is_ok_and(is_harmless) {
        true => [b"'", name, b"'"].concat(),
        // As stat(1), as a shell reads it.
        false => shell::quoted(OsStr::from_bytes(name)).into_bytes(),
    };
    match subject.target {
        Some(target) => [quote(subject.path), b" -> ".to_vec(), quote(target)].concat(),
        None => quote(subject.path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_with_what_is_known() {
        for (text, why) in [
            ("%q", "%q is not known: use %a %A"),
            ("%", "a letter must follow"),
            ("%9999s", "at most"),
        ] {
            let said = Format::parse(text).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        assert!(Format::parse_printf("\\x").is_err() && Format::parse_printf("%%\\n").is_ok());
    }
}
